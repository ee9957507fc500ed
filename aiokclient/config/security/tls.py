"""Connections with TLS.

OpenSSL reads PEM texts only with lines of their own for each part. A PEM text in a properties file
is often one line, because a backslash at the end of a line continues it, and its lines may be
indented. Java's clients and brokers accept that, in files, too. So do these functions.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import ssl
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Final

from aiokclient.config.secret import Secret
from aiokclient.config.security.tls_limits import TlsLimits
from aiokclient.errors import ConfigError
from aiokclient.types import public_in


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Tls:
    """TLS, which by default trusts the certificates of the operating system.

    `cafile` or `cadata` has other trusted certificates. `certfile` and `keyfile` authenticate the
    client. They are paths of PEM files, and `certfile` may also contain the key. `certdata` and
    `keydata` have their contents instead. `password` decrypts the key. With
    `check_hostname=False`, the certificate chain is still verified. `strict=False` switches off
    VERIFY_X509_STRICT, which Python applies from version 3.13 on, and which refuses, for example, a
    certificate authority without key usage. A `context` replaces all other arguments.

    When the files are replaced, new connections use the new files. If the new files cannot be used,
    the client continues with the contents of the old ones and logs a warning.
    """

    cafile: str | None = None
    cadata: Secret | None = dataclasses.field(default=None, repr=False)
    certfile: str | None = None
    keyfile: str | None = None
    certdata: Secret | None = dataclasses.field(default=None, repr=False)
    keydata: Secret | None = dataclasses.field(default=None, repr=False)
    password: Secret | None = dataclasses.field(default=None, repr=False)
    check_hostname: bool = True
    strict: bool = True
    context: ssl.SSLContext | None = None
    limits: TlsLimits | None = dataclasses.field(default=None, init=False, repr=False)
    """The versions and cipher suites that Kafka's options allow, or None for the defaults."""

    sasl_mechanism: ClassVar[str | None] = None
    """The SASL mechanism, as in `Plaintext`."""
    sasl_identity: ClassVar[str | None] = None
    """The name of the user, as in `Plaintext`."""

    def __init__(
        self,
        *,
        cafile: str | os.PathLike[str] | None = None,
        cadata: str | Secret | None = None,
        certfile: str | os.PathLike[str] | None = None,
        keyfile: str | os.PathLike[str] | None = None,
        certdata: str | Secret | None = None,
        keydata: str | Secret | None = None,
        password: str | Secret | None = None,
        check_hostname: bool = True,
        strict: bool = True,
        context: ssl.SSLContext | None = None,
    ) -> None:
        cadata, password = laid_out(Secret.of(cadata)), Secret.of(password)
        certdata, keydata = laid_out(Secret.of(certdata)), laid_out(Secret.of(keydata))
        cafile, certfile, keyfile = _path(cafile), _path(certfile), _path(keyfile)
        given = locals() | {"limits": None}
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, given[field.name])
        self._check_arguments()

    def _check_arguments(self) -> None:
        names = ("cafile", "cadata", "certfile", "keyfile", "certdata", "keydata", "password")
        given = {name for name in names if getattr(self, name) is not None}
        if self.context is not None and given:
            raise ConfigError("Tls: Give either context or the files, not both.")
        self._check_types(given)
        for file, data in (("certfile", "certdata"), ("keyfile", "keydata")):
            if given >= {file, data}:
                raise ConfigError(f"Tls: Give either {file} or {data}, not both.")
        if not given & {"certfile", "certdata"} and given & {"keyfile", "keydata", "password"}:
            raise ConfigError(
                "Tls: keyfile, keydata, and password need certfile or certdata, the client's "
                "certificate."
            )

    def _check_types(self, given: Collection[str]) -> None:
        for name in ("cadata", "certdata", "keydata", "password"):
            if name in given and not getattr(self, name).is_text:
                raise ConfigError(f"Tls: {name} must be a string or None.")
        for name in ("cafile", "certfile", "keyfile"):
            if name in given and not isinstance(getattr(self, name), str):
                raise ConfigError(f"Tls: {name} must be the path of a file, or None.")
        for name in sorted(given):
            # With an empty text, the module ssl would trust the operating system's certificates.
            if name != "password" and not getattr(self, name):
                raise ConfigError(f"Tls: {name} must not be empty. Leave it out instead.")
        for name in ("check_hostname", "strict"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"Tls: {name} must be True or False.")
        if self.context is not None and not _is_for_clients(self.context):
            raise ConfigError(
                "Tls: context must be an ssl.SSLContext for clients, such as "
                "ssl.create_default_context(), or None."
            )

    def with_limits(self, limits: TlsLimits | None) -> Tls:
        """Return a copy with other limits."""
        made = copy.copy(self)
        object.__setattr__(made, "limits", limits)
        return made

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files."""
        paths = (self.cafile, self.certfile, self.keyfile)
        return tuple(path for path in paths if path is not None)

    @property
    def has_certificate(self) -> bool | None:
        """Whether the client has a certificate. None if that is not known."""
        if self.context is not None:
            return None
        return self.certfile is not None or self.certdata is not None

    def scrub_text(self, text: str) -> str:
        """Return a text of a broker without the secrets of this object."""
        return text

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for the client. Blocking, because it reads files: call it in a thread.

        Raises ConfigError, which names the file that is missing or cannot be used.
        """
        if self.context is not None:
            return self.context
        context = self._make_trusting_context()
        context.check_hostname = self.check_hostname
        if not self.strict:
            # From Python 3.13 on, contexts check RFC 5280 strictly, which certificates of many
            # private authorities do not pass.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.limits is not None:
            self._apply_limits(context, self.limits)
        if self.has_certificate:
            self._load_own_certificate(context)
        return context

    def _make_trusting_context(self) -> ssl.SSLContext:
        cafile, data = self.cafile, self.cadata
        if cafile is not None and (text := laid_out_file(cafile)) is not None:
            cafile = None
            data = text if data is None else Secret(data.reveal() + text.reveal())
        try:
            return ssl.create_default_context(
                cafile=cafile, cadata=None if data is None else data.reveal()
            )
        except (OSError, ValueError) as error:  # OSError includes ssl.SSLError.
            where = self.cafile or "cadata"
            raise ConfigError(
                f"The trusted certificates in {where} cannot be loaded ({error}). They must be "
                "in a readable file in PEM format."
            ) from error.with_traceback(None)  # The traceback would show cadata.

    def _apply_limits(self, context: ssl.SSLContext, limits: TlsLimits) -> None:
        try:
            limits.apply_to(context)
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl_cipher_suites: {ssl.OPENSSL_VERSION} has none of these suites."
            ) from error

    def _load_own_certificate(self, context: ssl.SSLContext) -> None:
        certificate = self.certfile or "certdata"
        key = self.keyfile or ("keydata" if self.keydata is not None else certificate)
        # Without this password, OpenSSL would prompt for one on the terminal and block.
        password = self.password or Secret("")
        try:
            with ExitStack() as files:
                certfile = _readable(self.certfile, self.certdata, files)
                keyfile = _readable(self.keyfile, self.keydata, files)
                assert certfile is not None
                context.load_cert_chain(certfile, keyfile, password.reveal)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The client's certificate in {certificate} or its key in "
                f"{key} cannot be loaded ({error}). Both must be in PEM "
                "format, and an encrypted key needs its password."
            ) from error


def _path(given: str | os.PathLike[str] | None) -> str | None:
    """Return a path as a string. Other values are returned as they are."""
    path: str | None = os.fspath(given) if isinstance(given, os.PathLike) else given
    return path


def _is_for_clients(context: object) -> bool:
    return isinstance(context, ssl.SSLContext) and context.protocol != ssl.PROTOCOL_TLS_SERVER


def _readable(path: str | None, data: Secret | None, files: ExitStack) -> str | None:
    """Return the path of a file for OpenSSL, which exists until `files` is closed."""
    content = data if data is not None or path is None else laid_out_file(path)
    return path if content is None else files.enter_context(_file(content))


@contextmanager
def _file(content: Secret) -> Iterator[str]:
    """Write a secret to a file that only this user can read, because OpenSSL reads only files."""
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix="aiokclient-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode())
        yield path
    finally:
        os.unlink(path)


_BLOCK: Final = re.compile(
    r"\s*-+BEGIN\s+(?P<label>[^-]*?)\s*-+\s+"
    r"(?P<headers>(?:[^\r\n:]*:[^\r\n]*[\r\n]+)*)"
    r"(?P<base64>[A-Za-z0-9/+=\s]*)"
    r"-+END\s+[^-]*-+"
)
_CONTINUED: Final = re.compile(r"\\[ \t]*\r?\n")
_WIDTH: Final = 64


def laid_out(text: Secret | None) -> Secret | None:
    """Return a PEM text with the usual lines. Any other text is returned as it is. Never raises."""
    if text is None or not text.is_text:
        return text
    return Secret(_BLOCK.sub(_lay_out, text.reveal()))


def laid_out_file(path: str) -> Secret | None:
    """Return the PEM parts of a file whose lines OpenSSL does not read.

    Return None for a file that OpenSSL reads, or that cannot be read at all. Blocking.
    """
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            given = file.read()
    except OSError:
        return None
    text = _CONTINUED.sub("\n", given)
    blocks = list(_BLOCK.finditer(text))
    parts = [_lay_out(block) for block in blocks]
    if text == given and all(map(_has_usual_lines, blocks, parts)):
        return None
    return Secret("".join(parts))


def _has_usual_lines(block: re.Match[str], part: str) -> bool:
    return [line.rstrip() for line in block[0].strip("\r\n").split("\n")] == part.split("\n")[1:-1]


def _lay_out(block: re.Match[str]) -> str:
    label = " ".join(block["label"].split())
    headers = [line.strip() for line in block["headers"].splitlines() if line.strip()]
    body = "".join(block["base64"].split())
    lines = [body[start : start + _WIDTH] for start in range(0, len(body), _WIDTH)]
    between = [*headers, ""] if headers else []
    return "\n".join(
        ["", f"-----BEGIN {label}-----", *between, *lines, f"-----END {label}-----", ""]
    )

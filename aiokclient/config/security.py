"""The security of connections: plaintext or TLS."""

from __future__ import annotations

import dataclasses
import ssl
from typing import ClassVar, TypeAlias

from aiokclient.errors import ConfigError

__all__ = ["Plaintext", "Security", "Tls"]


@dataclasses.dataclass(frozen=True, slots=True)
class Plaintext:
    """No encryption and no authentication."""

    sasl_mechanism: ClassVar[str | None] = None
    """The SASL mechanism, for which this object has the credentials, or None."""

    def ssl_context(self) -> None:
        """Return None: connections are not encrypted."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS, which by default trusts the certificates of the operating system.

    `cafile` or `cadata` has other trusted certificates. `certfile` and `keyfile` authenticate the
    client. They are PEM files, and `certfile` may also contain the key. `password` decrypts the
    key. With `check_hostname=False`, the certificate chain is still verified. A `context` replaces
    all other arguments.
    """

    cafile: str | None = None
    cadata: str | None = dataclasses.field(default=None, repr=False)
    certfile: str | None = None
    keyfile: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    check_hostname: bool = True
    context: ssl.SSLContext | None = None

    sasl_mechanism: ClassVar[str | None] = None
    """The SASL mechanism, as in `Plaintext`."""

    def __post_init__(self) -> None:
        others = (self.cafile, self.cadata, self.certfile, self.keyfile, self.password)
        if self.context is not None and any(other is not None for other in others):
            raise ConfigError("Tls: Give either context or the files, not both.")
        if self.certfile is None and (self.keyfile or self.password):
            raise ConfigError("Tls: keyfile and password need certfile, the client's certificate.")

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for the client. Blocking, because it reads files: call it in a thread.

        Raises ConfigError, which names the file that is missing or cannot be used.
        """
        if self.context is not None:
            return self.context
        context = self._trusting()
        context.check_hostname = self.check_hostname
        if self.certfile is not None:
            self._load_own_certificate(context, self.certfile)
        return context

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.cafile, cadata=self.cadata)
        except (OSError, ValueError) as error:  # OSError includes ssl.SSLError.
            where = self.cafile or "cadata"
            raise ConfigError(
                f"The trusted certificates in {where} cannot be loaded ({error}). They must be "
                "in a readable file in PEM format."
            ) from error

    def _load_own_certificate(self, context: ssl.SSLContext, certfile: str) -> None:
        # Without this password, OpenSSL would prompt for one on the terminal and block.
        password = self.password or ""
        try:
            context.load_cert_chain(certfile, self.keyfile, lambda: password)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The client's certificate in {certfile} or its key in "
                f"{self.keyfile or certfile} cannot be loaded ({error}). Both must be in PEM "
                "format, and an encrypted key needs its password."
            ) from error


Security: TypeAlias = Plaintext | Tls

"""Authentication by SASL: one class for each mechanism, with its credentials."""

from __future__ import annotations

import dataclasses
import re
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeAlias

from aiokclient.config.secret import Secret
from aiokclient.config.security.plaintext import Plaintext
from aiokclient.config.security.scram_keys import ScramKeyCache
from aiokclient.config.security.tls import Tls
from aiokclient.errors import ConfigError
from aiokclient.types import public_in

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_SERVICE = re.compile(r"[^/@\s]+")
_HOST = _SERVICE
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


class _Sasl:
    """The common base of the classes of this module."""

    __slots__ = ()

    tls: Tls | None

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return a context for the client, or None without TLS. Blocking: call it in a thread.

        Raises ConfigError, which names the file that is missing or cannot be used.
        """
        return None if self.tls is None else self.tls.ssl_context()

    def scrub_text(self, text: str) -> str:
        """Return a text of a broker without the secrets of this object."""
        return text

    def _set_fields(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


class _WithPassword(_Sasl):
    """The common base of the classes with a user and a password."""

    __slots__ = ()

    user: str
    password: Secret

    @property
    def sasl_identity(self) -> str:
        """The name of the user in error texts."""
        return self.user

    def scrub_text(self, text: str) -> str:
        """Return a text of a broker without the password."""
        return self.password.scrub_text(text)


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class SaslPlain(_WithPassword):
    """The mechanism PLAIN, which sends the password to the broker.

    Use it with `tls`. Without `tls`, the password is sent unencrypted.
    """

    user: str
    password: Secret = dataclasses.field(repr=False)
    tls: Tls | None = None

    sasl_mechanism: ClassVar[str] = "PLAIN"

    def __init__(
        self, user: str, password: str | Secret, tls: Tls | ssl.SSLContext | None = None
    ) -> None:
        password = Secret(password)
        self._set_fields(user=user, password=password, tls=_tls("SaslPlain", tls))
        _check_credentials("SaslPlain", user, password)
        if "\0" in user or _has_nul(password):
            raise ConfigError("SaslPlain: The user and the password must not contain NUL.")


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class SaslScram(_WithPassword):
    """The mechanism SCRAM-SHA-512 or SCRAM-SHA-256, which does not send the password.

    With `token_auth=True`, the user is the id of a delegation token, and the password is its HMAC
    in base64 (KIP-48).
    """

    user: str
    password: Secret = dataclasses.field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    token_auth: bool = False
    tls: Tls | None = None
    keys: ScramKeyCache = dataclasses.field(
        default_factory=ScramKeyCache, repr=False, compare=False
    )

    def __init__(
        self,
        user: str,
        password: str | Secret,
        mechanism: str = "SCRAM-SHA-512",
        token_auth: bool = False,
        tls: Tls | ssl.SSLContext | None = None,
    ) -> None:
        password = Secret(password)
        name = mechanism.upper() if isinstance(mechanism, str) else mechanism
        self._set_fields(user=user, password=password, mechanism=name, token_auth=token_auth)
        self._set_fields(tls=_tls("SaslScram", tls), keys=ScramKeyCache())
        _check_credentials("SaslScram", user, password)
        if name not in SCRAM_MECHANISMS:
            raise ConfigError(
                f"SaslScram: mechanism: {mechanism!r} is not allowed. It must be one of "
                f"{' and '.join(map(repr, SCRAM_MECHANISMS))}."
            )
        if not isinstance(token_auth, bool):
            raise ConfigError("SaslScram: token_auth must be True or False.")

    @property
    def sasl_mechanism(self) -> str:
        """The SASL mechanism."""
        return self.mechanism


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class OAuthToken:
    """A token for OAUTHBEARER, which a token provider returns.

    `expires_at_ms` is in milliseconds since the epoch. `principal` is a name for error texts.
    `extensions` are sent to the broker with the token (KIP-342).
    """

    token: Secret = dataclasses.field(repr=False)
    expires_at_ms: int
    principal: str | None = None
    extensions: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    def __init__(
        self,
        token: str | Secret,
        expires_at_ms: int,
        principal: str | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        token = Secret(token)
        if not isinstance(extensions, Mapping | None):
            raise ConfigError("OAuthToken: extensions must be a mapping or None.")
        extensions = MappingProxyType(dict(extensions or {}))
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, locals()[field.name])
        if not (token.is_text and _matches(_TOKEN, token)):
            raise ConfigError(
                "OAuthToken: token must be a string of letters, digits, and the characters -._~+/, "
                "perhaps with = at its end."
            )
        if isinstance(expires_at_ms, bool) or not isinstance(expires_at_ms, int):
            raise ConfigError("OAuthToken: expires_at_ms must be an integer.")
        if principal is not None and not isinstance(principal, str):
            raise ConfigError("OAuthToken: principal must be a string or None.")
        for name, value in extensions.items():
            if name == "auth" or not (_is(_EXTENSION_NAME, name) and _is(_EXTENSION_VALUE, value)):
                raise ConfigError(
                    "OAuthToken: extensions must map names of letters, except 'auth', to printable "
                    "texts."
                )


TokenProvider: TypeAlias = Callable[[], Awaitable[OAuthToken]]
"""An async function that returns a token."""


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class SaslOAuthBearer(_Sasl):
    """The mechanism OAUTHBEARER, with the tokens that an async function returns.

    The function `token_provider` is called without arguments and returns an `OAuthToken`. The
    client calls it once for all its connections, and again before the token expires. If it fails
    or takes long, the client tries again, and uses the old token until that has expired.
    """

    token_provider: TokenProvider
    tls: Tls | None = None

    sasl_mechanism: ClassVar[str] = "OAUTHBEARER"
    sasl_identity: ClassVar[str | None] = None

    def __init__(
        self, token_provider: TokenProvider, tls: Tls | ssl.SSLContext | None = None
    ) -> None:
        self._set_fields(token_provider=token_provider, tls=_tls("SaslOAuthBearer", tls))
        if not callable(token_provider):
            raise ConfigError("SaslOAuthBearer: token_provider must be an async function.")


@public_in("aiokclient")
@dataclasses.dataclass(frozen=True, slots=True, init=False)
class SaslGssapi(_Sasl):
    """The mechanism GSSAPI: Kerberos, with the tickets of a keytab or of a ticket cache.

    The brokers have the principals `service_name`/host. `domain_name` replaces the host of their
    addresses, if their principals have another one. `principal` is the name of the client, by
    default the first one in the keytab or the one of the ticket cache. With `keytab`, the path of a
    keytab, the client gets its tickets itself, and renews them. Otherwise it uses the tickets in
    the ticket cache of the process, or in `ticket_cache` (a path, or a name such as KCM:). Another
    program must renew these tickets. Kerberos only authenticates: `tls` encrypts.

    Needs the package gssapi (the extra `gssapi`) and the Kerberos library of the system.
    """

    service_name: str = "kafka"
    principal: str | None = None
    keytab: str | None = None
    tls: Tls | None = None
    ticket_cache: str | None = None
    domain_name: str | None = None
    memory_cache: str = dataclasses.field(default="", repr=False, compare=False)
    """The name of the cache in memory for tickets that are obtained with the keytab."""

    sasl_mechanism: ClassVar[str] = "GSSAPI"

    def __init__(
        self,
        service_name: str = "kafka",
        principal: str | None = None,
        keytab: str | None = None,
        tls: Tls | ssl.SSLContext | None = None,
        *,
        ticket_cache: str | None = None,
        domain_name: str | None = None,
    ) -> None:
        self._set_fields(domain_name=domain_name)
        self._set_fields(service_name=service_name, principal=principal, keytab=keytab)
        self._set_fields(
            ticket_cache=ticket_cache, memory_cache=f"MEMORY:aiokclient-{uuid.uuid4().hex}"
        )
        self._set_fields(tls=_tls("SaslGssapi", tls))
        if not _is(_SERVICE, service_name):
            raise ConfigError(
                "SaslGssapi: service_name must be a name such as kafka, without / or @."
            )
        if domain_name is not None and not _is(_HOST, domain_name):
            raise ConfigError(
                "SaslGssapi: domain_name must be a host name such as kafka.example.com, or None."
            )
        for name in ("principal", "keytab", "ticket_cache"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigError(
                    f"SaslGssapi: {name} must be a string that is not empty, or None."
                )
        if keytab is not None and ticket_cache is not None:
            raise ConfigError("SaslGssapi: Give either keytab or ticket_cache, not both.")
        if find_spec("gssapi") is None:
            raise ConfigError(
                "SaslGssapi: GSSAPI needs the package gssapi, and the headers of Kerberos to "
                "install it (libkrb5-dev). Install it by `pip install aiokclient[gssapi]`."
            )

    @property
    def sasl_identity(self) -> str | None:
        """The name of the user in error texts, or None if the ticket determines it."""
        return self.principal


Security: TypeAlias = Plaintext | Tls | SaslPlain | SaslScram | SaslOAuthBearer | SaslGssapi
"""The security of connections, with or without SASL."""


def _tls(owner: str, given: object) -> Tls | None:
    if isinstance(given, ssl.SSLContext):
        return Tls(context=given)
    if given is None or isinstance(given, Tls):
        return given
    raise ConfigError(f"{owner}: tls must be Tls(...), an ssl.SSLContext, or None.")


def _check_credentials(owner: str, user: object, password: Secret) -> None:
    if not (isinstance(user, str) and user and Secret(user).is_unicode):
        raise ConfigError(f"{owner}: user must be a string that is not empty.")
    if not (password.is_text and password and password.is_unicode):
        raise ConfigError(f"{owner}: password must be a string that is not empty.")


def _is(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _matches(pattern: re.Pattern[str], text: Secret) -> bool:
    return pattern.fullmatch(text.reveal()) is not None


def _has_nul(text: Secret) -> bool:
    return "\0" in text.reveal()

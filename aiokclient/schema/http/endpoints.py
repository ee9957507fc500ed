"""The URLs of a schema registry, the credentials of a client there, and calls without their URL.

A URL may contain a user and a password, so the text that the program gives is a secret. No function
that raises an error has it in a local variable.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

from aiokclient.config.secret import Secret
from aiokclient.errors import ConfigError
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.config.security import Tls

EXAMPLE: Final = "such as http://registry:8081"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?")
_RESERVED: Final = (
    *("accept", "accept-encoding", "authorization", "connection", "content-length"),
    *("content-type", "host", "transfer-encoding"),
)


class Credentials(NamedTuple):
    """A user and a password, as the value of the header Authorization."""

    header: Secret
    encoded: Secret
    """The part of the header that is the user and the password, in base64."""
    password: Secret

    def scrub_text(self, text: str) -> str:
        """Return a text of a registry without the credentials."""
        return self.password.scrub_text(self.encoded.scrub_text(text))


class Endpoint(NamedTuple):
    """One URL of a registry."""

    url: str
    """The URL without credentials and without a slash at its end."""
    host: str
    port: int
    has_tls: bool
    path: str
    """The path before that of each call, encoded. It is empty, or begins with a slash."""
    basic: Credentials | None
    """The user and the password in the URL, or None."""

    @property
    def is_readable(self) -> bool:
        """Whether others in the network can read what is sent there."""
        return not self.has_tls and self.host not in _LOCAL


def parse_urls(urls: Secret) -> tuple[Endpoint, ...]:
    """Return the endpoints of a text with commas, or of a sequence of texts.

    Raises ConfigError, which does not show the user and the password of a URL.
    """
    parsed = _parse_all(urls)
    if isinstance(parsed, str):
        raise ConfigError(f"SchemaRegistry: {parsed}")
    return parsed


def parse_proxy(url: Secret | None) -> Endpoint | None:
    """Return the proxy of a URL, or None. Raises ConfigError, which does not show the password."""
    if url is None:
        return None
    parsed = _parse_proxy(url)
    if isinstance(parsed, str):
        raise ConfigError(f"SchemaRegistry: {parsed}")
    return parsed


def _parse_proxy(url: Secret) -> Endpoint | str:
    """Return a proxy, or the problem as a sentence. This does not raise."""
    if not isinstance(url._value, str):
        return "proxy must be a URL such as http://proxy:3128."
    parsed = _parse(url)
    if isinstance(parsed, str):
        return f"proxy {parsed}".replace(EXAMPLE, "such as http://proxy:3128")
    if parsed.has_tls or parsed.path:
        return "proxy must be a URL such as http://proxy:3128, without a path and without https."
    return parsed


def _parse_all(urls: Secret) -> tuple[Endpoint, ...] | str:
    """Return the endpoints, or the problem as a sentence. This does not raise."""
    given: Any = urls._value
    if isinstance(given, str):
        given = [each for each in map(str.strip, given.split(",")) if each]
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        return f"urls must be a string or a sequence of strings, {EXAMPLE}."
    found = list(given)
    if not found:
        return f"urls is empty. Give at least one URL, {EXAMPLE}."
    endpoints = [
        _parse(Secret(each)) if isinstance(each, str) else f"must be a string, {EXAMPLE}."
        for each in found
    ]
    for number, each in enumerate(endpoints, start=1):
        if isinstance(each, str):
            return f"URL {number} of {len(found)} {each}"
    return tuple(dict.fromkeys(each for each in endpoints if isinstance(each, Endpoint)))


def _parse(url: Secret) -> Endpoint | str:
    """Return an endpoint, or the end of a sentence about its problem. This does not raise."""
    try:
        parts = urlsplit(url.reveal().strip())
        port = parts.port
    except ValueError:
        return f"is not a URL {EXAMPLE}."
    if parts.scheme not in ("http", "https"):
        return f"does not begin with http:// or https://. It must be a URL {EXAMPLE}."
    if not parts.hostname or not parts.hostname.isprintable() or " " in parts.hostname:
        return f"has no host. It must be a URL {EXAMPLE}."
    if parts.query or parts.fragment:
        return "has a query or a fragment. Give it without them."
    if not parts.path.isascii() or not parts.path.isprintable() or " " in parts.path:
        return "has a path with characters that must be percent-encoded."
    return _endpoint(parts, port)


def _endpoint(parts: SplitResult, port: int | None) -> Endpoint | str:
    host = parts.hostname or ""
    try:
        host = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return "has a host that is not a valid name."
    has_tls = parts.scheme == "https"
    shown = f"[{host}]" if ":" in host else host
    path = parts.path.rstrip("/")
    place = "" if port is None else f":{port}"
    basic = None
    if parts.username is not None:
        basic = _basic(unquote(parts.username), unquote(parts.password or ""))
    return Endpoint(
        f"{parts.scheme}://{shown}{place}{path}",
        host,
        port or (443 if has_tls else 80),
        has_tls,
        path,
        basic,
    )


def _basic(user: str, password: str) -> Credentials:
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return Credentials(Secret(f"Basic {encoded}"), Secret(encoded), Secret(password))


def parse_basic_auth(given: Secret | None) -> Credentials | None:
    """Return the credentials of a pair, or of a text `user:password`.

    Raises ConfigError for anything else.
    """
    if given is None:
        return None
    value = _basic_of(given)
    if value is None:
        raise ConfigError(
            "SchemaRegistry: basic_auth must be a pair of a user without a colon and a password, "
            'or a string "user:password".'
        )
    return value


def _basic_of(given: Secret) -> Credentials | None:
    """Return the credentials, or None for a wrong argument. This does not raise."""
    value: Any = given._value
    if isinstance(value, str):
        user, colon, password = value.partition(":")
        value = (user, password) if colon else ()
    if not (isinstance(value, tuple | list) and len(value) == 2):
        return None
    user, password = (each.reveal() if isinstance(each, Secret) else each for each in value)
    if not (isinstance(user, str) and isinstance(password, str)) or ":" in user:
        return None
    if not Secret(user + password).is_unicode:
        return None
    return _basic(user, password)


def parse_headers(given: Secret | None) -> tuple[tuple[str, Secret], ...]:
    """Return the additional headers of each request. Raises ConfigError for invalid ones."""
    if given is None:
        return ()
    parsed = _headers_of(given)
    if isinstance(parsed, str):
        raise ConfigError(f"SchemaRegistry: {parsed}")
    return parsed


def _headers_of(given: Secret) -> tuple[tuple[str, Secret], ...] | str:
    """Return the headers, or the problem as a sentence. This does not raise."""
    headers: Any = given._value
    if not isinstance(headers, Mapping):
        return "headers must be a mapping of names to texts."
    made = []
    for number, (name, value) in enumerate(headers.items(), start=1):
        if not (isinstance(name, str) and _HEADER_NAME.fullmatch(name)):
            return f"The name of header {number} is not allowed."
        if name.lower() in _RESERVED:
            return (
                f"The header {name} is made by the client. Use basic_auth or token_provider to "
                "authenticate."
            )
        text = value.reveal() if isinstance(value, Secret) else value
        if not (isinstance(text, str) and _HEADER_VALUE.fullmatch(text)):
            return f"The value of the header {name} must be a string of printable ASCII characters."
        made.append((name, Secret(text)))
    return tuple(made)


def check_credentials(
    endpoints: Iterable[Endpoint], basic: Credentials | None, token_provider: object
) -> None:
    """Raise ConfigError if there are several kinds of credentials, or no token provider."""
    if token_provider is not None and not callable(token_provider):
        raise ConfigError(
            "SchemaRegistry: token_provider must be an async function that returns an OAuthToken."
        )
    given = {
        "basic_auth": basic is not None,
        "token_provider": token_provider is not None,
        "a user in the URL": any(each.basic is not None for each in endpoints),
    }
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise ConfigError(f"SchemaRegistry: Give only one of {' and '.join(names)}.")


def choose_tls(endpoints: Iterable[Endpoint], security: object) -> Tls | None:
    """Return the TLS of https URLs, or None without any. Raises ConfigError if it is wrong."""
    has_tls = any(each.has_tls for each in endpoints)
    if security is None and not has_tls:
        return None
    import ssl

    from aiokclient.config.security import Tls

    if isinstance(security, ssl.SSLContext):
        security = Tls(context=security)
    if security is not None and not isinstance(security, Tls):
        raise ConfigError(
            "SchemaRegistry: security must be a Tls or an ssl.SSLContext. Users and passwords are "
            "given as basic_auth, tokens as token_provider."
        )
    if not has_tls:
        raise ConfigError(
            "SchemaRegistry: security is given, but no URL begins with https://, so that nothing "
            "would be encrypted."
        )
    return Tls() if security is None else security


class Call(NamedTuple):
    """A request without its URL."""

    method: str
    path: str
    """The encoded path below the URL of the registry, with the query."""
    content: bytes | None
    is_repeatable: bool


def make_call(
    method: str,
    *segments: str | int,
    query: Mapping[str, str | int | bool | None] | None = None,
    body: Mapping[str, Any] | None = None,
) -> Call:
    """Return a call of a path, whose segments are encoded here.

    Entries of the query whose value is None or False are left out.
    """
    path = "".join(f"/{quote(str(each), safe='')}" for each in segments)
    given = {
        name: "true" if value is True else value
        for name, value in (query or {}).items()
        if value is not None and value is not False
    }
    if given:
        path += f"?{urlencode(given)}"
    content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    return Call(method, path, content, method != "DELETE")

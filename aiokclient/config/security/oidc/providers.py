"""The token providers: the OAuth grants client_credentials and jwt-bearer, and tokens in files.

A client can identify itself to a token endpoint by an assertion (RFC 7523), a signed statement. It
is read from a file, or made and signed with a private key. Both files are read again for each
request, so that they can be replaced.
"""

from __future__ import annotations

import json
import ssl
import time
import uuid
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import quote_plus, urlencode

from aiokclient import threads
from aiokclient.config.secret import Secret, hide_secrets
from aiokclient.config.security.oidc.endpoint import Endpoint
from aiokclient.config.security.oidc.response import Claims, token_from_reply, token_from_text
from aiokclient.config.security.sasl import OAuthToken
from aiokclient.config.security.tls import Tls
from aiokclient.errors import ConfigError, TokenProviderError
from aiokclient.types import public_in

MAX_FILE: Final = 1024 * 1024
ALGORITHMS: Final = ("RS256", "ES256")
LONGEST_S: Final = 86_400
EARLIEST_S: Final = 3_600


def read_secret(path: str) -> Secret:
    """Return the content of a file, at most 1 MiB. Blocking.

    Raises TokenProviderError if it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return Secret(file.read(MAX_FILE).decode("utf-8-sig", "replace"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise TokenProviderError(f"The file {path} cannot be read: {reason}.") from error


class AssertionOptions(TypedDict, total=False):
    """The arguments of `Assertion`."""

    assertion_file: str | None
    private_key_file: str | None
    private_key_passphrase: str | Secret | None
    algorithm: str
    audience: str | None
    issuer: str | None
    subject: str | None
    lifetime_s: int
    not_before_s: int
    include_jti: bool
    template_file: str | None


class Assertion:
    """A source of assertions. See `OidcJwtBearer` for the arguments."""

    def __init__(
        self,
        *,
        assertion_file: str | None = None,
        private_key_file: str | None = None,
        private_key_passphrase: str | Secret | None = None,
        algorithm: str = "RS256",
        audience: str | None = None,
        issuer: str | None = None,
        subject: str | None = None,
        lifetime_s: int = 300,
        not_before_s: int = 60,
        include_jti: bool = False,
        template_file: str | None = None,
    ) -> None:
        private_key_passphrase = Secret.of(private_key_passphrase)
        if (assertion_file is None) == (private_key_file is None):
            raise ConfigError("Give either assertion_file or private_key_file.")
        if private_key_passphrase is not None and not private_key_passphrase.is_text:
            raise ConfigError("private_key_passphrase must be a string or None.")
        self._algorithm = algorithm.upper() if isinstance(algorithm, str) else algorithm
        if self._algorithm not in ALGORITHMS:
            raise ConfigError(
                f"algorithm: {algorithm!r} is not allowed. It must be RS256 or ES256."
            )
        for name, value, most in (
            ("lifetime_s", lifetime_s, LONGEST_S),
            ("not_before_s", not_before_s, EARLIEST_S),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ConfigError(f"{name} must be an integer from 0 to {most}.")
        if private_key_file is not None and find_spec("cryptography") is None:
            raise ConfigError(
                "Signing an assertion needs the package cryptography. Install it by "
                "`pip install aiokclient[oidc]`."
            )
        claims = {"aud": audience, "iss": issuer, "sub": subject}
        self._claims = {name: value for name, value in claims.items() if value is not None}
        self._file = assertion_file
        self._key_file = private_key_file
        self._passphrase = private_key_passphrase
        self._lifetime_s = lifetime_s
        self._not_before_s = not_before_s
        self._include_jti = include_jti
        self._template_file = template_file

    def create(self) -> Secret:
        """Return an assertion for one request. Blocking.

        Raises TokenProviderError for a file that cannot be read or used.
        """
        if self._file is not None:
            found = read_secret(self._file).strip_space()
            if not found or not found.reveal().isascii():
                raise TokenProviderError(f"The assertion file {self._file} has no assertion.")
            return found
        assert self._key_file is not None
        header, payload = self._template()
        now = int(time.time())
        header |= {"alg": self._algorithm, "typ": "JWT"}
        payload |= {"iat": now, "exp": now + self._lifetime_s, "nbf": now - self._not_before_s}
        if self._include_jti:
            payload["jti"] = str(uuid.uuid4())
        signed = f"{_part(header)}.{_part(payload)}"
        return Secret(f"{signed}.{_encoded(self._signature(signed.encode()))}")

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and the claims that do not change."""
        if self._template_file is None:
            return {}, dict(self._claims)
        template = _json(read_secret(self._template_file))
        parts = [{} if template is None else template.get(name, {}) for name in _TEMPLATE]
        if template is None or not all(isinstance(part, dict) for part in parts):
            raise TokenProviderError(
                f"The template file {self._template_file} is not a JSON object with the objects "
                "header and payload."
            )
        return dict(parts[0]), self._claims | parts[1]

    def _signature(self, signed: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        assert self._key_file is not None
        pem, passphrase = read_secret(self._key_file), self._passphrase
        try:
            key: Any = load_pem_private_key(
                pem.encode(), None if passphrase is None else passphrase.encode()
            )
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise TokenProviderError(
                f"The private key in {self._key_file} cannot be loaded. It must be in PEM format, "
                "and an encrypted key needs its passphrase."
            ) from error.with_traceback(None)
        if self._algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            signature: bytes = key.sign(signed, padding.PKCS1v15(), SHA256())
            return signature
        elliptic = isinstance(key, ec.EllipticCurvePrivateKey) and key.key_size == 256
        if self._algorithm == "ES256" and elliptic:
            halves = decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
            return b"".join(half.to_bytes(32, "big") for half in halves)
        raise TokenProviderError(
            f"The private key in {self._key_file} does not fit the algorithm {self._algorithm}."
        )


_TEMPLATE: Final = ("header", "payload")


def _json(text: Secret) -> Mapping[str, Any] | None:
    """Return the object in a JSON text, or None if the text has none. This does not raise."""
    try:
        found = json.loads(text.reveal())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _part(value: object) -> str:
    return _encoded(json.dumps(value, separators=(",", ":")).encode())


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TIMEOUT_MS: Final = 10_000


class RequestOptions(TypedDict, total=False):
    """The arguments that concern the endpoint and the token."""

    tls: Tls | ssl.SSLContext | None
    connect_timeout_ms: int
    read_timeout_ms: int
    allow_http: bool
    extensions: Mapping[str, str] | None
    sub_claim_name: str
    scope_claim_name: str


class OidcOptions(AssertionOptions, RequestOptions, total=False):
    """The keyword arguments of `OidcJwtBearer` and `OidcClientCredentials`."""


@public_in("aiokclient")
class OidcClientCredentials:
    """A token provider that identifies itself by a client id and a secret (KIP-768).

        SaslOAuthBearer(OidcClientCredentials("https://login.example.com/token", "app", "secret"))

    `scope` is the scope of the requested token. Instead of a secret, the client may identify itself
    by an assertion, with the keyword arguments of `OidcJwtBearer`.

    `tls` has the certificates for the endpoint, by default those of the operating system.
    `connect_timeout_ms` and `read_timeout_ms` limit a request. `header_urlencode=True` encodes id
    and secret as RFC 6749 demands, which not all servers expect. `extensions` are sent to the
    broker with the token. `sub_claim_name` and `scope_claim_name` are names of claims in the token.
    A URL with http is refused, except on this machine or with `allow_http=True`.
    """

    def __init__(
        self,
        token_url: str,
        client_id: str | None,
        client_secret: str | Secret | None = None,
        scope: str | None = None,
        *,
        header_urlencode: bool = False,
        **options: Unpack[OidcOptions],
    ) -> None:
        client_secret = Secret.of(client_secret)
        _hide(options)
        has_assertion = _has_assertion(options)
        if has_assertion == (client_secret is not None):
            raise ConfigError("OidcClientCredentials: Give either client_secret or an assertion.")
        if client_secret is not None and not _is_word(client_secret):
            raise ConfigError(
                "OidcClientCredentials: client_secret must be a string that is not empty."
            )
        if not has_assertion and not (isinstance(client_id, str) and client_id):
            raise ConfigError("OidcClientCredentials: client_id must be a string.")
        self._request = _TokenRequest("OidcClientCredentials", token_url, scope, options)
        self._client_id = client_id
        self._secret = client_secret
        self._urlencode = header_urlencode

    def __repr__(self) -> str:
        return f"OidcClientCredentials({self._request.url!r}, {self._client_id!r})"

    async def __call__(self) -> OAuthToken:
        """Return a token. See `TokenProvider`.

        Raises TokenRefusedError if the endpoint refuses the client, and TokenProviderError if it
        does not respond or if its response is not usable.
        """
        form: dict[str, str | Secret] = {"grant_type": "client_credentials"}
        if self._secret is not None:
            return await self._request.fetch_token(
                form, self._make_basic_header(self._secret), self._secret
            )
        if self._client_id:
            form["client_id"] = self._client_id
        form["client_assertion_type"] = CLIENT_ASSERTION
        form["client_assertion"] = await self._request.make_assertion()
        return await self._request.fetch_token(form)

    def _make_basic_header(self, secret: Secret) -> Secret:
        name, word = Secret(self._client_id), secret
        if self._urlencode:
            name, word = Secret(quote_plus(name.reveal())), Secret(quote_plus(word.reveal()))
        pair = Secret(f"{name.reveal()}:{word.reveal()}")
        return Secret(f"Basic {b64encode(pair.encode()).decode()}")


@public_in("aiokclient")
class OidcJwtBearer:
    """A token provider that identifies itself by a signed assertion (KIP-1139).

        SaslOAuthBearer(OidcJwtBearer(url, private_key_file="key.pem", issuer="app",
                                      subject="app", audience="https://login.example.com"))

    `private_key_file` is a key in PEM format, perhaps encrypted with `private_key_passphrase`. It
    signs each assertion with the `algorithm` RS256 or ES256 (extra `oidc`). `audience`, `issuer`,
    and `subject` are claims of the assertion. An assertion is valid for `lifetime_s` seconds, and
    from `not_before_s` seconds before it was made. `include_jti=True` adds an id. `template_file`
    is a JSON file whose objects `header` and `payload` are added. Alternatively, `assertion_file`
    has an assertion that another program has made. Files are read again for each request.

    The other arguments are those of `OidcClientCredentials`.
    """

    def __init__(
        self, token_url: str, *, scope: str | None = None, **options: Unpack[OidcOptions]
    ) -> None:
        _hide(options)
        if not _has_assertion(options):
            raise ConfigError("OidcJwtBearer: Give either assertion_file or private_key_file.")
        self._request = _TokenRequest("OidcJwtBearer", token_url, scope, options)

    def __repr__(self) -> str:
        return f"OidcJwtBearer({self._request.url!r})"

    async def __call__(self) -> OAuthToken:
        """Return a token. See `TokenProvider`.

        Raises TokenRefusedError if the endpoint refuses the assertion, and TokenProviderError if it
        does not respond, if its response is not usable, or if there is no assertion.
        """
        assertion = await self._request.make_assertion()
        return await self._request.fetch_token({"grant_type": JWT_BEARER, "assertion": assertion})


class TokenFile:
    """A token provider that reads the token from a file, again for each refresh."""

    def __init__(self, path: str, claims: Claims) -> None:
        self._path = path
        self._claims = claims

    def __repr__(self) -> str:
        return f"TokenFile({self._path!r})"

    async def __call__(self) -> OAuthToken:
        text = await threads.run_blocking(read_secret, self._path)
        return token_from_text(text, self._path, self._claims)


class _TokenRequest:
    """The options that all requests of one provider share."""

    def __init__(self, owner: str, token_url: str, scope: str | None, options: OidcOptions) -> None:
        if scope is not None and not isinstance(scope, str):
            raise ConfigError(f"{owner}: scope must be a string or None.")
        unknown = sorted(options.keys() - OidcOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"{owner}() got an unexpected keyword argument {unknown[0]!r}")
        given: dict[str, Any] = {**options}
        try:
            self._endpoint = Endpoint(
                token_url,
                tls=options.get("tls"),
                connect_s=_seconds(options, "connect_timeout_ms"),
                read_s=_seconds(options, "read_timeout_ms"),
                allow_http=options.get("allow_http", False),
            )
            self._claims = Claims(
                options.get("sub_claim_name", "sub"),
                options.get("scope_claim_name", "scope"),
                options.get("extensions"),
            )
            OAuthToken("-", 0, extensions=self._claims.extensions)  # This checks the extensions.
            self._assertion: Assertion | None = None
            if _has_assertion(options):
                names = AssertionOptions.__annotations__.keys() & given
                self._assertion = Assertion(**{name: given[name] for name in names})
        except ConfigError as error:
            raise ConfigError(f"{owner}: {error.message}") from None
        self._scope = (scope or "").strip()

    @property
    def url(self) -> str:
        return self._endpoint.shown

    async def make_assertion(self) -> Secret:
        """Return an assertion for one request. Raises TokenProviderError if there is none."""
        assert self._assertion is not None
        return await threads.run_blocking(self._assertion.create)

    async def fetch_token(
        self, form: dict[str, str | Secret], authorization: Secret | None = None, *secrets: Secret
    ) -> OAuthToken:
        """Send a form, and return the token of the response."""
        if self._scope:
            form["scope"] = self._scope
        hidden = [*secrets, *(value for value in form.values() if isinstance(value, Secret))]
        asked_at = time.time()
        reply = await self._endpoint.post_form(_urlencoded(form), authorization)
        return token_from_reply(
            reply, self.url, asked_at, self._claims, _Scrub(hidden, authorization)
        )


class _Scrub:
    """The removal of a request's secrets from a server's text, in each form that was sent."""

    def __init__(self, secrets: list[Secret], authorization: Secret | None) -> None:
        self._hidden = [
            *secrets,
            *(Secret(quote_plus(secret.reveal())) for secret in secrets),
            *([] if authorization is None else [Secret(authorization.reveal().split(" ", 1)[1])]),
        ]

    def __call__(self, text: str) -> str:
        for secret in self._hidden:
            text = secret.scrub_text(text)
        return text


def _urlencoded(form: Mapping[str, str | Secret]) -> Secret:
    return Secret(
        urlencode(
            {
                name: value.reveal() if isinstance(value, Secret) else value
                for name, value in form.items()
            }
        )
    )


def _is_word(text: Secret) -> bool:
    """Return whether this is a text that UTF-8 can express, and that is not empty."""
    return text.is_text and bool(text) and Secret(_replaced(text)) == text


def _replaced(text: Secret) -> str:
    return text.reveal().encode("utf-8", "replace").decode()


def _hide(options: OidcOptions) -> None:
    """Hide the passphrase, and values with unknown names, in place. This does not raise."""
    hide_secrets(options, ("private_key_passphrase",), OidcOptions.__annotations__)


def _has_assertion(options: OidcOptions) -> bool:
    return any(options.get(name) is not None for name in ("assertion_file", "private_key_file"))


def _seconds(options: OidcOptions, name: str) -> float:
    value = options.get(name, TIMEOUT_MS)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{name} must be a number above 0.")
    return value / 1000

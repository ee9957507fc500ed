"""The conversion of Kafka's options for OAUTHBEARER to a token provider.

Without an endpoint, tokens have no signature, as Java's OAuthBearerLoginModule makes them for
development. Their claims are secrets, like the tokens. No function that raises an error has one in
a local variable.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from aiokclient.config.secret import Secret
from aiokclient.config.security.oidc.providers import (
    OidcClientCredentials,
    OidcJwtBearer,
    TokenFile,
)
from aiokclient.config.security.oidc.response import Claims
from aiokclient.config.security.sasl import OAuthToken, TokenProvider
from aiokclient.config.security.tls import Tls
from aiokclient.errors import ConfigError
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.config.security.jaas import JaasEntry

HANDLER: Final = "OAuthBearerLoginCallbackHandler"
EXTENSION: Final = "extension_"
PROVIDER: Final = "sasl_oauthbearer_token_provider"
URL: Final = "sasl_oauthbearer_token_endpoint_url"
OAUTHBEARER: Final = "sasl_oauthbearer_"

ELSEWHERE: Final = (
    f"For tokens from elsewhere, set {PROVIDER}=module:function, the name of an async function. "
    "Pass security=SaslOAuthBearer(token_provider=...) in a program."
)

ASSERTION: Final[Mapping[str, str]] = {
    "algorithm": "algorithm",
    "claim_aud": "audience",
    "claim_exp_seconds": "lifetime_s",
    "claim_iss": "issuer",
    "claim_jti_include": "include_jti",
    "claim_nbf_seconds": "not_before_s",
    "claim_sub": "subject",
    "private_key_file": "private_key_file",
    "private_key_passphrase": "private_key_passphrase",
    "template_file": "template_file",
}
"""The arguments of an assertion, by the ends of the names of Kafka's options."""

OWNERS: Final = ("OidcClientCredentials", "OidcJwtBearer")
ARGUMENTS: Final[Mapping[str, str]] = {
    "client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "token_url": URL,
    "assertion_file": "sasl_oauthbearer_assertion_file",
    "private_key_file": "sasl_oauthbearer_assertion_private_key_file",
}
"""Kafka's options for the arguments that the errors of token providers name."""
ARGUMENT: Final = re.compile(rf"\b({'|'.join(ARGUMENTS)})\b")


def token_provider(config: Any, entry: JaasEntry | None) -> TokenProvider:
    """Return the provider that the options and the JAAS entry describe."""
    if config.sasl_oauthbearer_token_provider is not None:
        return _imported(config, entry)
    handler = config.sasl_login_callback_handler_class
    if handler is not None and handler.rpartition(".")[2] != HANDLER:
        raise ConfigError(
            f"sasl_login_callback_handler_class: {handler} is not available. {ELSEWHERE}"
        )
    options = {} if entry is None else entry.options
    if config.sasl_oauthbearer_token_endpoint_url is None:
        given = [name for name in config.declarations if _is_given(config, name)]
        if given or handler is not None:
            raise ConfigError(
                f"{given[0] if given else 'sasl_login_callback_handler_class'} needs {URL}."
            )
        if any(name.startswith(PREFIX) for name in options):
            return UnsecuredTokens(options)
        raise ConfigError(
            f"{URL}: OAUTHBEARER needs it, or unsecuredLogin options in sasl_jaas_config. For "
            "tokens from elsewhere, pass security=SaslOAuthBearer(token_provider=...), or set "
            f"{PROVIDER}."
        )
    return _asking(config, entry)


def _imported(config: Any, entry: JaasEntry | None) -> TokenProvider:
    """Return the function that the option names. Raises ConfigError if there is none."""
    name = config.sasl_oauthbearer_token_provider.strip()
    given = [n for n in config.declarations if _is_given(config, n) and n != PROVIDER]
    if config.sasl_login_callback_handler_class is not None:
        given.append("sasl_login_callback_handler_class")
    if entry is not None and entry.options:
        given.append("sasl_jaas_config")
    if given:
        raise ConfigError(f"{PROVIDER}: It replaces {given[0]}. Give only one of them.")
    module, _, path = name.partition(":")
    if not (module and path and all(map(str.isidentifier, (*module.split("."), *path.split("."))))):
        raise ConfigError(
            f"{PROVIDER}: {name!r} is not allowed. It must be module:function, such as "
            "company.tokens:msk_token."
        )
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(
            f"{PROVIDER}: {name} cannot be imported ({type(error).__name__}: {error}). Each "
            "process that connects must find the module, also the executors of Spark."
        ) from error
    if not callable(found):
        raise ConfigError(
            f"{PROVIDER}: {name} is a {type(found).__name__}. It must be an async function."
        )
    provider: TokenProvider = found
    return provider


def _is_given(config: Any, name: str) -> bool:
    ours = name.startswith(OAUTHBEARER)
    return ours and getattr(config, name) != config.declarations[name].default


def _asking(config: Any, entry: JaasEntry | None) -> TokenProvider:
    url = config.sasl_oauthbearer_token_endpoint_url
    retriever = (config.sasl_oauthbearer_jwt_retriever_class or "").rpartition(".")[2]
    if retriever in ("", "DefaultJwtRetriever"):
        file = url.lower().startswith("file:")
        retriever = "FileJwtRetriever" if file else "ClientCredentialsJwtRetriever"
    try:
        if retriever == "FileJwtRetriever":
            return _file(config, url, entry)
        if retriever == "ClientCredentialsJwtRetriever":
            return _client_credentials(config, url, entry)
        if retriever == "JwtBearerJwtRetriever":
            return OidcJwtBearer(
                url,
                scope=_either(config.sasl_oauthbearer_scope, entry, "scope"),
                **_request(config, entry),
                **_assertion(config),
            )
    except ConfigError as error:
        owner, _, message = error.message.partition(": ")
        if owner not in OWNERS:
            raise
        text = ARGUMENT.sub(lambda match: ARGUMENTS[match[0]], message)
    else:
        text = f"sasl_oauthbearer_jwt_retriever_class: {retriever} is not available. {ELSEWHERE}"
    raise ConfigError(text)


def _file(config: Any, url: str, entry: JaasEntry | None) -> TokenProvider:
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or parts.path[:1] != "/":
        raise ConfigError(f"{URL} must be a URL such as file:///path/of/token.")
    return TokenFile(
        unquote(parts.path),
        Claims(
            config.sasl_oauthbearer_sub_claim_name,
            config.sasl_oauthbearer_scope_claim_name,
            _extensions(entry),
        ),
    )


def _client_credentials(config: Any, url: str, entry: JaasEntry | None) -> TokenProvider:
    client_id = _either(config.sasl_oauthbearer_client_credentials_client_id, entry, "clientId")
    scope = _either(config.sasl_oauthbearer_scope, entry, "scope")
    # As in Java's clients, the issuer shows that assertions are to replace the secret.
    if config.sasl_oauthbearer_assertion_file or config.sasl_oauthbearer_assertion_claim_iss:
        return OidcClientCredentials(
            url, client_id, None, scope, **_request(config, entry), **_assertion(config)
        )
    secret = config.sasl_oauthbearer_client_credentials_client_secret
    if secret is None and entry is not None:
        secret = entry.options.get("clientSecret")
    if not client_id or not secret:
        raise ConfigError(
            "sasl_oauthbearer_client_credentials_client_id and "
            "sasl_oauthbearer_client_credentials_client_secret are needed, or clientId and "
            "clientSecret in sasl_jaas_config."
        )
    return OidcClientCredentials(
        url,
        client_id,
        secret.strip_space(),
        scope,
        header_urlencode=config.sasl_oauthbearer_header_urlencode,
        **_request(config, entry),
    )


def _request(config: Any, entry: JaasEntry | None) -> dict[str, Any]:
    return {
        "tls": _tls(entry),
        "connect_timeout_ms": config.sasl_login_connect_timeout_ms,
        "read_timeout_ms": config.sasl_login_read_timeout_ms,
        "extensions": _extensions(entry),
        "sub_claim_name": config.sasl_oauthbearer_sub_claim_name,
        "scope_claim_name": config.sasl_oauthbearer_scope_claim_name,
    }


def _assertion(config: Any) -> dict[str, Any]:
    file = config.sasl_oauthbearer_assertion_file
    if file is not None:
        return {"assertion_file": file}
    return {
        ours: getattr(config, f"sasl_oauthbearer_assertion_{theirs}")
        for theirs, ours in ASSERTION.items()
    }


def _either(value: str | None, entry: JaasEntry | None, name: str) -> str | None:
    """Return the value of an option, or the text `name` of the JAAS entry if the value is None."""
    if value is not None or entry is None:
        return value
    return entry.get_text(name)


def _extensions(entry: JaasEntry | None) -> dict[str, str]:
    options = {} if entry is None else entry.options
    return {
        name.removeprefix(EXTENSION): value.reveal()
        for name, value in options.items()
        if name.startswith(EXTENSION)
    }


def _tls(entry: JaasEntry | None) -> Tls | None:
    """Return the certificates to trust for the endpoint. As in Java, the JAAS entry names them."""
    if entry is None:
        return None
    names = ("location", "certificates", "type")
    location, certificates, kind = (entry.get_text(f"ssl.truststore.{name}") for name in names)
    if location is None and certificates is None:
        return None
    if (kind or "JKS").upper() != "PEM":
        raise ConfigError(
            "sasl_jaas_config: ssl.truststore.type must be PEM. Convert the store with keytool or "
            "openssl."
        )
    return Tls(cafile=location, cadata=certificates)


PREFIX: Final = "unsecuredLogin"
LIFETIME_S: Final = 3600


class UnsecuredTokens:
    """A token provider that makes each token from the options of a JAAS entry."""

    __slots__ = ("_extensions", "_lifetime_s", "_principal", "_secret")

    def __init__(self, options: Mapping[str, Secret]) -> None:
        parts = _parts(options)
        if isinstance(parts, str):
            raise ConfigError(f"sasl_jaas_config: {parts}")
        self._secret = parts.claims
        self._principal = parts.principal
        self._lifetime_s = parts.lifetime_s
        self._extensions = parts.extensions

    def __repr__(self) -> str:
        return f"UnsecuredTokens({self._principal!r})"

    async def __call__(self) -> OAuthToken:
        now = time.time()
        expires = now + self._lifetime_s
        token = _token(self._secret, {"iat": now, "exp": expires})
        return OAuthToken(token, int(1000 * expires), self._principal, self._extensions)


class _Parts(NamedTuple):
    """The contents of the tokens of one provider."""

    claims: Secret
    """The claims as a JSON text."""
    principal: str
    lifetime_s: float
    extensions: dict[str, str]


def _parts(options: Mapping[str, Secret]) -> _Parts | str:
    """Return the parts of tokens, or the problem as a sentence. This does not raise."""
    texts = {
        name.removeprefix(PREFIX): value.reveal()
        for name, value in options.items()
        if name.startswith(PREFIX)
    }
    principal_claim = texts.pop("PrincipalClaimName", "sub")
    texts.pop("ScopeClaimName", None)
    claims: dict[str, object] = {}
    extensions: dict[str, str] = {}
    try:
        lifetime_s = float(texts.pop("LifetimeSeconds", LIFETIME_S))
        for name, text in texts.items():
            kind, _, key = name.partition("_")
            if kind == "StringClaim":
                claims[key] = text
            elif kind == "NumberClaim":
                claims[key] = float(text)
            elif kind == "ListClaim":
                claims[key] = text[1:].split(text[0]) if text else []
            elif kind == "Extension":
                extensions[key] = text
    except ValueError:
        return f"{PREFIX}...: a number is malformed."
    principal = claims.get(principal_claim)
    if not isinstance(principal, str):
        return f"{PREFIX}StringClaim_{principal_claim} is missing: it is the name of the user."
    return _Parts(Secret(json.dumps(claims)), principal, lifetime_s, extensions)


def _token(claims: Secret, times: Mapping[str, float]) -> Secret:
    """Return a token. This does not raise."""
    parts = (_encoded({"alg": "none"}), _encoded({**times, **json.loads(claims.reveal())}), "")
    return Secret(".".join(parts))


def _encoded(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

"""The conversion of Kafka's security options to one `security` object."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokclient.config.rules import settle
from aiokclient.config.secret import Secret
from aiokclient.config.security.plaintext import Plaintext
from aiokclient.config.security.sasl import (
    SaslGssapi,
    SaslOAuthBearer,
    SaslPlain,
    SaslScram,
    Security,
)
from aiokclient.config.security.tls import Tls
from aiokclient.config.security.tls_limits import TlsLimits
from aiokclient.errors import ConfigError

if TYPE_CHECKING:
    from aiokclient.config.security.jaas import JaasEntry

# The parser of JAAS texts and the unsecured tokens are imported when they are used. Most programs
# need neither.

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
LOGIN: Final = (
    "sasl_mechanism",
    "sasl_jaas_config",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_login_callback_handler_class",
)
"""The options of a SASL login, except those of OAUTHBEARER.

They become part of the `security` object.
"""
OAUTHBEARER: Final = "sasl_oauthbearer_"
"""The prefix of the login options of OAUTHBEARER.

These options become part of the `security` object, too.
"""

AWS: Final = (
    "For the tokens of the package aws-msk-iam-sasl-signer-python, set sasl_mechanism=OAUTHBEARER "
    "and sasl_oauthbearer_token_provider=module:function, the name of an async function that "
    "returns them as OAuthToken. Pass security=SaslOAuthBearer(token_provider=...) in a program."
)
"""Advice for programs with the options of Amazon's library for Java's clients."""
USER_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
"""Java's login modules with a user name and a password. Java accepts both for PLAIN and SCRAM."""

MODULES: Final[Mapping[str, str]] = {
    "IAMLoginModule": AWS,
}
"""Login modules of other vendors, with what to use instead."""
MECHANISMS: Final[Mapping[str, str]] = {"AWS_MSK_IAM": AWS}
"""Mechanisms of other vendors, with what to use instead."""


def fold_security(config: Any) -> None:
    """Convert `ssl_` and `sasl_` options to a `security` object. Nothing else reads them."""
    security: Any = config.security
    if isinstance(security, ssl.SSLContext):
        security = Tls(context=security)
    if not isinstance(security, Security):
        given = security.type_name if isinstance(security, Secret) else type(security).__name__
        raise ConfigError(
            f"security: a {given} is not allowed. It must be Plaintext(), "
            "Tls(...), an ssl.SSLContext, SaslPlain(...), SaslScram(...), SaslOAuthBearer(...), or "
            "SaslGssapi(...). For a text such as 'SSL' use security_protocol."
        )
    protocol = _protocol(config.security_protocol)
    tls_options = [name for name in config.declarations if _is_given(config, name)]
    login_options = [name for name in config.declarations if _is_login(config, name)]
    if protocol not in ("ssl", "sasl_ssl") and tls_options:
        raise ConfigError(f"{tls_options[0]} needs security_protocol=SSL or SASL_SSL.")
    if protocol not in ("sasl_plaintext", "sasl_ssl") and login_options:
        raise ConfigError(f"{login_options[0]} needs security_protocol=SASL_SSL or SASL_PLAINTEXT.")
    if protocol == "plaintext" and security != Plaintext():
        raise ConfigError(
            "security_protocol: PLAINTEXT contradicts security. Leave one of them out."
        )
    if protocol in ("ssl", "sasl_plaintext", "sasl_ssl"):
        if security != Plaintext():
            raise ConfigError(
                "security_protocol: Give either security or Kafka's ssl_ and sasl_ options, not "
                "both."
            )
        tls = None if protocol == "sasl_plaintext" else _tls(config)
        security = tls if protocol == "ssl" else _login(config, tls)
    settle(config, "security", security)
    for name in ("security_protocol", *tls_options, *login_options):
        settle(config, name, config.declarations[name].default)


def _is_login(config: Any, name: str) -> bool:
    """Return whether an option of a login is given."""
    ours = name in LOGIN or name.startswith(OAUTHBEARER)
    return ours and getattr(config, name) != config.declarations[name].default


def _is_given(config: Any, name: str) -> bool:
    return name.startswith("ssl_") and getattr(config, name) is not None


def _protocol(given: str | None) -> str | None:
    if given is None:
        return None
    protocol = given.lower()
    if protocol not in PROTOCOLS:
        *names, last = map(str.upper, PROTOCOLS)
        raise ConfigError(
            f"security_protocol: {given!r} is not allowed. It must be {', '.join(names)}, or "
            f"{last}."
        )
    return protocol


def _tls(config: Any) -> Tls:
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if (getattr(config, name) or "PEM").upper() != "PEM":
            raise ConfigError(
                f"{name}: Only PEM is supported. Convert the store with keytool or openssl."
            )
    texts = [
        name
        for name in ("ssl_keystore_certificate_chain", "ssl_keystore_key")
        if getattr(config, name) is not None
    ]
    if texts and config.ssl_keystore_location is not None:
        raise ConfigError(f"{texts[0]}: Give either this or ssl_keystore_location, not both.")
    if len(texts) == 1:
        raise ConfigError(
            f"{texts[0]}: ssl_keystore_certificate_chain and ssl_keystore_key need each other."
        )
    if config.ssl_key_password is not None and not texts and config.ssl_keystore_location is None:
        raise ConfigError(
            "ssl_key_password: It needs ssl_keystore_location or ssl_keystore_certificate_chain, "
            "the client's certificate."
        )
    limits = TlsLimits.of(
        config.ssl_enabled_protocols, config.ssl_protocol, config.ssl_cipher_suites
    )
    return Tls(
        cafile=config.ssl_truststore_location,
        cadata=config.ssl_truststore_certificates,
        certfile=config.ssl_keystore_location,
        certdata=config.ssl_keystore_certificate_chain,
        keydata=config.ssl_keystore_key,
        password=config.ssl_key_password,
        check_hostname=config.ssl_endpoint_identification_algorithm != "",
    ).with_limits(limits)


def _login(config: Any, tls: Tls | None) -> Security:
    given = config.sasl_mechanism
    mechanism = (given or "GSSAPI").upper()
    make = LOGINS.get(mechanism)
    if mechanism in MECHANISMS:
        raise ConfigError(f"sasl_mechanism: {given} is not available. {MECHANISMS[mechanism]}")
    if make is None:
        raise ConfigError(
            f"sasl_mechanism: {given!r} is not allowed. It must be one of {', '.join(LOGINS)}."
        )
    entry = None
    if config.sasl_jaas_config is not None:
        from aiokclient.config.security.jaas import parse_jaas

        entry = parse_jaas(config.sasl_jaas_config)
    if entry is not None and entry.module in MODULES:
        raise ConfigError(
            f"sasl_jaas_config: {entry.module} is not available. {MODULES[entry.module]}"
        )
    handler = config.sasl_login_callback_handler_class or ""
    if "msk.auth.iam" in handler:
        raise ConfigError(f"sasl_login_callback_handler_class: {handler} is not available. {AWS}")
    if handler and mechanism != "OAUTHBEARER":
        raise ConfigError(
            f"sasl_login_callback_handler_class: It is not available for {mechanism}."
        )
    try:
        return make(mechanism, entry, tls, config)
    except ConfigError as error:
        if given is not None:
            raise
        text = f"sasl_mechanism: It is absent, which means GSSAPI. {error.message}"
    raise ConfigError(text)


def _user(
    mechanism: str, entry: JaasEntry | None, tls: Tls | None, config: Any
) -> SaslPlain | SaslScram:
    if entry is None:
        raise ConfigError(f"sasl_jaas_config: {mechanism} needs it, for its login module.")
    _require(mechanism, entry, *USER_MODULES)
    for name in ("username", "password"):
        if not entry.options.get(name):
            raise ConfigError(
                f"sasl_jaas_config: The option {name} of the login module is missing."
            )
    user, password = entry.get_text("username") or "", entry.options["password"]
    if mechanism == "PLAIN":
        return SaslPlain(user, password, tls)
    return SaslScram(user, password, mechanism, entry.has_flag("tokenauth"), tls)


def _token(
    mechanism: str, entry: JaasEntry | None, tls: Tls | None, config: Any
) -> SaslOAuthBearer:
    from aiokclient.config.security.oauthbearer import token_provider

    if entry is not None:
        _require(mechanism, entry, "OAuthBearerLoginModule")
    return SaslOAuthBearer(token_provider(config, entry), tls)


def _ticket(mechanism: str, entry: JaasEntry | None, tls: Tls | None, config: Any) -> SaslGssapi:
    """Return the credentials of a JAAS entry. Without an entry, they are in the ticket cache."""
    service_name = config.sasl_kerberos_service_name
    domain_name = config.sasl_kerberos_domain_name
    if entry is None:
        return SaslGssapi(service_name or "kafka", tls=tls, domain_name=domain_name)
    _require(mechanism, entry, "Krb5LoginModule")
    named = entry.get_text("serviceName")
    if named is not None and service_name is not None and named != service_name:
        raise ConfigError(
            "sasl_kerberos_service_name: It differs from serviceName in sasl_jaas_config. Leave "
            "one of them out."
        )
    keytab = ticket_cache = None
    if entry.has_flag("useKeyTab"):
        keytab = entry.get_text("keyTab")
        if not keytab:
            raise ConfigError(
                "sasl_jaas_config: useKeyTab=true needs keyTab, the path of a keytab."
            )
        keytab = keytab.removeprefix("file:") if keytab.startswith("file:/") else keytab
    elif entry.has_flag("useTicketCache"):
        ticket_cache = entry.get_text("ticketCache")
    else:
        raise ConfigError(
            "sasl_jaas_config: Krb5LoginModule needs useKeyTab=true with keyTab, or "
            "useTicketCache=true."
        )
    return SaslGssapi(
        named or service_name or "kafka",
        entry.get_text("principal"),
        keytab,
        tls,
        ticket_cache=ticket_cache,
        domain_name=domain_name,
    )


def _require(mechanism: str, entry: JaasEntry, *modules: str) -> None:
    if entry.module not in modules:
        raise ConfigError(
            f"sasl_jaas_config: The login module does not fit sasl_mechanism={mechanism}, which "
            f"needs {' or '.join(modules)}."
        )


LOGINS: Final[Mapping[str, Callable[[str, JaasEntry | None, Tls | None, Any], Security]]] = {
    "PLAIN": _user,
    "SCRAM-SHA-256": _user,
    "SCRAM-SHA-512": _user,
    "OAUTHBEARER": _token,
    "GSSAPI": _ticket,
}
"""The functions that make the `security` object from the options, by mechanism."""

"""The options that every client has, and how options are checked and read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from aiokclient.clock import Clock
from aiokclient.config.kinds import (
    BOOLEAN,
    CLOCK,
    CONNECTOR,
    NOT_NEGATIVE,
    OPTIONAL_PATH,
    OPTIONAL_SECRET,
    OPTIONAL_TEXT,
    POSITIVE,
    SECURITY,
    TEXT,
    Addresses,
    Choice,
    Integer,
    Number,
)
from aiokclient.config.login import LoginConfig, LoginOptions
from aiokclient.config.option import ABSENT, REQUIRED, checked, option
from aiokclient.config.problems import LISTED, Problems, is_of_another_kind, together
from aiokclient.config.properties import hidden_properties
from aiokclient.config.rules import order_backoffs
from aiokclient.config.secret import Secret, hide_secrets
from aiokclient.config.security import Plaintext, settle_security
from aiokclient.config.security.tls_limits import CIPHER_SUITES, PROTOCOL_NAME, PROTOCOL_NAMES
from aiokclient.errors import ConfigError
from aiokclient.log.client_log import ClientLog

if TYPE_CHECKING:
    import ssl

    from aiokclient.config.security.sasl import Security

Source: TypeAlias = Mapping[str, Any] | str | os.PathLike[str] | Exception
"""A mapping of properties, the path of a properties file, or the error of reading them."""


class ClientConfig(LoginConfig):
    """The options of every client.

    Raises ConfigError for a value that is not allowed.
    """

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        Addresses(),
        (),
        "The addresses of one or more brokers, as host:port separated by commas, or as a list. "
        "The client learns of the other brokers from the first one that responds. Required, "
        "unless a client is shared with client=.",
        accepts="str | Sequence[str] | Sequence[tuple[str, int]]",
        java=REQUIRED,
    )
    client_id: str = option(
        TEXT,
        "aiokclient",
        "The name of the client in the logs, metrics, and quotas of the brokers.",
        java="an empty text",
    )
    client_rack: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The rack of the client. Consumers then fetch from a replica in the same rack, if the "
        "brokers allow it (replica.selector.class), and assignors may take it into account.",
        per_child=True,
        java="an empty text",
    )
    client_dns_lookup: str = option(
        Choice.of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "use_all_dns_ips",
        "The resolution of the names of bootstrap servers: use_all_dns_ips tries all addresses "
        "of a name, beginning with the next after 250 ms, and "
        "resolve_canonical_bootstrap_servers_only replaces a name by the canonical names of its "
        "addresses.",
    )
    bootstrap_resolve_timeout_ms: int | None = option(
        Integer(0, optional=True),
        None,
        "The time within which a start must resolve the name of one bootstrap server, in "
        "milliseconds (KIP-909). Until then, the resolution is repeated with backoff. With 0, each "
        "name is resolved once. The time is never longer than default_api_timeout_ms. The option "
        "has no effect on start(wait=False) and on later rebootstraps.",
        shown="default_api_timeout_ms",
        java="0",
    )

    security: Security = option(
        SECURITY,
        Plaintext(),
        "The security of connections: Plaintext(), Tls(...), an ssl.SSLContext, or SASL with "
        "SaslPlain(...), SaslScram(...), SaslOAuthBearer(...), or SaslGssapi(...).",
        accepts="Security | ssl.SSLContext",
        java=ABSENT,
    )
    security_protocol: str | None = option(
        OPTIONAL_TEXT,
        None,
        "PLAINTEXT, SSL, SASL_PLAINTEXT, or SASL_SSL. In properties files, this option and the "
        "ssl_ and sasl_ options replace security=.",
        java="PLAINTEXT",
    )
    ssl_truststore_type: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The format of the trusted certificates. Only PEM is supported.",
        java="JKS",
    )
    ssl_truststore_location: str | None = option(
        OPTIONAL_PATH,
        None,
        "The path of a PEM file with the trusted certificates. By default, the certificates of "
        "the operating system are trusted.",
    )
    ssl_truststore_certificates: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The trusted certificates themselves, in PEM format.",
        accepts="str | None",
        secret=True,
    )
    ssl_keystore_type: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The format of the client's certificate. Only PEM is supported.",
        java="JKS",
    )
    ssl_keystore_location: str | None = option(
        OPTIONAL_PATH,
        None,
        "The path of a PEM file with the client's certificate and private key.",
    )
    ssl_keystore_certificate_chain: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The client's certificate itself, in PEM format, with those of intermediate authorities.",
        accepts="str | None",
        secret=True,
    )
    ssl_keystore_key: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The client's private key itself, in PEM format.",
        accepts="str | None",
        secret=True,
    )
    ssl_key_password: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The password of an encrypted private key.",
        accepts="str | None",
        secret=True,
    )
    ssl_endpoint_identification_algorithm: str | None = option(
        Choice(((None, (None,)), ("https", ("https",)), ("", ("",)))),
        None,
        "The verification that the certificate of a broker contains its host name. An empty text "
        "disables it. None and https leave it enabled.",
        java="https",
    )
    ssl_enabled_protocols: tuple[str, ...] | None = option(
        PROTOCOL_NAMES,
        None,
        "The versions of TLS, separated by commas. Only TLSv1.2 and TLSv1.3, the default, are "
        "used. Older ones may be in the list.",
        accepts="str | Sequence[str] | None",
        java="TLSv1.2,TLSv1.3",
    )
    ssl_protocol: str | None = option(
        PROTOCOL_NAME,
        None,
        "The highest version of TLS: TLSv1.3, TLSv1.2, or TLS for the highest enabled one.",
        java="TLSv1.3",
    )
    ssl_cipher_suites: tuple[str, ...] | None = option(
        CIPHER_SUITES,
        None,
        "The cipher suites, separated by commas, by the names of IANA, which Java uses, or of "
        "OpenSSL. By default, those of the ssl module are used. If all suites in the list are "
        "for one version of TLS, only that version is used. A connection with another suite is "
        "refused.",
        accepts="str | Sequence[str] | None",
    )
    sasl_mechanism: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or "
        "GSSAPI. If it is absent, it is GSSAPI, as in Java's clients.",
    )
    sasl_jaas_config: Secret | None = option(
        OPTIONAL_SECRET,
        None,
        "The credentials, in the form of Java's clients: a login module, the word required, and "
        "the options of the module.",
        accepts="str | None",
        secret=True,
    )
    sasl_kerberos_service_name: str | None = option(
        OPTIONAL_TEXT, None, "The service name of the brokers in Kerberos, by default kafka."
    )
    sasl_kerberos_domain_name: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The host name in the brokers' Kerberos principals, by default that of each address.",
    )
    sasl_login_refresh_window_factor: float = option(
        Number(0.5, 1.0),
        0.8,
        "The part of a token's lifetime after which the client requests a new one.",
    )
    sasl_login_refresh_window_jitter: float = option(
        Number(0.0, 0.25),
        0.05,
        "The largest random part of a token's lifetime that is added to "
        "sasl_login_refresh_window_factor.",
    )
    sasl_login_refresh_min_period_seconds: int = option(
        Integer(0, 900),
        60,
        "The shortest time between two requests for a token, in seconds. It does not apply to "
        "tokens that expire earlier.",
    )
    sasl_login_refresh_buffer_seconds: int = option(
        Integer(0, 3600),
        300,
        "The time before the expiry of a token at which the client requests a new one at the "
        "latest, in seconds. It does not apply to tokens that expire earlier.",
    )
    sasl_login_retry_backoff_ms: int = option(
        NOT_NEGATIVE,
        100,
        "The delay before the client requests a token again, in milliseconds. It doubles with "
        "each consecutive failure.",
    )
    sasl_login_retry_backoff_max_ms: int = option(
        NOT_NEGATIVE, 10_000, "The highest delay between two requests for a token, in milliseconds."
    )

    request_timeout_ms: int = option(
        POSITIVE,
        30_000,
        "The time within which a broker must respond to a request, in milliseconds. Then the "
        "connection is closed, and the request is sent again if that is safe.",
        per_child=True,
    )
    default_api_timeout_ms: int = option(
        POSITIVE,
        60_000,
        "The time limit of a call without a timeout argument, with all retries, in milliseconds.",
        per_child=True,
    )
    close_timeout_ms: int = option(
        NOT_NEGATIVE,
        5_000,
        "The time limit of a close, in milliseconds, in addition to the time that a producer has "
        "for its last records.",
        per_child=True,
        java=ABSENT,
    )
    shutdown_timeout_ms: int | None = option(
        Integer(0, 2**31 - 1, optional=True),
        None,
        "The time limit of leaving `async with` and of close() as a whole, in milliseconds: the "
        "flush of a producer included. What is pending then fails with ClosedError. Set it below "
        "the time that the environment gives a process to end, as 30 seconds in Kubernetes. None "
        "means no limit beyond those of each step.",
        per_child=True,
        java=ABSENT,
    )
    start_without_brokers: bool = option(
        BOOLEAN,
        False,
        "Whether `async with` and start() return before a broker has responded, as "
        "start(wait=False) does. The state is STARTING until then.",
        per_child=True,
        java=ABSENT,
    )
    socket_connection_setup_timeout_ms: int = option(
        POSITIVE,
        10_000,
        "The time limit of connecting to a broker, including TLS, in milliseconds. It doubles "
        "with each consecutive failure.",
    )
    socket_connection_setup_timeout_max_ms: int = option(
        POSITIVE,
        30_000,
        "The highest value to which socket_connection_setup_timeout_ms grows, in milliseconds.",
    )
    connections_max_idle_ms: int = option(
        Integer(-1),
        540_000,
        "The time without a request after which a connection is closed, in milliseconds. -1 "
        "keeps idle connections open.",
        java="540000; 300000 for an admin client",
    )
    reconnect_backoff_ms: int = option(
        NOT_NEGATIVE,
        50,
        "The delay before the client connects to a broker again, in milliseconds. It doubles "
        "with each consecutive failure, with a random jitter of 20%.",
    )
    reconnect_backoff_max_ms: int = option(
        NOT_NEGATIVE, 1_000, "The highest delay between connection attempts, in milliseconds."
    )
    retry_backoff_ms: int = option(
        NOT_NEGATIVE,
        100,
        "The delay before the client sends a failed request again, in milliseconds. It doubles "
        "with each consecutive failure, with a random jitter of 20%.",
    )
    retry_backoff_max_ms: int = option(
        NOT_NEGATIVE, 1_000, "The highest delay between two attempts of a request, in milliseconds."
    )
    metadata_max_age_ms: int = option(
        POSITIVE,
        300_000,
        "The time after which the metadata is refreshed even if nothing failed, in milliseconds. "
        "At the latest then, the client learns of new topics and partitions.",
    )
    metadata_recovery_strategy: str = option(
        Choice.of("rebootstrap", "none"),
        "rebootstrap",
        "The action when no known broker can be reached: rebootstrap starts again from "
        "bootstrap_servers, and none continues to try the known brokers.",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = option(
        Integer(0, 2**63 - 1),
        300_000,
        "The time after which the client starts again from bootstrap_servers, in milliseconds, if "
        "it has requested metadata and no broker has returned it. With 0, the first request that "
        "fails suffices. It has no effect if metadata_recovery_strategy is none.",
    )
    metadata_cluster_check_enable: bool = option(
        BOOLEAN,
        True,
        "Whether each new connection checks that it has reached the intended broker of the "
        "intended cluster (KIP-1242). Brokers from Kafka 4.4 on support that. It has no effect if "
        "metadata_recovery_strategy is none.",
    )
    cluster_id_change: str = option(
        Choice.of("accept", "fail"),
        "accept",
        "The action when the bootstrap servers or the known addresses lead to another cluster: "
        "accept continues there with new producer ids, memberships, and positions, and fail makes "
        "the client fail with ClusterChangedError before anything reaches that cluster.",
        java=ABSENT,
    )
    receive_message_max_bytes: int = option(
        Integer(1024),
        100 * 1024 * 1024,
        "The largest accepted response, in bytes. A larger one closes the connection, and raises "
        "ResponseTooLargeError. fetch_max_bytes must be at least 512 below.",
        java=ABSENT,
    )

    enable_metrics_push: bool = option(
        BOOLEAN, True, "Whether to push metrics to brokers that subscribe to them (KIP-714)."
    )
    connector: Any = option(
        CONNECTOR,
        None,
        "An object that resolves names and opens connections in place of the event loop. "
        "Simulations and tunnels use it.",
        java=ABSENT,
    )
    clock: Clock | None = option(
        CLOCK,
        None,
        "The source of time and randomness. Simulations use it.",
        java=ABSENT,
    )

    refused: ClassVar[Mapping[str, str]] = {}
    """Options that other kinds of clients have, and that these clients refuse, with the reasons.

    They are also refused in properties, where options of other kinds are ignored otherwise.
    """

    @property
    def initial_servers(self) -> tuple[tuple[str, int], ...]:
        """The addresses from which the client learns of all others."""
        return self.bootstrap_servers

    @property
    def uses_controllers(self) -> bool:
        """Whether the client is connected to controllers instead of brokers."""
        return False

    def _check_together(self) -> None:
        together(self, settle_security, order_backoffs)

    @classmethod
    def kind(cls) -> str:
        """Return the name of the client that these options are for, such as "Producer"."""
        return cls.__name__.removesuffix("Config")

    @classmethod
    def build(cls, options: Mapping[str, Any], *, client: ClientConfig | None = None) -> Self:
        """Return the configuration of these keyword options.

        The options of connections come from `client`, if there is one. Raises ConfigError, which
        lists all unknown names, values that are not allowed, and options that only `client` can
        have.
        """
        options = dict(options)
        cls.hide_options(options)
        known, shared = cls.declarations, {}
        if client is not None:
            shared = {name: getattr(client, name) for name in ClientConfig.declarations}
        problems = Problems()
        good: dict[str, Any] = {}
        for name, value in options.items():
            if name in cls.refused:
                problems.add_problem(f"{name}: {cls.refused[name]}")
            elif name not in known:
                problems.add_unknown(name, known, cls.kind())
            elif name in shared and not known[name].per_child:
                problems.add_problem(
                    f"{name} is an option of the client that is passed as client=. Set it there."
                )
            else:
                with problems:
                    good[name] = checked(known[name], value, name)
        problems.raise_any()
        return cls(**{**shared, **good})

    @classmethod
    def from_properties(
        cls, source: Source, *, client: ClientConfig | None = None, **options: Any
    ) -> Self:
        """Return the configuration of options with Kafka's dotted names and texts as values.

        `source` is a mapping, the path of a properties file, or the result of `hide_properties`.
        `options` are additional keyword options, such as functions. `client` is as in `build`.
        Options of other kinds of clients are ignored with one line of the log, as files that
        several programs share have them. Raises ConfigError, which lists all unknown names and
        texts that are not allowed.
        """
        source = cls.hide_properties(source, options)
        if isinstance(source, Exception):
            raise source
        known, problems = cls.declarations, Problems()
        dotted = {name.replace("_", "."): each for name, each in known.items()}
        ignored: list[str] = []
        for name, value in options.items():
            if name in cls.refused:
                problems.add_problem(f"{name}: {cls.refused[name]}")
                continue
            if name not in known:
                problems.add_unknown(name, known, cls.kind())
                continue
            with problems:
                checked(known[name], value, name)
        for name, text in source.items():
            declaration = dotted.get(name)
            if declaration is None:
                if reason := "_" not in name and cls.refused.get(name.replace(".", "_")):
                    problems.add_problem(f"{name}: {reason}")
                elif is_of_another_kind(name, cls.kind()):
                    ignored.append(name)
                else:
                    problems.add_unknown(name, dotted, cls.kind())
                continue
            with problems:
                value = checked(declaration, text, name, reading=True)
                options.setdefault(declaration.name, value)
        problems.raise_any()
        try:
            config = cls.build(options, client=client)
            _log_ignored(ignored, config)
            return config
        except ConfigError as error:
            # Errors about combinations use the dotted names of the properties.
            names = re.compile(rf"\b({'|'.join(known)})\b")
            for said in error.problems or (str(error),):
                problems.add_problem(names.sub(lambda m: m[0].replace("_", "."), said))
        problems.raise_any()
        raise AssertionError  # `raise_any` always raises here.

    @classmethod
    def hide_options(cls, options: Any, *others: type[ClientConfig]) -> None:
        """Hide the secrets in a dict of keyword options, in place.

        Callers do this before anything that can raise, because tracebacks show variables.

        The options are those of this class and of `others`.
        """
        hide_secrets(options, *_names(cls, *others))

    @classmethod
    def hide_properties(cls, source: Source, options: dict[str, Any]) -> dict[str, Any] | Exception:
        """Return the properties with hidden secrets, and hide the secrets in `options` in place.

        If the properties cannot be read, the error is returned instead, so that the caller can
        raise it where no secret is in a local variable.
        """
        cls.hide_options(options)
        return source if isinstance(source, Exception) else hidden_properties(source, *_names(cls))


def _log_ignored(names: list[str], config: ClientConfig) -> None:
    """Log the names of options that other kinds of clients have."""
    if names:
        more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
        ClientLog.of("aiokclient", config).info(
            "Options of other kinds of clients are ignored: %s%s",
            ", ".join(names[:LISTED]),
            more,
            extra={"event": "options_ignored"},
        )


def _names(*kinds: type[ClientConfig]) -> tuple[list[str], list[str]]:
    """Return the names of the secret options, and the names of all other options."""
    options = [each for kind in kinds for each in kind.declarations.values()]
    return (
        [each.name for each in options if each.secret],
        [each.name for each in options if not each.secret],
    )


class ClientOptions(LoginOptions, total=False):
    """The keyword options of every client; `ClientConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    bootstrap_servers: str | Sequence[str] | Sequence[tuple[str, int]]
    client_id: str
    client_rack: str | None
    client_dns_lookup: str
    bootstrap_resolve_timeout_ms: int | None
    security: Security | ssl.SSLContext
    security_protocol: str | None
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str | None
    ssl_enabled_protocols: str | Sequence[str] | None
    ssl_protocol: str | None
    ssl_cipher_suites: str | Sequence[str] | None
    sasl_mechanism: str | None
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_domain_name: str | None
    sasl_login_refresh_window_factor: float
    sasl_login_refresh_window_jitter: float
    sasl_login_refresh_min_period_seconds: int
    sasl_login_refresh_buffer_seconds: int
    sasl_login_retry_backoff_ms: int
    sasl_login_retry_backoff_max_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    close_timeout_ms: int
    shutdown_timeout_ms: int | None
    start_without_brokers: bool
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    metadata_cluster_check_enable: bool
    cluster_id_change: str
    receive_message_max_bytes: int
    enable_metrics_push: bool
    connector: Any
    clock: Clock | None

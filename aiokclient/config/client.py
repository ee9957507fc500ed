"""The options that every client has, and how options are checked and read."""

# ruff: noqa: RUF009 - `option` returns a dataclass field

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict

from aiokclient.clock import Clock
from aiokclient.config.kinds import (
    CLOCK,
    CONNECTOR,
    NOT_NEGATIVE,
    OPTIONAL_TEXT,
    POSITIVE,
    SECURITY,
    TEXT,
    Addresses,
    Choice,
    Integer,
)
from aiokclient.config.option import ABSENT, REQUIRED, declared, option
from aiokclient.config.problems import Problems, together, unknown
from aiokclient.config.properties import read_properties
from aiokclient.config.rules import fold_security, order_backoffs, settle
from aiokclient.config.security import Plaintext, Security
from aiokclient.errors import ConfigError

__all__ = ["ClientConfig", "ClientOptions"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig:
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
        "of a name in turn, and resolve_canonical_bootstrap_servers_only replaces a name by the "
        "canonical names of its addresses.",
    )

    security: Security = option(
        SECURITY,
        Plaintext(),
        "The security of connections: Plaintext(), Tls(...), or an ssl.SSLContext.",
        accepts="Security | ssl.SSLContext",
        java=ABSENT,
    )
    security_protocol: str | None = option(
        OPTIONAL_TEXT,
        None,
        "PLAINTEXT or SSL. In properties files, this option and the ssl_ options replace "
        "security=.",
        java="PLAINTEXT",
    )
    ssl_truststore_type: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The format of the trusted certificates. Only PEM is supported.",
        java="JKS",
    )
    ssl_truststore_location: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The path of a PEM file with the trusted certificates. By default, the certificates of "
        "the operating system are trusted.",
    )
    ssl_truststore_certificates: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The trusted certificates themselves, in PEM format.",
        secret=True,
    )
    ssl_keystore_type: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The format of the client's certificate. Only PEM is supported.",
        java="JKS",
    )
    ssl_keystore_location: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The path of a PEM file with the client's certificate and private key.",
    )
    ssl_key_password: str | None = option(
        OPTIONAL_TEXT, None, "The password of an encrypted private key.", secret=True
    )
    ssl_endpoint_identification_algorithm: str | None = option(
        Choice(((None, (None,)), ("https", ("https",)), ("", ("",)))),
        None,
        "The verification that the certificate of a broker contains its host name. An empty text "
        "disables it. None and https leave it enabled.",
        java="https",
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
        NOT_NEGATIVE,
        300_000,
        "The time without metadata after which the client starts again from bootstrap_servers, "
        "in milliseconds, if metadata_recovery_strategy is rebootstrap.",
    )
    receive_message_max_bytes: int = option(
        Integer(1024),
        100 * 1024 * 1024,
        "The largest accepted response, in bytes. A larger one closes the connection.",
        java=ABSENT,
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

    def __post_init__(self) -> None:
        problems = Problems()
        for field in dataclasses.fields(self):
            with problems:
                settle(self, field.name, _checked(field, getattr(self, field.name), field.name))
        problems.raise_any()
        self._check_together()

    def _check_together(self) -> None:
        together(self, fold_security, order_backoffs)

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
        known, shared = _fields(cls), {}
        if client is not None:
            shared = {name: getattr(client, name) for name in _fields(ClientConfig)}
        problems = Problems()
        good: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                problems.add(unknown(name, known, cls.kind()))
            elif name in shared and not declared(known[name]).per_child:
                problems.add(
                    f"{name} is an option of the client that is passed as client=. Set it there."
                )
            else:
                with problems:
                    good[name] = _checked(known[name], value, name)
        problems.raise_any()
        return cls(**{**shared, **good})

    @classmethod
    def from_properties(
        cls, source: Mapping[str, Any] | str | os.PathLike[str], **options: Any
    ) -> Self:
        """Return the configuration of options with Kafka's dotted names and texts as values.

        `source` is a mapping, or the path of a properties file. `options` are additional keyword
        options, such as functions. Raises ConfigError, which lists all unknown names and texts
        that are not allowed.
        """
        fields = {name.replace("_", "."): field for name, field in _fields(cls).items()}
        problems = Problems()
        known = _fields(cls)
        for name, value in options.items():
            if name not in known:
                problems.add(unknown(name, known, cls.kind()))
                continue
            with problems:
                _checked(known[name], value, name)
        for name, text in _properties(source).items():
            field = fields.get(name)
            if field is None:
                problems.add(unknown(name, fields, cls.kind()))
                continue
            with problems:
                options.setdefault(field.name, _checked(field, text, name, reading=True))
        problems.raise_any()
        try:
            return cls.build(options)
        except ConfigError as error:
            # Errors about combinations use the dotted names of the properties.
            names = re.compile(rf"\b({'|'.join(known)})\b")
            for said in error.problems or (str(error),):
                problems.add(names.sub(lambda m: m[0].replace("_", "."), said))
        problems.raise_any()
        raise AssertionError  # `raise_any` always raises here.

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={'***' if declared(field).secret else repr(value)}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _fields(cls: type[ClientConfig]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _properties(source: Any) -> Mapping[str, Any]:
    if isinstance(source, str | os.PathLike):
        return read_properties(source)
    if not isinstance(source, Mapping) or not all(isinstance(name, str) for name in source):
        raise TypeError(
            f"{source!r} is neither a mapping of Kafka's dotted names nor the path of a file."
        )
    return source


def _checked(field: dataclasses.Field[Any], value: Any, name: str, *, reading: bool = False) -> Any:
    declaration = declared(field)
    try:
        if reading and isinstance(value, str):
            return declaration.kind.read(value.strip())
        return declaration.kind.check(value)
    except ValueError as error:
        shown = "this value" if declaration.secret else repr(value)
        reason = str(error) or f"It must be {declaration.kind.allowed}."
        raise ConfigError(f"{name}: {shown} is not allowed. {reason}") from None


class ClientOptions(TypedDict, total=False):
    """The keyword options of every client; `ClientConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    bootstrap_servers: str | Sequence[str] | Sequence[tuple[str, int]]
    client_id: str
    client_rack: str | None
    client_dns_lookup: str
    security: Security | ssl.SSLContext
    security_protocol: str | None
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: str | None
    request_timeout_ms: int
    default_api_timeout_ms: int
    close_timeout_ms: int
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
    receive_message_max_bytes: int
    connector: Any
    clock: Clock | None

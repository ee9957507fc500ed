"""The options that every client has, and how options are checked and read."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

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
    MILLISECONDS,
    OPTIONAL_TEXT,
    POSITIVE,
    SECURITY,
    TEXT,
    Addresses,
    Choice,
    Integer,
    Kind,
    option,
)
from aiokclient.config.problems import Problems, together, unknown
from aiokclient.config.properties import read_properties
from aiokclient.config.rules import fold_security, order_backoffs, settle
from aiokclient.config.security import Plaintext, Security
from aiokclient.errors import ConfigError

__all__ = ["ClientConfig", "ClientOptions"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig:
    """What producers, consumers and admin clients have in common.

    Raises ConfigError for a value that is not allowed.
    """

    bootstrap_servers: tuple[tuple[str, int], ...] = option(Addresses(), ())
    client_id: str = option(TEXT, "aiokclient")
    client_rack: str | None = option(OPTIONAL_TEXT, None)
    client_dns_lookup: str = option(
        Choice.of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"), "use_all_dns_ips"
    )

    security: Security = option(SECURITY, Plaintext())
    security_protocol: str | None = option(OPTIONAL_TEXT, None)
    ssl_truststore_type: str | None = option(OPTIONAL_TEXT, None)
    ssl_truststore_location: str | None = option(OPTIONAL_TEXT, None)
    ssl_truststore_certificates: str | None = option(OPTIONAL_TEXT, None, secret=True)
    ssl_keystore_type: str | None = option(OPTIONAL_TEXT, None)
    ssl_keystore_location: str | None = option(OPTIONAL_TEXT, None)
    ssl_key_password: str | None = option(OPTIONAL_TEXT, None, secret=True)
    ssl_endpoint_identification_algorithm: str | None = option(
        Choice(((None, (None,)), ("https", ("https",)), ("", ("",)))), None
    )

    request_timeout_ms: int = option(POSITIVE, 30_000)
    default_api_timeout_ms: int = option(POSITIVE, 60_000)
    close_timeout_ms: int = option(MILLISECONDS, 5_000)
    socket_connection_setup_timeout_ms: int = option(POSITIVE, 10_000)
    socket_connection_setup_timeout_max_ms: int = option(POSITIVE, 30_000)
    connections_max_idle_ms: int = option(Integer(-1), 540_000)
    reconnect_backoff_ms: int = option(MILLISECONDS, 50)
    reconnect_backoff_max_ms: int = option(MILLISECONDS, 1_000)
    retry_backoff_ms: int = option(MILLISECONDS, 100)
    retry_backoff_max_ms: int = option(MILLISECONDS, 1_000)
    metadata_max_age_ms: int = option(POSITIVE, 300_000)
    metadata_recovery_strategy: str = option(Choice.of("rebootstrap", "none"), "rebootstrap")
    metadata_recovery_rebootstrap_trigger_ms: int = option(MILLISECONDS, 300_000)
    receive_message_max_bytes: int = option(Integer(1024), 100 * 1024 * 1024)

    connector: Any = option(CONNECTOR, None)
    clock: Clock | None = option(CLOCK, None)

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
        """Return the configuration of keyword options; `client` has those of the connections.

        Raises ConfigError, which lists all unknown names, values that are not allowed, and options
        of the connections beside `client`.
        """
        known, shared = _fields(cls), {}
        if client is not None:
            shared = {name: getattr(client, name) for name in _fields(ClientConfig)}
        problems = Problems()
        good: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                problems.add(unknown(name, known, cls.kind()))
            elif name in shared and name not in PER_CHILD:
                problems.add(f"{name} is an option of the client that is passed as client=")
            else:
                with problems:
                    good[name] = _checked(known[name], value, name)
        problems.raise_any()
        return cls(**{**shared, **good})

    @classmethod
    def from_properties(
        cls, source: Mapping[str, Any] | str | os.PathLike[str], **options: Any
    ) -> Self:
        """Return the configuration of Kafka's dotted names with texts as values.

        `source` is a mapping, or the path of a properties file; `options` adds what no text can
        say. Raises ConfigError, which lists all unknown names and all texts that are not allowed.
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
            # What contradicts something else is named as the properties name it.
            names = re.compile(rf"\b({'|'.join(known)})\b")
            for said in error.problems or (str(error),):
                problems.add(names.sub(lambda m: m[0].replace("_", "."), said))
        problems.raise_any()
        raise AssertionError  # One of them was raised.

    def given(self) -> dict[str, Any]:
        """Return the options that are not the defaults."""
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={'***' if field.metadata['secret'] else repr(value)}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


PER_CHILD = frozenset(
    {"client_rack", "close_timeout_ms", "default_api_timeout_ms", "request_timeout_ms"}
)
"""Options that a child of a shared client may set differently."""


def _fields(cls: type[ClientConfig]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _properties(source: Any) -> Mapping[str, Any]:
    if isinstance(source, str | os.PathLike):
        return read_properties(source)
    if not isinstance(source, Mapping) or not all(isinstance(name, str) for name in source):
        raise TypeError(
            f"{source!r} is neither a mapping of Kafka's dotted names nor the path of a file"
        )
    return source


def _checked(field: dataclasses.Field[Any], value: Any, name: str, *, reading: bool = False) -> Any:
    kind: Kind = field.metadata["kind"]
    try:
        if reading and isinstance(value, str):
            return kind.read(value.strip())
        return kind.check(value)
    except ValueError as error:
        shown = "this value" if field.metadata["secret"] else repr(value)
        reason = str(error) or f"it must be {kind.allowed}"
        raise ConfigError(f"{name}: {shown} is not allowed; {reason}") from None


class ClientOptions(TypedDict, total=False):
    """The keyword options of every client; `ClientConfig` checks them."""

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

"""The options of every client, with their defaults, limits and meaning.

Names are Kafka's with `_` for `.`, and so are the units: an option that ends in `_ms` counts
milliseconds. A configuration is immutable and checked when it is made: a `ConfigError` names the
option and what it allows.
"""

# ruff: noqa: RUF009 - `option` makes a dataclass field

from __future__ import annotations

import dataclasses
import os
import re
import ssl
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypedDict, TypeVar

from aiokclient.clock import Clock
from aiokclient.config.group import check_group, commits_by_itself
from aiokclient.config.kinds import (
    BOOLEAN,
    CLOCK,
    CONNECTOR,
    DESERIALIZER,
    FUNCTION,
    OPTIONAL_BOOLEAN,
    OPTIONAL_TEXT,
    SECURITY,
    SERIALIZER,
    TEXT,
    Addresses,
    AssignmentStrategies,
    Choice,
    Integer,
    Kind,
    OffsetReset,
    option,
)
from aiokclient.config.problems import Problems, together, unknown
from aiokclient.config.properties import read_properties
from aiokclient.config.rules import (
    check_delivery_timeout,
    fold_security,
    order_backoffs,
    settle_compression,
    settle_idempotence,
)
from aiokclient.config.security import Plaintext, Security
from aiokclient.errors import ConfigError
from aiokclient.types import Deserializer, Serializer

if TYPE_CHECKING:
    from aiokclient.consumer.assignors.assignor import Assignor

__all__ = [
    "AdminConfig",
    "AdminOptions",
    "ClientConfig",
    "ClientOptions",
    "ConsumerConfig",
    "ConsumerOptions",
    "ProducerConfig",
    "ProducerOptions",
]

K = TypeVar("K")
V = TypeVar("V")

Strategy: TypeAlias = "str | type[Assignor] | Assignor"

MILLISECONDS = Integer(0)
POSITIVE = Integer(1)


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
                _set(self, field.name, _checked(field, getattr(self, field.name), field.name))
        problems.raise_any()
        self._check_together()

    def _check_together(self) -> None:
        together(self, fold_security, order_backoffs)

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
                problems.add(unknown(name, known, _others(), _kind(cls)))
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
                problems.add(unknown(name, known, _others(), _kind(cls)))
                continue
            with problems:
                _checked(known[name], value, name)
        for name, text in _properties(source).items():
            field = fields.get(name)
            if field is None:
                problems.add(unknown(name, fields, _others(), _kind(cls)))
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """A producer's options. `acks` is -1 for "all".

    `enable_idempotence` left out means: where acks and the requests in flight allow it.
    `compression_level` left out means the codec's own, or Kafka's option for this codec.
    """

    acks: int = option(Choice(((-1, ("all", -1, "-1")), (0, (0, "0")), (1, (1, "1")))), -1)
    enable_idempotence: bool = option(OPTIONAL_BOOLEAN, None)  # type: ignore[assignment]  # set on init
    max_in_flight_requests_per_connection: int = option(POSITIVE, 5)
    delivery_timeout_ms: int = option(POSITIVE, 120_000)
    linger_ms: int = option(MILLISECONDS, 5)
    batch_size: int = option(MILLISECONDS, 131_072)
    max_request_size: int = option(POSITIVE, 1_048_576)
    max_block_ms: int = option(MILLISECONDS, 60_000)
    buffer_memory: int = option(Integer(1, 2**63 - 1), 33_554_432)
    compression_type: str = option(Choice.of("none", "gzip", "snappy", "lz4", "zstd"), "none")
    compression_level: int | None = option(Integer(-131_072, 22, optional=True), None)
    compression_gzip_level: int | None = option(Integer(-1, 9, optional=True), None)
    compression_lz4_level: int | None = option(Integer(1, 17, optional=True), None)
    compression_zstd_level: int | None = option(Integer(-131_072, 22, optional=True), None)
    partitioner: Any = option(FUNCTION, None)
    partitioner_ignore_keys: bool = option(BOOLEAN, False)
    partitioner_adaptive_partitioning_enable: bool = option(BOOLEAN, True)
    partitioner_availability_timeout_ms: int = option(MILLISECONDS, 0)
    transactional_id: str | None = option(OPTIONAL_TEXT, None)
    transaction_timeout_ms: int = option(POSITIVE, 60_000)
    key_serializer: Any = option(SERIALIZER, None)
    value_serializer: Any = option(SERIALIZER, None)
    on_delivery_error: Callable[[Any], object] | None = option(FUNCTION, None)

    def _check_together(self) -> None:
        together(
            self,
            ClientConfig._check_together,
            settle_idempotence,
            settle_compression,
            check_delivery_timeout,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsumerConfig(ClientConfig):
    """A consumer's options.

    `enable_auto_commit` left out means: unless several members may get the same partition.
    """

    group_id: str | None = option(OPTIONAL_TEXT, None)
    group_instance_id: str | None = option(OPTIONAL_TEXT, None)
    group_protocol: str = option(Choice.of("classic", "consumer"), "classic")
    group_remote_assignor: str | None = option(OPTIONAL_TEXT, None)
    partition_assignment_strategy: tuple[Strategy, ...] = option(
        AssignmentStrategies(), ("range", "cooperative-sticky")
    )
    session_timeout_ms: int = option(POSITIVE, 45_000)
    heartbeat_interval_ms: int = option(POSITIVE, 3_000)
    max_poll_interval_ms: int = option(POSITIVE, 300_000)
    max_poll_records: int = option(POSITIVE, 500)
    enable_auto_commit: bool = option(OPTIONAL_BOOLEAN, None)  # type: ignore[assignment]  # set on init
    auto_commit_interval_ms: int = option(MILLISECONDS, 5_000)
    auto_offset_reset: str = option(OffsetReset(), "latest")
    new_partitions: str = option(Choice.of("earliest", "reset"), "earliest")
    isolation_level: str = option(
        Choice.of("read_uncommitted", "read_committed"), "read_uncommitted"
    )
    fetch_min_bytes: int = option(MILLISECONDS, 1)
    fetch_max_bytes: int = option(MILLISECONDS, 52_428_800)
    fetch_max_wait_ms: int = option(MILLISECONDS, 500)
    max_partition_fetch_bytes: int = option(MILLISECONDS, 1_048_576)
    max_decompressed_batch_bytes: int = option(POSITIVE, 268_435_456)
    check_crcs: bool = option(BOOLEAN, True)
    allow_auto_create_topics: bool = option(BOOLEAN, True)
    exclude_internal_topics: bool = option(BOOLEAN, True)
    key_deserializer: Any = option(DESERIALIZER, None)
    value_deserializer: Any = option(DESERIALIZER, None)
    on_record_error: Callable[[Any], Any] | None = option(FUNCTION, None)

    @property
    def auto_offset_reset_ms(self) -> int | None:
        """How far back `by_duration:` goes, in milliseconds; None for the other ways to reset."""
        return OffsetReset.duration_ms(self.auto_offset_reset)

    def _check_together(self) -> None:
        together(self, ClientConfig._check_together, check_group)
        given: Any = self.enable_auto_commit
        if given is None:
            own = commits_by_itself(self.partition_assignment_strategy)
            _set(self, "enable_auto_commit", own)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AdminConfig(ClientConfig):
    """An admin client's options: those of every client."""


def _set(config: ClientConfig, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _fields(cls: type[ClientConfig]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cls)}


def _kind(cls: type[ClientConfig]) -> str:
    """Return what the options are for, such as "Producer"."""
    return cls.__name__.removesuffix("Config")


def _others() -> list[tuple[str, Collection[str]]]:
    return [(_kind(one), _fields(one)) for one in (ProducerConfig, ConsumerConfig)]


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


class ProducerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a producer; `ProducerConfig` checks them."""

    acks: int | str
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    linger_ms: int
    batch_size: int
    max_request_size: int
    max_block_ms: int
    buffer_memory: int
    compression_type: str
    compression_level: int | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    partitioner: Any
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: int
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: Callable[[K], bytes] | Serializer[K] | None
    value_serializer: Callable[[V], bytes] | Serializer[V] | None
    on_delivery_error: Callable[[Any], object] | None


class ConsumerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a consumer; `ConsumerConfig` checks them."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: Strategy | Sequence[Strategy]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    new_partitions: str
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_decompressed_batch_bytes: int
    check_crcs: bool
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    key_deserializer: Callable[[bytes], K] | Deserializer[K] | None
    value_deserializer: Callable[[bytes], V] | Deserializer[V] | None
    on_record_error: Callable[[Any], Any] | None


class AdminOptions(ClientOptions, total=False):
    """The keyword options of an admin; `AdminConfig` checks them."""

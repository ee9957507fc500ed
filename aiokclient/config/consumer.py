"""The options of a consumer, and the rules about those of its group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.kinds import (
    BOOLEAN,
    DESERIALIZER,
    FUNCTION,
    NOT_NEGATIVE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_TEXT,
    POSITIVE,
    AssignmentStrategies,
    Choice,
    OffsetReset,
)
from aiokclient.config.option import ABSENT, REQUIRED, option
from aiokclient.config.problems import Problems, suggest, together
from aiokclient.config.rules import check_fetch_size, settle
from aiokclient.types import AssignorLike, Deserializer, is_topic_name

K = TypeVar("K")
V = TypeVar("V")

Strategy: TypeAlias = str | type[AssignorLike] | AssignorLike

CLASSIC_ONLY: Final = {
    "partition_assignment_strategy": "The brokers assign partitions; see group_remote_assignor.",
    "session_timeout_ms": "The brokers decide it: group.consumer.session.timeout.ms.",
    "heartbeat_interval_ms": "The brokers decide it: group.consumer.heartbeat.interval.ms.",
}
"""Options that the consumer protocol does not support, with what replaces them."""


def check_group(config: Any) -> None:
    """Raise ConfigError for a wrong combination of options."""
    problems = Problems()
    for name, what in _mistakes(config):
        problems.add_problem(f"{name}: {what}")
    problems.raise_any()


def _mistakes(config: Any) -> Iterator[tuple[str, str]]:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        yield (
            "heartbeat_interval_ms",
            f"{config.heartbeat_interval_ms} is not below session_timeout_ms "
            f"({config.session_timeout_ms}). A third of it is usual.",
        )
    if config.group_id == "":
        yield "group_id", "It is empty. Name a group, or leave it out to read all partitions."
    instance = config.group_instance_id
    if instance is not None and config.group_id is None:
        yield "group_instance_id", "It needs a group_id."
    if instance is not None and not is_topic_name(instance):
        yield (
            "group_instance_id",
            f"{instance!r} is not allowed. It must be 1 to 249 letters, digits, '.', '_' and '-'.",
        )
    if config.group_protocol == "classic":
        if config.group_remote_assignor is not None:
            yield "group_remote_assignor", "It needs group_protocol='consumer'."
        return
    if config.group_id is None:
        yield "group_protocol", "'consumer' needs a group_id."
    for name, declaration in config.declarations.items():
        advice = CLASSIC_ONLY.get(name)
        if advice is not None and getattr(config, name) != declaration.default:
            yield name, f"It cannot be set with group_protocol='consumer'. {advice}"


OVERLAPPING = ("redundant",)
"""The names of built-in assignors that may give a partition to several members."""


def commits_by_itself(strategies: tuple[Any, ...]) -> bool:
    """Return the default of `enable_auto_commit` for these assignors.

    It is False if several members may read the same partition, because the commits of these members
    would overwrite each other.
    """
    return not any(
        strategy in OVERLAPPING or getattr(strategy, "overlapping", False)
        for strategy in strategies
        if isinstance(strategy, str) or hasattr(strategy, "overlapping")
    )


class ConsumerConfig(ClientConfig):
    """The options of a consumer, checked."""

    group_id: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The name of the group among whose members the partitions are assigned. Without a group, "
        "the consumer reads all partitions and commits nothing.",
    )
    group_instance_id: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The name of a static member, which stays the same over restarts. A member that returns "
        "within session_timeout_ms keeps its partitions without a rebalance.",
    )
    group_protocol: str = option(
        Choice.of("classic", "consumer"),
        "classic",
        "The group protocol. With classic, a member of the group assigns the partitions. With "
        "consumer (KIP-848, which needs Kafka 4.0), the brokers do.",
    )
    group_remote_assignor: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The assignor that the brokers use with group_protocol='consumer', such as uniform or "
        "range. None leaves the choice to them.",
    )
    partition_assignment_strategy: tuple[Strategy, ...] = option(
        AssignmentStrategies(),
        ("range", "cooperative-sticky"),
        "The assignors of group_protocol='classic' in order of preference: names, classes "
        "derived from aiokclient.Assignor, or objects of these. 'redundant' is Redundant(), and "
        "'co-partitioned' is CoPartitioned().",
        accepts="Strategy | Sequence[Strategy]",
    )
    session_timeout_ms: int = option(
        POSITIVE,
        45_000,
        "The time without a heartbeat after which the brokers remove a member from its group, in "
        "milliseconds. The brokers limit its range (group.min.session.timeout.ms, "
        "group.max.session.timeout.ms).",
    )
    heartbeat_interval_ms: int = option(
        POSITIVE,
        3_000,
        "The time between heartbeats, in milliseconds. It must be below session_timeout_ms. A "
        "third of that is usual.",
    )
    max_poll_interval_ms: int = option(
        POSITIVE,
        300_000,
        "The longest permitted time between two requests of the program for records, in "
        "milliseconds. A member that takes longer leaves its group. The time for which the "
        "program waits for a record does not count.",
    )
    max_poll_records: int = option(
        POSITIVE, 500, "The maximum number of records that poll() returns by default."
    )
    enable_auto_commit: bool = option(  # type: ignore[assignment]  # set on init
        OPTIONAL_BOOLEAN,
        None,
        "Whether the offsets of processed records are committed automatically.",
        shown="True, unless an assignor may give a partition to several members",
        java="true",
    )
    auto_commit_interval_ms: int = option(
        NOT_NEGATIVE, 5_000, "The time between automatic commits, in milliseconds."
    )
    auto_offset_reset: str = option(
        OffsetReset(),
        "latest",
        "The initial offset of a partition without a committed offset: earliest, latest, none "
        "(which raises NoOffsetError), or by_duration: with an ISO 8601 duration, such as "
        "by_duration:PT24H.",
    )
    new_partitions: str = option(
        Choice.of("earliest", "reset"),
        "earliest",
        "The initial offset of a partition that was added after the subscription: earliest is "
        "its first record, and reset applies auto_offset_reset, as Kafka's consumer does.",
        java=ABSENT,
    )
    isolation_level: str = option(
        Choice.of("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "Whether records of open and aborted transactions are delivered (read_uncommitted) or "
        "not (read_committed).",
    )
    fetch_min_bytes: int = option(
        NOT_NEGATIVE,
        1,
        "The number of bytes that a broker collects before it responds to a fetch. It waits for "
        "them for at most fetch_max_wait_ms.",
    )
    fetch_max_bytes: int = option(
        NOT_NEGATIVE,
        52_428_800,
        "The maximum size of the response to a fetch, in bytes. The first ones have at most 2 MiB. "
        "Later ones grow while the program waits for them. A larger batch is returned if it "
        "is the first one. It must be at least 512 below receive_message_max_bytes.",
    )
    fetch_max_wait_ms: int = option(
        NOT_NEGATIVE,
        500,
        "The longest time for which a broker waits for fetch_min_bytes, in milliseconds.",
    )
    max_partition_fetch_bytes: int = option(
        NOT_NEGATIVE,
        1_048_576,
        "The maximum size of one partition in the response to a fetch, in bytes. A larger batch "
        "is returned if it is the first one.",
    )
    max_decompressed_batch_bytes: int = option(
        POSITIVE,
        268_435_456,
        "The maximum size of a decompressed batch, in bytes. A larger one raises "
        "DecompressionLimitError.",
        java=ABSENT,
    )
    check_crcs: bool = option(BOOLEAN, True, "Whether the checksums of batches are verified.")
    allow_auto_create_topics: bool = option(
        BOOLEAN,
        True,
        "Whether the brokers may create a subscribed topic that does not exist.",
    )
    exclude_internal_topics: bool = option(
        BOOLEAN,
        True,
        "Whether patterns do not match internal topics of Kafka, such as __consumer_offsets.",
    )
    key_deserializer: Any = option(
        DESERIALIZER,
        None,
        "A function from bytes to a key, or an object with deserialize(topic, data, headers). By "
        "default, keys are bytes.",
        accepts="Callable[[bytes], K] | Deserializer[K] | None",
        java=REQUIRED,
    )
    value_deserializer: Any = option(
        DESERIALIZER,
        None,
        "A function from bytes to a value, or an object with deserialize(topic, data, headers). "
        "By default, values are bytes.",
        accepts="Callable[[bytes], V] | Deserializer[V] | None",
        java=REQUIRED,
    )
    deserialize_none: bool = option(
        BOOLEAN,
        False,
        "Whether the deserializers are also called with None, for a key or value that is null. By "
        "default, it stays None.",
        java=ABSENT,
    )
    on_record_error: Callable[[Any], Any] | None = option(
        FUNCTION,
        None,
        "A function that is called with the RecordError of a record that cannot be deserialized. "
        "It returns the value to deliver instead, or SKIP. By default, the error is raised.",
        java=ABSENT,
    )

    @property
    def auto_offset_reset_ms(self) -> int | None:
        """The milliseconds of `by_duration:` in auto_offset_reset, or None for its other values."""
        return OffsetReset.duration_ms(self.auto_offset_reset)

    def _check_together(self) -> None:
        together(self, ClientConfig._check_together, check_group, check_fetch_size)
        given: Any = self.enable_auto_commit
        if given is None:
            own = commits_by_itself(self.partition_assignment_strategy)
            settle(self, "enable_auto_commit", own)


suggest(ConsumerConfig.kind(), ConsumerConfig.declarations)


class ConsumerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a consumer; `ConsumerConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

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
    deserialize_none: bool
    on_record_error: Callable[[Any], Any] | None

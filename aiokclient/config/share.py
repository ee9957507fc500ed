"""The options of a share consumer (KIP-932), and those that only its group has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, TypeVar

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.kinds import (
    BOOLEAN,
    DESERIALIZER,
    FUNCTION,
    NOT_NEGATIVE,
    POSITIVE,
    Choice,
    Text,
)
from aiokclient.config.option import ABSENT, REQUIRED, option
from aiokclient.config.problems import suggest, together
from aiokclient.config.rules import check_fetch_size
from aiokclient.types import Deserializer

K = TypeVar("K")
V = TypeVar("V")

GROUP_CONFIGS: Final = {
    "auto_offset_reset": ("share.auto.offset.reset", "earliest"),
    "isolation_level": ("share.isolation.level", "read_committed"),
    "session_timeout_ms": ("share.session.timeout.ms", "45000"),
    "heartbeat_interval_ms": ("share.heartbeat.interval.ms", "5000"),
}
"""For an option of other consumers, the configuration of the share group with its meaning.

The second text is a value for an example.
"""


def _of_group(name: str) -> str:
    config, value = GROUP_CONFIGS[name]
    return (
        f"It is a configuration of the share group, {config}, which all of its members have in "
        "common. Set it with "
        f"Admin.alter_configs({{ConfigResource.group(group_id): {{{config!r}: {value!r}}}}})."
    )


_ASSIGNED = "The brokers assign the partitions of a share group, several members to each if needed."


class GroupName(Text):
    """The name of a group, which the program must give."""

    def check_value(self, value: Any) -> str | None:
        if value is None or value == "":
            raise ValueError("Name the group whose members share the records.")
        return super().check_value(value)


class ShareConsumerConfig(ClientConfig):
    """The options of a share consumer, checked."""

    refused: ClassVar[Mapping[str, str]] = {
        **{name: _of_group(name) for name in GROUP_CONFIGS},
        "enable_auto_commit": (
            "A share consumer commits no offsets. It accepts a record when the next one is "
            "requested, or with ShareConsumer.tracked() when the program settles it."
        ),
        "group_instance_id": "A share group has no static members. Leave it out.",
        "group_protocol": "A share group has a protocol of its own. Leave it out.",
        "group_remote_assignor": f"{_ASSIGNED} Leave it out.",
        "partition_assignment_strategy": f"{_ASSIGNED} Leave it out.",
    }

    group_id: str = option(
        GroupName(),
        "",
        "The name of the share group whose members share the records. Required.",
        shown="none",
        java=REQUIRED,
    )
    max_poll_records: int = option(
        POSITIVE,
        500,
        "The maximum number of records that poll() returns by default, and that the consumer "
        "acquires with one request.",
    )
    share_acquire_mode: str = option(
        Choice.of("auto", "record_limit", "batch_optimized"),
        "auto",
        "The acquisition of records. With record_limit (KIP-1206, which needs Kafka 4.2), a broker "
        "acquires as many records as the consumer requests, with batch_optimized whole "
        "batches, which may be more. With auto, the consumer requests a limit while it can take "
        "fewer records than a batch has, and whole batches otherwise.",
        java="batch_optimized",
    )
    renew_locks: bool = option(
        BOOLEAN,
        True,
        "Whether the locks of held records are renewed when half of their duration has passed "
        "(KIP-1222, which needs Kafka 4.2). Otherwise a record that is not settled in time is "
        "delivered again.",
        java=ABSENT,
    )
    max_processing_ms: int = option(
        POSITIVE,
        300_000,
        "The time from the delivery of a record for which its lock is renewed, in milliseconds. A "
        "record that is not settled then is delivered again, to any member of the group.",
        java=ABSENT,
    )
    on_acknowledge_error: Callable[[Any], object] | None = option(
        FUNCTION,
        None,
        "A function that is called with the LockLostError or AcknowledgeError of a record whose "
        "outcome no commit() waits for. By default, the errors are logged.",
        java=ABSENT,
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
        "The maximum size of the response to a fetch, in bytes. A larger batch is returned if it "
        "is the first one. It must be at least 512 below receive_message_max_bytes.",
    )
    fetch_max_wait_ms: int = option(
        NOT_NEGATIVE,
        500,
        "The longest time for which a broker waits for fetch_min_bytes, in milliseconds. What is "
        "settled meanwhile is sent after that time, because a broker accepts one request at a time "
        "from each member.",
    )
    max_decompressed_batch_bytes: int = option(
        POSITIVE,
        268_435_456,
        "The maximum size of a decompressed batch, in bytes. A larger one raises "
        "DecompressionLimitError.",
        java=ABSENT,
    )
    check_crcs: bool = option(BOOLEAN, True, "Whether the checksums of batches are verified.")
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
        "It returns the value to deliver instead, or SKIP (the record is accepted), RELEASE (it is "
        "delivered again), or REJECT (it never is). By default, the record is released, and the "
        "error is raised.",
        java=ABSENT,
    )

    def _check_together(self) -> None:
        together(self, ClientConfig._check_together, check_fetch_size)


suggest(ShareConsumerConfig.kind(), ShareConsumerConfig.declarations)


class ShareConsumerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a share consumer; `ShareConsumerConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    group_id: str
    max_poll_records: int
    share_acquire_mode: str
    renew_locks: bool
    max_processing_ms: int
    on_acknowledge_error: Callable[[Any], object] | None
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_decompressed_batch_bytes: int
    check_crcs: bool
    key_deserializer: Callable[[bytes], K] | Deserializer[K] | None
    value_deserializer: Callable[[bytes], V] | Deserializer[V] | None
    deserialize_none: bool
    on_record_error: Callable[[Any], Any] | None

"""The options of a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.codecs import CODEC_NAMES
from aiokclient.config.kinds import (
    BOOLEAN,
    FUNCTION,
    NOT_NEGATIVE,
    OPTIONAL_BOOLEAN,
    OPTIONAL_TEXT,
    POSITIVE,
    SERIALIZER,
    Choice,
    Integer,
)
from aiokclient.config.option import ABSENT, REQUIRED, option
from aiokclient.config.problems import suggest, together
from aiokclient.config.rules import (
    LEVELS,
    check_delivery_timeout,
    settle_compression,
    settle_idempotence,
    written_levels,
)
from aiokclient.types import Serializer, SerializerFunction

K = TypeVar("K")
V = TypeVar("V")


class ProducerConfig(ClientConfig):
    """The options of a producer, checked. `acks` is -1 for "all"."""

    acks: int = option(
        Choice(((-1, ("all", -1, "-1")), (0, (0, "0")), (1, (1, "1")))),
        -1,
        "The replicas that must acknowledge a record before its delivery succeeds: all in-sync "
        "replicas ('all', or -1), only the leader (1), or none (0). With 0, records may be lost "
        "without an error, and their offset is -1.",
        accepts="int | str",
        shown="'all'",
    )
    enable_idempotence: bool = option(  # type: ignore[assignment]  # set on init
        OPTIONAL_BOOLEAN,
        None,
        "Whether the brokers discard duplicates and preserve the order when a batch is sent "
        "again. Requires acks='all' and max_in_flight_requests_per_connection of at most 5.",
        shown="True where acks and max_in_flight_requests_per_connection allow it",
        java="true",
    )
    max_in_flight_requests_per_connection: int = option(
        POSITIVE,
        5,
        "The maximum number of produce requests in flight to one broker.",
    )
    delivery_timeout_ms: int = option(
        POSITIVE,
        120_000,
        "The time limit of a delivery, from send() to the acknowledgement of the record, with "
        "all retries, in milliseconds. Then the delivery fails with DeliveryTimeoutError.",
    )
    linger_ms: int = option(
        NOT_NEGATIVE,
        5,
        "The time for which a batch waits for more records before it is sent, in milliseconds. "
        "It is sent earlier when it is full, and when a task awaits one of its deliveries or "
        "calls flush().",
    )
    batch_size: int = option(
        NOT_NEGATIVE,
        131_072,
        "The size at which a batch is full, in bytes. A larger record gets a batch of its own.",
        java="16384",
    )
    max_request_size: int = option(
        POSITIVE,
        1_048_576,
        "The largest record and the largest produce request, in bytes. send() raises "
        "RecordTooLargeError for a larger record. The brokers have limits of their own "
        "(message.max.bytes).",
    )
    max_block_ms: int = option(
        NOT_NEGATIVE,
        60_000,
        "The time for which records wait for the metadata of an unknown topic, in milliseconds.",
    )
    buffer_memory: int = option(
        Integer(1, 2**63 - 1),
        33_554_432,
        "The memory for records without an outcome, in bytes. Further records go to an overflow "
        "queue of the same size. drain() waits for room.",
    )
    compression_type: str = option(
        Choice.of(*CODEC_NAMES),
        "none",
        "The codec that compresses batches.",
    )
    compression_level: int | None = option(
        Integer(
            min(levels.start for levels in LEVELS.values()),
            max(levels.stop - 1 for levels in LEVELS.values()),
            optional=True,
        ),
        None,
        f"The level of the codec in compression_type: {written_levels()}. None means the codec's "
        "own default.",
        java=ABSENT,
    )
    compression_gzip_level: int | None = option(
        Integer(-1, 9, optional=True),
        None,
        "The level for compression_type='gzip', if compression_level is None.",
        java="-1",
    )
    compression_lz4_level: int | None = option(
        Integer(1, 17, optional=True),
        None,
        "The level for compression_type='lz4', if compression_level is None.",
        java="9",
    )
    compression_zstd_level: int | None = option(
        Integer(-131_072, 22, optional=True),
        None,
        "The level for compression_type='zstd', if compression_level is None.",
        java="3",
    )
    partitioner: Any = option(
        FUNCTION,
        None,
        "A function (key, partitions, available) that returns the partition of a record. key is "
        "serialized or None, and available has the partitions with a leader. The result None, and "
        "the default, mean Kafka's own method: the hash of the key (`murmur2`), and without a key "
        "one partition per batch.",
        java=ABSENT,
    )
    partitioner_ignore_keys: bool = option(
        BOOLEAN, False, "Whether the default partitioner ignores the keys of records."
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        BOOLEAN,
        True,
        "Whether more of the records without a key go to partitions with short queues.",
    )
    partitioner_availability_timeout_ms: int = option(
        NOT_NEGATIVE,
        0,
        "The time without a response of its leader after which a partition gets no more records "
        "without a key, in milliseconds. 0 disables this.",
    )
    transactional_id: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The name that identifies this producer in transactions, also after a restart of the "
        "process. A producer fences older ones with the same name. It enables transactions, and "
        "every record must then be sent in a transaction.",
    )
    transaction_timeout_ms: int = option(
        POSITIVE,
        60_000,
        "The time after which the brokers abort an open transaction, in milliseconds.",
    )
    key_serializer: Any = option(
        SERIALIZER,
        None,
        "A function from a key to bytes, or an object with serialize(topic, value, headers). By "
        "default, keys are bytes.",
        accepts="SerializerFunction[K] | Serializer[K] | None",
        java=REQUIRED,
    )
    value_serializer: Any = option(
        SERIALIZER,
        None,
        "A function from a value to bytes, or an object with serialize(topic, value, headers). "
        "By default, values are bytes.",
        accepts="SerializerFunction[V] | Serializer[V] | None",
        java=REQUIRED,
    )
    serialize_none: bool = option(
        BOOLEAN,
        False,
        "Whether the serializers are also called with None; for it, they may return None. By "
        "default, a key or value of None stays null.",
        java=ABSENT,
    )
    on_delivery_error: Callable[[Any], object] | None = option(
        FUNCTION,
        None,
        "A function that is called in the event loop with each failed delivery. By default, "
        "failures that the program does not retrieve are logged.",
        java=ABSENT,
    )

    def _check_together(self) -> None:
        together(
            self,
            ClientConfig._check_together,
            settle_idempotence,
            settle_compression,
            check_delivery_timeout,
        )


suggest(ProducerConfig.kind(), ProducerConfig.declarations)


class ProducerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a producer; `ProducerConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

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
    key_serializer: SerializerFunction[K] | Serializer[K] | None
    value_serializer: SerializerFunction[V] | Serializer[V] | None
    serialize_none: bool
    on_delivery_error: Callable[[Any], object] | None

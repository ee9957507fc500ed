"""Errors that this library raises by itself; no broker sends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokclient.errors.base import (
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaError,
    RetriableError,
)
from aiokclient.errors.configuration import InvalidTopicError
from aiokclient.errors.refresh_retriable import NetworkError
from aiokclient.errors.retriable import KafkaTimeoutError
from aiokclient.errors.uncategorised import OffsetOutOfRangeError
from aiokclient.types import Headers, TopicPartition

__all__ = [
    "ApiTimeoutError",
    "AssignmentFailedError",
    "BootstrapError",
    "BufferExhaustedError",
    "ClosedError",
    "CommitFailedError",
    "ConcurrentReadError",
    "ConfigError",
    "ConnectionSetupError",
    "CorruptBatchError",
    "DecompressionLimitError",
    "DeliveryErrors",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "IllegalStateError",
    "LogTruncationError",
    "NoOffsetError",
    "NotWriterError",
    "ProtocolError",
    "RecordError",
    "SerializationError",
    "UsageError",
    "WrongLoopError",
    "WrongThreadError",
]


NAMED = 20
"""Number of partitions that an error text names."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """A record was not acknowledged within `delivery_timeout_ms`; it may be written or not."""

    what = "The record was not acknowledged in time."
    hint = (
        "Whether it was written is unknown unless the text above says so. Check that the "
        "partition has a leader and that its broker answers."
    )


class ApiTimeoutError(KafkaTimeoutError):
    """A call, or one request of it, did not end within its timeout."""

    what = "The call did not end in time."
    hint = "The error that it met last, if any, is this error's cause."


class BootstrapError(KafkaTimeoutError):
    """No broker could be reached in time; `attempts` are the addresses and what came of each.

    `needed` says what was needed; without it, any of the bootstrap servers.
    """

    what = "None of the bootstrap servers could be reached."
    hint = "Check bootstrap_servers, the network, and that a broker runs there."

    def __init__(
        self,
        message: str = "",
        *,
        attempts: Sequence[tuple[str, str]] = (),
        needed: str | None = None,
    ) -> None:
        shown = [f"{address}: {outcome}" for address, outcome in attempts[:NAMED]]
        if len(attempts) > NAMED:
            shown.append(f"and {len(attempts) - NAMED} more")
        super().__init__(" ".join(part for part in (message, "; ".join(shown)) if part))
        self.attempts = tuple(attempts)
        if needed is not None:
            self.what = needed
            self.hint = (
                "Check advertised.listeners of the brokers: this machine must be able to resolve "
                "and reach the addresses that they advertise."
            )


class DisconnectedError(NetworkError):
    """The connection to the broker is gone; whether it handled the request is unknown."""


class ConnectionSetupError(InvalidConfigurationError):
    """What listens there does not speak the protocol that this client was told to speak."""


class BufferExhaustedError(RetriableError):
    """No room for the record; nothing of it is kept."""

    what = "buffer_memory and the parking beyond it are full."
    hint = "Await producer.drain() between sends, or use send_all(), which waits for room."


class ConfigError(KafkaError, ValueError):
    """An option is unknown, or its value is not allowed; `problems` has a text for each."""

    problems: tuple[str, ...] = ()


class CommitFailedError(KafkaError):
    """Offsets were not committed: their partitions are not, or no longer, this consumer's.

    `partitions` lists the partitions. If a broker refused the commit, its error is `__cause__`.
    `what` and `hint` replace the text where the group has not taken the partitions away.
    """

    what = "The commit failed: this consumer no longer owns the partitions."
    hint = (
        "Their records may be delivered again, to this consumer or to another member. Request "
        "records to rejoin the group, and keep the time between two requests below "
        "max_poll_interval_ms."
    )

    def __init__(
        self,
        message: str = "",
        *,
        partitions: Sequence[TopicPartition] = (),
        api: str | None = "OffsetCommit",
        broker: int | str | None = None,
        topic_partition: TopicPartition | None = None,
        resource: str | None = None,
        what: str | None = None,
        hint: str | None = None,
    ) -> None:
        if topic_partition is None and len(partitions) == 1:
            topic_partition = partitions[0]
        if not message and len(partitions) > 1:
            more = f" and {len(partitions) - NAMED} more" if len(partitions) > NAMED else ""
            message = f"Partitions: {', '.join(map(str, partitions[:NAMED]))}{more}."
        super().__init__(
            message, api=api, broker=broker, topic_partition=topic_partition, resource=resource
        )
        self.partitions = tuple(partitions)
        if what is not None:
            self.what = what
        if hint is not None:
            self.hint = hint


class SerializationError(KafkaError):
    """A serializer or deserializer failed; its own exception is the cause."""


class RecordError(SerializationError):
    """A record could not be deserialized. The consumer has moved past it.

    `topic_partition` and `offset` say which, `raw_key`, `raw_value` and `headers` are its bytes.
    """

    what = "A record could not be deserialized."
    hint = "It counts as handed out: ask again to go on after it, or seek to it to try again."

    def __init__(
        self,
        message: str = "",
        *,
        topic_partition: TopicPartition,
        offset: int,
        raw_key: bytes | None = None,
        raw_value: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        super().__init__(
            message, topic_partition=topic_partition, resource=f"{topic_partition}@{offset}"
        )
        self.offset = offset
        self.raw_key = raw_key
        self.raw_value = raw_value
        self.headers = headers

    def _place(self) -> str:
        return f"{self.topic_partition} offset {self.offset}"


class UnreadableBatchError(RecordError):
    """A whole batch cannot be read; raised until sought past."""

    def __init__(
        self,
        message: str = "",
        *,
        topic_partition: TopicPartition,
        offset: int,
        last_offset: int,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition, offset=offset)
        self.last_offset = last_offset

    def _place(self) -> str:
        return f"{self.topic_partition} offsets {self.offset} to {self.last_offset}"


class CorruptBatchError(UnreadableBatchError):
    """A batch fails its checksum or cannot be decompressed, twice; raised until sought past."""

    what = "A record batch is damaged; fetching it again gave the same."
    hint = "Seek past last_offset to go on without it; suspect the disk of the partition's leader."


class DecompressionLimitError(UnreadableBatchError):
    """A batch is over `max_decompressed_batch_bytes`; raised until sought past."""

    what = "A record batch holds more than max_decompressed_batch_bytes when decompressed."
    hint = "Raise max_decompressed_batch_bytes, or seek past last_offset to continue without it."


class NoOffsetError(InvalidOffsetError):
    """There is no position to start from, and `auto_offset_reset` is "none"."""

    what = "The partition has no committed offset, and auto_offset_reset is 'none'."
    hint = "Seek to where reading should start, or set auto_offset_reset."


class LogTruncationError(OffsetOutOfRangeError):
    """The log was cut back behind the consumer's position, by an unclean election (KIP-320).

    `offset` is the position, `diverging_offset` the first one that differs, None if unknown.
    """

    what = "Records that this consumer has read are no longer in the log."
    hint = "Other records may take their offsets: seek to diverging_offset to read those."

    def __init__(
        self,
        message: str = "",
        *,
        topic_partition: TopicPartition,
        offset: int,
        diverging_offset: int | None = None,
    ) -> None:
        super().__init__(message, topic_partition=topic_partition)
        self.offset = offset
        self.diverging_offset = diverging_offset


class ProtocolError(KafkaError):
    """Bytes that are not what Kafka's protocol allows; the connection they came by is closed."""


class AssignmentFailedError(KafkaError):
    """The group's leader could not compute an assignment."""


class NotWriterError(KafkaError):
    """This process is no longer the single writer."""


class UsageError(KafkaError, RuntimeError):
    """The program called something that it must not, here or now."""


class ClosedError(UsageError):
    """The client is closed, or was closed before this could end."""


class IllegalStateError(UsageError):
    """The call does not fit what the client is doing."""


class ArgumentTypeError(IllegalStateError, TypeError):
    """An argument has a type that the call does not take."""


class TopicTypeError(InvalidTopicError, TypeError):
    """The name of a topic is not a str."""


class RecordTypeError(SerializationError, TypeError):
    """A part of a record has a type that cannot be sent."""


class WrongThreadError(UsageError):
    """Called from another thread than that of the client's event loop."""


class WrongLoopError(UsageError):
    """Called from another event loop than the one that the client was started in."""


class ConcurrentReadError(UsageError):
    """A second reader of one consumer."""

    what = "Another task is reading from this consumer."
    hint = "Read in one task and hand the records on, or give each task a consumer of its own."


class DeliveryErrors(ExceptionGroup[Exception]):
    """Failed deliveries that nobody retrieved: the first of them, and how many in all (`count`)."""

    count: int

    def __new__(
        cls, message: str, exceptions: Sequence[Exception], count: int | None = None
    ) -> DeliveryErrors:
        group = super().__new__(cls, message, exceptions)
        group.count = len(exceptions) if count is None else count
        return group

    def __init__(self, *args: Any) -> None:
        # The built-in constructor takes no count; __new__ has set everything.
        super().__init__(args[0], args[1])

    def derive(self, excs: Sequence[Exception], /) -> DeliveryErrors:  # type: ignore[override]
        return DeliveryErrors(self.message, excs)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeliveryErrors, (self.message, self.exceptions, self.count)

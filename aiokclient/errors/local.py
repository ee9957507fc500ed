"""Errors of this library, which no broker sends."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final, NoReturn, Self

from aiokclient.errors.base import (
    ApplicationRecoverableError,
    AuthenticationError,
    InvalidConfigurationError,
    InvalidOffsetError,
    KafkaError,
    RetriableError,
)
from aiokclient.errors.configuration import InvalidTopicError
from aiokclient.errors.refresh_retriable import NetworkError
from aiokclient.errors.retriable import KafkaTimeoutError
from aiokclient.errors.uncategorized import InvalidRecordStateError, OffsetOutOfRangeError
from aiokclient.types import ConsumerRecord, Headers, TopicPartition

__all__ = [
    "AcknowledgeError",
    "AcknowledgeErrors",
    "ApiTimeoutError",
    "AssignmentFailedError",
    "BootstrapError",
    "BufferExhaustedError",
    "ClosedError",
    "ClusterChangedError",
    "CommitFailedError",
    "ConcurrentReadError",
    "ConfigError",
    "ConnectionSetupError",
    "CorruptBatchError",
    "DecompressionLimitError",
    "DeliveryErrors",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "HandlerStuckError",
    "IllegalStateError",
    "LockLostError",
    "LogTruncationError",
    "NoOffsetError",
    "NotWriterError",
    "ProtocolError",
    "RecordError",
    "ResponseTooLargeError",
    "SerializationError",
    "TicketError",
    "TlsError",
    "TokenProviderError",
    "TokenRefusedError",
    "TransactionFailedError",
    "UsageError",
    "WrongLoopError",
    "WrongThreadError",
]


NAMED = 20
"""Number of partitions that an error text names."""


class DeliveryTimeoutError(KafkaTimeoutError):
    """An error raised when a record was not acknowledged within `delivery_timeout_ms`."""

    what = "The record was not acknowledged within delivery_timeout_ms."
    hint = (
        "The record may have been written, unless the text above says that it was never sent. "
        "Check that the partition has a leader, and that its broker responds."
    )
    help = "reference/errors.html#deliverytimeouterror"


class ApiTimeoutError(KafkaTimeoutError):
    """An error raised when a call, or one of its requests, exceeds its timeout."""

    what = "The call did not finish before its timeout."
    hint = "The last error of an attempt, if any, is the cause of this error."
    help = "reference/errors.html#apitimeouterror"


class BootstrapError(KafkaTimeoutError):
    """An error raised when no broker could be reached in time.

    `attempts` has each address and its outcome. `needed` replaces the first sentence of the text
    when something other than a bootstrap server could not be reached.
    """

    what = "No bootstrap server could be reached."
    hint = "Check bootstrap_servers and the network, and that the brokers are running."
    help = "reference/errors.html#bootstraperror"

    def __init__(
        self,
        message: str = "",
        *,
        attempts: Sequence[tuple[str, str]] = (),
        needed: str | None = None,
    ) -> None:
        # Some outcomes already begin with the address, which must not be in the text twice.
        shown = [
            outcome if outcome.startswith(address) else f"{address}: {outcome}"
            for address, outcome in attempts[:NAMED]
        ]
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
    """An error raised when a connection is lost. The broker may have processed the request."""

    help = "reference/errors.html#disconnectederror"


class ConnectionSetupError(InvalidConfigurationError):
    """An error raised when a connection cannot be set up with the configured protocol."""

    help = "reference/errors.html#connectionsetuperror"


class TlsError(ConnectionSetupError):
    """An error raised when a TLS handshake fails, for example because of a certificate."""

    help = "reference/errors.html#tlserror"


class ClusterChangedError(InvalidConfigurationError):
    """An error raised when the brokers belong to another cluster and `cluster_id_change` is "fail".

    It is also raised by the read of a range, whose offsets belong to the former cluster, and by the
    end of a detached transaction that was begun in another cluster.
    `old_cluster_id` and `new_cluster_id` are the ids of the two clusters.
    """

    what = "The bootstrap servers, or the known addresses, lead to another cluster."
    hint = (
        "Nothing was written to that cluster or read from it. Check bootstrap_servers, and create "
        "a new client, or set cluster_id_change='accept'."
    )

    def __init__(self, message: str = "", *, old_cluster_id: str, new_cluster_id: str) -> None:
        text = f"The cluster id was {old_cluster_id}, and is {new_cluster_id} now."
        super().__init__(message or text)
        self.old_cluster_id = old_cluster_id
        self.new_cluster_id = new_cluster_id


class BufferExhaustedError(RetriableError):
    """An error raised when there is no room for a record. The record is not sent."""

    what = "buffer_memory and the overflow queue are full."
    hint = "Await producer.drain() between sends, or use send_all(), which waits for room."


class TokenProviderError(RetriableError):
    """An error raised when there is no token for OAUTHBEARER. The provider's error is its cause."""

    what = "The client has no token with which to log in."
    hint = "Check the token provider and the server that it asks."
    help = "reference/errors.html#tokenprovidererror"


class TicketError(RetriableError):
    """An error raised when there is no Kerberos ticket now, for example because no KDC responds."""

    what = "The client has no Kerberos ticket with which to log in."
    hint = "Check that a key distribution center (KDC) can be reached, and renew the ticket cache."
    help = "reference/errors.html#ticketerror"


class TokenRefusedError(AuthenticationError):
    """An error raised when a token endpoint refuses the client, for example for a wrong secret.

    `endpoint` is the URL, and `oauth_error` is the error in the response, such as "invalid_client",
    or None if the response names none.
    """

    what = "The client has no token with which to log in."
    hint = "Check the client id, its secret or assertion, and the scope, at the token server."

    def __init__(
        self, message: str = "", *, endpoint: str | None = None, oauth_error: str | None = None
    ) -> None:
        super().__init__(message)
        self.endpoint = endpoint
        self.oauth_error = oauth_error


class TransactionFailedError(ApplicationRecoverableError):
    """An error raised when a transactional producer is no longer usable."""

    what = "The transactional producer is no longer usable."
    hint = "Await restart(), or close the producer and create a new one. Then repeat the work."
    help = "reference/errors.html#transactionfailederror"


class ConfigError(KafkaError, ValueError):
    """An error raised for unknown or invalid options; `problems` has a text for each."""

    _has_lines = True
    problems: tuple[str, ...] = ()


class CommitFailedError(KafkaError):
    """An error raised when the consumer does not own the partitions of a commit.

    `partitions` lists the partitions. If a broker rejected the commit, its error is `__cause__`.
    `what` and `hint` replace the default texts, which say that the group revoked the partitions.
    """

    what = "The commit failed: this consumer no longer owns the partitions."
    hint = (
        "Their records may be delivered again, to this consumer or to another member. Request "
        "records to rejoin the group, and keep the time between two requests below "
        "max_poll_interval_ms."
    )
    help = "reference/errors.html#commitfailederror"

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
    """An error raised when a serializer or deserializer fails; its exception is the cause."""


class RecordError(SerializationError):
    """An error raised when a record could not be deserialized. The consumer has moved past it.

    `topic_partition` and `offset` identify the record; `raw_key`, `raw_value`, and `headers` are
    its bytes.
    """

    what = "A record could not be deserialized."
    hint = (
        "The record counts as delivered. Read again to continue after it, or seek to it to retry."
    )
    help = "reference/errors.html#recorderror"

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

    def _describe_place(self) -> str:
        return f"{self.topic_partition} offset {self.offset}"


class UnreadableBatchError(RecordError):
    """An error raised when a whole batch is unreadable, until the consumer seeks past it."""

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

    def _describe_place(self) -> str:
        return f"{self.topic_partition} offsets {self.offset} to {self.last_offset}"


class CorruptBatchError(UnreadableBatchError):
    """An error raised when a batch is corrupt, even after a second fetch.

    It is raised until the consumer seeks past the batch.
    """

    what = "A record batch is corrupt, and fetching it again did not help."
    hint = "Seek past last_offset to continue without it. Check the disk of the partition's leader."
    help = "reference/errors.html#corruptbatcherror"


class DecompressionLimitError(UnreadableBatchError):
    """An error raised when a batch exceeds `max_decompressed_batch_bytes`.

    It is raised until the consumer seeks past the batch.
    """

    what = "A record batch is larger than max_decompressed_batch_bytes when decompressed."
    hint = "Raise max_decompressed_batch_bytes, or seek past last_offset to continue without it."
    help = ""


class ResponseTooLargeError(KafkaError):
    """An error raised when a response is larger than `receive_message_max_bytes`.

    Requests for records raise it while the next record batch of a partition is beyond the limit,
    until the consumer seeks past it. `size` is the size of the response in bytes, and `limit` the
    largest accepted one. `offset` is the offset that was fetched, or None for other requests.
    """

    what = "A response is larger than receive_message_max_bytes."
    hint = "Raise receive_message_max_bytes."
    offset: int | None = None

    def __init__(
        self,
        message: str = "",
        *,
        api: str | None = None,
        broker: int | None = None,
        topic_partition: TopicPartition | None = None,
        size: int = 0,
        limit: int = 0,
    ) -> None:
        if size and not message:
            message = f"It has {size} bytes. At most {limit} bytes are allowed."
        super().__init__(message, api=api, broker=broker, topic_partition=topic_partition)
        self.size = size
        self.limit = limit

    def of_records(self, topic_partition: TopicPartition, offset: int) -> Self:
        """Return the error for a request for records from this offset on."""
        error = copy.copy(self)
        error.message = (
            f"The one for offset {offset} has {self.size} bytes. "
            f"At most {self.limit} bytes are allowed."
        )
        error.topic_partition, error.offset = topic_partition, offset
        error.hint = "Raise receive_message_max_bytes, or seek past the record batch."
        return error


class NoOffsetError(InvalidOffsetError):
    """An error raised when there is no initial offset and `auto_offset_reset` is "none".

    It is also the error of a partition whose committed offset a call of `Admin` needs, but the
    group has none.
    """

    what = "The partition has no committed offset, and auto_offset_reset is 'none'."
    hint = "Seek to an initial offset, or set auto_offset_reset."


class LogTruncationError(OffsetOutOfRangeError):
    """An error raised when the log was truncated below the consumer's position (KIP-320).

    An unclean leader election can cause this. `offset` is the position; `diverging_offset` is the
    first offset that differs, or None if it is unknown.
    """

    what = "The log was truncated below the position: records that were read are no longer in it."
    hint = "Other records may have taken their offsets. Seek to diverging_offset to read those."
    help = "reference/errors.html#logtruncationerror"

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


def _describe_offset(place: str, offset: int) -> str:
    """Return where an error of a record occurred: the place of its partition, and the offset."""
    return f"{place.removeprefix(' for ')} offset {offset}"


class LockLostError(InvalidRecordStateError):
    """An error raised when a share consumer has lost the lock of a record (KIP-932).

    `record` is the record. `reason` is "expired", "moved" (the partition, to another leader, or
    its topic was deleted), "disconnected", "session" (the broker has dropped it), "refused" (by the
    broker, for the record), or "fenced" (the offsets of the group were altered, or the group was
    deleted).

    `confirmed` says whether the settlement took effect: True if the broker has confirmed it, too
    late to know that no other member has the record; False if nothing was sent, or the broker has
    refused it; None if it is unknown, because the connection was lost.
    """

    def __init__(
        self,
        message: str = "",
        *,
        record: ConsumerRecord[Any, Any],
        reason: str,
        confirmed: bool | None = False,
        api: str | None = None,
        broker: int | str | None = None,
    ) -> None:
        if confirmed is None:
            message = f"{message} The broker may have applied what was settled.".strip()
        elif confirmed:
            late = "The broker has confirmed the settlement too late: the record is finished."
            message = f"{message} {late}".strip()
        tp = TopicPartition(record.topic, record.partition)
        super().__init__(message, api=api, broker=broker, topic_partition=tp)
        self.record = record
        self.reason = reason
        self.confirmed = confirmed
        self.what, self.hint = _LOSSES[reason]
        if confirmed:
            self.hint = _HINTS_OF_FINISHED.get(reason, self.hint)

    def _describe_place(self) -> str:
        return _describe_offset(super()._describe_place(), self.record.offset)


_EXPIRED: Final = (
    "Process records faster, leave renew_locks=True, or raise max_processing_ms, or "
    "share.record.lock.duration.ms of the group."
)
_MOVED: Final = "No action is needed: the record is delivered again, to any member of the group."
_LOSSES: Final = {
    "expired": (
        "The lock of the record expired before the record was settled.",
        f"The record is delivered again. {_EXPIRED}",
    ),
    "moved": (
        "The partition has moved to another leader, or its topic was deleted. This ended the lock.",
        "No action is needed: a record that still exists is delivered again, to any member of the "
        "group.",
    ),
    "disconnected": (
        "The connection to the partition's leader was lost, which ended the lock.",
        _MOVED,
    ),
    "session": ("The broker has dropped the share session, which ended the lock.", _MOVED),
    "refused": ("The broker no longer regards the record as locked by this consumer.", _MOVED),
    "fenced": (
        "The offsets of the share group were altered, or the group was deleted, which ended the "
        "lock.",
        "Alter offsets only while no member of the group is running.",
    ),
}
"""A text of the event and a hint, for each reason of a `LockLostError`."""
_HINTS_OF_FINISHED: Final = {
    "expired": _EXPIRED,
    **dict.fromkeys(("moved", "disconnected", "session", "refused"), "No action is needed."),
}
"""The hints where the broker has confirmed the settlement: the record is not delivered again."""


class AcknowledgeError(KafkaError):
    """An error raised when a broker refuses what a share consumer has settled.

    `record` is the record. `__cause__` is the broker's error. The lock of the record stays until
    its deadline, and then the record is delivered again.
    """

    what = "The broker has refused to settle the record."
    hint = "The cause of this error says why. The record is delivered again when its lock ends."

    def __init__(
        self,
        message: str = "",
        *,
        record: ConsumerRecord[Any, Any],
        api: str | None = None,
        broker: int | str | None = None,
    ) -> None:
        tp = TopicPartition(record.topic, record.partition)
        super().__init__(message, api=api, broker=broker, topic_partition=tp)
        self.record = record

    def _describe_place(self) -> str:
        return _describe_offset(super()._describe_place(), self.record.offset)


class ProtocolError(KafkaError):
    """An error raised for bytes that violate Kafka's protocol. Their connection is closed."""


class EncodeError(ProtocolError, ValueError):
    """An error raised when a request has a value that its format cannot express.

    No broker has received the request, so it is never repeated.
    """


class AssignmentFailedError(KafkaError):
    """An error raised when the leader of a group could not compute an assignment."""


class NotWriterError(KafkaError):
    """An error raised when this process is no longer the writer of a `single_writer()`."""

    what = "This process is no longer the single writer, and its producer was closed."
    hint = "Enter single_writer() again to wait until this process is the writer again."


class UsageError(KafkaError, RuntimeError):
    """An error raised for a mistake in the program: a call that is not allowed here or now."""


class ClosedError(UsageError):
    """An error raised when the client is closed, or was closed during the call."""


class IllegalStateError(UsageError):
    """An error raised when the state of the client does not allow the call."""


class HandlerStuckError(UsageError):
    """An error raised by a worker at its end if a handler goes on although it was cancelled.

    The text has the record and the stack of each such handler. The worker has left them, so that
    the process may have to be ended.
    """

    what = "A handler goes on although it was cancelled."
    hint = (
        "Let CancelledError pass through the handler, and do not block in a thread without a "
        "timeout. The records of such handlers are not committed."
    )
    _has_lines = True


class ArgumentTypeError(IllegalStateError, TypeError):
    """An error raised when an argument has the wrong type."""


def refuse_loop(self: object) -> NoReturn:
    """Raise the error for a `for` loop over an asynchronous iterable, as its `__iter__`."""
    raise ArgumentTypeError(
        f"{type(self).__name__} is read asynchronously. Write `async for`, in a coroutine."
    )


class ArgumentValueError(IllegalStateError, ValueError):
    """An error raised when an argument of a call has a value that no broker could receive."""


class ConfigTypeError(ConfigError, TypeError):
    """An error raised when the items of a work pool have the wrong type."""


class TopicTypeError(InvalidTopicError, TypeError):
    """An error raised when the name of a topic is not a str."""

    what = "The name of a topic must be a str, as in send('orders', value)."


class TopicValueError(InvalidTopicError, ValueError):
    """An error raised when the name of a topic is one that no broker could receive."""


class RecordTypeError(SerializationError, TypeError):
    """An error raised when a part of a record has a type that cannot be sent."""


class WrongThreadError(UsageError):
    """An error raised for a call from a thread other than that of the client's event loop."""


class WrongLoopError(UsageError):
    """An error raised for a call from an event loop other than the client's."""


class ConcurrentReadError(UsageError):
    """An error raised when a second task reads from a consumer."""

    what = "Another task is reading from this consumer."
    hint = "Read in one task and pass the records on, or use one consumer per task."


class AcknowledgeErrors(ExceptionGroup[Exception]):
    """A group of errors of records that were settled: LockLostError and AcknowledgeError.

    `commit()` of a share consumer raises it. The records of all other settlements are settled.
    """

    def derive(self, excs: Sequence[Exception], /) -> AcknowledgeErrors:  # type: ignore[override]
        return AcknowledgeErrors(self.message, excs)


class DeliveryErrors(ExceptionGroup[Exception]):
    """A group of errors of failed deliveries whose errors were not retrieved.

    It contains only the first of these errors. `count` is the number of all of them.
    """

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

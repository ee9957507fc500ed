"""The errors of a send that appends no record, with their category inside a transaction.

Without a transaction, such an error concerns only the record. Inside one, everything that a call
raises belongs to a category (KIP-1050): the application either leaves the record out and continues,
or aborts the transaction, as after any other AbortableError.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aiokclient.errors import (
    AbortableError,
    BufferExhaustedError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)

__all__ = ["NON_TRANSACTIONAL", "TRANSACTIONAL", "SendErrors"]


class AbortableBufferExhaustedError(BufferExhaustedError, AbortableError):
    """A BufferExhaustedError of a transactional producer with an open transaction."""


class AbortableRecordTooLargeError(RecordTooLargeError, AbortableError):
    """A RecordTooLargeError of a transactional producer with an open transaction."""


class AbortableUnknownPartitionError(UnknownTopicOrPartitionError, AbortableError):
    """An UnknownTopicOrPartitionError of a transactional producer with an open transaction."""


class SendErrors(NamedTuple):
    """The classes of the errors that a producer raises when it cannot accept a record."""

    exhausted: type[BufferExhaustedError]
    too_large: type[RecordTooLargeError]
    unknown_partition: type[UnknownTopicOrPartitionError]


NON_TRANSACTIONAL: Final = SendErrors(
    BufferExhaustedError, RecordTooLargeError, UnknownTopicOrPartitionError
)
TRANSACTIONAL: Final = SendErrors(
    AbortableBufferExhaustedError, AbortableRecordTooLargeError, AbortableUnknownPartitionError
)

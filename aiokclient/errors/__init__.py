"""All errors, by category. Every class of the tree is importable from here.

A client retries what is retriable by itself, until the deadline of the call. What reaches the
program says by its category what is left to do (KIP-1050):

    KafkaError
    ├── RetriableError                    the same call may succeed later
    │   ├── RefreshRetriableError         ... after metadata or coordinator were looked up anew
    │   │   ├── InvalidMetadataError      3 5 6 9 13 56 72 74 80 83 84 100 103
    │   │   │   └── NetworkError (13)
    │   │   │       └── DisconnectedError
    │   │   └──                           15 16
    │   ├── KafkaTimeoutError             also a TimeoutError
    │   │   ├── RequestTimedOutError (7), ApiTimeoutError
    │   │   └── DeliveryTimeoutError, BootstrapError
    │   ├── BufferExhaustedError
    │   └──                               2 14 19 20 41 51 70 71 75 78 88 89 106 122 123 133
    ├── AbortableError                    abort the transaction, then go on: 120
    ├── ApplicationRecoverableError       close the client, make a new one: 22 25 47 49 82 90
    │   └── UnknownCodeError              any code that is not in this tree
    ├── InvalidConfigurationError         mend something outside the program
    │   ├── AuthorizationError            29 30 31 53 65
    │   ├── AuthenticationError           33 34 58
    │   ├── ConnectionSetupError
    │   └──                               17 18 21 35 38 40 43 87
    ├── InvalidOffsetError
    │   ├── OffsetOutOfRangeError (1)
    │   │   └── LogTruncationError
    │   └── NoOffsetError
    ├── OutOfOrderSequenceError (45)
    │   └── UnknownProducerIdError (59)
    ├──                                   all other codes: no category
    ├── CommitFailedError                 the partitions are not this consumer's
    ├── ConfigError                       also a ValueError
    ├── SerializationError
    │   └── RecordError
    │       └── CorruptBatchError, DecompressionLimitError
    ├── ProtocolError, AssignmentFailedError, NotWriterError
    └── UsageError                        also a RuntimeError: the program has a mistake
        └── ClosedError, IllegalStateError, WrongThreadError, WrongLoopError, ConcurrentReadError

    DeliveryErrors                        an ExceptionGroup of any of them

Cancellation is never among them: `asyncio.CancelledError` passes through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# ruff: noqa: F403 - every module of this package lists its classes in __all__
from aiokclient.errors import (
    abortable,
    base,
    configuration,
    local,
    recoverable,
    refresh_retriable,
    retriable,
    uncategorised,
    uncategorised_admin,
)
from aiokclient.errors.abortable import *
from aiokclient.errors.base import *
from aiokclient.errors.base import KafkaError, registered
from aiokclient.errors.configuration import *
from aiokclient.errors.local import *
from aiokclient.errors.recoverable import *
from aiokclient.errors.recoverable import UnknownCodeError
from aiokclient.errors.refresh_retriable import *
from aiokclient.errors.retriable import *
from aiokclient.errors.uncategorised import *
from aiokclient.errors.uncategorised_admin import *
from aiokclient.types import TopicPartition

__all__ = ["ERRORS_BY_CODE", "error_for"]
__all__ += abortable.__all__
__all__ += base.__all__
__all__ += configuration.__all__
__all__ += local.__all__
__all__ += recoverable.__all__
__all__ += refresh_retriable.__all__
__all__ += retriable.__all__
__all__ += uncategorised.__all__
__all__ += uncategorised_admin.__all__
__all__.sort()

ERRORS_BY_CODE: Mapping[int, type[KafkaError]] = MappingProxyType(registered)
"""Every code that Kafka defines but 0, which is success."""


def error_for(
    code: int,
    message: str | None = None,
    *,
    api: str | None = None,
    broker: int | str | None = None,
    topic_partition: TopicPartition | None = None,
    resource: str | None = None,
) -> KafkaError | None:
    """Return the error that a broker's code stands for, or None for 0 (success).

    `message` is what the broker said beyond the code. A code that this library does not know
    gives an `UnknownCodeError`, which keeps the number.
    """
    if code == 0:
        return None
    error_type = registered.get(code)
    error = (
        UnknownCodeError(code, message or "") if error_type is None else error_type(message or "")
    )
    error.api, error.broker = api, broker
    error.topic_partition, error.resource = topic_partition, resource
    return error

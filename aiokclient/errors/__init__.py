"""All errors, by category. Every class of the tree can be imported from here.

A client retries after a retriable error, until the deadline of the call. The category of an error
that reaches the program says what the program can do about it (KIP-1050):

    KafkaError
    ├── RetriableError                    the same call may succeed later
    │   ├── RefreshRetriableError         ... after a lookup of metadata or coordinator
    │   │   ├── InvalidMetadataError      3 5 6 9 13 56 72 74 80 83 84 100 103
    │   │   │   └── NetworkError (13)
    │   │   │       └── DisconnectedError
    │   │   └──                           15 16
    │   ├── KafkaTimeoutError             also a TimeoutError
    │   │   ├── RequestTimedOutError (7), ApiTimeoutError
    │   │   └── DeliveryTimeoutError, BootstrapError
    │   ├── BufferExhaustedError, TokenProviderError, TicketError
    │   ├── SchemaRegistryUnavailableError
    │   └──                               2 14 19 20 41 51 70 71 75 78 88 89 106 122 123 133
    ├── AbortableError                    abort the transaction, then go on: 120
    ├── ApplicationRecoverableError       close the client, create a new one: 22 25 47 49 82 90
    │   ├── UnknownCodeError              any code that is not in this tree
    │   └── TransactionFailedError
    ├── InvalidConfigurationError         fix something outside the program
    │   ├── AuthorizationError            29 30 31 53 65
    │   ├── AuthenticationError           33 34 58
    │   │   └── TokenRefusedError
    │   ├── ConnectionSetupError, ClusterChangedError
    │   │   └── TlsError
    │   └──                               17 18 21 35 38 40 43 87
    ├── InvalidOffsetError
    │   ├── OffsetOutOfRangeError (1)
    │   │   └── LogTruncationError
    │   └── NoOffsetError
    ├── OutOfOrderSequenceError (45)
    │   └── UnknownProducerIdError (59)
    ├──                                   all other codes: no category
    ├── CommitFailedError                 the consumer does not own the partitions
    ├── InvalidRecordStateError (121)
    │   └── LockLostError                 a share consumer has lost the lock of a record
    ├── AcknowledgeError                  a broker refuses what a share consumer has settled
    ├── ConfigError                       also a ValueError
    ├── SchemaRegistryError               a schema registry refuses; see its status and error_code
    │   └── SchemaNotFoundError
    ├── SerializationError
    │   └── RecordError
    │       └── CorruptBatchError, DecompressionLimitError
    ├── ProtocolError, ResponseTooLargeError, AssignmentFailedError, NotWriterError
    └── UsageError                        also a RuntimeError: a mistake in the program
        └── ClosedError, IllegalStateError, WrongThreadError, WrongLoopError, ConcurrentReadError,
            HandlerStuckError

    DeliveryErrors                        an ExceptionGroup of any of them
    AcknowledgeErrors                     an ExceptionGroup of LockLostError and AcknowledgeError

Cancellation is never among them: `asyncio.CancelledError` passes through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

# ruff: noqa: F403 - every module of this package lists its classes in __all__
from aiokclient.errors import (
    abortable,
    base,
    configuration,
    local,
    recoverable,
    refresh_retriable,
    retriable,
    schema_registry,
    uncategorized,
    uncategorized_admin,
)
from aiokclient.errors.abortable import *
from aiokclient.errors.base import *
from aiokclient.errors.base import KafkaError, error_for, registered
from aiokclient.errors.configuration import *
from aiokclient.errors.local import *
from aiokclient.errors.recoverable import *
from aiokclient.errors.refresh_retriable import *
from aiokclient.errors.retriable import *
from aiokclient.errors.schema_registry import *
from aiokclient.errors.uncategorized import *
from aiokclient.errors.uncategorized_admin import *
from aiokclient.types import public_in

__all__ = ["ERRORS_BY_CODE", "error_for"]
__all__ += abortable.__all__
__all__ += base.__all__
__all__ += configuration.__all__
__all__ += local.__all__
__all__ += recoverable.__all__
__all__ += refresh_retriable.__all__
__all__ += retriable.__all__
__all__ += schema_registry.__all__
__all__ += uncategorized.__all__
__all__ += uncategorized_admin.__all__
__all__.sort()

for _name in __all__:
    if isinstance(_value := globals().get(_name), type):
        public_in(__name__)(_value)

ERRORS_BY_CODE: Mapping[int, type[KafkaError]] = MappingProxyType(registered)
"""The class for each code that Kafka defines, except 0, which is success."""


if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        from aiokclient.log.hints import error_hint, refuse_name

        refuse_name(__name__, name, error_hint(name, __all__))

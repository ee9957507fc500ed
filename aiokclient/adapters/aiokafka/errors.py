"""The errors of aiokafka, by its names and in its hierarchy.

    Exception
    ├── ConsumerStoppedError, IllegalOperation
    └── RuntimeError
        └── KafkaError
            ├── CommitFailedError, IllegalStateError, KafkaConnectionError, KafkaTimeoutError,
            │   NoOffsetForPartitionError, ProducerClosed, ProducerFenced, ...
            └── BrokerResponseError            one class for each code that aiokafka knows

A call of the adapter raises one of these, and its `__cause__` is the error of aiokclient, which
says more. `error_mapping` has the table. Classes that nothing raises any more exist so that
`except` clauses which name them work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokclient.errors import ERRORS_BY_CODE


class KafkaError(RuntimeError):
    """The base class of nearly all errors."""

    retriable: bool = False
    """Whether the same call may succeed later."""
    invalid_metadata: bool = False
    """Whether the metadata are out of date."""
    _text: str | None = None
    """The text of the error, if its arguments are the partition or the topic, as in aiokafka."""

    def __str__(self) -> str:
        name = type(self).__name__
        text = super().__str__() if self._text is None else self._text
        return f"{name}: {text}" if self.args else name


class IllegalStateError(KafkaError):
    """A call that the state of the client does not allow, such as a commit without partitions."""


class IllegalArgumentError(KafkaError):
    """An argument that contradicts another one."""


class NoBrokersAvailable(KafkaError):
    """No broker is known. The adapter raises KafkaConnectionError instead."""

    retriable = True
    invalid_metadata = True


class NodeNotReadyError(KafkaError):
    """A broker without a connection."""

    retriable = True


class KafkaProtocolError(KafkaError):
    """A response that breaks the protocol."""

    retriable = True


class CorrelationIdError(KafkaProtocolError):
    """A response that belongs to no request."""


class Cancelled(KafkaError):
    """A request that was given up. Nothing raises it."""

    retriable = True


class TooManyInFlightRequests(KafkaError):
    """Too many requests without a response. Nothing raises it."""

    retriable = True


class StaleMetadata(KafkaError):
    """Metadata that are too old. Nothing raises it."""

    retriable = True
    invalid_metadata = True


class MetadataEmptyBrokerList(KafkaError):
    """Metadata without brokers. Nothing raises it."""

    retriable = True


class UnrecognizedBrokerVersion(KafkaError):
    """A broker of an unknown version. Nothing raises it."""


class IncompatibleBrokerVersion(KafkaError):
    """A broker whose version lacks a request."""


class CommitFailedError(KafkaError):
    """A commit for partitions that the consumer no longer owns."""


class AuthenticationMethodNotSupported(KafkaError):
    """A SASL mechanism that the broker or the client lacks."""


class AuthenticationFailedError(KafkaError):
    """A refused login."""


class KafkaUnavailableError(KafkaError):
    """No broker can be reached. The adapter raises KafkaConnectionError instead."""


class KafkaTimeoutError(KafkaError):
    """A call that did not finish in time."""


class KafkaConnectionError(KafkaError):
    """No broker could be reached, or a connection was lost."""

    retriable = True
    invalid_metadata = True


class UnsupportedCodecError(KafkaError):
    """A codec of compression that is not known."""


class KafkaConfigurationError(KafkaError):
    """An option that a broker does not support."""


class QuotaViolationError(KafkaError):
    """A limit of a quota. Nothing raises it."""


class ConsumerStoppedError(Exception):
    """A read from a consumer that is stopped, or is being stopped. No KafkaError."""


class IllegalOperation(Exception):
    """A call that the options of the client do not allow. No KafkaError."""


class NoOffsetForPartitionError(KafkaError):
    """A partition without a committed offset, with auto_offset_reset="none"."""


class RecordTooLargeError(KafkaError):
    """A record that is too large for a response of a broker."""


class ProducerClosed(KafkaError):
    """A call of a producer that is stopped."""


class ProducerFenced(KafkaError):
    """A producer whose transactional id another producer has taken over."""

    def __init__(
        self,
        msg: str = "A newer producer has the transactional_id, or the transaction timed out.",
    ) -> None:
        super().__init__(msg)


class BrokerResponseError(KafkaError):
    """The base class of the errors that a broker reports by a code."""

    errno: int
    """Kafka's code."""
    message: str
    """Kafka's name of the code."""
    description: str = ""
    """The meaning of the code, as a sentence."""

    def __init_subclass__(
        cls, errno: int | None = None, message: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if errno is not None and message is not None:
            cls.errno, cls.message = errno, message
            known = ERRORS_BY_CODE.get(errno)
            cls.description = "" if known is None else known.what

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class NoError(BrokerResponseError, errno=0, message="NO_ERROR"):
    """Error 0 of a broker, NO_ERROR."""


class UnknownError(BrokerResponseError, errno=-1, message="UNKNOWN"):
    """Error -1 of a broker, UNKNOWN."""


class OffsetOutOfRangeError(BrokerResponseError, errno=1, message="OFFSET_OUT_OF_RANGE"):
    """Error 1 of a broker, OFFSET_OUT_OF_RANGE."""


class CorruptRecordException(BrokerResponseError, errno=2, message="CORRUPT_MESSAGE"):
    """Error 2 of a broker, CORRUPT_MESSAGE."""


InvalidMessageError = CorruptRecordException


class UnknownTopicOrPartitionError(
    BrokerResponseError, errno=3, message="UNKNOWN_TOPIC_OR_PARTITION"
):
    """Error 3 of a broker, UNKNOWN_TOPIC_OR_PARTITION."""

    retriable = True
    invalid_metadata = True


class InvalidFetchRequestError(BrokerResponseError, errno=4, message="INVALID_FETCH_SIZE"):
    """Error 4 of a broker, INVALID_FETCH_SIZE."""


class LeaderNotAvailableError(BrokerResponseError, errno=5, message="LEADER_NOT_AVAILABLE"):
    """Error 5 of a broker, LEADER_NOT_AVAILABLE."""

    retriable = True
    invalid_metadata = True


class NotLeaderForPartitionError(BrokerResponseError, errno=6, message="NOT_LEADER_FOR_PARTITION"):
    """Error 6 of a broker, NOT_LEADER_FOR_PARTITION."""

    retriable = True
    invalid_metadata = True


class RequestTimedOutError(BrokerResponseError, errno=7, message="REQUEST_TIMED_OUT"):
    """Error 7 of a broker, REQUEST_TIMED_OUT."""

    retriable = True


class BrokerNotAvailableError(BrokerResponseError, errno=8, message="BROKER_NOT_AVAILABLE"):
    """Error 8 of a broker, BROKER_NOT_AVAILABLE."""


class ReplicaNotAvailableError(BrokerResponseError, errno=9, message="REPLICA_NOT_AVAILABLE"):
    """Error 9 of a broker, REPLICA_NOT_AVAILABLE."""


class MessageSizeTooLargeError(BrokerResponseError, errno=10, message="MESSAGE_SIZE_TOO_LARGE"):
    """Error 10 of a broker, MESSAGE_SIZE_TOO_LARGE."""


class StaleControllerEpochError(BrokerResponseError, errno=11, message="STALE_CONTROLLER_EPOCH"):
    """Error 11 of a broker, STALE_CONTROLLER_EPOCH."""


class OffsetMetadataTooLargeError(
    BrokerResponseError, errno=12, message="OFFSET_METADATA_TOO_LARGE"
):
    """Error 12 of a broker, OFFSET_METADATA_TOO_LARGE."""


class StaleLeaderEpochCodeError(BrokerResponseError, errno=13, message="STALE_LEADER_EPOCH_CODE"):
    """Error 13 of a broker, STALE_LEADER_EPOCH_CODE."""


class GroupLoadInProgressError(
    BrokerResponseError, errno=14, message="COORDINATOR_LOAD_IN_PROGRESS"
):
    """Error 14 of a broker, COORDINATOR_LOAD_IN_PROGRESS."""

    retriable = True


CoordinatorLoadInProgressError = GroupLoadInProgressError


class GroupCoordinatorNotAvailableError(
    BrokerResponseError, errno=15, message="COORDINATOR_NOT_AVAILABLE"
):
    """Error 15 of a broker, COORDINATOR_NOT_AVAILABLE."""

    retriable = True


CoordinatorNotAvailableError = GroupCoordinatorNotAvailableError


class NotCoordinatorForGroupError(BrokerResponseError, errno=16, message="NOT_COORDINATOR"):
    """Error 16 of a broker, NOT_COORDINATOR."""

    retriable = True


NotCoordinatorError = NotCoordinatorForGroupError


class InvalidTopicError(BrokerResponseError, errno=17, message="INVALID_TOPIC"):
    """Error 17 of a broker, INVALID_TOPIC."""


class RecordListTooLargeError(BrokerResponseError, errno=18, message="RECORD_LIST_TOO_LARGE"):
    """Error 18 of a broker, RECORD_LIST_TOO_LARGE."""


class NotEnoughReplicasError(BrokerResponseError, errno=19, message="NOT_ENOUGH_REPLICAS"):
    """Error 19 of a broker, NOT_ENOUGH_REPLICAS."""

    retriable = True


class NotEnoughReplicasAfterAppendError(
    BrokerResponseError, errno=20, message="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
):
    """Error 20 of a broker, NOT_ENOUGH_REPLICAS_AFTER_APPEND."""

    retriable = True


class InvalidRequiredAcksError(BrokerResponseError, errno=21, message="INVALID_REQUIRED_ACKS"):
    """Error 21 of a broker, INVALID_REQUIRED_ACKS."""


class IllegalGenerationError(BrokerResponseError, errno=22, message="ILLEGAL_GENERATION"):
    """Error 22 of a broker, ILLEGAL_GENERATION."""


class InconsistentGroupProtocolError(
    BrokerResponseError, errno=23, message="INCONSISTENT_GROUP_PROTOCOL"
):
    """Error 23 of a broker, INCONSISTENT_GROUP_PROTOCOL."""


class InvalidGroupIdError(BrokerResponseError, errno=24, message="INVALID_GROUP_ID"):
    """Error 24 of a broker, INVALID_GROUP_ID."""


class UnknownMemberIdError(BrokerResponseError, errno=25, message="UNKNOWN_MEMBER_ID"):
    """Error 25 of a broker, UNKNOWN_MEMBER_ID."""


class InvalidSessionTimeoutError(BrokerResponseError, errno=26, message="INVALID_SESSION_TIMEOUT"):
    """Error 26 of a broker, INVALID_SESSION_TIMEOUT."""


class RebalanceInProgressError(BrokerResponseError, errno=27, message="REBALANCE_IN_PROGRESS"):
    """Error 27 of a broker, REBALANCE_IN_PROGRESS."""


class InvalidCommitOffsetSizeError(
    BrokerResponseError, errno=28, message="INVALID_COMMIT_OFFSET_SIZE"
):
    """Error 28 of a broker, INVALID_COMMIT_OFFSET_SIZE."""


class TopicAuthorizationFailedError(
    BrokerResponseError, errno=29, message="TOPIC_AUTHORIZATION_FAILED"
):
    """Error 29 of a broker, TOPIC_AUTHORIZATION_FAILED."""


class GroupAuthorizationFailedError(
    BrokerResponseError, errno=30, message="GROUP_AUTHORIZATION_FAILED"
):
    """Error 30 of a broker, GROUP_AUTHORIZATION_FAILED."""


class ClusterAuthorizationFailedError(
    BrokerResponseError, errno=31, message="CLUSTER_AUTHORIZATION_FAILED"
):
    """Error 31 of a broker, CLUSTER_AUTHORIZATION_FAILED."""


class InvalidTimestampError(BrokerResponseError, errno=32, message="INVALID_TIMESTAMP"):
    """Error 32 of a broker, INVALID_TIMESTAMP."""


class UnsupportedSaslMechanismError(
    BrokerResponseError, errno=33, message="UNSUPPORTED_SASL_MECHANISM"
):
    """Error 33 of a broker, UNSUPPORTED_SASL_MECHANISM."""


class IllegalSaslStateError(BrokerResponseError, errno=34, message="ILLEGAL_SASL_STATE"):
    """Error 34 of a broker, ILLEGAL_SASL_STATE."""


class UnsupportedVersionError(BrokerResponseError, errno=35, message="UNSUPPORTED_VERSION"):
    """Error 35 of a broker, UNSUPPORTED_VERSION."""


class TopicAlreadyExistsError(BrokerResponseError, errno=36, message="TOPIC_ALREADY_EXISTS"):
    """Error 36 of a broker, TOPIC_ALREADY_EXISTS."""


class InvalidPartitionsError(BrokerResponseError, errno=37, message="INVALID_PARTITIONS"):
    """Error 37 of a broker, INVALID_PARTITIONS."""


class InvalidReplicationFactorError(
    BrokerResponseError, errno=38, message="INVALID_REPLICATION_FACTOR"
):
    """Error 38 of a broker, INVALID_REPLICATION_FACTOR."""


class InvalidReplicationAssignmentError(
    BrokerResponseError, errno=39, message="INVALID_REPLICATION_ASSIGNMENT"
):
    """Error 39 of a broker, INVALID_REPLICATION_ASSIGNMENT."""


class InvalidConfigurationError(BrokerResponseError, errno=40, message="INVALID_CONFIG"):
    """Error 40 of a broker, INVALID_CONFIG."""


class NotControllerError(BrokerResponseError, errno=41, message="NOT_CONTROLLER"):
    """Error 41 of a broker, NOT_CONTROLLER."""

    retriable = True


class InvalidRequestError(BrokerResponseError, errno=42, message="INVALID_REQUEST"):
    """Error 42 of a broker, INVALID_REQUEST."""


class UnsupportedForMessageFormatError(
    BrokerResponseError, errno=43, message="UNSUPPORTED_FOR_MESSAGE_FORMAT"
):
    """Error 43 of a broker, UNSUPPORTED_FOR_MESSAGE_FORMAT."""


class PolicyViolationError(BrokerResponseError, errno=44, message="POLICY_VIOLATION"):
    """Error 44 of a broker, POLICY_VIOLATION."""


class OutOfOrderSequenceNumber(
    BrokerResponseError, errno=45, message="OUT_OF_ORDER_SEQUENCE_NUMBER"
):
    """Error 45 of a broker, OUT_OF_ORDER_SEQUENCE_NUMBER."""


class DuplicateSequenceNumber(BrokerResponseError, errno=46, message="DUPLICATE_SEQUENCE_NUMBER"):
    """Error 46 of a broker, DUPLICATE_SEQUENCE_NUMBER."""


class InvalidProducerEpoch(BrokerResponseError, errno=47, message="INVALID_PRODUCER_EPOCH"):
    """Error 47 of a broker, INVALID_PRODUCER_EPOCH."""


class InvalidTxnState(BrokerResponseError, errno=48, message="INVALID_TXN_STATE"):
    """Error 48 of a broker, INVALID_TXN_STATE."""


class InvalidProducerIdMapping(
    BrokerResponseError, errno=49, message="INVALID_PRODUCER_ID_MAPPING"
):
    """Error 49 of a broker, INVALID_PRODUCER_ID_MAPPING."""


class InvalidTransactionTimeout(
    BrokerResponseError, errno=50, message="INVALID_TRANSACTION_TIMEOUT"
):
    """Error 50 of a broker, INVALID_TRANSACTION_TIMEOUT."""


class ConcurrentTransactions(BrokerResponseError, errno=51, message="CONCURRENT_TRANSACTIONS"):
    """Error 51 of a broker, CONCURRENT_TRANSACTIONS."""


class TransactionCoordinatorFenced(
    BrokerResponseError, errno=52, message="TRANSACTION_COORDINATOR_FENCED"
):
    """Error 52 of a broker, TRANSACTION_COORDINATOR_FENCED."""


class TransactionalIdAuthorizationFailed(
    BrokerResponseError, errno=53, message="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    """Error 53 of a broker, TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""


class SecurityDisabled(BrokerResponseError, errno=54, message="SECURITY_DISABLED"):
    """Error 54 of a broker, SECURITY_DISABLED."""


class OperationNotAttempted(BrokerResponseError, errno=55, message="OPERATION_NOT_ATTEMPTED"):
    """Error 55 of a broker, OPERATION_NOT_ATTEMPTED."""


class KafkaStorageError(BrokerResponseError, errno=56, message="KAFKA_STORAGE_ERROR"):
    """Error 56 of a broker, KAFKA_STORAGE_ERROR."""

    retriable = True
    invalid_metadata = True


class LogDirNotFound(BrokerResponseError, errno=57, message="LOG_DIR_NOT_FOUND"):
    """Error 57 of a broker, LOG_DIR_NOT_FOUND."""


class SaslAuthenticationFailed(BrokerResponseError, errno=58, message="SASL_AUTHENTICATION_FAILED"):
    """Error 58 of a broker, SASL_AUTHENTICATION_FAILED."""


class UnknownProducerId(BrokerResponseError, errno=59, message="UNKNOWN_PRODUCER_ID"):
    """Error 59 of a broker, UNKNOWN_PRODUCER_ID."""


class ReassignmentInProgress(BrokerResponseError, errno=60, message="REASSIGNMENT_IN_PROGRESS"):
    """Error 60 of a broker, REASSIGNMENT_IN_PROGRESS."""


class DelegationTokenAuthDisabled(
    BrokerResponseError, errno=61, message="DELEGATION_TOKEN_AUTH_DISABLED"
):
    """Error 61 of a broker, DELEGATION_TOKEN_AUTH_DISABLED."""


class DelegationTokenNotFound(BrokerResponseError, errno=62, message="DELEGATION_TOKEN_NOT_FOUND"):
    """Error 62 of a broker, DELEGATION_TOKEN_NOT_FOUND."""


class DelegationTokenOwnerMismatch(
    BrokerResponseError, errno=63, message="DELEGATION_TOKEN_OWNER_MISMATCH"
):
    """Error 63 of a broker, DELEGATION_TOKEN_OWNER_MISMATCH."""


class DelegationTokenRequestNotAllowed(
    BrokerResponseError, errno=64, message="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    """Error 64 of a broker, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED."""


class DelegationTokenAuthorizationFailed(
    BrokerResponseError, errno=65, message="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """Error 65 of a broker, DELEGATION_TOKEN_AUTHORIZATION_FAILED."""


class DelegationTokenExpired(BrokerResponseError, errno=66, message="DELEGATION_TOKEN_EXPIRED"):
    """Error 66 of a broker, DELEGATION_TOKEN_EXPIRED."""


class InvalidPrincipalType(BrokerResponseError, errno=67, message="INVALID_PRINCIPAL_TYPE"):
    """Error 67 of a broker, INVALID_PRINCIPAL_TYPE."""


class NonEmptyGroup(BrokerResponseError, errno=68, message="NON_EMPTY_GROUP"):
    """Error 68 of a broker, NON_EMPTY_GROUP."""


class GroupIdNotFound(BrokerResponseError, errno=69, message="GROUP_ID_NOT_FOUND"):
    """Error 69 of a broker, GROUP_ID_NOT_FOUND."""


class FetchSessionIdNotFound(BrokerResponseError, errno=70, message="FETCH_SESSION_ID_NOT_FOUND"):
    """Error 70 of a broker, FETCH_SESSION_ID_NOT_FOUND."""


class InvalidFetchSessionEpoch(
    BrokerResponseError, errno=71, message="INVALID_FETCH_SESSION_EPOCH"
):
    """Error 71 of a broker, INVALID_FETCH_SESSION_EPOCH."""


class ListenerNotFound(BrokerResponseError, errno=72, message="LISTENER_NOT_FOUND"):
    """Error 72 of a broker, LISTENER_NOT_FOUND."""


class MemberIdRequired(BrokerResponseError, errno=79, message="MEMBER_ID_REQUIRED"):
    """Error 79 of a broker, MEMBER_ID_REQUIRED."""


def _iter_subclasses(cls: type[BrokerResponseError]) -> Iterator[type[BrokerResponseError]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _iter_subclasses(subclass)


kafka_errors: dict[int, type[BrokerResponseError]] = {
    each.errno: each for each in _iter_subclasses(BrokerResponseError)
}
"""The class for each code that aiokafka knows."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class for a broker's code: UnknownError for a code that aiokafka does not know."""
    return kafka_errors.get(error_code, UnknownError)

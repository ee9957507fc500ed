"""Errors of other clients: aiokafka, kafka-python, confluent-kafka, and Java."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_TIMEOUT = "A call that reaches no broker until its timeout raises ApiTimeoutError."

_RENAMED: Final = {
    "AuthenticationFailed": "SaslAuthenticationError",
    "AuthenticationMethodNotSupported": "UnsupportedSaslMechanismError",
    "ClusterAuthorizationFailed": "ClusterAuthorizationError",
    "Consume": "KafkaError",
    "ConsumerStopped": "ClosedError",
    "CorrelationId": "ProtocolError",
    "CorruptRecord": "CorruptRecordError",
    "DelegationTokenAuthDisabled": "DelegationTokenDisabledError",
    "DelegationTokenAuthorizationFailed": "DelegationTokenAuthorizationError",
    "DelegationTokenRequestNotAllowed": "UnsupportedByAuthenticationError",
    "DuplicateSequenceNumber": "DuplicateSequenceError",
    "GroupAuthorizationFailed": "GroupAuthorizationError",
    "GroupCoordinatorNotAvailable": "CoordinatorNotAvailableError",
    "GroupLoadInProgress": "CoordinatorLoadInProgressError",
    "IllegalArgument": "IllegalStateError",
    "IllegalOperation": "IllegalStateError",
    "IncompatibleBrokerVersion": "UnsupportedVersionError",
    "InvalidFetchRequest": "InvalidFetchSizeError",
    "InvalidMessage": "CorruptRecordError",
    "InvalidProducerIdMapping": "InvalidPidMappingError",
    "InvalidReceive": "ResponseTooLargeError",
    "InvalidReplicationAssignment": "InvalidReplicaAssignmentError",
    "InvalidTransactionTimeout": "InvalidTxnTimeoutError",
    "Kafka": "KafkaError",
    "KafkaConfiguration": "ConfigError",
    "KafkaConnection": "NetworkError",
    "KafkaProtocol": "ProtocolError",
    "KafkaUnavailable": "BootstrapError",
    "KeyDeserialization": "RecordError",
    "KeySerialization": "SerializationError",
    "MessageSizeTooLarge": "RecordTooLargeError",
    "MetadataEmptyBrokerList": "BootstrapError",
    "NetworkException": "NetworkError",
    "NoBrokersAvailable": "BootstrapError",
    "NoOffsetForPartition": "NoOffsetError",
    "NonEmptyGroup": "GroupNotEmptyError",
    "NotCoordinatorForGroup": "NotCoordinatorError",
    "NotLeaderForPartition": "NotLeaderOrFollowerError",
    "OutOfOrderSequenceNumber": "OutOfOrderSequenceError",
    "PrincipalDeserializationFailure": "PrincipalDeserializationError",
    "Produce": "KafkaError",
    "ProducerClosed": "ClosedError",
    "QuotaViolation": "ThrottlingQuotaExceededError",
    "RecordDeserialization": "RecordError",
    "RecordListTooLarge": "RecordBatchTooLargeError",
    "RetriableCommitFailed": "RetriableError",
    "SaslAuthenticationFailed": "SaslAuthenticationError",
    "StaleControllerEpoch": "ControllerMovedError",
    "StaleLeaderEpochCode": "NetworkError",
    "StaleMetadata": "InvalidMetadataError",
    "Timeout": "KafkaTimeoutError",
    "TopicAlreadyExists": "TopicExistsError",
    "TopicAuthorizationFailed": "TopicAuthorizationError",
    "TransactionalIdAuthorizationFailed": "TransactionalIdAuthorizationError",
    "Unknown": "UnknownServerError",
    "UnrecognizedBrokerVersion": "UnsupportedVersionError",
    "UnsupportedCodec": "UnsupportedCompressionTypeError",
    "ValueDeserialization": "RecordError",
    "ValueSerialization": "SerializationError",
}
"""The errors here by the names of other clients, without the ending Error or Exception."""

_MORE: Final = {
    "AuthenticationFailed": "Its base class AuthenticationError also covers tokens and TLS logins.",
    "ConsumerStopped": "Calls raise it after close(). After stop(), iterations end without error.",
    "CorruptRecord": "A consumer raises CorruptBatchError for a batch that it cannot read.",
    "IllegalArgument": "An error about a wrong argument is also a TypeError or a ValueError.",
    "InvalidMessage": "A consumer raises CorruptBatchError for a batch that it cannot read.",
    "KafkaConnection": f"A start without a broker raises BootstrapError. {_TIMEOUT}",
    "ProducerFenced": (
        "Its base class ApplicationRecoverableError covers all errors after which the producer "
        "must be replaced."
    ),
    "TopicAlreadyExists": "It is a value of the Results of create_topics().",
}
"""More sentences about some of these errors."""

_ABSENT: Final = {
    "BrokerResponse": "An error that a broker has returned is a KafkaError with a code.",
    "Cancelled": "A cancelled call raises asyncio.CancelledError.",
    "Interrupt": "A cancelled call raises asyncio.CancelledError.",
    "No": "Code 0 is success and has no class.",
    "NodeNotReady": f"A request waits until its broker is connected. {_TIMEOUT}",
    "TooManyInFlightRequests": "A request waits until others have been answered.",
    "TransactionAborted": "commit_transaction() raises the error of what failed.",
    "UnknownBrokerId": "Requests go only to brokers that are in the metadata of the client.",
    "Wakeup": "After stop(), iterations end without an error.",
}
"""Errors without a counterpart here, each with what happens instead."""

_FUNCTIONS: Final = {
    "for_code": "Write: from aiokclient.errors import error_for",
    "BrokerErrors": "Write: from aiokclient.errors import ERRORS_BY_CODE",
    "kafka_errors": "Write: from aiokclient.errors import ERRORS_BY_CODE",
}


def error_hint(name: str, known: Collection[str]) -> str | None:
    """Return a hint about an error of another client, or None if the name is unknown.

    `known` contains the names of `aiokclient.errors`.
    """
    if name in _FUNCTIONS:
        return f"{name} is a name of another client. {_FUNCTIONS[name]}"
    plain = name.removesuffix("Error").removesuffix("Exception")
    if plain in _ABSENT:
        return f"{name} is an error of another client and does not exist here. {_ABSENT[plain]}"
    ours = _RENAMED.get(plain, f"{plain}Error")
    if ours not in known:
        return None
    whose = "is in aiokclient.errors" if name == ours else "is an error of another client"
    more = f". {_MORE[plain]}" if plain in _MORE else ""
    return f"{name} {whose}. Write: from aiokclient.errors import {ours}{more}"

"""Errors that need something outside the program to be mended: rights, credentials, settings."""

from __future__ import annotations

from aiokclient.errors.base import (
    AuthenticationError,
    AuthorizationError,
    InvalidConfigurationError,
)

__all__ = [
    "ClusterAuthorizationError",
    "DelegationTokenAuthorizationError",
    "GroupAuthorizationError",
    "IllegalSaslStateError",
    "InvalidConfigError",
    "InvalidRecordError",
    "InvalidReplicationFactorError",
    "InvalidRequiredAcksError",
    "InvalidTopicError",
    "RecordBatchTooLargeError",
    "SaslAuthenticationError",
    "TopicAuthorizationError",
    "TransactionalIdAuthorizationError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
]


class InvalidTopicError(InvalidConfigurationError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    what = "The topic's name is not allowed, or the topic is internal and not open to this."
    hint = "A name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'."


class RecordBatchTooLargeError(InvalidConfigurationError, code=18, name="RECORD_LIST_TOO_LARGE"):
    what = "The record batch is larger than a log segment of the topic."
    hint = "Lower batch_size, or raise segment.bytes of the topic."


class InvalidRequiredAcksError(InvalidConfigurationError, code=21, name="INVALID_REQUIRED_ACKS"):
    what = "The broker does not accept this value of acks."
    hint = "Use acks='all', 1 or 0; idempotent and transactional producers need 'all'."


class TopicAuthorizationError(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    what = "This user may not do that with the topic."
    hint = (
        "Grant the ACL on the topic: Write and Describe to produce, Read and Describe to "
        "consume, Create, Delete or Alter to administer."
    )


class GroupAuthorizationError(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    what = "This user may not use the group."
    hint = "Grant Read on the group id (Describe suffices to look at it), or use another group_id."


class ClusterAuthorizationError(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    what = "This user lacks a permission on the cluster."
    hint = (
        "Grant the ACL on the cluster resource. Before Kafka 2.8 an idempotent producer needs "
        "IdempotentWrite there."
    )


class UnsupportedSaslMechanismError(
    AuthenticationError, code=33, name="UNSUPPORTED_SASL_MECHANISM"
):
    what = "The broker's listener does not offer this SASL mechanism."
    hint = "Choose one of the listener's sasl.enabled.mechanisms, or another port."


class IllegalSaslStateError(AuthenticationError, code=34, name="ILLEGAL_SASL_STATE"):
    what = "The broker did not expect this request at this point of the authentication."
    hint = "Check that client and listener agree on security.protocol: SASL or none."


class UnsupportedVersionError(InvalidConfigurationError, code=35, name="UNSUPPORTED_VERSION"):
    what = "The broker and this client share no version of the request that can express it."
    hint = "Upgrade the broker, or do without the option that needs the newer version."


class InvalidReplicationFactorError(
    InvalidConfigurationError, code=38, name="INVALID_REPLICATION_FACTOR"
):
    what = "The replication factor is below 1 or above the number of brokers that run."
    hint = "Start more brokers, or ask for fewer replicas; -1 takes the cluster's default."


class InvalidConfigError(InvalidConfigurationError, code=40, name="INVALID_CONFIG"):
    what = "The broker refused a configuration name or value."
    hint = "Correct the setting named here; describe_configs lists what the resource has."


class UnsupportedForMessageFormatError(
    InvalidConfigurationError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"
):
    what = "The topic is stored in a message format too old for this feature."
    hint = "Upgrade the topic's log.message.format.version; formats since 0.11 have all features."


class TransactionalIdAuthorizationError(
    AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    what = "This user may not use the transactional id."
    hint = "Grant Write and Describe on the transactional id."


class SaslAuthenticationError(AuthenticationError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    what = "The broker refused the credentials."
    hint = "Check user, password or token, and that the mechanism is the one they were made for."


class DelegationTokenAuthorizationError(
    AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    what = "This user may not do that with the delegation token."
    hint = "Grant Describe on the token, or act as its owner or one of its renewers."


class InvalidRecordError(InvalidConfigurationError, code=87, name="INVALID_RECORD"):
    what = "The broker validated the record and refused it."
    hint = (
        "A compacted topic needs a key on every record; otherwise check the record's timestamp "
        "and the topic's own limits."
    )

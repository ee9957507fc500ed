"""Errors whose cause is outside the program: permissions, credentials, settings."""

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
    what = (
        "The name of the topic is invalid, or the topic is internal and does not allow this "
        "request."
    )
    hint = "A valid name has 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'."


class RecordBatchTooLargeError(InvalidConfigurationError, code=18, name="RECORD_LIST_TOO_LARGE"):
    what = "The record batch is larger than a log segment of the topic."
    hint = "Lower batch_size, or raise segment.bytes of the topic."


class InvalidRequiredAcksError(InvalidConfigurationError, code=21, name="INVALID_REQUIRED_ACKS"):
    what = "The broker does not accept this value of acks."
    hint = "Use acks='all', 1 or 0; idempotent and transactional producers need 'all'."


class TopicAuthorizationError(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    what = "The user is not authorized for this operation on the topic."
    hint = (
        "Grant the ACL on the topic: Write and Describe to produce; Read and Describe to consume;"
        " Create, Delete, or Alter to administer the topic; DescribeConfigs or AlterConfigs for its"
        " configs."
    )
    help = "reference/errors.html#topicauthorizationerror"


class GroupAuthorizationError(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    what = "The user is not authorized to use the group."
    hint = (
        "Grant Read on the group to consume and commit (Describe is enough to list and describe "
        "it, and Delete is needed to delete it or its offsets), or use another group_id."
    )
    help = "reference/errors.html#groupauthorizationerror"


class ClusterAuthorizationError(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    what = "The user lacks a permission on the cluster."
    hint = (
        "Grant the ACL on the cluster resource: Describe to look and Alter to change, and for "
        "configs and quotas DescribeConfigs and AlterConfigs. Before Kafka 2.8 an idempotent "
        "producer needs IdempotentWrite there."
    )


class UnsupportedSaslMechanismError(
    AuthenticationError, code=33, name="UNSUPPORTED_SASL_MECHANISM"
):
    what = "The broker's listener does not offer this SASL mechanism."
    hint = "Use one of the listener's sasl.enabled.mechanisms, or connect to another listener."
    help = "reference/errors.html#unsupportedsaslmechanismerror"


class IllegalSaslStateError(AuthenticationError, code=34, name="ILLEGAL_SASL_STATE"):
    what = "The broker did not expect this request at this point of the authentication."
    hint = "Check that the client and the listener use the same security.protocol."


class UnsupportedVersionError(InvalidConfigurationError, code=35, name="UNSUPPORTED_VERSION"):
    what = (
        "The broker does not support a version of this request with the options that the call uses."
    )
    hint = "Upgrade the broker, or remove the option that needs the newer version."
    help = "reference/errors.html#unsupportedversionerror"


class InvalidReplicationFactorError(
    InvalidConfigurationError, code=38, name="INVALID_REPLICATION_FACTOR"
):
    what = "The replication factor is below 1, or larger than the number of running brokers."
    hint = "Start more brokers, or request fewer replicas. Use -1 for the default of the cluster."


class InvalidConfigError(InvalidConfigurationError, code=40, name="INVALID_CONFIG"):
    what = "The broker refused a configuration name or value."
    hint = "Correct the setting. Admin.describe_configs() lists the settings of the resource."


class UnsupportedForMessageFormatError(
    InvalidConfigurationError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"
):
    what = "The message format of the topic is too old for this feature."
    hint = "Raise log.message.format.version of the topic to 0.11 or later."


class TransactionalIdAuthorizationError(
    AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    what = "The user is not authorized to use the transactional id."
    hint = "Grant Write and Describe on the transactional id."


class SaslAuthenticationError(AuthenticationError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    what = "The broker rejected the credentials."
    hint = (
        "Check the user name, the password or token, and that they were created for this mechanism."
    )
    help = "reference/errors.html#saslauthenticationerror"


class DelegationTokenAuthorizationError(
    AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    what = "The user is not authorized for this operation on the delegation token."
    hint = "Grant Describe on the token, or authenticate as its owner or one of its renewers."


class InvalidRecordError(InvalidConfigurationError, code=87, name="INVALID_RECORD"):
    what = "The broker validated the record and rejected it."
    hint = (
        "Every record of a compacted topic needs a key. Otherwise, check the timestamp of the "
        "record and the limits of the topic."
    )

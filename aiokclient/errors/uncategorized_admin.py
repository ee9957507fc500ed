"""Errors without a category in KIP-1050: admin calls, and requests between brokers."""

from __future__ import annotations

from aiokclient.errors.base import KafkaError

__all__ = [
    "BrokerIdNotRegisteredError",
    "ControllerIdNotRegisteredError",
    "ControllerMovedError",
    "DelegationTokenDisabledError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DuplicateBrokerRegistrationError",
    "DuplicateResourceError",
    "DuplicateVoterError",
    "FeatureUpdateFailedError",
    "GroupDeletionFailedError",
    "GroupNotEmptyError",
    "GroupSubscribedToTopicError",
    "InconsistentClusterIdError",
    "InconsistentVoterSetError",
    "IneligibleReplicaError",
    "InvalidPartitionsError",
    "InvalidPrincipalTypeError",
    "InvalidRegistrationError",
    "InvalidReplicaAssignmentError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "LogDirNotFoundError",
    "MismatchedEndpointTypeError",
    "NewLeaderElectedError",
    "NoReassignmentInProgressError",
    "OperationNotAttemptedError",
    "PolicyViolationError",
    "PositionOutOfRangeError",
    "PrincipalDeserializationError",
    "ReassignmentInProgressError",
    "ResourceNotFoundError",
    "SecurityDisabledError",
    "SnapshotNotFoundError",
    "StaleBrokerEpochError",
    "TopicDeletionDisabledError",
    "TopicExistsError",
    "UnacceptableCredentialError",
    "UnknownControllerIdError",
    "UnsupportedByAuthenticationError",
    "UnsupportedEndpointTypeError",
    "VoterNotFoundError",
]


class ControllerMovedError(KafkaError, code=11, name="STALE_CONTROLLER_EPOCH"):
    what = "The request came from a controller that has been replaced."
    hint = "Repeat the call. If the error persists, check the controller quorum."


class TopicExistsError(KafkaError, code=36, name="TOPIC_ALREADY_EXISTS"):
    what = "A topic with this name already exists."
    hint = (
        "Use it, or choose another name. The name of a deleted topic becomes free when every "
        "broker has removed the topic."
    )


class InvalidPartitionsError(KafkaError, code=37, name="INVALID_PARTITIONS"):
    what = "The number of partitions is not allowed."
    hint = "Pass the new total. It must be at least 1, and larger than the current number."


class InvalidReplicaAssignmentError(KafkaError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    what = "The assignment of replicas to brokers is invalid."
    hint = (
        "Name existing brokers, no broker twice for a partition. All partitions need the same "
        "number of replicas."
    )


class PolicyViolationError(KafkaError, code=44, name="POLICY_VIOLATION"):
    what = "A policy of the cluster forbids this request."
    hint = (
        "Change the request as the message of the broker says, or ask the operators of the cluster."
    )


class SecurityDisabledError(KafkaError, code=54, name="SECURITY_DISABLED"):
    what = "The cluster has no authorizer, so it keeps no ACLs."
    hint = "To use ACLs, set authorizer.class.name on the brokers."


class OperationNotAttemptedError(KafkaError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    what = "The broker skipped this part of the request because another part failed."
    hint = "Fix the part that failed, and repeat the call."


class LogDirNotFoundError(KafkaError, code=57, name="LOG_DIR_NOT_FOUND"):
    what = "The broker has no such log directory."
    hint = "Pass the absolute path of one of the broker's log.dirs."


class ReassignmentInProgressError(KafkaError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    what = "A reassignment of the partition is in progress."
    hint = "Wait until the reassignment is done, or cancel it."


class DelegationTokenDisabledError(KafkaError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    what = "Delegation tokens are disabled on the brokers."
    hint = "Set delegation.token.secret.key on the brokers and the controllers."


class DelegationTokenNotFoundError(KafkaError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    what = "The brokers do not have this delegation token."
    hint = (
        "The token has expired, or belongs to another cluster: create a new one. Shortly after a "
        "token was created, the error goes away on its own."
    )


class DelegationTokenOwnerMismatchError(
    KafkaError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"
):
    what = "The user is neither the owner nor a renewer of the token."
    hint = "Authenticate as one of them, or name the user as a renewer when the token is created."


class UnsupportedByAuthenticationError(
    KafkaError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    what = "Delegation tokens cannot be requested over this connection."
    hint = "Authenticate by SASL or a TLS client certificate, and not with a delegation token."


class DelegationTokenExpiredError(KafkaError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    what = "The delegation token has expired."
    hint = "Create a new token, and renew it before it expires."


class InvalidPrincipalTypeError(KafkaError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    what = "The principal type is not supported."
    hint = "Use the type User, as in User:name."


class GroupNotEmptyError(KafkaError, code=68, name="NON_EMPTY_GROUP"):
    what = "The group still has members."
    hint = "Stop its members, and wait until their sessions have ended."


class TopicDeletionDisabledError(KafkaError, code=73, name="TOPIC_DELETION_DISABLED"):
    what = "The cluster does not allow the deletion of topics."
    hint = "Set delete.topic.enable=true on the brokers and controllers."


class StaleBrokerEpochError(KafkaError, code=77, name="STALE_BROKER_EPOCH"):
    what = "The broker has registered again since it sent the request."
    hint = "The brokers resolve this on their own. If the error persists, check the broker's log."


class NoReassignmentInProgressError(KafkaError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    what = "There is no reassignment of the partition to cancel."
    hint = "No action is needed."


class GroupSubscribedToTopicError(KafkaError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    what = "The group is still subscribed to the topic whose offsets were to be deleted."
    hint = "Stop the group's consumers of that topic first."


class ResourceNotFoundError(KafkaError, code=91, name="RESOURCE_NOT_FOUND"):
    what = "The request names something that does not exist."
    hint = "Check the names of users, groups or subscriptions in the call."


class DuplicateResourceError(KafkaError, code=92, name="DUPLICATE_RESOURCE"):
    what = "The request names the same resource twice."
    hint = "Name each resource once."


class UnacceptableCredentialError(KafkaError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    what = "The broker does not accept the credential."
    hint = "Check that the user name is not empty, and that SCRAM has 4096 to 16384 iterations."


class InconsistentVoterSetError(KafkaError, code=94, name="INCONSISTENT_VOTER_SET"):
    what = "Two controllers have different sets of voters."
    hint = "Use the same controller.quorum settings for all controllers."


class InvalidUpdateVersionError(KafkaError, code=95, name="INVALID_UPDATE_VERSION"):
    what = "The current version cannot be changed to the requested one."
    hint = "Choose a version that all brokers and controllers support. Downgrades are limited."


class FeatureUpdateFailedError(KafkaError, code=96, name="FEATURE_UPDATE_FAILED"):
    what = "The controller could not update the features of the cluster."
    hint = "Check the log of the active controller."


class PrincipalDeserializationError(KafkaError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    what = "The controller could not decode the principal that a broker forwarded."
    hint = "Use the same principal.builder.class on brokers and controllers."


class SnapshotNotFoundError(KafkaError, code=98, name="SNAPSHOT_NOT_FOUND"):
    what = "The metadata snapshot no longer exists."
    hint = "Members of the quorum fetch the newer snapshot. No action is needed."


class PositionOutOfRangeError(KafkaError, code=99, name="POSITION_OUT_OF_RANGE"):
    what = "The position lies outside the metadata snapshot."
    hint = "Members of the quorum restart the fetch. No action is needed."


class DuplicateBrokerRegistrationError(KafkaError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    what = "Another running broker has this broker id."
    hint = "Give each broker its own node.id."


class BrokerIdNotRegisteredError(KafkaError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    what = "No broker with this id is registered."
    hint = "Check the id. A broker registers when it starts for the first time."


class InconsistentClusterIdError(KafkaError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    what = "The node belongs to another cluster."
    hint = "Check the addresses: they may point to different clusters."


class IneligibleReplicaError(KafkaError, code=107, name="INELIGIBLE_REPLICA"):
    what = "A replica cannot join the in-sync set, because its broker is fenced or shutting down."
    hint = "The replica joins when its broker is healthy. Check that broker."


class NewLeaderElectedError(KafkaError, code=108, name="NEW_LEADER_ELECTED"):
    what = "The change was made, and the partition has a new leader."
    hint = "The brokers resolve this on their own. No action is needed."


class MismatchedEndpointTypeError(KafkaError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    what = "The request asks a controller for brokers, or a broker for controllers."
    hint = "List brokers in bootstrap_servers, and controllers in bootstrap_controllers."


class UnsupportedEndpointTypeError(KafkaError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    what = "The node does not serve this kind of endpoint yet."
    hint = "Send the request to a broker, or upgrade the controllers."


class UnknownControllerIdError(KafkaError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    what = "No controller with this id is registered."
    hint = "Describe the quorum, and compare the id."


class InvalidRegistrationError(KafkaError, code=119, name="INVALID_REGISTRATION"):
    what = "The controller rejected the registration of a broker."
    hint = "Check the log of the broker. Often its log directories or its features do not match."


class InvalidVoterKeyError(KafkaError, code=125, name="INVALID_VOTER_KEY"):
    what = "The directory id of the voter is not that of the node."
    hint = "Describe the quorum, and use the directory id that it shows."


class DuplicateVoterError(KafkaError, code=126, name="DUPLICATE_VOTER"):
    what = "The node is already a voter of the quorum."
    hint = "No action is needed."


class VoterNotFoundError(KafkaError, code=127, name="VOTER_NOT_FOUND"):
    what = "The node is not a voter of the quorum."
    hint = "Check the id and the directory id. The voter may have been removed already."


class GroupDeletionFailedError(KafkaError, code=134, name="GROUP_DELETION_FAILED"):
    what = "The coordinator could not delete the group."
    hint = "Check the log of the coordinator, and repeat the call."


class ControllerIdNotRegisteredError(KafkaError, code=136, name="CONTROLLER_ID_NOT_REGISTERED"):
    what = "No controller with this id is registered."
    hint = "Check the id. A controller registers when it starts for the first time."

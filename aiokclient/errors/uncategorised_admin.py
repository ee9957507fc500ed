"""Errors that KIP-1050 puts in no category: administration, and brokers among themselves."""

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
    what = "The request was made under a controller that has been replaced."
    hint = "Repeat the call; if it lasts, look at the controller quorum."


class TopicExistsError(KafkaError, code=36, name="TOPIC_ALREADY_EXISTS"):
    what = "There is a topic of this name already."
    hint = (
        "Use it, or choose another name. A topic just deleted keeps its name until every broker "
        "has removed it."
    )


class InvalidPartitionsError(KafkaError, code=37, name="INVALID_PARTITIONS"):
    what = "The number of partitions is not allowed."
    hint = "It is at least 1, and partitions can only be added: name the new total, not the growth."


class InvalidReplicaAssignmentError(KafkaError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    what = "The assignment of replicas to brokers is not possible."
    hint = "Name existing brokers, each once per partition, the same number for all partitions."


class PolicyViolationError(KafkaError, code=44, name="POLICY_VIOLATION"):
    what = "A policy of the cluster's operators forbids this."
    hint = "Ask them, or change the request as the broker's words above say."


class SecurityDisabledError(KafkaError, code=54, name="SECURITY_DISABLED"):
    what = "The cluster has no authorizer, so it keeps no ACLs."
    hint = "Set authorizer.class.name on the brokers if ACLs are wanted."


class OperationNotAttemptedError(KafkaError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    what = "The broker left this part of the request undone because another part failed."
    hint = "Mend the part that failed and repeat the call."


class LogDirNotFoundError(KafkaError, code=57, name="LOG_DIR_NOT_FOUND"):
    what = "The broker has no such log directory."
    hint = "Name one of that broker's log.dirs, with its absolute path."


class ReassignmentInProgressError(KafkaError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    what = "The partition is being moved to other brokers."
    hint = "Wait until the reassignment is done, or cancel it."


class DelegationTokenDisabledError(KafkaError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    what = "The brokers are not set up for delegation tokens."
    hint = "Set delegation.token.secret.key on the brokers and the controllers."


class DelegationTokenNotFoundError(KafkaError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    what = "The brokers know no such delegation token."
    hint = "It has expired or was made on another cluster: get a new one."


class DelegationTokenOwnerMismatchError(
    KafkaError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"
):
    what = "This user is neither the token's owner nor one of its renewers."
    hint = "Act as one of them, or name this user as a renewer when the token is made."


class UnsupportedByAuthenticationError(
    KafkaError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    what = "Delegation tokens cannot be asked for over this kind of connection."
    hint = "Connect by SASL or by TLS with a client certificate, and not with a token itself."


class DelegationTokenExpiredError(KafkaError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    what = "The delegation token has expired."
    hint = "Get a new one, and renew it before its expiry time."


class InvalidPrincipalTypeError(KafkaError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    what = "The principal's type is not supported here."
    hint = "Use the type 'User', written as User:name."


class GroupNotEmptyError(KafkaError, code=68, name="NON_EMPTY_GROUP"):
    what = "The group still has members."
    hint = "Stop its consumers and wait until their sessions have ended."


class TopicDeletionDisabledError(KafkaError, code=73, name="TOPIC_DELETION_DISABLED"):
    what = "The cluster does not allow the deletion of topics."
    hint = "Set delete.topic.enable=true on the brokers and controllers."


class StaleBrokerEpochError(KafkaError, code=77, name="STALE_BROKER_EPOCH"):
    what = "The broker has registered anew since the request was made."
    hint = "Brokers settle this among themselves; if it lasts, look at that broker's log."


class NoReassignmentInProgressError(KafkaError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    what = "The partition is not being moved, so there is nothing to cancel."
    hint = "There is nothing to do."


class GroupSubscribedToTopicError(KafkaError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    what = "The group still reads the topic whose offsets are to be deleted."
    hint = "Stop its consumers of that topic first."


class ResourceNotFoundError(KafkaError, code=91, name="RESOURCE_NOT_FOUND"):
    what = "The request names something that does not exist."
    hint = "Check the names of users, groups or subscriptions in the call."


class DuplicateResourceError(KafkaError, code=92, name="DUPLICATE_RESOURCE"):
    what = "The request names the same thing twice."
    hint = "Name each resource once."


class UnacceptableCredentialError(KafkaError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    what = "The broker does not take the credential."
    hint = "Check its form: user name not empty, SCRAM iterations between 4096 and 16384."


class InconsistentVoterSetError(KafkaError, code=94, name="INCONSISTENT_VOTER_SET"):
    what = "Two controllers disagree about who votes in the quorum."
    hint = "Give all controllers the same controller.quorum settings."


class InvalidUpdateVersionError(KafkaError, code=95, name="INVALID_UPDATE_VERSION"):
    what = "The version asked for cannot be set from the present one."
    hint = "Choose a level that all brokers and controllers support, and mind downgrades."


class FeatureUpdateFailedError(KafkaError, code=96, name="FEATURE_UPDATE_FAILED"):
    what = "The controller could not change the cluster's features."
    hint = "The active controller's log says why."


class PrincipalDeserializationError(KafkaError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    what = "The controller could not read the user that a broker forwarded."
    hint = "Give brokers and controllers the same principal.builder.class."


class SnapshotNotFoundError(KafkaError, code=98, name="SNAPSHOT_NOT_FOUND"):
    what = "The metadata snapshot is gone."
    hint = "A newer one has replaced it; members of the quorum ask for that one."


class PositionOutOfRangeError(KafkaError, code=99, name="POSITION_OUT_OF_RANGE"):
    what = "The position lies outside the metadata snapshot."
    hint = "Members of the quorum start the snapshot again."


class DuplicateBrokerRegistrationError(KafkaError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    what = "Another broker runs under this broker id."
    hint = "Give each broker a node.id of its own."


class BrokerIdNotRegisteredError(KafkaError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    what = "The cluster knows no broker of this id."
    hint = "Check the id; a broker registers when it starts for the first time."


class InconsistentClusterIdError(KafkaError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    what = "The node belongs to another cluster."
    hint = "Check the addresses; two clusters may share a host name or a port."


class IneligibleReplicaError(KafkaError, code=107, name="INELIGIBLE_REPLICA"):
    what = "A replica was to join the in-sync set but may not: fenced or shutting down."
    hint = "It joins when its broker is healthy; look at that broker."


class NewLeaderElectedError(KafkaError, code=108, name="NEW_LEADER_ELECTED"):
    what = "The change was made, and the partition has another leader since."
    hint = "Brokers settle this among themselves; there is nothing to do."


class MismatchedEndpointTypeError(KafkaError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    what = "The request for brokers went to a controller, or the reverse."
    hint = "Name brokers in bootstrap_servers, not controllers."


class UnsupportedEndpointTypeError(KafkaError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    what = "The node does not serve this kind of endpoint yet."
    hint = "Ask a broker, or upgrade the controllers."


class UnknownControllerIdError(KafkaError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    what = "The cluster knows no controller of this id."
    hint = "Check the id against the quorum's description."


class InvalidRegistrationError(KafkaError, code=119, name="INVALID_REGISTRATION"):
    what = "The controller refused a broker's registration."
    hint = "That broker's log says why: often its log directories or its features do not fit."


class InvalidVoterKeyError(KafkaError, code=125, name="INVALID_VOTER_KEY"):
    what = "The directory id of a voter is not that of the node that was asked."
    hint = "Describe the quorum and use the directory id that it shows."


class DuplicateVoterError(KafkaError, code=126, name="DUPLICATE_VOTER"):
    what = "The node is a voter of the quorum already."
    hint = "There is nothing to do; describe the quorum to make sure."


class VoterNotFoundError(KafkaError, code=127, name="VOTER_NOT_FOUND"):
    what = "The node is not a voter of the quorum."
    hint = "Check the id and the directory id; it may have been removed already."


class GroupDeletionFailedError(KafkaError, code=134, name="GROUP_DELETION_FAILED"):
    what = "The coordinator could not delete the group."
    hint = "The coordinator's log says why; repeat the call when that is mended."


class ControllerIdNotRegisteredError(KafkaError, code=136, name="CONTROLLER_ID_NOT_REGISTERED"):
    what = "The cluster knows no controller of this id."
    hint = "Check the id; a controller registers when it starts for the first time."

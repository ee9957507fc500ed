"""Errors after which the client looks up metadata or the coordinator, and retries."""

from __future__ import annotations

from aiokclient.errors.base import InvalidMetadataError, RefreshRetriableError

__all__ = [
    "CoordinatorNotAvailableError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FencedLeaderEpochError",
    "InconsistentTopicIdError",
    "KafkaStorageError",
    "LeaderNotAvailableError",
    "ListenerNotFoundError",
    "NetworkError",
    "NotCoordinatorError",
    "NotLeaderOrFollowerError",
    "PreferredLeaderNotAvailableError",
    "ReplicaNotAvailableError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
]


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION"):
    what = "The broker does not have this topic or partition."
    hint = (
        "Check the spelling and the cluster, create the topic, or grant the user Describe on it. "
        "Shortly after a topic was created, the error goes away on its own."
    )
    help = "reference/errors.html#unknowntopicorpartitionerror"


class LeaderNotAvailableError(InvalidMetadataError, code=5, name="LEADER_NOT_AVAILABLE"):
    what = "The partition currently has no leader."
    hint = (
        "An election takes about a second. If the error persists, all in-sync replicas are down: "
        "start one of the partition's brokers (kafka-topics --describe lists them)."
    )


class NotLeaderOrFollowerError(InvalidMetadataError, code=6, name="NOT_LEADER_OR_FOLLOWER"):
    what = "The broker is no longer the leader, or no longer a replica, of the partition."
    hint = (
        "The client looks up the new leader and retries. If the error persists, the broker has "
        "lost contact with the controller, or leaders keep moving between brokers."
    )


class ReplicaNotAvailableError(InvalidMetadataError, code=9, name="REPLICA_NOT_AVAILABLE"):
    what = "The broker has no usable replica of the partition."
    hint = "Check the log directories of the broker, and reassignments that are in progress."


class NetworkError(InvalidMetadataError, code=13, name="NETWORK_EXCEPTION"):
    what = "The connection was lost before the response arrived."
    hint = (
        "The client reconnects and retries. If the error persists, check that the broker is "
        "running, and that no firewall or load balancer closes idle connections."
    )


class CoordinatorNotAvailableError(
    RefreshRetriableError, code=15, name="COORDINATOR_NOT_AVAILABLE"
):
    what = "There is currently no coordinator for this group or transactional id."
    hint = (
        "If the error persists, __consumer_offsets or __transaction_state has partitions without "
        "a leader or could not be created. Check that enough brokers run for its replication "
        "factor."
    )
    help = "reference/errors.html#coordinatornotavailableerror"


class NotCoordinatorError(RefreshRetriableError, code=16, name="NOT_COORDINATOR"):
    what = "The broker is no longer the coordinator of this group or transactional id."
    hint = "The client looks up the new coordinator and retries."


class KafkaStorageError(InvalidMetadataError, code=56, name="KAFKA_STORAGE_ERROR"):
    what = "The broker's disk with the log of this partition failed."
    hint = "Check the log and the disks of the broker. Another in-sync replica takes over, if any."


class ListenerNotFoundError(InvalidMetadataError, code=72, name="LISTENER_NOT_FOUND"):
    what = "The leader of the partition has no listener with the name that this client uses."
    hint = "Use the same listener names in advertised.listeners of all brokers."


class FencedLeaderEpochError(InvalidMetadataError, code=74, name="FENCED_LEADER_EPOCH"):
    what = "The client's leader epoch for the partition is older than the broker's."
    hint = "The client refreshes its metadata and retries. This is normal after a leader has moved."


class PreferredLeaderNotAvailableError(
    InvalidMetadataError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE"
):
    what = "The preferred replica cannot be elected: it is down or not in sync."
    hint = "Start that broker, wait until it is in sync, and request the election again."


class EligibleLeadersNotAvailableError(
    InvalidMetadataError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"
):
    what = "No replica of the partition is eligible to be its leader."
    hint = (
        "Start a broker that was in sync. If its data is lost for good, an unclean election "
        "brings the partition back, and loses the records that the other replicas do not have."
    )


class ElectionNotNeededError(InvalidMetadataError, code=84, name="ELECTION_NOT_NEEDED"):
    what = "The leader of the partition is already the replica that an election would choose."
    hint = "No action is needed."


class UnknownTopicIdError(InvalidMetadataError, code=100, name="UNKNOWN_TOPIC_ID"):
    what = "The broker does not have a topic with this id."
    hint = (
        "The topic was deleted, or recreated under the same name. Shortly after a topic was "
        "created, the error goes away on its own."
    )


class InconsistentTopicIdError(InvalidMetadataError, code=103, name="INCONSISTENT_TOPIC_ID"):
    what = "The log on the broker belongs to another topic with the same name."
    hint = (
        "The topic was recreated. If the error persists, the broker has kept a stale log "
        "directory of the old topic."
    )

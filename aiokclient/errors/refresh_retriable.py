"""Errors that a repeated request may overcome once the cluster has been looked at anew."""

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
    what = "The broker knows no such topic or partition."
    hint = (
        "Check the spelling and the cluster; create the topic; with ACLs, check that this user "
        "may describe it. Right after a creation it passes by itself."
    )


class LeaderNotAvailableError(InvalidMetadataError, code=5, name="LEADER_NOT_AVAILABLE"):
    what = "The partition has no leader at the moment."
    hint = (
        "An election takes about a second. If it lasts, all in-sync replicas are down: start one "
        "of the partition's brokers (kafka-topics --describe names them)."
    )


class NotLeaderOrFollowerError(InvalidMetadataError, code=6, name="NOT_LEADER_OR_FOLLOWER"):
    what = "The broker does not lead this partition, or holds no replica of it, any more."
    hint = (
        "The client asks for the new leader and retries. If it lasts, that broker is cut off "
        "from its controller, or leaders are moving back and forth."
    )


class ReplicaNotAvailableError(InvalidMetadataError, code=9, name="REPLICA_NOT_AVAILABLE"):
    what = "The broker has no usable replica of this partition."
    hint = "Look at that broker's log directories, and at reassignments under way."


class NetworkError(InvalidMetadataError, code=13, name="NETWORK_EXCEPTION"):
    what = "The connection broke before the answer came."
    hint = (
        "The client reconnects and retries. If it lasts, look whether the broker is up, and for "
        "firewalls and load balancers that cut idle connections."
    )


class CoordinatorNotAvailableError(
    RefreshRetriableError, code=15, name="COORDINATOR_NOT_AVAILABLE"
):
    what = "There is no coordinator for this group or transactional id at the moment."
    hint = (
        "If it lasts, __consumer_offsets or __transaction_state has partitions without a leader, "
        "or could not be created: check that enough brokers run for its replication factor."
    )


class NotCoordinatorError(RefreshRetriableError, code=16, name="NOT_COORDINATOR"):
    what = "The broker does not coordinate this group or transactional id any more."
    hint = "The client looks for the new coordinator and retries."


class KafkaStorageError(InvalidMetadataError, code=56, name="KAFKA_STORAGE_ERROR"):
    what = "A disk of the broker failed, and this partition's log is on it."
    hint = "Look at that broker's log and disks; another replica takes over if one is in sync."


class ListenerNotFoundError(InvalidMetadataError, code=72, name="LISTENER_NOT_FOUND"):
    what = "The partition's leader has no listener of the kind that this client connects by."
    hint = "Give all brokers the same listener names in advertised.listeners."


class FencedLeaderEpochError(InvalidMetadataError, code=74, name="FENCED_LEADER_EPOCH"):
    what = "The client knows an older leader of this partition than the broker does."
    hint = "The client refreshes its metadata and retries; expect it when a leader has moved."


class PreferredLeaderNotAvailableError(
    InvalidMetadataError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE"
):
    what = "The preferred replica cannot be elected: it is down or not in sync."
    hint = "Start that broker, wait until it is in sync, and ask for the election again."


class EligibleLeadersNotAvailableError(
    InvalidMetadataError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"
):
    what = "No replica of this partition may be elected leader."
    hint = (
        "Start a broker that was in sync. Only if its data is lost for good, an unclean election "
        "brings the partition back and drops the records that the others do not have."
    )


class ElectionNotNeededError(InvalidMetadataError, code=84, name="ELECTION_NOT_NEEDED"):
    what = "The partition is already led by the replica that an election would choose."
    hint = "There is nothing to do."


class UnknownTopicIdError(InvalidMetadataError, code=100, name="UNKNOWN_TOPIC_ID"):
    what = "The broker knows no topic of this id."
    hint = (
        "The topic was deleted, or deleted and created again under its old name; right after a "
        "creation it passes by itself."
    )


class InconsistentTopicIdError(InvalidMetadataError, code=103, name="INCONSISTENT_TOPIC_ID"):
    what = "The broker's log belongs to another topic of the same name."
    hint = (
        "The topic was deleted and created again. If it lasts, that broker kept a stale log "
        "directory of the old topic."
    )

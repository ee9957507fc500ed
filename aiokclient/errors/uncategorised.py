"""Errors that KIP-1050 puts in no category: records, groups, transactions, sessions.

What a client does about them depends on the place; `aiokclient.policy` says it. The errors of
administration and of the brokers among themselves are in `uncategorised_admin`.
"""

from __future__ import annotations

from aiokclient.errors.base import InvalidOffsetError, KafkaError

__all__ = [
    "BrokerNotAvailableError",
    "DuplicateSequenceError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "InconsistentGroupProtocolError",
    "InvalidCommitOffsetSizeError",
    "InvalidFetchSizeError",
    "InvalidGroupIdError",
    "InvalidRecordStateError",
    "InvalidRegularExpressionError",
    "InvalidRequestError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "InvalidTxnTimeoutError",
    "MemberIdRequiredError",
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorageError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "RebalanceInProgressError",
    "RebootstrapRequiredError",
    "RecordTooLargeError",
    "StaleMemberEpochError",
    "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError",
    "StreamsTopologyDescriptionUpdateFailedError",
    "StreamsTopologyFencedError",
    "TelemetryTooLargeError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdNotFoundError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownSubscriptionIdError",
    "UnreleasedInstanceIdError",
    "UnsupportedAssignorError",
    "UnsupportedCompressionTypeError",
]


class UnknownServerError(KafkaError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    what = "The broker failed in a way that it did not foresee."
    hint = "Its log has the stack trace, at the time of this error."


class OffsetOutOfRangeError(InvalidOffsetError, code=1, name="OFFSET_OUT_OF_RANGE"):
    what = "The partition holds no record at this offset: deleted by retention, or never written."
    hint = (
        "Seek to the beginning or the end, or set auto_offset_reset; if retention overtook the "
        "consumer, raise retention.ms or read faster."
    )


class InvalidFetchSizeError(KafkaError, code=4, name="INVALID_FETCH_SIZE"):
    what = "The broker does not accept the size that the fetch asked for."
    hint = "Set fetch_max_bytes and max_partition_fetch_bytes above zero."


class BrokerNotAvailableError(KafkaError, code=8, name="BROKER_NOT_AVAILABLE"):
    what = "The broker that was asked for is not running."
    hint = "Check the broker id and start the broker."


class RecordTooLargeError(KafkaError, code=10, name="MESSAGE_TOO_LARGE"):
    what = "The record is larger than it may be."
    hint = (
        "Send less, compress, or raise the limits together: max_request_size here, "
        "max.message.bytes of the topic, message.max.bytes of the brokers."
    )


class OffsetMetadataTooLargeError(KafkaError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    what = "The note committed with the offset is too long."
    hint = "Shorten it, or raise offset.metadata.max.bytes (4096) on the brokers."


class InconsistentGroupProtocolError(KafkaError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    what = "The group's members have no assignment strategy in common with this one."
    hint = (
        "Give all members one common partition_assignment_strategy, and check that nothing else "
        "(Connect, another program) uses this group_id."
    )


class InvalidGroupIdError(KafkaError, code=24, name="INVALID_GROUP_ID"):
    what = "The group id is empty or not allowed, or the group is of another type."
    hint = "Set group_id to a name that no other kind of group uses."


class InvalidSessionTimeoutError(KafkaError, code=26, name="INVALID_SESSION_TIMEOUT"):
    what = "The broker does not allow this session timeout."
    hint = (
        "Keep session_timeout_ms between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the brokers."
    )


class RebalanceInProgressError(KafkaError, code=27, name="REBALANCE_IN_PROGRESS"):
    what = "The group is rebalancing."
    hint = "The consumer rejoins by itself; a commit refused by this may be repeated after that."


class InvalidCommitOffsetSizeError(KafkaError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    what = "The commit holds more than the brokers' offsets topic takes in one batch."
    hint = "Commit fewer partitions at a time, or raise max.message.bytes of __consumer_offsets."


class InvalidTimestampError(KafkaError, code=32, name="INVALID_TIMESTAMP"):
    what = "The record's timestamp is further from the broker's clock than the topic allows."
    hint = (
        "Timestamps are milliseconds since the epoch; compare the clocks, or change the topic's "
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms."
    )


class InvalidRequestError(KafkaError, code=42, name="INVALID_REQUEST"):
    what = "The broker found the request contradictory or malformed."
    hint = "Check the arguments of the call; the broker's log may say which one it refused."


class OutOfOrderSequenceError(KafkaError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    what = "The broker misses records that the producer has sent before these."
    hint = (
        "Acknowledged records may have been lost: look for an unclean leader election, and for "
        "retention that deletes a topic's records within minutes."
    )


class DuplicateSequenceError(KafkaError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    what = "The broker says that it already has these records."
    hint = (
        "If the producer sent them more than once, they are in the log once, at an unknown offset. "
        "If it sent them once, the broker took them for those of another producer."
    )


class InvalidTxnStateError(KafkaError, code=48, name="INVALID_TXN_STATE"):
    what = "The coordinator's transaction is not in a state that allows this."
    hint = (
        "The transaction probably timed out and was aborted: end it within "
        "transaction_timeout_ms, then run it again, with a new producer if this one fails."
    )


class InvalidTxnTimeoutError(KafkaError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    what = "The transaction timeout is longer than the brokers allow."
    hint = "Lower transaction_timeout_ms to at most the brokers' transaction.max.timeout.ms."


class TransactionCoordinatorFencedError(KafkaError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    what = "A marker came from a transaction coordinator that has been replaced."
    hint = "Brokers settle this among themselves; if it lasts, look at __transaction_state."


class UnknownProducerIdError(OutOfOrderSequenceError, code=59, name="UNKNOWN_PRODUCER_ID"):
    what = "The leader keeps no state of this producer: its records there have been deleted."
    hint = (
        "The producer starts its sequence anew. If it is frequent, raise the retention of the "
        "topic or the brokers' producer.id.expiration.ms."
    )


class GroupIdNotFoundError(KafkaError, code=69, name="GROUP_ID_NOT_FOUND"):
    what = "There is no group of this id."
    hint = "Check the spelling; a group without members and offsets disappears by itself."


class UnsupportedCompressionTypeError(KafkaError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    what = "The broker or this version of the request does not support the compression."
    hint = "zstd needs brokers since 2.1; choose gzip, snappy or lz4, or upgrade."


class MemberIdRequiredError(KafkaError, code=79, name="MEMBER_ID_REQUIRED"):
    what = "The coordinator has given this member an id and wants it to join again with it."
    hint = "The client does so; this is a normal step of joining."


class GroupMaxSizeReachedError(KafkaError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    what = "The group has as many members as the brokers allow."
    hint = "Run fewer consumers, or raise group.max.size (group.consumer.max.size) on the brokers."


class TransactionalIdNotFoundError(KafkaError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    what = "The coordinator knows no such transactional id."
    hint = "Check the spelling; ids unused for transactional.id.expiration.ms are forgotten."


class OffsetMovedToTieredStorageError(KafkaError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    what = "The offset is no longer on the broker's disk but in tiered storage."
    hint = "Only followers meet this; a consumer that does has reached a broker not set up for it."


class FencedMemberEpochError(KafkaError, code=110, name="FENCED_MEMBER_EPOCH"):
    what = "The coordinator has fenced this member: it gives up its partitions and rejoins."
    hint = "If it is frequent, look for what delays heartbeats or blocks the event loop."


class UnreleasedInstanceIdError(KafkaError, code=111, name="UNRELEASED_INSTANCE_ID"):
    what = "Another member of the group still holds this group.instance.id."
    hint = "Stop the other one, or wait until its session times out; ids must be unique."


class UnsupportedAssignorError(KafkaError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    what = "The brokers do not offer the assignor that was asked for."
    hint = "Choose one of the brokers' group.consumer.assignors, or leave the choice to them."


class StaleMemberEpochError(KafkaError, code=113, name="STALE_MEMBER_EPOCH"):
    what = "The member used an epoch that the coordinator has moved on from."
    hint = "The client takes the new epoch from its next heartbeat and repeats the request."


class UnknownSubscriptionIdError(KafkaError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    what = "The subscription of client metrics has changed."
    hint = "The client asks for the new one; there is nothing to do."


class TelemetryTooLargeError(KafkaError, code=118, name="TELEMETRY_TOO_LARGE"):
    what = "The pushed client metrics are larger than the broker takes."
    hint = "Subscribe to fewer metrics, or raise telemetry.max.bytes on the brokers."


class InvalidRecordStateError(KafkaError, code=121, name="INVALID_RECORD_STATE"):
    what = "The share group no longer waits for this acknowledgement."
    hint = (
        "The record's lock ran out and it is delivered again: handle records faster, or raise "
        "share.record.lock.duration.ms of the group."
    )


class FencedStateEpochError(KafkaError, code=124, name="FENCED_STATE_EPOCH"):
    what = "The share coordinator has a newer epoch of this share group's state."
    hint = "Brokers settle this among themselves; if it lasts, look at __share_group_state."


class InvalidRegularExpressionError(KafkaError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    what = "The broker cannot read the pattern of topics."
    hint = "Brokers use Google's RE2/J syntax: no lookaround, no back references."


class RebootstrapRequiredError(KafkaError, code=129, name="REBOOTSTRAP_REQUIRED"):
    what = "The broker asks the client to start again from its bootstrap servers."
    hint = "The client does so; check bootstrap_servers if it does not come back."


class StreamsInvalidTopologyError(KafkaError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    what = "The coordinator refused the topology of a Streams group."
    hint = "Correct the application's topology."


class StreamsInvalidTopologyEpochError(KafkaError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"):
    what = "The epoch of a Streams topology is not one that the coordinator accepts."
    hint = "Raise the epoch by one whenever the topology changes."


class StreamsTopologyFencedError(KafkaError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    what = "The Streams group already runs a newer topology."
    hint = "Update this instance to the newer version of the application."


class StreamsTopologyDescriptionUpdateFailedError(
    KafkaError, code=135, name="STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"
):
    what = "The coordinator could not store the description of a Streams topology."
    hint = "The group works without it; the broker's log says why it failed."

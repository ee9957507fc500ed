"""Errors without a category in KIP-1050: records, groups, transactions, sessions.

What a client does about them depends on the scope; see `aiokclient.policy`. The errors of admin
calls and of requests between brokers are in `uncategorized_admin`.
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
    what = "The broker had an unexpected error."
    hint = "The log of the broker has the stack trace."


class OffsetOutOfRangeError(InvalidOffsetError, code=1, name="OFFSET_OUT_OF_RANGE"):
    offset: int | None = None
    """The position that the log does not contain, if a consumer raises it."""
    missing_start: int | None = None
    """The first offset of a range that the log does not contain, if `read_range` raises it."""
    missing_end: int | None = None
    """The offset after the missing ones, at which the log continues or the range ends."""

    what = (
        "The partition has no record at this offset: retention deleted it, or it was never written."
    )
    hint = (
        "Seek to the beginning or the end, or set auto_offset_reset. If retention deletes records"
        " before the consumer reads them, raise retention.ms or read faster."
    )
    help = "reference/errors.html#offsetoutofrangeerror"


class InvalidFetchSizeError(KafkaError, code=4, name="INVALID_FETCH_SIZE"):
    what = "The broker does not accept the size limit of the fetch request."
    hint = "Set fetch_max_bytes and max_partition_fetch_bytes above zero."


class BrokerNotAvailableError(KafkaError, code=8, name="BROKER_NOT_AVAILABLE"):
    what = "The requested broker is not running."
    hint = "Check the broker id and start the broker."


class RecordTooLargeError(KafkaError, code=10, name="MESSAGE_TOO_LARGE"):
    what = "The record is larger than the limit."
    hint = (
        "Send smaller records, compress them, or raise the limits: max_request_size of the "
        "producer and max.message.bytes of the topic (message.max.bytes of the brokers)."
    )
    help = "reference/errors.html#recordtoolargeerror"


class OffsetMetadataTooLargeError(KafkaError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    what = "The metadata committed with the offset is too long."
    hint = "Shorten the metadata, or raise offset.metadata.max.bytes (4096) on the brokers."


class InconsistentGroupProtocolError(KafkaError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    what = "This member has no assignment strategy in common with the other members."
    hint = (
        "Configure a common partition_assignment_strategy for all members, and check that nothing"
        " else (Kafka Connect, another program) uses this group_id."
    )
    help = "reference/errors.html#inconsistentgroupprotocolerror"


class InvalidGroupIdError(KafkaError, code=24, name="INVALID_GROUP_ID"):
    what = "The group id is empty or invalid, or the group has another type."
    hint = "Set group_id to a name that no group of another type uses."


class InvalidSessionTimeoutError(KafkaError, code=26, name="INVALID_SESSION_TIMEOUT"):
    what = "The broker does not allow this session timeout."
    hint = (
        "Set session_timeout_ms to a value between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the brokers."
    )


class RebalanceInProgressError(KafkaError, code=27, name="REBALANCE_IN_PROGRESS"):
    what = "The group is rebalancing."
    hint = "The consumer rejoins on its own. Repeat the commit after that."


class InvalidCommitOffsetSizeError(KafkaError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    what = "The commit is larger than the largest batch of the brokers' offsets topic."
    hint = "Commit fewer partitions at a time, or raise max.message.bytes of __consumer_offsets."


class InvalidTimestampError(KafkaError, code=32, name="INVALID_TIMESTAMP"):
    what = "The timestamp of the record is too far from the broker's clock for the topic."
    hint = (
        "Check that the timestamp is in milliseconds since the epoch, and compare the clocks. The"
        " limits of the topic are message.timestamp.before.max.ms and "
        "message.timestamp.after.max.ms."
    )


class InvalidRequestError(KafkaError, code=42, name="INVALID_REQUEST"):
    what = "The broker rejected the request as malformed or inconsistent."
    hint = "Check the arguments of the call. The log of the broker may say which one it rejected."


class OutOfOrderSequenceError(KafkaError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    what = "The broker lacks records that the producer sent before these."
    hint = (
        "Acknowledged records may have been lost. Check for an unclean leader election, and for "
        "retention that deletes the records of the topic within minutes."
    )
    help = "reference/errors.html#outofordersequenceerror"


class DuplicateSequenceError(KafkaError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    what = "The broker reports that it already has these records."
    hint = (
        "If the producer sent the records more than once, they are in the log once, at an unknown"
        " offset. If it sent them once, the broker took them for those of another producer."
    )


class InvalidTxnStateError(KafkaError, code=48, name="INVALID_TXN_STATE"):
    what = "The state of the transaction at the coordinator does not allow this request."
    hint = (
        "The transaction probably timed out and was aborted. Run it again, with a new producer if"
        " this one fails, and end it within transaction_timeout_ms."
    )


class InvalidTxnTimeoutError(KafkaError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    what = "The transaction timeout is longer than the limit of the brokers."
    hint = "Lower transaction_timeout_ms to at most transaction.max.timeout.ms of the brokers."


class TransactionCoordinatorFencedError(KafkaError, code=52, name="TRANSACTION_COORDINATOR_FENCED"):
    what = "A transaction marker came from a coordinator that has been replaced."
    hint = (
        "The brokers resolve this on their own. If the error persists, check __transaction_state."
    )


class UnknownProducerIdError(OutOfOrderSequenceError, code=59, name="UNKNOWN_PRODUCER_ID"):
    what = "The leader has no state of this producer, since the producer's records were deleted."
    hint = (
        "The producer restarts its sequence. If the error is frequent, raise the retention of the"
        " topic, or producer.id.expiration.ms of the brokers."
    )
    help = ""


class GroupIdNotFoundError(KafkaError, code=69, name="GROUP_ID_NOT_FOUND"):
    what = "There is no group with this id."
    hint = "Check the spelling. A group without members and offsets is deleted automatically."


class UnsupportedCompressionTypeError(KafkaError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    what = "The broker does not support this compression type."
    hint = "zstd needs Kafka 2.1 or later. Use gzip, snappy, or lz4, or upgrade the broker."


class MemberIdRequiredError(KafkaError, code=79, name="MEMBER_ID_REQUIRED"):
    what = "The coordinator has assigned a member id, and expects the member to join with it."
    hint = "The client does so. This is a normal step of joining a group."


class GroupMaxSizeReachedError(KafkaError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    what = "The group has reached the maximum number of members."
    hint = (
        "Run fewer consumers, or raise group.max.size on the brokers (group.consumer.max.size for"
        " the consumer protocol)."
    )


class TransactionalIdNotFoundError(KafkaError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    what = "The coordinator does not have this transactional id."
    hint = "Check the spelling. Ids that are unused for transactional.id.expiration.ms expire."


class OffsetMovedToTieredStorageError(KafkaError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    what = "The offset has moved from the disk of the broker to tiered storage."
    hint = "Consumers get this only from a broker without remote storage. Check its configuration."


class FencedMemberEpochError(KafkaError, code=110, name="FENCED_MEMBER_EPOCH"):
    what = "The coordinator has fenced this member, which loses its partitions and rejoins."
    hint = "If the error is frequent, find what delays the heartbeats or blocks the event loop."


class UnreleasedInstanceIdError(KafkaError, code=111, name="UNRELEASED_INSTANCE_ID"):
    what = "Another member of the group still uses this group_instance_id."
    hint = "Stop the other member, or wait until its session times out. The ids must be unique."


class UnsupportedAssignorError(KafkaError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    what = "The brokers do not have the requested assignor."
    hint = "Use one of group.consumer.assignors of the brokers, or let the brokers choose."


class StaleMemberEpochError(KafkaError, code=113, name="STALE_MEMBER_EPOCH"):
    what = "The member epoch is older than the coordinator's."
    hint = "The client receives the new epoch with its next heartbeat, and retries."


class UnknownSubscriptionIdError(KafkaError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    what = "The subscription of client metrics has changed."
    hint = "The client requests the new subscription. No action is needed."


class TelemetryTooLargeError(KafkaError, code=118, name="TELEMETRY_TOO_LARGE"):
    what = "The pushed client metrics are larger than the limit of the broker."
    hint = "Subscribe to fewer metrics, or raise telemetry.max.bytes on the brokers."


class InvalidRecordStateError(KafkaError, code=121, name="INVALID_RECORD_STATE"):
    what = "The share group no longer expects this acknowledgement."
    hint = (
        "The lock of the record expired, and the record is delivered again. Process records "
        "faster, or raise share.record.lock.duration.ms of the group."
    )


class FencedStateEpochError(KafkaError, code=124, name="FENCED_STATE_EPOCH"):
    what = "The share coordinator has a newer epoch of this share group's state."
    hint = (
        "The brokers resolve this on their own. If the error persists, check __share_group_state."
    )


class InvalidRegularExpressionError(KafkaError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    what = "The broker cannot parse the topic pattern."
    hint = "Use the syntax of RE2/J, which has no lookaround and no backreferences."


class RebootstrapRequiredError(KafkaError, code=129, name="REBOOTSTRAP_REQUIRED"):
    what = "The broker asks the client to start again from its bootstrap servers."
    hint = (
        "With metadata_recovery_strategy='rebootstrap', the client does so; if it cannot, "
        "check bootstrap_servers. With 'none', restart it."
    )


class StreamsInvalidTopologyError(KafkaError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    what = "The coordinator rejected the topology of a Streams group."
    hint = "Correct the topology of the application."


class StreamsInvalidTopologyEpochError(KafkaError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"):
    what = "The coordinator does not accept the epoch of the Streams topology."
    hint = "Raise the epoch by one whenever the topology changes."


class StreamsTopologyFencedError(KafkaError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    what = "The Streams group already runs a newer topology."
    hint = "Update this instance to the newer version of the application."


class StreamsTopologyDescriptionUpdateFailedError(
    KafkaError, code=135, name="STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"
):
    what = "The coordinator could not store the description of a Streams topology."
    hint = "The group works without it. The log of the broker says why it failed."

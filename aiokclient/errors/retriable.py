"""Errors after which the same request may succeed."""

from __future__ import annotations

from aiokclient.errors.base import KafkaError, RetriableError

__all__ = [
    "ConcurrentTransactionsError",
    "CoordinatorLoadInProgressError",
    "CorruptRecordError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "InvalidFetchSessionEpochError",
    "InvalidShareSessionEpochError",
    "KafkaTimeoutError",
    "NotControllerError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "OffsetNotAvailableError",
    "RequestTimedOutError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "ThrottlingQuotaExceededError",
    "UnknownLeaderEpochError",
    "UnstableOffsetCommitError",
]


class KafkaTimeoutError(RetriableError, TimeoutError):
    """An error raised when a deadline has passed; also a `TimeoutError`.

    If attempts have failed before, the error of the last one is the cause, and the text has it.
    """

    def _compose_text(self) -> str:
        text, cause = super()._compose_text(), self.__cause__
        if not isinstance(cause, KafkaError) or cause.brief in text:
            return text
        if not cause._has_own_code or str(cause.name) in text:
            # The text may already quote what the cause says.
            said = cause.message.rstrip(".")
            if said and said in text:
                return text
        return f"{text} The last error: {cause.brief}"


class CorruptRecordError(RetriableError, code=2, name="CORRUPT_MESSAGE"):
    what = "A record batch failed its checksum or is malformed."
    hint = (
        "Records of a compacted topic need a key: without one, producing fails with this error "
        "too. Otherwise, check the network and the disk of the broker."
    )


class RequestTimedOutError(KafkaTimeoutError, code=7, name="REQUEST_TIMED_OUT"):
    what = "The broker did not finish the request within the timeout that the request sets."
    hint = (
        "Check for under-replicated partitions and for an overloaded broker. Raise "
        "request_timeout_ms only if the broker is slow for a known reason."
    )


class CoordinatorLoadInProgressError(RetriableError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS"):
    what = "The coordinator has just moved and is still loading its state."
    hint = (
        "The client retries. If the error persists for minutes, check the size and the compaction"
        " of __consumer_offsets or __transaction_state on the broker."
    )


class NotEnoughReplicasError(RetriableError, code=19, name="NOT_ENOUGH_REPLICAS"):
    what = "Fewer replicas are in sync than min.insync.replicas requires. Nothing was written."
    hint = "Restart the missing brokers, or lower min.insync.replicas of the topic."
    help = "reference/errors.html#notenoughreplicaserror"


class NotEnoughReplicasAfterAppendError(
    RetriableError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
):
    what = "The leader wrote the batch, but too few replicas were in sync to confirm it."
    hint = (
        "Restart the missing brokers. Without enable_idempotence, a retry may write the batch "
        "twice."
    )


class NotControllerError(RetriableError, code=41, name="NOT_CONTROLLER"):
    what = "The request reached a broker that is not the active controller."
    hint = (
        "The client looks up the controller and retries. If the error persists, the controller "
        "quorum has no leader: check the logs of the controllers."
    )


class ConcurrentTransactionsError(RetriableError, code=51, name="CONCURRENT_TRANSACTIONS"):
    what = "The coordinator is still completing the previous transaction of this transactional id."
    hint = (
        "The client retries. If the error persists, two producers use the same transactional id, "
        "or a partition of the previous transaction has no leader to write its marker."
    )


class FetchSessionIdNotFoundError(RetriableError, code=70, name="FETCH_SESSION_ID_NOT_FOUND"):
    what = "The broker no longer has this fetch session."
    hint = (
        "The client opens a new session. If the error is frequent, raise "
        "max.incremental.fetch.session.cache.slots on the broker."
    )


class InvalidFetchSessionEpochError(RetriableError, code=71, name="INVALID_FETCH_SESSION_EPOCH"):
    what = "The client's epoch of the fetch session is not the one that the broker expects."
    hint = "The client opens a new session. Usually a response was lost with its connection."


class UnknownLeaderEpochError(RetriableError, code=75, name="UNKNOWN_LEADER_EPOCH"):
    what = "The leader epoch of the client is newer than the broker's."
    hint = (
        "The client retries until the broker has caught up. If the error persists, the broker has"
        " lost contact with the controller."
    )


class OffsetNotAvailableError(RetriableError, code=78, name="OFFSET_NOT_AVAILABLE"):
    what = "The new leader does not know its high watermark yet."
    hint = (
        "The client retries until a follower has fetched from the leader. If the error persists, "
        "no follower is alive."
    )


class UnstableOffsetCommitError(RetriableError, code=88, name="UNSTABLE_OFFSET_COMMIT"):
    what = "Offsets of the group belong to a transaction that has not ended."
    hint = (
        "The client retries until the transaction ends, at the latest after its "
        "transaction.timeout.ms. If the error persists, check __consumer_offsets for a hanging "
        "transaction."
    )
    help = "reference/errors.html#unstableoffsetcommiterror"


class ThrottlingQuotaExceededError(RetriableError, code=89, name="THROTTLING_QUOTA_EXCEEDED"):
    what = "The quota for changes of topics and partitions is exceeded."
    hint = "Change fewer partitions at a time, or raise controller_mutation_rate for the user."


class FetchSessionTopicIdError(RetriableError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    what = "A fetch session mixed requests with and without topic ids."
    hint = "The client opens a new session. This is normal while brokers are upgraded."


class ShareSessionNotFoundError(RetriableError, code=122, name="SHARE_SESSION_NOT_FOUND"):
    what = "The broker no longer has this share session."
    hint = "The client opens a new session. Records that were not acknowledged are delivered again."


class InvalidShareSessionEpochError(RetriableError, code=123, name="INVALID_SHARE_SESSION_EPOCH"):
    what = "The client's epoch of the share session is not the one that the broker expects."
    hint = "The client opens a new session. Records that were not acknowledged are delivered again."


class ShareSessionLimitReachedError(RetriableError, code=133, name="SHARE_SESSION_LIMIT_REACHED"):
    what = "The broker has reached its limit of share sessions."
    hint = "Use fewer share consumers, or raise group.share.max.share.sessions on the brokers."

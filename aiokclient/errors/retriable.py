"""Errors that a repeated request may overcome."""

from __future__ import annotations

from aiokclient.errors.base import RetriableError

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
    """Something took longer than its deadline allows; `except TimeoutError` catches it too."""


class CorruptRecordError(RetriableError, code=2, name="CORRUPT_MESSAGE"):
    what = "A record batch failed its checksum or is malformed."
    hint = (
        "Sent to a compacted topic, a record without a key gives this too: add the key. Otherwise "
        "suspect the network, or the disk of the broker named here."
    )


class RequestTimedOutError(KafkaTimeoutError, code=7, name="REQUEST_TIMED_OUT"):
    what = "The broker did not finish the request in the time it was given."
    hint = (
        "Look for slow or missing followers (under-replicated partitions) and an overloaded "
        "broker; raise request_timeout_ms only if the broker is slow for a known reason."
    )


class CoordinatorLoadInProgressError(RetriableError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS"):
    what = "The coordinator has just moved and is still reading its state."
    hint = (
        "This passes by itself. If it lasts for minutes, look at the size and the compaction of "
        "__consumer_offsets or __transaction_state on that broker."
    )


class NotEnoughReplicasError(RetriableError, code=19, name="NOT_ENOUGH_REPLICAS"):
    what = "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."
    hint = "Bring the missing brokers back, or lower the topic's min.insync.replicas."


class NotEnoughReplicasAfterAppendError(
    RetriableError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
):
    what = "The leader wrote the batch, but too few replicas were in sync to confirm it."
    hint = (
        "Bring the missing brokers back. A retry without enable_idempotence may write the batch "
        "twice."
    )


class NotControllerError(RetriableError, code=41, name="NOT_CONTROLLER"):
    what = "The request reached a broker that is not the active controller."
    hint = (
        "The client looks for the controller and retries. If it lasts, the controller quorum has "
        "no leader: look at the logs of the controllers."
    )


class ConcurrentTransactionsError(RetriableError, code=51, name="CONCURRENT_TRANSACTIONS"):
    what = "The coordinator still completes the previous transaction of this transactional id."
    hint = (
        "This passes in a moment. If it lasts, two producers use the same transactional.id, or a "
        "partition of the previous transaction has no leader to take its marker."
    )


class FetchSessionIdNotFoundError(RetriableError, code=70, name="FETCH_SESSION_ID_NOT_FOUND"):
    what = "The broker no longer keeps this fetch session."
    hint = (
        "The client opens a new session. If it happens all the time, raise the broker's "
        "max.incremental.fetch.session.cache.slots."
    )


class InvalidFetchSessionEpochError(RetriableError, code=71, name="INVALID_FETCH_SESSION_EPOCH"):
    what = "The broker and the client disagree about how far the fetch session has come."
    hint = "The client opens a new session; a response was probably lost with its connection."


class UnknownLeaderEpochError(RetriableError, code=75, name="UNKNOWN_LEADER_EPOCH"):
    what = "The broker has not yet heard of the leader epoch that the client knows."
    hint = (
        "This passes when the broker catches up. If it lasts, that broker is cut off from its "
        "controller."
    )


class OffsetNotAvailableError(RetriableError, code=78, name="OFFSET_NOT_AVAILABLE"):
    what = "The new leader does not yet know how far its log is committed."
    hint = "This passes when a follower has fetched from it; if it lasts, no follower is alive."


class UnstableOffsetCommitError(RetriableError, code=88, name="UNSTABLE_OFFSET_COMMIT"):
    what = "Offsets of the group are part of a transaction that is still open."
    hint = (
        "This passes when that transaction ends, at the latest by its transaction.timeout.ms. If "
        "it lasts, look for a hanging transaction on __consumer_offsets."
    )


class ThrottlingQuotaExceededError(RetriableError, code=89, name="THROTTLING_QUOTA_EXCEEDED"):
    what = "The quota for changes of topics and partitions is used up."
    hint = "Ask for fewer partitions at a time, or raise controller_mutation_rate for this user."


class FetchSessionTopicIdError(RetriableError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    what = "A fetch session mixed requests with and without topic ids."
    hint = "The client opens a new session; expect it once while brokers are upgraded."


class ShareSessionNotFoundError(RetriableError, code=122, name="SHARE_SESSION_NOT_FOUND"):
    what = "The broker no longer keeps this share session."
    hint = "The client opens a new session; records not acknowledged are delivered again."


class InvalidShareSessionEpochError(RetriableError, code=123, name="INVALID_SHARE_SESSION_EPOCH"):
    what = "The broker and the client disagree about how far the share session has come."
    hint = "The client opens a new session; records not acknowledged are delivered again."


class ShareSessionLimitReachedError(RetriableError, code=133, name="SHARE_SESSION_LIMIT_REACHED"):
    what = "The broker already serves as many share sessions as it may."
    hint = "Use fewer share consumers, or raise group.share.max.share.sessions on the brokers."

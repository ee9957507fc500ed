"""Errors after which the client that met them has to be replaced (KIP-1050)."""

from __future__ import annotations

from aiokclient.errors.base import ApplicationRecoverableError
from aiokclient.types import TopicPartition

__all__ = [
    "FencedInstanceIdError",
    "IllegalGenerationError",
    "InvalidPidMappingError",
    "InvalidProducerEpochError",
    "ProducerFencedError",
    "UnknownCodeError",
    "UnknownMemberIdError",
]


class IllegalGenerationError(ApplicationRecoverableError, code=22, name="ILLEGAL_GENERATION"):
    what = "The group has rebalanced since; this generation of it is over."
    hint = (
        "The partitions may have another owner: do not commit for them. If it happens often, "
        "handling takes longer than max_poll_interval_ms."
    )


class UnknownMemberIdError(ApplicationRecoverableError, code=25, name="UNKNOWN_MEMBER_ID"):
    what = "The coordinator has removed this member from its group."
    hint = (
        "It sent no heartbeat for session_timeout_ms, or handled records for longer than "
        "max_poll_interval_ms: look for what blocked the event loop, or raise the limit."
    )


class InvalidProducerEpochError(
    ApplicationRecoverableError, code=47, name="INVALID_PRODUCER_EPOCH"
):
    what = "A newer producer with this id has taken over, or the transaction timed out."
    hint = (
        "Close this producer and make a new one. Check that no two processes use the same "
        "transactional.id and that transactions end within transaction_timeout_ms."
    )


class InvalidPidMappingError(
    ApplicationRecoverableError, code=49, name="INVALID_PRODUCER_ID_MAPPING"
):
    what = "The coordinator has forgotten this transactional id or given it another producer id."
    hint = (
        "Close this producer and make a new one. Unused ids are forgotten after the brokers' "
        "transactional.id.expiration.ms (a week)."
    )


class FencedInstanceIdError(ApplicationRecoverableError, code=82, name="FENCED_INSTANCE_ID"):
    what = "Another member has joined with the same group.instance.id."
    hint = "Give every process a group_instance_id of its own, and stop the second one."


class ProducerFencedError(ApplicationRecoverableError, code=90, name="PRODUCER_FENCED"):
    what = "A newer producer with the same transactional.id has taken over."
    hint = (
        "Let the newer one work and end this process, or give each its own transactional.id; "
        "what this one had not committed is aborted."
    )


class UnknownCodeError(ApplicationRecoverableError):
    """A code that this version of the library does not know; `code` is the broker's number."""

    what = "The broker answered with a code that this version of aiokclient does not know."
    hint = "Look the number up in the documentation of the broker's version; upgrade aiokclient."

    def __init__(
        self,
        code: int,
        message: str = "",
        *,
        api: str | None = None,
        broker: int | str | None = None,
        topic_partition: TopicPartition | None = None,
        resource: str | None = None,
    ) -> None:
        super().__init__(
            message, api=api, broker=broker, topic_partition=topic_partition, resource=resource
        )
        self.code = code
        self.name = "UNKNOWN_CODE"

"""Errors after which the client must be replaced (KIP-1050)."""

from __future__ import annotations

from aiokclient.errors.base import ApplicationRecoverableError

__all__ = [
    "FencedInstanceIdError",
    "IllegalGenerationError",
    "InvalidPidMappingError",
    "InvalidProducerEpochError",
    "ProducerFencedError",
    "UnknownMemberIdError",
]


class IllegalGenerationError(ApplicationRecoverableError, code=22, name="ILLEGAL_GENERATION"):
    what = "The group has rebalanced, and this generation of the group has ended."
    hint = (
        "The partitions may have another owner: do not commit offsets for them. If the error is "
        "frequent, processing takes longer than max_poll_interval_ms."
    )
    help = "reference/errors.html#illegalgenerationerror"


class UnknownMemberIdError(ApplicationRecoverableError, code=25, name="UNKNOWN_MEMBER_ID"):
    what = "The coordinator has removed this member from the group."
    hint = (
        "The member sent no heartbeat within session_timeout_ms, or processed records for longer "
        "than max_poll_interval_ms. Find what blocked the event loop, or raise the limit."
    )
    help = "reference/errors.html#unknownmemberiderror"


class InvalidProducerEpochError(
    ApplicationRecoverableError, code=47, name="INVALID_PRODUCER_EPOCH"
):
    what = "A newer producer with the same id has replaced this one, or the transaction timed out."
    hint = (
        "Await restart(), or close this producer and create a new one. Check that no two processes "
        "use the same transactional id, and that transactions end within transaction_timeout_ms."
    )
    help = "reference/errors.html#invalidproducerepocherror"


class InvalidPidMappingError(
    ApplicationRecoverableError, code=49, name="INVALID_PRODUCER_ID_MAPPING"
):
    what = "The coordinator has expired this transactional id, or given it another producer id."
    hint = (
        "Await restart(), or close this producer and create a new one. Brokers expire an id that "
        "is unused for transactional.id.expiration.ms (a week)."
    )


class FencedInstanceIdError(ApplicationRecoverableError, code=82, name="FENCED_INSTANCE_ID"):
    what = "Another member has joined the group with the same group_instance_id."
    hint = "Give each process its own group_instance_id, and stop the duplicate."
    help = "reference/errors.html#fencedinstanceiderror"


class ProducerFencedError(ApplicationRecoverableError, code=90, name="PRODUCER_FENCED"):
    what = "A newer producer with the same transactional id has replaced this one."
    hint = (
        "End this process, or give each process its own transactional id. Whatever this producer "
        "had not committed was aborted."
    )
    help = "reference/errors.html#producerfencederror"

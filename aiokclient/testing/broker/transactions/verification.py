"""The request of a partition's leader to the transaction's coordinator before the first append.

Up to version 11 of Produce, and version 4 of TxnOffsetCommit, the leader asks whether the partition
was added to the transaction (KIP-890). For a partition that was not added, the error is
TRANSACTION_ABORTABLE, or INVALID_TXN_STATE in versions without that code. In later versions, the
leader adds the partition itself. In Kafka, it sends AddPartitionsToTxn to the coordinator. Here, it
calls a function.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.topics.producers import BUMPS_AT, Verification
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call

VERIFICATION: Final = "transaction.partition.verification.enable"
"""The option without which the leader does not ask.

A partition that the client has not added then gets a transaction that no coordinator will end.
"""


class Support(Enum):
    """The abilities of a client, as the version of its request shows."""

    OLD_ERRORS = "only INVALID_TXN_STATE"
    ABORTABLE = "TRANSACTION_ABORTABLE"
    ADDS = "the broker adds the partition"


def find_support(version: int, abortable_since: int) -> Support:
    """Return the abilities of a client that uses `version` of an API."""
    if version < abortable_since:
        return Support.OLD_ERRORS
    return Support.ABORTABLE if version == abortable_since else Support.ADDS


def ask_coordinator(
    call: Call,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    verifications: Mapping[TopicPartition, Verification],
    support: Support,
) -> dict[TopicPartition, Code]:
    """Ask the coordinator about partitions, and return an error code for each, or NONE."""
    if not verifications:
        return {}
    if support is not Support.ADDS and call.broker.configs[VERIFICATION] == "false":
        return dict.fromkeys(verifications, Code.NONE)
    transactions = get_transactions(call.cluster)
    coordinator = call.cluster.find_coordinator(transactional_id)
    try:
        if support is not Support.ADDS:
            found = transactions.verify_partitions(
                coordinator, transactional_id, producer, [*verifications]
            )
        else:
            transactions.add_to_transaction(
                coordinator, transactional_id, producer, [*verifications], BUMPS_AT
            )
            found = dict.fromkeys(verifications, Code.NONE)
    except Refused as refused:
        found = dict.fromkeys(verifications, refused.code)
    return {tp: _adapt_code(code, support) for tp, code in found.items()}


def _adapt_code(code: Code, support: Support) -> Code:
    """Return the code that a producer expects for a code of the coordinator."""
    if code is Code.PRODUCER_FENCED:
        return Code.INVALID_PRODUCER_EPOCH
    if code is Code.TRANSACTION_ABORTABLE and support is Support.OLD_ERRORS:
        return Code.INVALID_TXN_STATE
    return code

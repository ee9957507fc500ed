"""AddPartitionsToTxn 0 to 5: add partitions to a transaction, and begin it with the first of them.

* Up to version 3, clients send it. From version 4 on, brokers send it for several transactions, and
  may ask whether partitions were added, without adding them (`verify_only`). A partition that was
  not added is then TRANSACTION_ABORTABLE.
* If a partition does not exist, it is UNKNOWN_TOPIC_OR_PARTITION, the others are
  OPERATION_NOT_ATTEMPTED, and nothing is added. Any other error applies to all partitions.
* An epoch that is not current is PRODUCER_FENCED (up to version 1 INVALID_PRODUCER_EPOCH), another
  producer id or an unknown transactional id is INVALID_PRODUCER_ID_MAPPING, and while the last
  transaction ends, the result is CONCURRENT_TRANSACTIONS. An empty transactional id is
  INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.protocol.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from aiokclient.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.topics.producers import BUMPS_AT
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aiokclient.types import TopicPartition

_FROM_BROKERS = 4
_FENCED_SINCE = 2


async def handle(call: Call) -> Answer:
    request: AddPartitionsToTxnRequest = call.request
    if call.version >= _FROM_BROKERS:
        if code := call.find_refusal() or call.check_cluster_authorization(
            AclOperation.CLUSTER_ACTION
        ):
            return AddPartitionsToTxnResponse(error_code=code)
        try:
            results = [
                await _answer_transaction(call, each)
                async for each in call.iterate_items(request.transactions)
            ]
        except Refused as refused:
            return AddPartitionsToTxnResponse(error_code=refused.code)
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    result = await _answer_transaction(call, transaction)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)


async def _answer_transaction(
    call: Call, wanted: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    partitions = {
        TopicPartition(topic.name, index): None
        async for topic in call.iterate_items(wanted.topics)
        for index in topic.partitions
    }
    code: int = Code.NONE
    if call.version < _FROM_BROKERS:
        transactional_id = wanted.transactional_id
        code = call.check_authorization(AclResource.TRANSACTIONAL_ID, transactional_id)
    results = dict.fromkeys(partitions, code) if code else _check_partitions(call, list(partitions))
    if not any(results.values()):
        results = _add_partitions(call, wanted, list(partitions))
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    async for tp, code in call.iterate_items(results.items()):
        topics.setdefault(tp.topic, []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=code
            )
        )
    return AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions)
            for name, partitions in topics.items()
        ],
    )


def _check_partitions(call: Call, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return an error code for each partition. All are NONE unless a partition is refused.

    If a partition is refused, the code of those that are not refused is OPERATION_NOT_ATTEMPTED.
    """
    offsets = get_transactions(call.cluster).offsets
    results: dict[TopicPartition, int] = {}
    for tp in partitions:
        results[tp] = call.find_refusal(*tp)
        if not results[tp] and call.cluster.find_partition(*tp) is None and tp not in offsets:
            results[tp] = Code.UNKNOWN_TOPIC_OR_PARTITION
    if any(results.values()):
        return {tp: code or Code.OPERATION_NOT_ATTEMPTED for tp, code in results.items()}
    return results


def _add_partitions(
    call: Call, wanted: AddPartitionsToTxnTransaction, partitions: list[TopicPartition]
) -> Mapping[TopicPartition, int]:
    transactions = get_transactions(call.cluster)
    producer = ProducerIdAndEpoch(wanted.producer_id, wanted.producer_epoch)
    client_level = BUMPS_AT if call.version >= _FROM_BROKERS else 0
    try:
        if wanted.verify_only:
            return transactions.verify_partitions(
                call.broker, wanted.transactional_id, producer, partitions
            )
        transactions.add_to_transaction(
            call.broker, wanted.transactional_id, producer, partitions, client_level
        )
    except Refused as refused:
        code = refused.code
        if code is Code.UNSUPPORTED_VERSION:
            raise
        if code is Code.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = Code.INVALID_PRODUCER_EPOCH
        return dict.fromkeys(partitions, code)
    return dict.fromkeys(partitions, Code.NONE)

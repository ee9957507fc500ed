"""WriteTxnMarkers 1 to 2: write markers to partitions that this broker leads.

Here, coordinators write markers without this request. An administrator sends it to end a
transaction that its coordinator does not know (KIP-664).

* An epoch that is lower than the producer's is INVALID_PRODUCER_EPOCH. At level 2 of
  transaction.version, so is an epoch that is equal to the producer's (version 2 on, KIP-1228). An
  older coordinator epoch is TRANSACTION_COORDINATOR_FENCED.
* A partition of which this broker has no replica is UNKNOWN_TOPIC_OR_PARTITION, and one that
  another broker leads is NOT_LEADER_OR_FOLLOWER.
* A marker is written even if the producer has no open transaction.
"""

from __future__ import annotations

from aiokclient.protocol.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from aiokclient.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclOperation
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch
from aiokclient.types import TopicPartition


async def handle(call: Call) -> Answer:
    request: WriteTxnMarkersRequest = call.request
    return WriteTxnMarkersResponse(
        markers=[
            await _write_markers(call, each) async for each in call.iterate_items(request.markers)
        ]
    )


async def _write_markers(call: Call, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=_write_marker(call, marker, TopicPartition(topic.name, index)),
                    )
                    async for index in call.iterate_items(topic.partition_indexes)
                ],
            )
            async for topic in call.iterate_items(marker.topics)
        ],
    )


def _write_marker(call: Call, marker: WritableTxnMarker, tp: TopicPartition) -> int:
    code: int = call.find_refusal(*tp)
    if not code and call.check_cluster_authorization(AclOperation.ALTER):
        code = call.check_cluster_authorization(AclOperation.CLUSTER_ACTION)
    if code:
        return code
    transactions = get_transactions(call.cluster)
    producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
    commit, coordinator_epoch = marker.transaction_result, marker.coordinator_epoch
    level = marker.transaction_version
    if tp in transactions.offsets:
        offsets = transactions.offsets.get_partition(tp)
        return offsets.end_transaction(commit, producer, coordinator_epoch, level)
    partition = call.cluster.find_partition(*tp)
    if partition is None or call.broker.node_id not in partition.replicas:
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    code = partition.check_request(call.broker.node_id, -1)
    return code or transactions.write_marker(partition, commit, producer, coordinator_epoch, level)

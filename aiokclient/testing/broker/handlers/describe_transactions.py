"""DescribeTransactions 0: the state of transactional ids.

* Their coordinator answers, and NOT_COORDINATOR is the result for the ids of other brokers. An
  unknown id is TRANSACTIONAL_ID_NOT_FOUND, and an empty one is INVALID_REQUEST.
* The partitions are those of the open transaction. Once the transaction is ending, they are those
  that have no marker yet. A group appears as its partition of `__consumer_offsets`.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from aiokclient.protocol.messages.describe_transactions import TopicData, TransactionState
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.transactions.coordinator import get_transactions


async def handle(call: Call) -> Answer:
    request: DescribeTransactionsRequest = call.request
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe_transaction(call, each)
            async for each in call.iterate_items(request.transactional_ids)
        ]
    )


def _describe_transaction(call: Call, transactional_id: str) -> TransactionState:
    answer = TransactionState(transactional_id=transactional_id, error_code=call.find_refusal())
    if not answer.error_code:
        answer.error_code = call.check_authorization(AclResource.TRANSACTIONAL_ID, transactional_id)
    if answer.error_code:
        return answer
    if not transactional_id:
        answer.error_code = Code.INVALID_REQUEST
        return answer
    transactions = get_transactions(call.cluster)
    try:
        transactions.check_coordinator(call.broker, transactional_id)
    except Refused as refused:
        answer.error_code = refused.code
        return answer
    found = transactions.find_transaction(transactional_id)
    if found is None:
        answer.error_code = Code.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    topics: dict[str, list[int]] = {}
    for tp in found.partitions:
        if call.check_authorization(AclResource.TOPIC, tp.topic):
            continue
        topics.setdefault(tp.topic, []).append(tp.partition)
    answer.transaction_state = found.state.value
    answer.transaction_timeout_ms = found.timeout_ms
    answer.transaction_start_time_ms = found.started_ms
    answer.producer_id, answer.producer_epoch = found.current
    answer.topics = [TopicData(topic=name, partitions=each) for name, each in topics.items()]
    return answer

"""ListTransactions 0 to 2: the transactional ids that this broker coordinates.

* A request may select them by state, by producer id, by the time since the transaction began
  (version 1 on, KIP-994), and by a regular expression of the transactional id (version 2 on,
  KIP-1152). Unknown states are returned, and select nothing. An expression that is not valid is
  INVALID_REGULAR_EXPRESSION. Kafka uses Java's syntax of expressions, and this broker Python's.
* A broker that is still loading some of its transactional ids answers
  COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

import re

from aiokclient.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from aiokclient.protocol.messages.list_transactions import TransactionState
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.transactions import states
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import TransactionMetadata

# Kafka has one more state, in which no transactional id is ever seen.
_STATES = frozenset(
    {each.value for each in states.CoordinatorTransactionState} | {"PrepareEpochFence"}
)


async def handle(call: Call) -> Answer:
    request: ListTransactionsRequest = call.request
    transactions = get_transactions(call.cluster)
    code = call.find_refusal()
    if not code and transactions.is_loading(call.broker):
        code = Code.COORDINATOR_LOAD_IN_PROGRESS
    if code:
        return ListTransactionsResponse(error_code=code)
    try:
        pattern = re.compile(request.transactional_id_pattern or ".*", re.DOTALL)
    except re.error:
        return ListTransactionsResponse(error_code=Code.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in _STATES],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            async for each in call.iterate_items(transactions.list_loaded(call.broker))
            if _is_selected(call, each) and pattern.fullmatch(each.transactional_id)
        ],
    )


def _is_selected(call: Call, transaction: TransactionMetadata) -> bool:
    request: ListTransactionsRequest = call.request
    ids, states_, least = (
        request.producer_id_filters,
        request.state_filters,
        request.duration_filter,
    )
    if call.check_authorization(AclResource.TRANSACTIONAL_ID, transaction.transactional_id):
        return False
    if ids and transaction.producer_id not in ids:
        return False
    if states_ and transaction.state.value not in states_:
        return False
    return least < 0 or call.cluster.clock.time_ms() - transaction.started_ms > least

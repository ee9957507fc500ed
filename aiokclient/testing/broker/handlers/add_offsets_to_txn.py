"""AddOffsetsToTxn 0 to 4: announce that a transaction will commit offsets of a group.

The group's partition of `__consumer_offsets` is added to the transaction, whether the group exists
or not. The errors are those of AddPartitionsToTxn.
"""

from __future__ import annotations

from aiokclient.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_SINCE = 2


def handle(call: Call) -> Reply:
    request: AddOffsetsToTxnRequest = call.request
    code = (
        call.find_refusal()
        or call.check_authorization(AclResource.TRANSACTIONAL_ID, request.transactional_id)
        or call.check_authorization(AclResource.GROUP, request.group_id)
    )
    if code:
        return AddOffsetsToTxnResponse(error_code=code)
    transactions = get_transactions(call.cluster)
    tp = transactions.offsets.find_partition(request.group_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        transactions.add_to_transaction(call.broker, request.transactional_id, producer, [tp], 0)
    except Refused as refused:
        code = refused.code
        if code is Code.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = Code.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)

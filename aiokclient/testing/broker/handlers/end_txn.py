"""EndTxn 0 to 5: commit or abort a transaction.

* The outcome is decided when the response is sent, and the markers are written afterwards. Until
  then, the next request is answered with CONCURRENT_TRANSACTIONS.
* Version 5 increases the epoch and returns the producer id and epoch of the next transaction
  (KIP-890). The same request again has the same result. The opposite outcome, and a commit of a
  transaction to which nothing was added, are INVALID_TXN_STATE; an abort of such a transaction is
  allowed (`transactions/states.py`).
* Up to version 4, a repeated request with the same outcome has no effect. The opposite outcome is
  INVALID_TXN_STATE, and so is any request before the first transaction.
* An epoch that is not current is PRODUCER_FENCED (up to version 1 INVALID_PRODUCER_EPOCH), another
  producer id or an unknown transactional id is INVALID_PRODUCER_ID_MAPPING, and an empty
  transactional id is INVALID_REQUEST.
"""

from __future__ import annotations

from aiokclient.protocol.messages import EndTxnRequest, EndTxnResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclResource
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import ProducerIdAndEpoch

_FENCED_SINCE = 2


def handle(call: Call) -> Reply:
    request: EndTxnRequest = call.request
    code = call.find_refusal() or call.check_authorization(
        AclResource.TRANSACTIONAL_ID, request.transactional_id
    )
    if code:
        return EndTxnResponse(error_code=code)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        given = get_transactions(call.cluster).end_transaction(
            call.broker, request.transactional_id, producer, request.committed, call.version
        )
    except Refused as refused:
        code = refused.code
        if code is Code.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = Code.INVALID_PRODUCER_EPOCH
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=given.producer_id, producer_epoch=given.epoch)

"""InitProducerId 0 to 5: assign a producer id and an epoch.

* Without a transactional id: a new id with epoch 0, whatever id the client had before.
* With a transactional id, its coordinator answers. A new producer of the same transactional id gets
  the same producer id in the next epoch, which fences the earlier one. If the earlier producer
  has an open transaction, it is aborted, and the result is CONCURRENT_TRANSACTIONS until it has
  ended.
* A timeout that is not positive or longer than `transaction.max.timeout.ms` is
  INVALID_TRANSACTION_TIMEOUT, and an empty id is INVALID_REQUEST.
* From version 3 on, a producer that continues after an error sends its producer id and epoch
  (KIP-360). If they are not current, the result is PRODUCER_FENCED, or up to version 3
  INVALID_PRODUCER_EPOCH. A producer id without an epoch, or the reverse, is INVALID_REQUEST.
* After epoch 32766, the result is a new producer id with epoch 0.
"""

from __future__ import annotations

from aiokclient.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.transactions.coordinator import get_transactions
from aiokclient.testing.broker.transactions.transaction import NO_EPOCH, ProducerIdAndEpoch

VERSIONS = (0, 5)
_FENCED_SINCE = 4


def handle(call: Call) -> Reply:
    code = call.find_refusal() or _check_authorization(call, call.request.transactional_id)
    if code:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        producer_id, epoch = _init_producer(call)
    except Refused as refused:
        code = refused.code
        # Older clients do not know the code (KIP-588).
        if code is Code.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            code = Code.INVALID_PRODUCER_EPOCH
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


def _check_authorization(call: Call, transactional_id: str | None) -> int:
    if transactional_id is not None:
        return call.check_authorization(AclResource.TRANSACTIONAL_ID, transactional_id)
    if call.is_any_allowed(AclOperation.WRITE, AclResource.TOPIC):
        return Code.NONE
    # Since Kafka 3.0, WRITE on any topic is enough (KIP-679).
    return call.check_cluster_authorization(AclOperation.IDEMPOTENT_WRITE)


def _init_producer(call: Call) -> ProducerIdAndEpoch:
    request: InitProducerIdRequest = call.request
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (expected.producer_id == -1) != (expected.epoch == NO_EPOCH):
        raise Refused(Code.INVALID_REQUEST, "A producer id and an epoch belong together.")
    if request.transactional_id is None:
        return ProducerIdAndEpoch(get_transactions(call.cluster).new_producer_id(), 0)
    return get_transactions(call.cluster).init_producer(
        call.broker,
        request.transactional_id,
        request.transaction_timeout_ms,
        None if expected.epoch == NO_EPOCH else expected,
    )

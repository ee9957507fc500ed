"""InitProducerId 0 to 5: an id for a producer.

* Without a transactional id: a new id with epoch 0, whatever the client had before.
* With one: the coordinator of that id answers; the same producer id comes back with the next
  epoch, which fences whoever had the one before. A client that says which id and epoch it has
  (version 3 on, KIP-360) must have the latest: PRODUCER_FENCED, before version 4
  INVALID_PRODUCER_EPOCH. Only one of id and epoch: INVALID_REQUEST.
"""

from __future__ import annotations

from aiokclient.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from aiokclient.testing.call import Call, Reply
from aiokclient.testing.codes import Code
from aiokclient.testing.state import TransactionalProducer

VERSIONS = (0, 5)
_MAX_TIMEOUT_MS = 900_000
_LAST_EPOCH = (1 << 15) - 2


def handle(call: Call) -> Reply:
    request: InitProducerIdRequest = call.request
    cluster = call.cluster
    code = call.refused()
    if not code and (request.producer_id == -1) != (request.producer_epoch == -1):
        code = Code.INVALID_REQUEST
    if code:
        return _failed(code)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=cluster.new_producer_id(), producer_epoch=0)
    code = _check(call, request.transactional_id)
    if code:
        return _failed(code)
    known = cluster.transactional.get(request.transactional_id)
    if known is None or known.epoch >= _LAST_EPOCH:
        producer = TransactionalProducer(cluster.new_producer_id(), 0)
    else:
        producer = TransactionalProducer(known.producer_id, known.epoch + 1)
    cluster.transactional[request.transactional_id] = producer
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _check(call: Call, transactional_id: str) -> Code:
    request: InitProducerIdRequest = call.request
    known = call.cluster.transactional.get(transactional_id)
    if not transactional_id:
        return Code.INVALID_REQUEST
    if call.cluster.coordinator_of(transactional_id) is not call.broker:
        return Code.NOT_COORDINATOR
    if not 0 < request.transaction_timeout_ms <= _MAX_TIMEOUT_MS:
        return Code.INVALID_TRANSACTION_TIMEOUT
    if request.producer_id == -1 or known is None:
        return Code.NONE
    if known == (request.producer_id, request.producer_epoch):
        return Code.NONE
    return Code.PRODUCER_FENCED if call.version >= 4 else Code.INVALID_PRODUCER_EPOCH


def _failed(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)

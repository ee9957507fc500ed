"""InitProducerId 0 to 5: assign a producer id.

* Without a transactional id: a new id with epoch 0, whatever id the client had before.
* With a transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because transactions are not
  supported. Every client treats this error as final. An empty id is INVALID_REQUEST.
* A producer id without an epoch, or the reverse: INVALID_REQUEST.
"""

from __future__ import annotations

from aiokclient.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code

VERSIONS = (0, 5)


def handle(call: Call) -> Reply:
    request: InitProducerIdRequest = call.request
    code = call.refused()
    if not code and (request.producer_id == -1) != (request.producer_epoch == -1):
        code = Code.INVALID_REQUEST
    if not code and request.transactional_id is not None:
        refused = request.transactional_id != ""
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if refused else Code.INVALID_REQUEST
    if code:
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=call.cluster.new_producer_id(), producer_epoch=0)

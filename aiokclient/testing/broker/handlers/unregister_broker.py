"""UnregisterBroker 0: remove the registration of a broker (KIP-500).

A broker that is not registered is BROKER_ID_NOT_REGISTERED. As in Kafka, a broker that runs can be
unregistered, too. It vanishes from the metadata but answers, and registers again at its next start.
"""

from __future__ import annotations

from aiokclient.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code


def handle(call: Call) -> Reply:
    request: UnregisterBrokerRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return UnregisterBrokerResponse(error_code=code)
    broker_id = request.broker_id
    if broker_id not in call.cluster.registered:
        return UnregisterBrokerResponse(
            error_code=Code.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {broker_id} is not currently registered",
        )
    call.cluster.unregister_broker(broker_id)
    return UnregisterBrokerResponse(error_message="")

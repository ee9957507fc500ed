"""AddRaftVoter: the voters of the metadata quorum are the brokers, and do not change (KIP-853).

A cluster id that is not that of the cluster is INCONSISTENT_CLUSTER_ID. Otherwise the result is
UNSUPPORTED_VERSION, as in Kafka if the feature kraft.version has level 0.
"""

from __future__ import annotations

from aiokclient.protocol.messages import AddRaftVoterRequest, AddRaftVoterResponse
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code


def handle(call: Call) -> Reply:
    request: AddRaftVoterRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization()
    if code:
        return AddRaftVoterResponse(error_code=code, error_message="")
    if request.cluster_id not in (None, call.cluster.cluster_id):
        return AddRaftVoterResponse(error_code=Code.INCONSISTENT_CLUSTER_ID, error_message="")
    text = "Cluster doesn't support adding voter because the kraft.version feature is 0"
    return AddRaftVoterResponse(error_code=Code.UNSUPPORTED_VERSION, error_message=text)

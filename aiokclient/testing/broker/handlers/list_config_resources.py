"""ListConfigResources 0 and 1: the names of resources that have configs (KIP-714, KIP-1142).

Version 0 lists the subscriptions to client metrics. Version 1 lists the types that the request
names, or all of them, in the order of Kafka: groups with configs of their own, subscriptions,
brokers as loggers, brokers, and topics. A type that the version does not have is
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from aiokclient.protocol.messages import ListConfigResourcesRequest, ListConfigResourcesResponse
from aiokclient.protocol.messages.list_config_resources import ConfigResource
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.resources import ConfigResourceType
from aiokclient.testing.broker.security.acls import AclOperation


async def handle(call: Call) -> Answer:
    request: ListConfigResourcesRequest = call.request
    code = call.find_refusal() or call.check_cluster_authorization(AclOperation.DESCRIBE_CONFIGS)
    if code:
        return ListConfigResourcesResponse(error_code=code)
    names = _list_names(call)
    wanted = {ConfigResourceType.CLIENT_METRICS} if call.version == 0 else set(names)
    if call.version and request.resource_types:
        wanted = {each for each in names if each in request.resource_types}
        if not set(request.resource_types) <= set(names):
            return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
    listed = [(kind, each) for kind in names if kind in wanted for each in names[kind]]
    found = [
        ConfigResource(resource_name=name, resource_type=kind)
        async for kind, name in call.iterate_items(listed)
    ]
    return ListConfigResourcesResponse(config_resources=found)


def _list_names(call: Call) -> dict[ConfigResourceType, list[str]]:
    cluster = call.cluster
    brokers = [str(each) for each in cluster.alive]
    return {
        ConfigResourceType.GROUP: cluster.groups.ids_with_configs,
        ConfigResourceType.CLIENT_METRICS: cluster.metrics_subscriptions.names,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.TOPIC: list(cluster.topics),
    }

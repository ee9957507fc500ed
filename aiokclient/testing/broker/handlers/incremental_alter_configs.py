"""IncrementalAlterConfigs 0 and 1: set, delete, append to, and subtract from single values.

Each resource changes as a whole or not at all. The result is INVALID_CONFIG for an unknown name, a
value that is not allowed, or a list operation on an option that is not a list. It is
INVALID_REQUEST for a null value (except to delete), or a name or resource that is repeated. For
brokers, it is INVALID_REQUEST also for a value that is not allowed, or for setting a read-only
config. Deleting such a config, or an unknown name, has no effect. Running brokers accept any name.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aiokclient.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.configs import Configs
from aiokclient.testing.broker.resources import change_configs, count_resources


async def handle(call: Call) -> Answer:
    request: IncrementalAlterConfigsRequest = call.request
    await count_resources(call)
    return IncrementalAlterConfigsResponse(
        responses=[
            _alter_resource(call, each) async for each in call.iterate_items(request.resources)
        ]
    )


def _alter_resource(call: Call, wanted: AlterConfigsResource) -> AlterConfigsResourceResponse:
    def merge_changes(configs: Configs) -> dict[str, str | None]:
        return configs.merge_changes(
            (each.name, each.config_operation, each.value) for each in wanted.configs
        )

    code, message = change_configs(call, wanted.resource_type, wanted.resource_name, merge_changes)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )

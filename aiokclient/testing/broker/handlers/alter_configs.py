"""AlterConfigs 0 to 2: replace all configured values of a topic or a broker.

Options that the request does not name return to their defaults. Each resource changes as a whole or
not at all. The result is INVALID_CONFIG for an unknown name or a value that is not allowed, and
INVALID_REQUEST for a null value. For brokers, it is INVALID_REQUEST also for a value that is not
allowed or a read-only config, and any name is accepted while they run.
"""

from __future__ import annotations

from aiokclient.protocol.messages import AlterConfigsRequest, AlterConfigsResponse
from aiokclient.protocol.messages.alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.configs import ConfigRequestError, Configs
from aiokclient.testing.broker.resources import change_configs, count_resources


async def handle(call: Call) -> Answer:
    request: AlterConfigsRequest = call.request
    await count_resources(call)
    return AlterConfigsResponse(
        responses=[
            _alter_resource(call, each) async for each in call.iterate_items(request.resources)
        ]
    )


def _alter_resource(call: Call, wanted: AlterConfigsResource) -> AlterConfigsResourceResponse:
    def replace_all(configs: Configs) -> dict[str, str | None]:
        values: dict[str, str | None] = dict.fromkeys(configs.values)
        for each in wanted.configs:
            if each.value is None:
                raise ConfigRequestError("A value is required.")
            values[each.name] = each.value
        return values

    code, message = change_configs(call, wanted.resource_type, wanted.resource_name, replace_all)
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )

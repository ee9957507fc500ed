"""DescribeConfigs 1 to 4: configs of topics (2), brokers (4), client metrics (16), groups (32).

The response has all options, or those that the request names. Each has the source of its value, and
on request its synonyms. A broker is named by its id. The empty name stands for the values that were
set for all brokers while they ran. There is no documentation of options. An option that no broker
knows can be set on running brokers. It is sensitive, so its value is not returned. The rates of
replication throttles are described only while they are set. A topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION. A broker or a type of resource that does not exist is INVALID_REQUEST,
and so is a resource that the request names more than `REPEATS` times. A group and a subscription to
client metrics need not exist.
"""

from __future__ import annotations

from collections import Counter

from aiokclient.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import BrokerConfigType, Configs
from aiokclient.testing.broker.resources import check_config_authorization, find_configs
from aiokclient.testing.broker.security.acls import AclOperation
from aiokclient.testing.broker.state import Refused

REPEATS = 10
"""The number of times that a request may name a resource. It limits the size of responses."""


async def handle(call: Call) -> Answer:
    request: DescribeConfigsRequest = call.request
    asked: Counter[tuple[int, str]] = Counter()
    results = []
    async for each in call.iterate_items(request.resources):
        key = (each.resource_type, each.resource_name)
        asked[key] += 1
        results.append(
            _describe_resource(call, each) if asked[key] <= REPEATS else _refuse_resource(each)
        )
    return DescribeConfigsResponse(results=results)


def _refuse_resource(asked: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_code=Code.INVALID_REQUEST,
        error_message=f"One request asks for this resource more than {REPEATS} times.",
    )


def _describe_resource(call: Call, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_code=call.find_refusal(asked.resource_name)
        or check_config_authorization(
            call, asked.resource_type, asked.resource_name, AclOperation.DESCRIBE_CONFIGS
        ),
    )
    if result.error_code:
        return result
    try:
        configs = find_configs(call.cluster, asked.resource_type, asked.resource_name)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    keys = frozenset(asked.configuration_keys or ())
    known = configs.values if configs is call.cluster.configs else configs.list_names()
    names = [name for name in known if not keys or name in keys]
    result.configs = [
        _describe_option(configs, name, call.request.include_synonyms) for name in names
    ]
    return result


def _describe_option(configs: Configs, name: str, synonyms: bool) -> DescribeConfigsResourceResult:
    option = configs.find_option(name)
    foreign = option.type is BrokerConfigType.UNKNOWN
    return DescribeConfigsResourceResult(
        name=name,
        value=None if foreign else configs[name],
        config_source=configs.find_source(name),
        config_type=option.type,
        is_sensitive=foreign,
        read_only=foreign or option.fixed,
        documentation=None,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in configs.list_synonyms(name)
        ]
        if synonyms
        else [],
    )

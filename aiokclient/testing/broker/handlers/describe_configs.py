"""DescribeConfigs 1 to 4: the configs of topics (2), brokers (4) and groups (32).

All options, or those named; each with where its value comes from, and its synonyms if asked
for. Brokers by their id, or by the empty name for what was set for all of them while they ran.
Documentation is never given; what no broker knows, and was given to them while they ran, is
sensitive: its value is not told. A topic that is not there is UNKNOWN_TOPIC_OR_PARTITION, a broker
or a type of resource that is not there INVALID_REQUEST, and so is one that a request repeats very
often. A group need not exist.
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
from aiokclient.testing.broker.configs import Configs
from aiokclient.testing.broker.resources import find_configs
from aiokclient.testing.broker.state import Refused

REPEATS = 10
"""Number of times that one request may ask for a resource: each answer is many times as large."""


async def handle(call: Call) -> Answer:
    request: DescribeConfigsRequest = call.request
    asked: Counter[tuple[int, str]] = Counter()
    results = []
    async for each in call.each(request.resources):
        key = (each.resource_type, each.resource_name)
        asked[key] += 1
        results.append(_describe(call, each) if asked[key] <= REPEATS else _refused(each))
    return DescribeConfigsResponse(results=results)


def _refused(asked: DescribeConfigsResource) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_code=Code.INVALID_REQUEST,
        error_message=f"One request asks for this resource more than {REPEATS} times.",
    )


def _describe(call: Call, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_code=call.refused(asked.resource_name),
    )
    if result.error_code:
        return result
    try:
        configs = find_configs(call.cluster, asked.resource_type, asked.resource_name)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    keys = frozenset(asked.configuration_keys or ())
    known = configs.values if configs is call.cluster.configs else configs.names()
    names = [name for name in known if not keys or name in keys]
    result.configs = [_option(configs, name, call.request.include_synonyms) for name in names]
    return result


def _option(configs: Configs, name: str, synonyms: bool) -> DescribeConfigsResourceResult:
    option = configs.option(name)
    foreign = name not in configs.options
    return DescribeConfigsResourceResult(
        name=name,
        value=None if foreign else configs[name],
        config_source=configs.source_of(name),
        config_type=option.type,
        is_sensitive=foreign,
        read_only=foreign or option.fixed,
        documentation=None,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in configs.synonyms(name)
        ]
        if synonyms
        else [],
    )

"""DescribeConfigs 1 to 4: configs of topics (2), brokers (4), client metrics (16), groups (32).

The response has all options, or those that the request names. Each has the source of its value, and
on request its synonyms and a text of what it does here (`option_texts.py`), which is not Kafka's. A
broker is named by its id. The empty name stands for the values that were set for all brokers while
they ran. Most options of brokers have no effect (`idle_options.py`). An option that no broker knows
can be set on running brokers. It is sensitive, so its value is not returned. The rates of
replication throttles are described only while they are set. A topic that does not exist is
UNKNOWN_TOPIC_OR_PARTITION. A broker or a type of resource that does not exist is INVALID_REQUEST,
and so is a resource that the request names more than `REPEATS` times. A group and a subscription to
client metrics need not exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from aiokclient.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.configs import (
    SERVER_DEFAULTS,
    TOPIC_OPTIONS,
    BrokerConfigSource,
    BrokerConfigType,
    Configs,
    ConfigSynonym,
)
from aiokclient.testing.broker.option_texts import OWN, find_text
from aiokclient.testing.broker.own_configs import list_own_configs
from aiokclient.testing.broker.resources import (
    ConfigResourceType,
    check_config_authorization,
    find_configs,
)
from aiokclient.testing.broker.security.acls import AclOperation
from aiokclient.testing.broker.state import Refused

_TOPIC_NAMES = {SERVER_DEFAULTS[name]: name for name in TOPIC_OPTIONS if name in SERVER_DEFAULTS}
"""The names of the options of topics, by those of the broker options for their defaults."""

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
    own = {}
    if asked.resource_type == ConfigResourceType.BROKER and asked.resource_name:
        own = list_own_configs(call.cluster, call.cluster.brokers[int(asked.resource_name)])
    result.configs = [_describe_option(call.request, configs, own, name) for name in names]
    return result


def _describe_option(
    request: DescribeConfigsRequest, configs: Configs, own: Mapping[str, str], name: str
) -> DescribeConfigsResourceResult:
    """Describe an option. `own` has the values that only this broker was started with."""
    option = configs.find_option(name)
    foreign = option.type is BrokerConfigType.UNKNOWN
    sensitive = foreign or option.type is BrokerConfigType.PASSWORD
    synonyms = configs.list_synonyms(name)
    if name in own:
        started = ConfigSynonym(name, own[name], BrokerConfigSource.STATIC_BROKER)
        set_later = [each for each in synonyms if each.source < BrokerConfigSource.STATIC_BROKER]
        synonyms = [*set_later, started, *synonyms[len(set_later) :]]
    value: str | None = synonyms[0].value if name in own else configs[name]
    if sensitive or (option.nullable and not value):
        value = None
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        config_source=synonyms[0].source if synonyms else BrokerConfigSource.DEFAULT,
        config_type=option.type,
        is_sensitive=sensitive,
        read_only=foreign or option.fixed,
        documentation=_find_documentation(configs, own, name)
        if request.include_documentation
        else None,
        synonyms=[
            DescribeConfigsSynonym(
                name=each.name, value=None if sensitive else each.value, source=each.source
            )
            for each in (synonyms if request.include_synonyms else ())
        ],
    )


def _find_documentation(configs: Configs, own: Mapping[str, str], name: str) -> str | None:
    if name in own:
        return OWN
    if name not in configs.options or configs.source is BrokerConfigSource.CLIENT_METRICS:
        return None
    if configs.source is BrokerConfigSource.GROUP:
        name = SERVER_DEFAULTS.get(name, name)
    return find_text(name, _TOPIC_NAMES.get(name))

"""For how long the coordinator of a consumer group waits for a member (KIP-848).

It is the brokers' business, and heartbeats do not tell it. A member has to know, since it stops
when it has not been answered for so long. The group's configs have it, for those that may read
them; all others go by their own `session_timeout_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError
from aiokclient.policy import Scope
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

__all__ = ["session_timeout_ms"]

GROUP = 32
NAME = "consumer.session.timeout.ms"


async def session_timeout_ms(cluster: ClusterClient, group_id: str) -> int | None:
    """The session timeout of a group in ms; None if it is not told."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=[NAME]
    )
    try:
        request = DescribeConfigsRequest(resources=[resource])
        answer = await cluster.request(request, AnyBroker(), scope=Scope.ADMIN)
    except KafkaError:
        return None
    told = [
        each.value
        for result in answer.results
        if not result.error_code
        for each in result.configs or ()
        if each.name == NAME and each.value is not None
    ]
    return int(told[0]) if told else None

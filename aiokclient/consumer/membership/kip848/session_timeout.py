"""For how long the coordinator of a consumer group waits for a member (KIP-848).

It is the brokers' business, and heartbeats do not tell it. A member has to know, since it stops
when it has not been answered for so long. The group's configs have it, for those that may read
them; all others go by their own `session_timeout_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, error_for
from aiokclient.policy import Scope
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

__all__ = ["session_timeout_ms"]

GROUP = 32
NAME = "consumer.session.timeout.ms"
PATIENCE_S = 5.0
"""Nothing is handed out until it is told; so long at most."""


async def session_timeout_ms(cluster: ClusterClient, group_id: str) -> int | None:
    """The session timeout of a group in ms; None if it is not told."""
    resource = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group_id, configuration_keys=[NAME]
    )
    try:
        request = DescribeConfigsRequest(resources=[resource])
        answer = await cluster.request(
            request, AnyBroker(), timeout=PATIENCE_S, scope=Scope.ADMIN, check=refusal
        )
    except KafkaError:
        return None
    told = [
        each.value
        for result in answer.results
        for each in result.configs or ()
        if each.name == NAME and each.value is not None
    ]
    return int(told[0]) if told else None


def refusal(answer: DescribeConfigsResponse) -> KafkaError | None:
    """Why it is not told."""
    errors = [error_for(result.error_code, result.error_message) for result in answer.results]
    return next((error for error in errors if error is not None), None)

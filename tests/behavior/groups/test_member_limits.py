"""The effects of a group's limits on one member and on the others."""

import uuid
from typing import Any

import pytest
from churn import Crowd, Settings
from kip848_member import configure

PARTITIONS = 4
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {"group_protocol": "consumer"},
}


async def settings_for(servers: Any, protocol: str, **options: Any) -> Settings:
    topic, group_id = await servers.new_topic(partitions=PARTITIONS), f"g-{uuid.uuid4().hex[:8]}"
    bootstrap = str(servers.bootstrap)
    if protocol == "kip848":
        await configure(bootstrap, group_id, session_timeout_ms=6000, heartbeat_interval_ms=200)
    options = {**PROTOCOLS[protocol], **options}
    return Settings(bootstrap, topic, PARTITIONS, group_id, options, session_ms=6000)


@pytest.mark.fault(42)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_others_take_over_when_a_handler_takes_too_long(
    cluster_servers: Any, protocol: str
) -> None:
    """A member that exceeds the poll interval leaves, and others take over its partitions.

    Its commit is refused, and then it joins again.
    """
    settings = await settings_for(cluster_servers, protocol)
    async with Crowd(f"{cluster_servers.kind}, {protocol}, too long", settings) as crowd:
        slow = crowd.join("task", "iterate", max_poll_interval_ms=700)
        other = crowd.join("task", "iterate")
        await crowd.settled()
        crowd.order(slow, "hold")
        await crowd.until(lambda: crowd.log.of(slow, "holding"))
        await crowd.until(lambda: crowd.log.of(slow, "lost") and not crowd.log.owned[slow])
        await crowd.until(lambda: len(crowd.log.owned[other]) == PARTITIONS)
        commits = len(crowd.log.of(slow, "commit"))
        crowd.order(slow, "go")
        await crowd.until(lambda: len(crowd.log.of(slow, "commit")) > commits)
        *_, error = crowd.log.of(slow, "commit")[commits].data
        assert error
        await crowd.settled()
        (await crowd.end()).check()

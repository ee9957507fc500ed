"""Members join and leave while the coordinator of their group is killed and restarted."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from churn import Crowd, Nursery, Settings
from kafka_harness import KafkaCluster
from kip848_member import configure

from aiokclient import Client
from aiokclient.cluster.targets import AnyBroker
from aiokclient.protocol.messages import FindCoordinatorRequest

PARTITIONS = 6
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


async def coordinator(bootstrap: str, group_id: str) -> int:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    async with Client(bootstrap_servers=bootstrap) as client:
        answer = await client.request(request, to=AnyBroker())
    return int(answer.coordinators[0].node_id)


@pytest.mark.fault(5, 40, 41)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_records_are_processed_once_when_the_coordinator_dies(
    kafka3: KafkaCluster, nursery: Nursery, protocol: str
) -> None:
    topic = await asyncio.to_thread(kafka3.create_topic, None, PARTITIONS, 3)
    group_id, bootstrap = f"group-of-{topic}", kafka3.bootstrap
    options = {**PROTOCOLS[protocol], "request_timeout_ms": 3000}
    settings = Settings(bootstrap, topic, PARTITIONS, group_id, options, session_ms=2000)
    if protocol == "kip848":
        await configure(bootstrap, group_id, session_timeout_ms=2000, heartbeat_interval_ms=200)
    async with Crowd(f"three brokers, {protocol}", settings, nursery) as crowd:
        first, second = crowd.join("process"), crowd.join("process")
        await crowd.settled()
        await crowd.progress(100)
        node = await coordinator(bootstrap, group_id)
        await asyncio.to_thread(kafka3.kill, node)
        crowd.join("task")
        await crowd.kill(first)
        await crowd.settled()
        await crowd.progress(100)
        returned = asyncio.create_task(asyncio.to_thread(kafka3.start, node))
        await crowd.leave(second)
        crowd.join("process")
        await returned
        await crowd.settled()
        (await crowd.end()).check()

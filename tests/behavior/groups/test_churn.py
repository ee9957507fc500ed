"""Members that join, leave, are killed, hang, and return, on the embedded cluster and on Kafka.

Each record is processed, and no partition ever has two owners at the same time. No commit includes
unprocessed records, and no member stalls. `pytest -s` shows generations, revocations, and the
owners of partitions. `AIOKCLIENT_CHURN=n` runs the schedules of n seeds.
"""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from churn import Crowd, Nursery, Settings, churn
from kip848_member import configure

PARTITIONS = 12
SEEDS = range(int(os.environ.get("AIOKCLIENT_CHURN", "1")))
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {"group_protocol": "consumer"},
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


async def settings_for(servers: Any, protocol: str, **more: Any) -> Settings:
    topic = await servers.new_topic(partitions=PARTITIONS)
    group_id = f"g-{uuid.uuid4().hex[:8]}"
    bootstrap = str(servers.bootstrap)
    settings = Settings(bootstrap, topic, PARTITIONS, group_id, PROTOCOLS[protocol], **more)
    session_ms = settings.session_ms
    if protocol == "kip848":
        await configure(
            bootstrap, group_id, session_timeout_ms=session_ms, heartbeat_interval_ms=200
        )
    return settings


@pytest.mark.fault(18, 40, 41, 43)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_records_are_processed_once_while_members_come_and_go(
    cluster_servers: Any, nursery: Nursery, protocol: str, seed: int
) -> None:
    settings = await settings_for(cluster_servers, protocol)
    title = f"{cluster_servers.kind}, {protocol}, seed {seed}"
    async with Crowd(title, settings, nursery, seed) as crowd:
        await churn(crowd)
        (await crowd.end()).check()

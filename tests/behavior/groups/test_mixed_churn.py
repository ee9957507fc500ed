"""Members of this library, librdkafka, and Java join one group, leave it, and are killed."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from churn import Crowd, Nursery, Settings

PARTITIONS = 12
JAVA = "org.apache.kafka.clients.consumer."
STRATEGIES = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("confluent_kafka") is None, reason="confluent-kafka is not installed"
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.java
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_records_are_processed_once_while_mixed_members_come_and_go(
    cluster_servers: Any, nursery: Nursery, strategy: str
) -> None:
    topic = await cluster_servers.new_topic(partitions=PARTITIONS)
    settings = Settings(
        str(cluster_servers.bootstrap),
        topic,
        PARTITIONS,
        f"group-of-{topic}",
        options={"partition_assignment_strategy": strategy},
        foreign={"java": {"partition_assignment_strategy": JAVA + STRATEGIES[strategy]}},
    )
    async with Crowd(f"{cluster_servers.kind}, {strategy}, mixed", settings, nursery) as crowd:
        java, ours = crowd.join("java"), crowd.join("process")
        await crowd.until(lambda: crowd.log.of(java, "assigned"))
        await crowd.settled()
        librdkafka, other = crowd.join("librdkafka"), crowd.join("task")
        await crowd.settled()
        await crowd.progress(100)
        # Members of each kind become leader or follower as they join and leave.
        await crowd.kill(ours)
        await crowd.progress(20)
        await crowd.leave(java)
        crowd.join("process")
        await crowd.settled()
        await crowd.kill(librdkafka)
        await crowd.leave(other)
        crowd.join("librdkafka")
        await crowd.settled()
        (await crowd.end()).check()

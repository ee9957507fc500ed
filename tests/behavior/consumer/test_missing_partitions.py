"""Lookups for partitions and topics that do not exist, on the embedded cluster and on Kafka."""

import asyncio
import logging
from typing import Any

import pytest

from aiokclient import Admin, Consumer, TopicPartition
from aiokclient.errors import UnknownTopicOrPartitionError

BOUND_S = 20.0
"""Far below `default_api_timeout_ms`, and far above the few seconds that a lookup takes."""


def calls(consumer: Consumer[Any, Any], tp: TopicPartition) -> dict[str, Any]:
    return {
        "end_offsets": lambda: consumer.end_offsets([tp]),
        "beginning_offsets": lambda: consumer.beginning_offsets([tp]),
        "offsets_for_times": lambda: consumer.offsets_for_times({tp: 1}),
        "position": lambda: consumer.position(tp),
        "lag": lambda: consumer.lag([tp]),
        "until_end": lambda: anext(aiter(consumer.until_end())),
        "batches": lambda: anext(aiter(consumer.batches(until_end=True))),
    }


def is_metadata_received(caplog: pytest.LogCaptureFixture) -> bool:
    """Return whether a response with metadata has been logged."""
    return any(
        (getattr(record, "event", None), getattr(record, "api", None))
        == ("wire_response", "Metadata")
        for record in caplog.records
    )


@pytest.mark.parametrize("missing", ["partition", "topic"])
@pytest.mark.parametrize(
    "call",
    [
        "end_offsets",
        "beginning_offsets",
        "offsets_for_times",
        "position",
        "lag",
        "until_end",
        "batches",
    ],
)
async def test_a_lookup_raises_soon_when_the_partition_does_not_exist(
    cluster_servers: Any, missing: str, call: str
) -> None:
    topic = await cluster_servers.new_topic()
    tp = TopicPartition(topic, 7) if missing == "partition" else TopicPartition(topic + "-no", 0)
    options: Any = {"bootstrap_servers": cluster_servers.bootstrap}
    async with (
        asyncio.timeout(BOUND_S),
        Consumer(**options, auto_offset_reset="latest") as consumer,
    ):
        consumer.assign([tp])
        with pytest.raises(UnknownTopicOrPartitionError) as raised:
            await calls(consumer, tp)[call]()
        assert raised.value.topic_partition == tp


async def test_a_lookup_waits_for_a_partition_that_is_being_added(
    cluster_servers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await cluster_servers.new_topic()
    tp = TopicPartition(topic, 1)
    options: Any = {"bootstrap_servers": cluster_servers.bootstrap}
    async with asyncio.timeout(BOUND_S), Consumer(**options) as consumer, Admin(**options) as admin:
        caplog.set_level(logging.DEBUG, "aiokclient.wire")
        lookup = asyncio.create_task(consumer.end_offsets([tp]))
        # A broker has answered, and did not name the partition.
        while not is_metadata_received(caplog):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (await admin.create_partitions({topic: 2})).raise_for_errors()
        assert await lookup == {tp: 0}


async def test_committed_returns_none_for_a_partition_that_does_not_exist(
    cluster_servers: Any,
) -> None:
    topic = await cluster_servers.new_topic()
    tps = [TopicPartition(topic, 7), TopicPartition(topic + "-no", 0), TopicPartition(topic, 0)]
    options: Any = {"bootstrap_servers": cluster_servers.bootstrap, "group_id": topic}
    async with asyncio.timeout(BOUND_S), Consumer(**options) as consumer:
        assert await consumer.committed(tps) == dict.fromkeys(tps)

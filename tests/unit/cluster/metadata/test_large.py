"""Tests that a cluster with a hundred thousand partitions never blocks the event loop for long."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from loop_time import check_held, held_times, measured
from scripted import ScriptedBroker, response_frame

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata import updater
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.errors import KafkaError, ProtocolError
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Open = Callable[..., Awaitable[ClusterClient]]
VERSION = 12


@functools.cache
def topics(count: int, width: int) -> list[MetadataResponseTopic]:
    return [
        MetadataResponseTopic(
            name=f"t{number}",
            topic_id=UUID(int=number + 1),
            partitions=[
                MetadataResponsePartition(
                    partition_index=index, leader_id=1, leader_epoch=7, replica_nodes=[1, 2, 3]
                )
                for index in range(width)
            ],
        )
        for number in range(count)
    ]


def serve(broker: ScriptedBroker, count: int, width: int, cut: int = 0) -> None:
    """Answer with all topics, in a response that is encoded once and lacks its last `cut` bytes."""
    node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)
    whole = MetadataResponse(brokers=[node], topics=topics(count, width), cluster_id="scripted")
    data = bytearray(response_frame(0, whole, VERSION))
    if cut:
        del data[-cut:]
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    small = broker.metadata

    def metadata(request: Any, version: int) -> Any:
        if request.topics is not None:
            return small(request, version)
        assert version == VERSION
        data[4:8] = broker.seen[-1].header.correlation_id.to_bytes(4, "big")
        return bytes(data)

    broker.handlers[ApiKey.METADATA] = metadata


@measured
@pytest.mark.parametrize(("count", "width"), [(1, 100_000), (1_000, 100)])
async def test_metadata_of_a_hundred_thousand_partitions_does_not_block_the_loop(
    broker: ScriptedBroker, open_client: Open, count: int, width: int
) -> None:
    serve(broker, count, width)
    client = await open_client()
    client.updater.want_all("test")
    await asyncio.sleep(0)
    with held_times() as times:
        first = await client.updater.refresh(timeout=60)
        again = await client.updater.refresh(timeout=60)
    assert len(first.topics) == count
    assert all(len(info.partitions) == width for info in first.topics.values())
    assert again is first
    check_held(times)


async def test_updates_during_a_merge_are_kept(
    broker: ScriptedBroker, open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(broker, 1, 5_000)
    client = await open_client()
    client.updater.want_all("test")
    await client.updater.refresh(timeout=60)
    real, loop, hints = updater.merged, asyncio.get_running_loop(), iter(range(8, 10))

    def hint(epoch: int) -> None:
        assert client.updater.apply_hint("t0", 17, 1, epoch)

    def merged(old: ClusterMetadata, answer: Any, **options: Any) -> ClusterMetadata:
        epoch = next(hints, None)
        if epoch is not None:  # `merged` runs in a thread, and `hint` on the loop.
            loop.call_soon_threadsafe(hint, epoch)
        return real(old, answer, **options)

    monkeypatch.setattr(updater, "merged", merged)
    found = await client.updater.refresh(timeout=60)
    assert found.find_leader_epoch("t0", 17) == 9
    assert found.find_leader_epoch("t0", 18) == 7


async def test_a_malformed_metadata_response_closes_the_connection(
    broker: ScriptedBroker, open_client: Open
) -> None:
    serve(broker, 1, 5_000, cut=3)
    client = await open_client()
    client.updater.want_all("test")
    refreshed = asyncio.create_task(client.updater.refresh(timeout=60))
    await broker.until(lambda: broker.opened > 1)
    assert isinstance(client.updater.last_error, KafkaError)
    assert isinstance(client.updater.last_error.__cause__, ProtocolError)
    serve(broker, 1, 5_000)
    assert (await refreshed).find_leader("t0", 17) == 1

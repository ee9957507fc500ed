"""Clients of the adapter for aiokafka beside native ones, and what aiokafka itself cannot show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from adapted_clients import Stage, call, error_of

from aiokclient import Consumer, Producer
from aiokclient.adapters import aiokafka as adapter
from aiokclient.errors import ClosedError
from aiokclient.testing import EmbeddedCluster


async def test_native_clients_share_connections_with_those_of_the_adapter(
    cluster: EmbeddedCluster,
) -> None:
    stage = Stage(cluster, adapter)
    async with stage.producer() as producer:
        await producer.send_and_wait(stage.topic, b"adapter", partition=0)
        assert isinstance(producer.native, Producer)
        async with Producer(client=producer.client.native) as native:
            await native.send(stage.topic, b"native", partition=0)
        shared = producer.client.native
        async with Consumer(stage.topic, client=shared, auto_offset_reset="earliest") as reader:
            record = await reader.get(timeout=30.0)
            assert record is not None
            assert record.value == b"adapter"
        # The end of native clients is not that of the Client, which the adapter has opened.
        await producer.native.send(stage.topic, b"beneath", partition=0)
        await producer.send_and_wait(stage.topic, b"again", partition=0)
        late = Producer[bytes, bytes](client=producer.client.native)
        await late.start()
    with pytest.raises(ClosedError):
        await late.send(stage.topic, b"late", partition=0)
    await late.close()
    async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
        assert isinstance(consumer.native, Consumer)
        assert (await consumer.getone()).value == b"adapter"
        record = await consumer.native.get()
        assert record is not None
        assert record.value == b"native"
        assert (await consumer.getone()).value == b"beneath"
        await consumer.native.commit()
        assert await consumer.committed(stage.tp(0)) == await consumer.position(stage.tp(0))


async def test_second_subscription_to_a_topic_rebalances_and_calls_its_listener(
    cluster: EmbeddedCluster,
) -> None:
    # aiokafka does the same, unless its fetcher fails because of the second subscription.
    stage = Stage(cluster, adapter)
    stage.fill(2, 0)
    heard = asyncio.Event()

    class Listener(adapter.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            heard.set()

    async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
        consumer.subscribe([stage.topic], listener=Listener())
        await heard.wait()
        waiting = asyncio.create_task(consumer.getmany(stage.tp(2), timeout_ms=60_000))
        assert (await consumer.getone()).offset == 0
    assert await waiting == {}


async def test_consumer_stops_after_its_native_one_was_closed(cluster: EmbeddedCluster) -> None:
    stage = Stage(cluster, adapter)
    consumer = stage.consumer(stage.topic)
    await consumer.start()
    await consumer.native.close()
    with pytest.raises(adapter.ConsumerStoppedError):
        consumer.assignment()
    await consumer.stop()
    with pytest.raises(adapter.ConsumerStoppedError):
        await consumer.getone()


async def test_calls_of_a_stopped_consumer_raise_the_error_of_aiokafka(
    cluster: EmbeddedCluster,
) -> None:
    stage = Stage(cluster, adapter)
    consumer = stage.consumer(stage.topic)
    async with consumer:
        pass
    for function in (
        consumer.pause,
        consumer.resume,
        consumer.highwater,
        consumer.last_stable_offset,
    ):
        assert await error_of(call(function, stage.tp(0))) == "ConsumerStoppedError"


async def test_other_thread_reads_the_state_of_a_consumer(cluster: EmbeddedCluster) -> None:
    # As faust does, whose consumer has a thread of its own.
    stage = Stage(cluster, adapter)
    stage.fill(3, 0)
    async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
        (records,) = (await consumer._fetcher.fetched_records({stage.tp(0)}, 10.0, 2)).values()
        assert [each.checksum for each in records] == [None, None]

        def read_state() -> list[Any]:
            consumer.seek(stage.tp(0), 1)
            state = consumer._fetcher.assignment.state_value(stage.tp(0))
            counts = consumer._coordinator._metadata_snapshot
            seen = [len(consumer.assignment()), *consumer.subscription(), counts, state.position]
            return [*seen, consumer.highwater(stage.tp(0))]

        assert await asyncio.to_thread(read_state) == [3, stage.topic, {stage.topic: 3}, 1, 3]
        assert (await consumer.getone()).offset == 1
        with pytest.raises(adapter.errors.IllegalStateError):
            await asyncio.to_thread(consumer.seek, stage.tp(9), 0)

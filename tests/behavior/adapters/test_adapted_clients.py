"""Clients of the adapter for aiokafka beside native ones, and what aiokafka itself cannot show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from adapted_clients import Stage, call, error_of

from aiokclient import AnyBroker, Consumer, Producer
from aiokclient.adapters import aiokafka as adapter
from aiokclient.errors import (
    ClosedError,
    CoordinatorLoadInProgressError,
    TransactionalIdAuthorizationError,
)
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import MetadataRequest
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


async def test_error_of_a_partition_is_raised_in_the_task_that_reads_it(
    cluster: EmbeddedCluster,
) -> None:
    stage = Stage(cluster, adapter)
    consumer = stage.consumer(group_id=stage.group, auto_offset_reset="none")
    consumer.assign([stage.tp(0), stage.tp(1), stage.tp(2)])
    async with consumer:
        consumer.seek(stage.tp(0), 0)
        reading = asyncio.create_task(consumer.getone(stage.tp(0)))
        await asyncio.sleep(0)  # It has the turn, and waits.
        for _ in range(2):
            assert await error_of(consumer.getone(stage.tp(1))) == "NoOffsetForPartitionError"
        failing = asyncio.create_task(error_of(consumer.getmany(stage.tp(2), timeout_ms=60_000)))
        assert await failing == "NoOffsetForPartitionError"
        stage.fill(1, 0)
        assert (await reading).offset == 0
        # Without a partition, a read wants them all.
        assert await error_of(consumer.getone()) == "NoOffsetForPartitionError"


async def test_listener_of_a_new_subscription_is_told_of_the_partitions_of_the_former(
    cluster: EmbeddedCluster,
) -> None:
    # aiokafka does the same, unless its fetcher fails because of the new subscription.
    stage = Stage(cluster, adapter)
    heard: list[Any] = []

    class Listener(adapter.ConsumerRebalanceListener):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_partitions_revoked(self, revoked: Any) -> None:
            heard.append((self.name, "revoked", stage.partitions(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            heard.append((self.name, "assigned", stage.partitions(assigned)))

    consumer = stage.consumer(group_id=stage.group)
    with pytest.raises(adapter.errors.IllegalStateError):
        await consumer._subscription.wait_for_assignment()
    consumer.subscribe([stage.topic], listener=Listener("first"))
    async with consumer:
        assert await consumer.position(stage.tp(0)) == 0
        for name in ("second", "third"):
            if name == "second":
                consumer.unsubscribe()
                async with asyncio.timeout(60):
                    while True:
                        if not consumer.native.group_metadata().member_id:
                            break  # It has left the group, and its partitions were revoked.
                        await asyncio.sleep(0.01)
            consumer.subscribe([stage.topic], listener=Listener(name))
            await consumer._subscription.wait_for_assignment()
    every = [0, 1, 2]
    assert heard == [
        ("first", "revoked", []),
        ("first", "assigned", every),
        ("second", "revoked", every),
        ("second", "assigned", every),
        ("third", "revoked", every),
        ("third", "assigned", every),
    ]


async def test_position_waits_for_the_partition_that_a_new_subscription_has_again(
    cluster: EmbeddedCluster,
) -> None:
    stage = Stage(cluster, adapter)
    other = Stage(cluster, adapter)
    stage.fill(1, 0)
    async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
        for subscribe in (True, False):
            with cluster.fail(ApiKey.OFFSET_FETCH, CoordinatorLoadInProgressError):
                consumer.subscribe([stage.topic, other.topic])
                await consumer._subscription.wait_for_assignment()
                asking = asyncio.create_task(consumer.position(stage.tp(0)))
                await asyncio.sleep(0)
                if subscribe:
                    consumer.subscribe([stage.topic])
                else:
                    consumer.unsubscribe()
            if subscribe:
                assert await asking == 0
            else:
                assert await error_of(asking) == "IllegalStateError"


async def test_client_of_a_consumer_knows_the_topics_that_it_reads(
    cluster: EmbeddedCluster,
) -> None:
    stage = Stage(cluster, adapter)
    async with stage.consumer(group_id=stage.group) as consumer:
        known = consumer._client.cluster
        assert stage.topic in known.topics()  # As the start has read all of them.
        late = Stage(cluster, adapter)
        consumer.subscribe(pattern=late.topic)
        await consumer._subscription.wait_for_assignment()
        assert late.topic in known.topics()
    assert late.topic not in known.topics()


async def test_producer_stops_though_its_transaction_cannot_be_aborted(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(cluster, adapter)
    producer = stage.producer(transactional_id=stage.group)
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(stage.topic, b"a", partition=0)
    with cluster.fail(ApiKey.END_TXN, TransactionalIdAuthorizationError):
        await producer.stop()
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in caplog.text
    with pytest.raises(ClosedError):
        await producer.client.native.request(MetadataRequest(), to=AnyBroker())

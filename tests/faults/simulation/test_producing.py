"""Faults that a producer meets, in simulated time. The ledger has the outcome of each payload."""

import asyncio
import itertools
from typing import Any

import pytest
from driver import Writer, partitions_of
from thinned import one_in
from world import World, simulate

from aiokclient.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
    UnknownTopicIdError,
)
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import walk
from aiokclient.testing.simulation.network import Weather

THREE = {"t": 3}


def writer(world: World, producer: Any, number: int = 0, **options: Any) -> Writer:
    return Writer(
        producer, world.ledger, partitions_of(world.cluster.topics), number=number, **options
    )


async def produced(world: World, count: int = 300, **options: Any) -> None:
    """Produce payloads at a steady rate, wait for their outcomes, and check what was written."""
    async with world.producer(**options) as producer:
        await writer(world, producer, pause=0.01).run(count)
        await producer.flush()
    world.check()


@pytest.mark.fault(1)
@pytest.mark.parametrize("failover_s", [0.0, 3.0])
def test_no_record_is_lost_when_the_leader_dies_and_returns(failover_s: float) -> None:
    async def scenario(world: World) -> None:
        producing = asyncio.create_task(produced(world, 1000))
        await world.ledger.until(100)
        leader = world.cluster.leader("t", 0)
        world.cluster.stop(leader, failover_after=failover_s)
        await asyncio.sleep(5)
        world.cluster.start(leader)
        await producing
        assert not world.ledger.failed

    simulate(scenario, brokers=3, topics=THREE)


@pytest.mark.fault(2)
@pytest.mark.parametrize("times", [1, 3])
def test_records_are_written_once_when_responses_are_lost(times: int) -> None:
    async def scenario(world: World) -> None:
        with world.cluster.drop(ApiKey.PRODUCE, when="after", times=times) as fault:
            await produced(world)
            assert fault.hits == times
        assert not world.ledger.failed

    simulate(scenario, topics=THREE)


@pytest.mark.fault(2)
def test_a_duplicate_is_a_success_when_it_was_sent_before() -> None:
    """DUPLICATE_SEQUENCE_NUMBER acknowledges a batch that was sent before.

    The broker may no longer know the offset of the batch.
    """
    lost: list[int] = []
    duplicates: list[int] = []

    def forgetful(request: Any, response: Any) -> Any:
        (data,) = request.topic_data[0].partition_data
        first = walk(data.records)[0].base_sequence
        if len(lost) < 3:
            lost.append(first)
            return None
        if first in lost:
            duplicates.append(first)
            (part,) = response.responses[0].partition_responses
            part.error_code, part.base_offset = 46, -1
        return response

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.PRODUCE, forgetful):
            await produced(world, request_timeout_ms=1_000)
        assert duplicates
        assert not world.ledger.failed

    simulate(scenario)


@pytest.mark.fault(3)
def test_the_order_holds_when_leaders_move_with_five_requests_in_flight() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.PRODUCE, 0.1, when="after"):
            producing = asyncio.create_task(produced(world, 1000, linger_ms=0))
            for _ in range(10):
                await asyncio.sleep(0.7)
                for partition in range(3):
                    world.cluster.move_leader("t", partition)
            await producing
        assert not world.ledger.failed

    simulate(scenario, brokers=3, topics=THREE)


@pytest.mark.fault(4)
def test_records_arrive_late_when_metadata_stays_stale() -> None:
    """While metadata still names a former leader, there is no busy loop.

    The records arrive later.
    """

    def without_hints(request: Any, response: Any) -> Any:
        response.node_endpoints = []
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.current_leader.leader_id = -1
                partition.current_leader.leader_epoch = -1
        return response

    async def scenario(world: World) -> None:
        old = world.cluster.leader("t")

        def stale(request: Any, response: Any) -> Any:
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_id, partition.leader_epoch = old, 0
            return response

        async with world.producer() as producer:
            await producer.send("t", b"first", partition=0)
            with (
                world.cluster.alter(ApiKey.METADATA, stale),
                world.cluster.alter(ApiKey.PRODUCE, without_hints),
            ):
                world.cluster.move_leader("t")
                began = world.now
                delivery = producer.send("t", b"second", partition=0)
                await asyncio.sleep(20)
                assert not delivery.done()
                assert len(world.requests(ApiKey.METADATA, since=began)) < 100
                assert len(world.requests(ApiKey.PRODUCE, since=began)) < 100
            healed = world.now
            await delivery
            assert world.now - healed < 3

    simulate(scenario, brokers=3)


@pytest.mark.fault(8)
def test_no_record_is_lost_when_sequences_are_refused() -> None:
    """A refusal may cost a producer epoch, but never a record."""

    async def scenario(world: World) -> None:
        producing = asyncio.create_task(produced(world, 1000, linger_ms=0))
        for _ in range(3):
            await asyncio.sleep(1)
            world.cluster.fail(ApiKey.PRODUCE, OutOfOrderSequenceError, times=2)
        await producing
        assert not world.ledger.failed

    simulate(scenario, topics=THREE, weather=Weather(latency_s=(0.01, 0.05)))


@pytest.mark.fault(9)
def test_no_record_is_lost_when_the_producer_id_is_unknown() -> None:
    async def scenario(world: World) -> None:
        producing = asyncio.create_task(produced(world, 1000, linger_ms=0))
        for _ in range(3):
            await asyncio.sleep(1)
            world.cluster.fail(ApiKey.PRODUCE, UnknownProducerIdError, times=2)
        await producing
        assert not world.ledger.failed

    simulate(scenario, topics=THREE, weather=Weather(latency_s=(0.01, 0.05)))


@pytest.mark.fault(9)
def test_records_are_written_after_the_broker_forgot_an_idle_producer() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            for _ in range(3):
                await writer(world, producer).run(100)
                await producer.flush()
                for partition in range(3):
                    world.cluster.forget_producers("t", partition)
        assert not world.ledger.failed
        world.check()

    simulate(scenario, topics=THREE)


@pytest.mark.fault(10)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_expire_while_they_are_written(codec: str) -> None:
    """The memory of an expired batch is not reused while the connection still refers to it."""

    async def scenario(world: World) -> None:
        options = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 1_900, "linger_ms": 0}
        async with world.producer(compression_type=codec, **options) as producer:
            here = Writer(producer, world.ledger, [("t", 0)], size=2_000)
            there = Writer(producer, world.ledger, [("u", 0)], number=1, size=2_000)
            await here.run(10)
            await producer.flush()
            slow = world.address(world.cluster.leader("t"))
            world.network.part({"client"}, {slow})
            await here.run(100)
            await world.ledger.until(100, "failed")
            await there.run(200)
            world.network.heal()
            await here.run(50)
            await producer.flush()
        assert {"DeliveryTimeoutError"} == {e.split("(")[0] for e in world.ledger.failed.values()}
        world.check()

    simulate(scenario, brokers=3, topics={"t": 1, "u": 1})


@pytest.mark.fault(11)
@pytest.mark.parametrize("direction", ["requests", "responses"])
def test_a_reset_at_each_byte(direction: str) -> None:
    """A record arrives even if its connection is reset at byte 0, 12, 24, ... of the traffic.

    `make test-all` tests each byte.
    """
    for byte in one_in(12, range(400)):

        async def scenario(world: World, byte: int = byte) -> bool:
            async with world.producer(linger_ms=0) as producer:
                world.network.cut_next(**{direction: byte})
                await writer(world, producer).run(1)
                await producer.flush()
                cut = world.network.connections_cut > 0
            world.check()
            assert len(world.ledger.acknowledged) == 1
            return cut

        if not simulate(scenario, seed=byte):
            break
    assert byte > 50, "a produce request must have more bytes than that"


@pytest.mark.fault(12)
@pytest.mark.parametrize("slicing", [0.0, 1.0])
def test_responses_are_read_in_pieces_of_any_size(slicing: float) -> None:
    async def scenario(world: World) -> None:
        await produced(world, 200, linger_ms=0)
        assert not world.ledger.failed

    simulate(scenario, topics=THREE, weather=Weather(slicing=slicing, latency_s=(0, 0.1)))


@pytest.mark.fault(17)
@pytest.mark.parametrize("days", [1, -1])
def test_no_record_expires_early_when_the_wall_clock_jumps(days: int) -> None:
    """When the wall clock jumps, nothing expires early, and the delivery timeout still applies."""

    async def scenario(world: World) -> None:
        # The brokers' clock does not jump, so they must accept timestamps of another day.
        world.cluster.create_topic("t", configs={"message.timestamp.after.max.ms": 1 << 40})
        async with world.producer(delivery_timeout_ms=5_000, request_timeout_ms=1_000) as producer:
            world.cluster.pause(1)
            began = world.now
            delivery = producer.send("t", b"v")
            await asyncio.sleep(1)
            world.sim.clock.jump(days * 86_400)
            with pytest.raises(DeliveryTimeoutError):
                await delivery
            assert 4.9 <= world.now - began <= 5.5
            world.cluster.resume(1)
            await producer.send("t", b"v")

    simulate(scenario, topics={})


@pytest.mark.fault(20)
@pytest.mark.parametrize("change", ["missing", "twice", "topic missing"])
def test_partitions_missing_or_repeated_in_a_produce_response_cost_nothing(change: str) -> None:
    def tamper(request: Any, response: Any) -> Any:
        topics = response.responses
        if change == "topic missing":
            topics.clear()
        elif change == "missing":
            del topics[0].partition_responses[0]
        else:
            topics[0].partition_responses.append(topics[0].partition_responses[0])
        return response

    async def scenario(world: World) -> None:
        with world.cluster.alter(ApiKey.PRODUCE, tamper, times=5) as fault:
            await produced(world, delivery_timeout_ms=60_000, request_timeout_ms=2_000)
            assert fault.hits == 5
        assert not world.ledger.failed

    simulate(scenario, topics=THREE)


@pytest.mark.fault(23)
def test_records_are_written_after_an_unknown_topic_id() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.fail(ApiKey.PRODUCE, UnknownTopicIdError, times=5):
            await produced(world)
        assert not world.ledger.failed

    simulate(scenario, topics=THREE)


@pytest.mark.fault(39)
def test_drain_bounds_a_producer_that_is_faster_than_the_brokers() -> None:
    """`drain` waits for room.

    Without `drain`, `send` raises errors when the buffer is full, but no accepted record is lost.
    """

    async def scenario(world: World) -> None:
        with world.cluster.delay(ApiKey.PRODUCE, 0.5):
            async with world.producer(buffer_memory=50_000, linger_ms=0) as producer:
                await writer(world, producer, size=500).run(500)
                impatient = writer(world, producer, 1, size=500)
                for _ in range(1_000):
                    impatient.send("t", 0)
                refused = [e for e in world.ledger.failed.values() if "BufferExhausted" in e]
                assert 0 < len(refused) == len(world.ledger.failed)
                with pytest.raises(BufferExhaustedError, match="drain"):
                    producer.send("t", bytes(500), partition=0)
                await producer.drain()
                await producer.flush()
        world.check()

    simulate(scenario, topics=THREE)


@pytest.mark.fault(49)
def test_a_quota_slows_the_producer_down() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.throttle(ApiKey.PRODUCE, 2.0, times=3) as fault:
            async with world.producer(linger_ms=0) as producer:
                began = world.now
                for _ in range(4):
                    await producer.send("t", b"v")
                assert fault.hits == 3
                assert world.now - began >= 5.9
                times = [request.at for request in world.requests(ApiKey.PRODUCE)]
                gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
                assert min(gaps) >= 1.9

    simulate(scenario)


@pytest.mark.fault(49)
@pytest.mark.parametrize("seconds", [29.95, 30.02, 45.0])
def test_records_are_written_once_when_a_throttle_outlasts_the_request_timeout(
    seconds: float,
) -> None:
    async def scenario(world: World) -> None:
        with world.cluster.throttle(ApiKey.PRODUCE, seconds, times=1) as fault:
            await produced(world, enable_idempotence=False, request_timeout_ms=30_000)
            assert fault.hits == 1
        values = [record.value for record in world.cluster.records("t")]
        assert len(values) == len(set(values)) == 300
        assert not world.ledger.failed

    simulate(scenario, weather=Weather(latency_s=(0.05, 0.05)))


@pytest.mark.fault(9)
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("partitions", [1, 3])
def test_records_reach_a_recreated_topic_when_brokers_have_no_topic_ids(
    partitions: int, idempotent: bool
) -> None:
    """The new topic's leader epochs begin again. No metadata is requested before the next send."""

    async def scenario(world: World) -> None:
        cluster = world.cluster
        cluster.limit_versions({ApiKey.PRODUCE: (3, 8), ApiKey.METADATA: (0, 9)})
        async with world.producer(linger_ms=0, enable_idempotence=idempotent) as producer:
            await producer.send("t", b"x", partition=0)
            for _ in range(3):
                cluster.move_leader("t", 0)
                await producer.send("t", b"x", partition=0)
            leader = cluster.leader("t", 0)
            cluster.delete_topic("t")
            cluster.create_topic("t", partitions)
            if cluster.leader("t", 0) == leader:
                cluster.move_leader("t", 0)
            async with asyncio.timeout(10):
                metadata = await producer.send("t", b"new", partition=0)
            assert cluster.records("t", 0)[metadata.offset].value == b"new"

    simulate(scenario, brokers=3, topics=THREE)

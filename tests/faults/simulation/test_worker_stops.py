"""A worker stops within its bound, whatever is stuck: `drain_timeout` and `close_timeout_ms`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, ConsumerRecord, ShareConsumer, TopicPartition
from aiokclient.errors import ClosedError, HandlerStuckError, IllegalStateError
from aiokclient.protocol import ApiKey
from aiokclient.worker import Worker

Record = ConsumerRecord[bytes, bytes]
DRAIN_S = 4.0
CLOSE_S = 3.0
T0 = TopicPartition("t", 0)


class Stop:
    """A worker whose handler has one record, and the seconds that its stop and the close take."""

    def __init__(self, world: World, handle: Any, **options: Any) -> None:
        world.cluster.produce("t", [b"0", b"1", b"2"])
        self.world = world
        self.consumer = world.consumer(
            "t", group_id="g", checked=False, close_timeout_ms=int(CLOSE_S * 1000)
        )
        self.worker = Worker(self.consumer, handle, drain_timeout=DRAIN_S, **options)
        self.error: BaseException | None = None

    async def start(self) -> None:
        await self.consumer.start()
        self.running = asyncio.create_task(self.worker.run())
        await asyncio.sleep(2)

    async def measure_stop(self, meanwhile: Any = None) -> float:
        began = self.world.now
        self.worker.stop()
        if meanwhile is not None:
            await asyncio.sleep(0.5)
            meanwhile()
        (done,) = await asyncio.gather(self.running, return_exceptions=True)
        self.error = done
        await self.consumer.close()
        return self.world.now - began


async def sleep_on(record: Record) -> None:
    await asyncio.sleep(1000)


@pytest.mark.fault(61)
def test_a_stop_ends_in_time_with_a_handler_that_ignores_cancellation() -> None:
    async def scenario(world: World) -> None:
        released = asyncio.Event()

        async def handle(record: Record) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        stop = Stop(world, handle)
        await stop.start()
        assert await stop.measure_stop() <= DRAIN_S + CLOSE_S
        assert isinstance(stop.error, HandlerStuckError)
        assert "released.wait()" in str(stop.error)
        assert world.cluster.committed("g")[T0].offset == 0
        released.set()

    simulate(scenario)


def test_a_stop_ends_in_time_with_a_loop_that_was_blocked() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        await stop.start()
        took = await stop.measure_stop(lambda: world.sim.loop.leap(10.0))
        assert took <= DRAIN_S + CLOSE_S + 10.0
        assert stop.error is None
        assert world.cluster.committed("g")[T0].offset == 0

    simulate(scenario)


@pytest.mark.fault(63)
def test_a_stop_ends_in_time_with_a_dead_broker() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        await stop.start()
        world.cluster.stop(1)
        assert await stop.measure_stop() <= DRAIN_S + CLOSE_S + 0.5
        assert stop.error is None
        world.cluster.start(1)

    simulate(scenario)


@pytest.mark.fault(63)
@pytest.mark.parametrize("shares", [False, True], ids=["own connections", "a shared client"])
def test_a_stop_ends_in_time_with_a_record_that_is_not_acknowledged(shares: bool) -> None:
    async def scenario(world: World) -> None:
        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value)

        producer = world.producer(close_timeout_ms=int(CLOSE_S * 1000)) if shares else None
        stop = Stop(world, handle, producer=producer)
        world.cluster.delay(ApiKey.PRODUCE, 10_000.0)
        await stop.start()
        assert await stop.measure_stop() <= DRAIN_S + CLOSE_S + 0.5
        assert stop.error is None
        assert world.cluster.committed("g")[T0].offset == 0

    simulate(scenario, topics={"t": 1, "out": 1})


def test_a_second_drain_shortens_the_first() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        await stop.start()
        began = world.now
        stop.worker.stop()
        await stop.worker.drain(0)
        assert world.now - began <= 0.5
        await stop.running
        await stop.consumer.close()

    simulate(scenario)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.5])
def test_cancelling_a_run_that_drains_cancels_its_handlers(after_s: float) -> None:
    async def scenario(world: World) -> None:
        cancelled: list[int] = []

        async def handle(record: Record) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(record.offset)
                raise

        stop = Stop(world, handle)
        await stop.start()
        began = world.now
        stop.worker.stop()
        await asyncio.sleep(after_s)
        stop.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stop.running
        assert world.now - began <= after_s + 0.5
        assert cancelled == [0]
        await stop.consumer.close()
        assert world.cluster.committed("g")[T0].offset == 0

    simulate(scenario)


def test_a_worker_that_is_stopped_before_its_run_handles_nothing() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        stop.worker.stop()
        await stop.worker.run()  # This starts and closes the consumer, too.
        assert not stop.worker.health().ready
        assert repr(stop.consumer.state) == "<State.CLOSED: 'closed'>"

    simulate(scenario)


def test_closing_the_consumer_ends_its_worker() -> None:
    async def scenario(world: World) -> None:
        cancelled = asyncio.Event()

        async def handle(record: Record) -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        stop = Stop(world, handle)
        await stop.start()
        began = world.now
        await stop.consumer.close()
        await stop.running
        assert cancelled.is_set()
        assert world.now - began <= DRAIN_S + CLOSE_S
        assert world.cluster.committed("g")[T0].offset == 0

    simulate(scenario)


def test_a_worker_ends_with_the_error_of_a_consumer_that_has_failed() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        await stop.start()
        stop.consumer._supervisor.fail(RuntimeError("a task has died"), "test")
        with pytest.raises(RuntimeError, match="a task has died"):
            await stop.running
        assert not stop.worker.health().live
        await stop.consumer.close()

    simulate(scenario)


def test_a_worker_ends_with_the_error_of_a_task_of_its_own() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        await stop.start()
        run = stop.worker._run
        assert run is not None
        assert run._reading is not None
        run._reading.cancel()
        with pytest.raises(IllegalStateError, match="was cancelled"):
            await stop.running
        await stop.consumer.close()

    simulate(scenario)


@pytest.mark.parametrize("is_started", [False, True], ids=["new", "started"])
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.02])
def test_a_stop_while_a_worker_starts_ends_it(after_s: float, is_started: bool) -> None:
    async def scenario(world: World) -> None:
        async def handle(record: Record, worker: Worker) -> None:
            await asyncio.sleep(1000)

        stop = Stop(world, handle)  # The worker makes a producer.
        if is_started:
            await stop.consumer.start()
        running = asyncio.create_task(stop.worker.run())
        await asyncio.sleep(after_s)
        began = world.now
        stop.worker.stop()
        await running
        assert world.now - began <= DRAIN_S + CLOSE_S + 5
        await stop.consumer.close()

    simulate(scenario)


@pytest.mark.fault(63)
@pytest.mark.parametrize("is_started", [False, True], ids=["new", "started"])
def test_a_stop_ends_a_worker_that_starts_without_brokers(is_started: bool) -> None:
    async def scenario(world: World) -> None:
        async def handle(record: Record, worker: Worker) -> None:
            await asyncio.sleep(1000)

        stop = Stop(world, handle)  # The worker makes a producer.
        if is_started:
            await stop.consumer.start()
        world.cluster.stop(1)
        running = asyncio.create_task(stop.worker.run())
        await asyncio.sleep(5)
        began = world.now
        stop.worker.stop()
        await running
        await stop.consumer.close()
        assert world.now - began <= DRAIN_S + CLOSE_S
        world.cluster.start(1)

    simulate(scenario)


def make_consumer(world: World, kind: str, client: Any) -> Any:
    options = {"client": client} if client is not None else world.options(close_timeout_ms=3000)
    if kind == "share":
        return ShareConsumer("t", group_id="s", **options)
    return Consumer("t", group_id="g", **options)


@pytest.mark.fault(63)
@pytest.mark.parametrize("end", ["stop twice", "consumer stops", "consumer closes", "failure"])
@pytest.mark.parametrize("is_started", [False, True], ids=["new", "started"])
@pytest.mark.parametrize("is_shared", [False, True], ids=["own connections", "a shared client"])
@pytest.mark.parametrize("kind", ["plain", "share"])
def test_a_worker_that_starts_without_brokers_ends_with_its_consumer(
    kind: str, is_shared: bool, is_started: bool, end: str
) -> None:
    async def scenario(world: World) -> None:
        async def handle(record: Any, worker: Worker) -> None: ...

        client = world.client(close_timeout_ms=3000) if is_shared else None
        if client is not None:
            await client.start()
        consumer = make_consumer(world, kind, client)
        worker = Worker(consumer, handle, drain_timeout=DRAIN_S)
        if is_started:
            await consumer.start()
        world.cluster.stop(1)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        began = world.now
        if end == "stop twice":
            worker.stop()
            await asyncio.sleep(0)  # The first stop has not ended the start yet.
            worker.stop()
        elif end == "consumer stops":
            consumer.stop()
        elif end == "consumer closes":
            await consumer.close()
        else:
            consumer._cluster.supervisor.fail(RuntimeError("a task has died"), "test")
        (outcome,) = await asyncio.gather(running, return_exceptions=True)
        assert world.now - began <= DRAIN_S + CLOSE_S
        if end == "failure":
            assert repr(outcome) == "RuntimeError('a task has died')"
        elif not (end == "consumer closes" and isinstance(outcome, ClosedError)):
            assert outcome is None
        await consumer.close()
        if client is not None:
            await client.close()
        world.cluster.start(1)

    simulate(scenario)


def test_a_consumer_that_was_stopped_before_ends_its_worker_without_brokers() -> None:
    async def scenario(world: World) -> None:
        stop = Stop(world, sleep_on)
        stop.consumer.stop()
        world.cluster.stop(1)
        began = world.now
        await stop.worker.run()
        assert world.now - began <= DRAIN_S + CLOSE_S
        world.cluster.start(1)

    simulate(scenario)

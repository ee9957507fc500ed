"""Workers with a transactional producer: each record is handled exactly once, over failures."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from world import World, simulate

from aiokclient import ConsumerRecord, TopicPartition
from aiokclient.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    IllegalStateError,
    NotCoordinatorError,
    SchemaRegistryUnavailableError,
)
from aiokclient.protocol import ApiKey
from aiokclient.worker import (
    Batch,
    BatchError,
    DeadLetterInfo,
    Exponential,
    Reject,
    Retry,
    Worker,
)

Record = ConsumerRecord[bytes, bytes]
TOPICS = {"t": 2, "out": 1, "dead": 2, "again": 1}
QUICK = Exponential(2.0, max=2.0, jitter=0.0)


class Scene:
    """A consumer and a producer for a worker, and what committed transactions have written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: Counter[bytes] = Counter()
        self.seen: list[tuple[float, Record]] = []

    def consumer(self, **more: Any) -> Any:
        more = {"group_id": "g", "enable_auto_commit": False, "heartbeat_interval_ms": 500, **more}
        return self.world.consumer("t", checked=False, **more)

    def producer(self, **more: Any) -> Any:
        return self.world.producer(transactional_id="worker", **more)

    async def fill(self, count: int, partitions: int = 2) -> None:
        async with self.world.producer() as producer:
            for number in range(count):
                value = b"%d" % number
                producer.send("t", value, key=value, partition=number % partitions)

    def note_run(self, record: Record) -> int:
        """Count a run of a record, and return its number."""
        self.runs[record.value] += 1
        self.seen.append((self.world.now, record))
        return self.runs[record.value]

    async def read(self, topic: str) -> list[Record]:
        options: dict[str, Any] = {"isolation_level": "read_committed"}
        async with self.world.consumer(topic, checked=False, **options) as reader:
            return [record async for record in reader.until_end()]

    async def read_committed(self, partitions: int = 2, topic: str = "t") -> list[int | None]:
        tps = [TopicPartition(topic, index) for index in range(partitions)]
        async with self.world.consumer(group_id="g", checked=False) as reader:
            found = await reader.committed(tps)
        return [None if found[tp] is None else found[tp].offset for tp in tps]


async def run_for(worker: Worker, duration_s: float) -> None:
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(duration_s)
    worker.stop()
    await running


async def run_until(worker: Worker, condition: Any) -> None:
    running = asyncio.create_task(worker.run())
    for _ in range(20_000):
        if condition() or running.done():
            break
        await asyncio.sleep(0.05)
    worker.stop()
    await running


@pytest.mark.parametrize("order", ["partition", "key", None])
def test_results_letters_and_offsets_are_one_transaction(order: Any) -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(30)
        fails = {b"4": 1, b"5": 99, b"11": 2, b"20": 99, b"21": 99}

        async def handle(record: Record, worker: Worker) -> None:
            run = scene.note_run(record)
            worker.send("out", record.value, key=record.key)
            await asyncio.sleep(world.sim.clock.rng.uniform(0, 0.02))
            if run <= fails.get(record.value, 0):
                raise ValueError(f"run {run}")

        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(
                reader,
                handle,
                order=order,
                producer=producer,
                retry=Retry(3, QUICK),
                dead_letter="dead",
            )
            await run_for(worker, 60)
        dead = await scene.read("dead")
        assert sorted(letter.value for letter in dead) == [b"20", b"21", b"5"]
        assert {DeadLetterInfo.of(letter).attempts for letter in dead} == {3}
        values = [record.value for record in await scene.read("out")]
        expected = {b"%d" % n for n in range(30)} - {b"5", b"20", b"21"}
        assert sorted(values) == sorted(expected), "each result once"
        if order == "partition":
            for parity in range(2):
                numbers = [int(value) for value in values if int(value) % 2 == parity]
                assert numbers == sorted(numbers)
        assert await scene.read_committed() == [15, 15]

    simulate(scenario, topics=TOPICS)


def test_a_record_that_waits_for_its_retry_delays_no_other_partition() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)

        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value)
            if record.value == b"0" and scene.note_run(record) < 3:
                raise ValueError("not yet")

        retry = Retry(3, Exponential(30, max=30, jitter=0))
        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, producer=producer, retry=retry)
            running = asyncio.create_task(worker.run())
            await scene.fill(10)
            await asyncio.sleep(10)
            assert worker.health().retries_waiting == 1
            values = {record.value for record in await scene.read("out")}
            assert values == {b"1", b"3", b"5", b"7", b"9"}
            await asyncio.sleep(60)
            await worker.drain()
            await running
        assert scene.seen[2][0] - scene.seen[0][0] == pytest.approx(60, abs=1)
        assert len(await scene.read("out")) == 10
        assert await scene.read_committed() == [5, 5]

    simulate(scenario, topics=TOPICS)


def test_retry_records_are_part_of_the_transaction_and_run_when_they_are_due() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(6)
        late_ms: list[int] = []

        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value)
            if record.topic == "again":
                due = int(dict(record.headers)["aiokclient.due"] or 0)
                late_ms.append(world.sim.clock.time_ms() - due)
            if record.value in (b"1", b"2") and scene.note_run(record) < 3:
                raise ValueError("not yet")

        retry = Retry(3, topic=[(5, "again")])
        committed = scene.consumer(isolation_level="read_committed")
        async with committed as reader, scene.producer() as producer:
            worker = Worker(reader, handle, producer=producer, retry=retry)
            await run_until(worker, lambda: scene.runs == {b"1": 3, b"2": 3})
        assert all(0 <= late <= 1000 for late in late_ms)
        assert len(late_ms) == 4
        values = [record.value for record in await scene.read("out")]
        assert sorted(values) == [b"%d" % n for n in range(6)]
        assert len(await scene.read("again")) == 4
        assert await scene.read_committed() == [3, 3]

    simulate(scenario, topics=TOPICS)


def test_retry_topics_in_transactions_need_a_consumer_that_reads_committed_records() -> None:
    """Otherwise the retry record of an aborted transaction is handled, and its original again."""

    async def scenario(world: World) -> None:
        async def handle(record: Record) -> None: ...

        scene = Scene(world)
        retry = Retry(3, topic=[(5, "again")])
        with pytest.raises(ConfigError, match="read_committed"):
            Worker(scene.consumer(), handle, producer=scene.producer(), retry=retry)

    simulate(scenario)


def test_records_that_cannot_be_deserialized_are_given_up_without_an_abort() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        async with world.producer() as producer:
            for value in (b"a", b"\xff", b"b"):
                producer.send("t", value, partition=0)
        runs: Counter[str] = Counter()

        async def handle(record: Any, worker: Worker) -> None:
            runs[record.value] += 1
            worker.send("out", record.value)

        async with (
            scene.consumer(value_deserializer=lambda data: data.decode()) as reader,
            scene.producer(value_serializer=str.encode) as producer,
        ):
            worker = Worker(reader, handle, producer=producer, dead_letter="dead")
            await run_until(worker, lambda: world.cluster.records("dead", 0))
        assert runs == {"a": 1, "b": 1}
        (letter,) = await scene.read("dead")
        assert letter.value == b"\xff"
        assert [record.value for record in await scene.read("out")] == [b"a", b"b"]
        assert (await scene.read_committed())[0] == 3

    simulate(scenario, topics=TOPICS)


def test_records_of_a_batch_that_failed_are_retried_alone() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(12, partitions=1)
        lists: list[list[bytes]] = []

        async def handle(records: list[Record], worker: Worker) -> None:
            lists.append([record.value for record in records])
            for record in records:
                worker.send("out", record.value)
            wrong = [r for r in records if r.value in (b"3", b"7") and scene.note_run(r) < 3]
            if wrong:
                raise BatchError([(record, ValueError()) for record in wrong])

        async with scene.consumer() as reader, scene.producer() as producer:
            batch = Batch(5, max_wait=0.2)
            worker = Worker(reader, handle, batch=batch, producer=producer, retry=Retry(3, QUICK))
            await run_until(worker, lambda: lists and lists[-1][-1] == b"11" and len(lists) > 5)
        assert [b"3"] in lists
        assert [b"7"] in lists
        values = [int(record.value) for record in await scene.read("out")]
        assert values == list(range(12))
        assert (await scene.read_committed())[0] == 12

    simulate(scenario, topics=TOPICS)


def test_giving_up_without_dead_letters_aborts_and_ends_the_run() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(4, partitions=1)

        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value)
            if record.value == b"2":
                raise Reject("no")

        async with scene.consumer() as reader, scene.producer() as producer:
            with pytest.raises(Reject):
                await Worker(reader, handle, producer=producer).run()
            assert await scene.read("out") == []
            worker = Worker(reader, handle, producer=producer, on_giving_up="skip")
            await run_until(worker, lambda: len(world.cluster.records("out")) > 6)
        assert [record.value for record in await scene.read("out")] == [b"0", b"1", b"3"]
        assert (await scene.read_committed())[0] == 4

    simulate(scenario, topics=TOPICS)


def test_a_transaction_that_fails_is_repeated_without_counting_a_run() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(10)

        async def handle(record: Record, worker: Worker) -> None:
            scene.note_run(record)
            worker.send("out", record.value)

        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, producer=producer, retry=Retry(1), dead_letter="dead")
            running = asyncio.create_task(worker.run())
            world.cluster.fail(ApiKey.TXN_OFFSET_COMMIT, CoordinatorLoadInProgressError, times=3)
            world.cluster.fail(ApiKey.END_TXN, NotCoordinatorError, times=3)
            await asyncio.sleep(10)
            world.cluster.stop(1)
            await asyncio.sleep(2)
            world.cluster.start(1)
            await scene.fill(10)
            await asyncio.sleep(30)
            await worker.drain()
            await running
        assert len(await scene.read("out")) == 20
        assert await scene.read("dead") == []
        assert await scene.read_committed() == [10, 10]

    simulate(scenario, topics=TOPICS, brokers=1)


def test_a_drain_commits_what_ends_in_time_and_aborts_what_does_not() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(2, partitions=1)
        handling_s = 3.0

        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value)
            await asyncio.sleep(handling_s)

        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, order=None, producer=producer, drain_timeout=10)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(2)
            worker.stop()
            await running
            assert len(await scene.read("out")) == 2
            await scene.fill(2, partitions=1)
            handling_s = 100.0
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(2)
            began = world.now
            worker.stop()
            await running
            assert world.now - began <= 11
            assert len(await scene.read("out")) == 2
        assert (await scene.read_committed())[0] == 2

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("within_s", [0.0, 3.0])
def test_a_handler_that_ends_when_it_is_cancelled_is_not_called_stuck(
    within_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(2)

        async def handle(record: Record) -> None:
            await asyncio.sleep(1000)

        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, order=None, producer=producer, drain_timeout=10)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(2)
            assert worker.health().lanes_busy == 2
            await worker.drain(within_s)
            await running

    simulate(scenario, topics=TOPICS)
    events = {getattr(record, "event", None) for record in caplog.records}
    assert "worker_handler_stuck" not in events


def test_a_killed_worker_leaves_nothing_and_its_successor_does_each_record_once() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(20)

        async def handle(record: Record, worker: Worker) -> None:
            run = scene.note_run(record)
            worker.send("out", record.value)
            await asyncio.sleep(0.2)
            if record.value == b"7" and run == 1:
                raise ValueError("once")

        for _ in range(6):
            async with scene.consumer() as reader, scene.producer() as producer:
                worker = Worker(reader, handle, producer=producer, retry=Retry(3, QUICK))
                running = asyncio.create_task(worker.run())
                await asyncio.sleep(world.sim.clock.rng.uniform(1, 5))
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, producer=producer, retry=Retry(3, QUICK))
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(30)
            await worker.drain()
            await running
        values = sorted(int(record.value) for record in await scene.read("out"))
        assert values == list(range(20))
        assert await scene.read_committed() == [10, 10]

    simulate(scenario, topics=TOPICS)


class Schemas:
    """A deserializer whose registry cannot be reached until a time."""

    def __init__(self, world: World, until_s: float) -> None:
        self._world, self._until_s = world, until_s
        self._known = False

    def is_prepared(self, data: bytes | None, headers: Any) -> bool:
        return self._known

    async def prepare(self, topic: str, items: Any) -> None:
        if self._world.now < self._until_s:
            raise SchemaRegistryUnavailableError("the registry is away")
        self._known = True

    def deserialize(self, topic: str, data: bytes, headers: Any) -> int:
        return int(data)


def test_a_registry_that_is_away_makes_the_worker_wait_and_counts_as_no_run() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(6)

        async def handle(record: Any, worker: Worker) -> None:
            worker.send("out", b"%d" % record.value)

        schemas = Schemas(world, 60)
        async with scene.consumer(value_deserializer=schemas) as reader, scene.producer() as sender:
            worker = Worker(reader, handle, producer=sender, retry=Retry(1), dead_letter="dead")
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(30)
            assert not worker.health().ready
            assert any("the registry is away" in text for text in worker.health().reasons)
            await asyncio.sleep(90)
            assert worker.health().ready, worker.health().reasons
            await worker.drain()
            await running
        assert sorted(record.value for record in await scene.read("out")) == [
            b"%d" % number for number in range(6)
        ]
        assert await scene.read("dead") == []
        assert await scene.read_committed() == [3, 3]

    simulate(scenario, topics=TOPICS)


def test_a_consumer_that_commits_on_its_own_is_refused() -> None:
    async def scenario(world: World) -> None:
        scene = Scene(world)

        async def handle(record: Record) -> None: ...

        async with scene.consumer(enable_auto_commit=True) as reader, scene.producer() as producer:
            with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
                await Worker(reader, handle, producer=producer).run()

    simulate(scenario, topics=TOPICS)


@pytest.mark.fault(5, 63)
@pytest.mark.parametrize("owned", [False, True], ids=["started before", "started by the worker"])
@pytest.mark.parametrize("after_s", [0.01, 5.0])
@pytest.mark.parametrize(
    "silent", [ApiKey.PRODUCE, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN, None], ids=str
)
def test_a_stop_while_a_transaction_cannot_end_keeps_its_bound(
    silent: ApiKey | None, after_s: float, owned: bool
) -> None:
    drain_s, close_s, count = 4.0, 3.0, 80

    async def scenario(world: World) -> None:
        scene = Scene(world)
        await scene.fill(count)

        async def handle(record: Record, worker: Worker) -> None:
            await asyncio.sleep(0.02)
            worker.send("out", record.value)

        more: dict[str, Any] = {"close_timeout_ms": int(close_s * 1000)}
        reader = scene.consumer(session_timeout_ms=6000, **more)
        producer = scene.producer(shutdown_timeout_ms=3000, **more)
        worker = Worker(
            reader, handle, order=None, concurrency=4, producer=producer, drain_timeout=drain_s
        )
        if not owned:
            await reader.start()
            await producer.start()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0.5)
        if silent is None:
            world.cluster.stop(1)
        else:
            world.cluster.delay(silent, 10_000.0)
        await asyncio.sleep(after_s)
        began = world.now
        worker.stop()
        await running
        await reader.close()
        assert world.now - began <= drain_s + close_s + 0.5
        await producer.close()
        world.cluster.start(1)
        world.cluster.reset()
        async with scene.consumer() as reader, scene.producer() as producer:
            worker = Worker(reader, handle, order=None, producer=producer)
            await run_for(worker, 30)
        values = sorted(int(record.value) for record in await scene.read("out"))
        assert values == list(range(count))

    simulate(scenario, topics=TOPICS)

"""Retry topics and dead letters in virtual time: due times, restarts, neighbors, and topics."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from world import World, simulate

from aiokclient import ConsumerRecord, TopicPartition
from aiokclient.errors import IllegalStateError, UnknownTopicOrPartitionError
from aiokclient.worker import (
    Batch,
    BatchError,
    DeadLetter,
    DeadLetterInfo,
    Exponential,
    Reject,
    Retry,
    RetryLater,
    Worker,
)

Record = ConsumerRecord[bytes, bytes]
TOPICS = {"t": 2, "t.5": 2, "t.30": 1, "t.dead": 2}
LISTED = Retry(3, topic=[(5, "t.5"), (30, "t.30")])
DUE_MS = 1000
"""The longest delay of a record after it is due, in milliseconds."""


def consumer(world: World, *topics: Any, **more: Any) -> Any:
    more = {"group_id": "g", "heartbeat_interval_ms": 500, **more}
    return world.consumer(*(topics or ("t",)), checked=False, **more)


async def fill(world: World, count: int, partitions: int = 2, keys: int = 1000) -> None:
    async with world.producer() as producer:
        for number in range(count):
            key = b"k%d" % (number % keys)
            producer.send("t", b"%d" % number, key=key, partition=number % partitions)


async def wait_until(condition: Any) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.05)


async def run_until(worker: Worker, condition: Any) -> None:
    """Run a worker until a condition holds, and stop it."""
    running = asyncio.create_task(worker.run())
    await wait_until(lambda: condition() or running.done())
    worker.stop()
    await running


def letters_in(world: World, topic: str = "t.dead") -> list[Record]:
    partitions = range(world.cluster.topics[topic])
    return [record for p in partitions for record in world.cluster.records(topic, p)]


def due_ms(record: Record) -> int | None:
    value = dict(record.headers).get("aiokclient.due")
    return None if value is None else int(value)


class Runs:
    """A handler that fails for some records, and keeps when it was called for which."""

    def __init__(self, world: World, poison: Any = lambda value, run: False) -> None:
        self._world, self._poison = world, poison
        self.seen: list[tuple[float, str, bytes]] = []
        self.counts: Counter[bytes] = Counter()
        self.late_ms: list[int] = []

    async def __call__(self, record: Record) -> None:
        value = record.value or b""
        self.seen.append((self._world.now, record.topic, value))
        self.counts[value] += 1
        if (due := due_ms(record)) is not None and record.topic != "t":
            self.late_ms.append(self._world.sim.clock.time_ms() - due)
        if self._poison(value, self.counts[value]):
            raise ValueError(f"run {self.counts[value]} of {value!r}")

    def times_of(self, value: bytes) -> list[float]:
        times = [at for at, _, each in self.seen if each == value]
        return [at - times[0] for at in times]


def test_the_nth_failure_goes_to_the_nth_topic_and_runs_there_when_it_is_due() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 40)
        runs = Runs(world, lambda value, run: value in (b"1", b"4", b"30"))
        async with consumer(world) as reader:
            worker = Worker(reader, runs, retry=LISTED, dead_letter="t.dead")
            await run_until(worker, lambda: len(letters_in(world)) == 3)
        assert runs.counts[b"4"] == 3
        assert sum(runs.counts.values()) == 37 + 9
        assert [topic for _, topic, value in runs.seen if value == b"1"] == ["t", "t.5", "t.30"]
        assert all(0 <= late <= DUE_MS for late in runs.late_ms), runs.late_ms
        for value in (b"1", b"4", b"30"):
            _, second, third = runs.times_of(value)
            assert 4.9 < second <= 6
            assert 34.9 < third <= 37
        for letter in letters_in(world):
            info = DeadLetterInfo.of(letter)
            number = int(letter.value)
            assert info[:3] == ("t", number % 2, number // 2)
            assert (letter.partition, letter.key) == (number % 2, b"k%d" % number)
            assert (info.attempts, info.error_message) == (3, f"run 3 of {letter.value!r}")
        async with consumer(world) as reader:
            assert await reader.poll(timeout=30) == []

    simulate(scenario, topics=TOPICS)


def test_due_times_hold_over_a_restart_of_a_worker_that_reads_only_new_records() -> None:
    async def scenario(world: World) -> None:
        runs = Runs(world, lambda value, run: run == 1)
        async with consumer(world) as reader:
            worker = Worker(reader, runs, retry=LISTED)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            await fill(world, 4)
            await wait_until(lambda: len(runs.seen) == 4)
            await asyncio.sleep(1)
            await worker.drain()
            await running
        assert runs.late_ms == []
        # Only new records of the main topic are read, but all of the retry topic.
        async with consumer(world, auto_offset_reset="latest") as reader:
            worker = Worker(reader, runs, retry=LISTED)
            await run_until(worker, lambda: len(runs.seen) == 8)
        assert set(runs.counts.values()) == {2}
        assert all(0 <= late <= DUE_MS for late in runs.late_ms), runs.late_ms

    simulate(scenario, topics=TOPICS)


def test_a_worker_that_is_killed_before_a_commit_handles_its_retry_records_when_they_are_due() -> (
    None
):
    async def scenario(world: World) -> None:
        runs = Runs(world, lambda value, run: run == 1)
        never: dict[str, Any] = {"enable_auto_commit": False, "session_timeout_ms": 6000}
        async with consumer(world, **never) as reader:
            running = asyncio.create_task(Worker(reader, runs, retry=LISTED, order=None).run())
            await asyncio.sleep(2)
            await fill(world, 4)
            await wait_until(lambda: len(runs.seen) == 4)
            await asyncio.sleep(1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        async with consumer(world, auto_offset_reset="latest", **never) as reader:
            worker = Worker(reader, runs, retry=LISTED)
            await run_until(worker, lambda: len(runs.seen) >= 8)
        assert min(runs.counts.values()) == 2
        assert all(0 <= late <= DUE_MS for late in runs.late_ms), runs.late_ms

    simulate(scenario, topics=TOPICS)


def test_one_topic_for_all_delays_runs_each_record_when_it_is_due() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 60)
        runs = Runs(world, lambda value, run: int(value) % 3 == 0 and run < 1 + int(value) % 5)

        async def handle(record: Record) -> None:
            if record.value == b"7" and not runs.counts[b"7"]:
                runs.counts[b"7"] += 1
                raise RetryLater(200)  # The others are due before it.
            await runs(record)

        retry = Retry(6, Exponential(2, max=40, jitter=0.5), topic="t.30")
        async with consumer(world) as reader:
            worker = Worker(reader, handle, retry=retry, order="key")
            await run_until(worker, lambda: runs.counts[b"7"] == 2)
        expected = {b"%d" % n: max(1, 1 + n % 5 if n % 3 == 0 else 1) for n in range(60)}
        assert runs.counts == Counter({**expected, b"7": 2})
        assert all(0 <= late <= DUE_MS for late in runs.late_ms), runs.late_ms
        assert runs.seen[-1][2] == b"7"

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("place", ["here", "topic"])
def test_a_poisonous_record_delays_its_neighbors_as_its_order_says(order: Any, place: str) -> None:
    async def scenario(world: World) -> None:
        handling_s, backoff_s = 0.1, 4.0
        ended: dict[bytes, float] = {}

        async def handle(record: Record) -> None:
            await asyncio.sleep(handling_s)
            if record.value == b"2":
                raise ValueError("poison")
            ended[record.value] = world.now

        async def measure(poison: bool) -> dict[bytes, float]:
            ended.clear()
            async with world.producer() as producer:
                for number in range(10, 20):
                    value = b"2" if poison and number == 12 else b"%d" % number
                    await producer.send("t", value, key=b"k%d" % number, partition=0)
            began = world.now
            await wait_until(lambda: len(ended) == 10 - poison)
            return {value: at - began for value, at in ended.items()}

        backoff = Exponential(backoff_s, max=backoff_s, jitter=0)
        retry = Retry(3, backoff, topic="t.5" if place == "topic" else None)
        async with consumer(world) as reader:
            worker = Worker(reader, handle, retry=retry, dead_letter="t.dead", order=order)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            usual, with_poison = await measure(poison=False), await measure(poison=True)
            await worker.drain()
            await running
        delays = [at - usual[value] for value, at in with_poison.items()]
        if order == "partition" and place == "here":
            assert max(delays) == pytest.approx(2 * backoff_s + 2 * handling_s, abs=0.3)
        else:
            assert max(delays) < handling_s, delays

    simulate(scenario, topics=TOPICS)


def test_rejected_records_go_to_the_dead_letters_from_a_retry_topic_too() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 3)

        async def handle(record: Record) -> None:
            if record.topic == "t":
                raise RetryLater(1)
            raise Reject("no such customer")

        async with consumer(world) as reader:
            worker = Worker(reader, handle, retry=LISTED, dead_letter="t.dead")
            await run_until(worker, lambda: len(letters_in(world)) == 3)
        infos = [DeadLetterInfo.of(letter) for letter in letters_in(world)]
        assert {(info.attempts, info.error_message) for info in infos} == {(2, "no such customer")}

    simulate(scenario, topics=TOPICS)


def test_records_of_a_batch_keep_their_own_attempts_in_retry_topics() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 12)
        counts: Counter[bytes] = Counter()

        async def handle(records: list[Record]) -> None:
            counts.update(record.value for record in records)
            wrong = [record for record in records if int(record.value) % 3 == 0]
            if wrong:
                raise BatchError({record: ValueError() for record in wrong})

        retry = Retry(3, Exponential(1, max=8, jitter=0.9), topic="t.5")
        async with consumer(world) as reader:
            batch = Batch(4, max_wait=1)
            worker = Worker(reader, handle, batch=batch, retry=retry, dead_letter="t.dead")
            await run_until(worker, lambda: len(letters_in(world)) == 4)
        assert counts == Counter({b"%d" % n: 1 if n % 3 else 3 for n in range(12)})
        assert {DeadLetterInfo.of(letter).attempts for letter in letters_in(world)} == {3}

    simulate(scenario, topics=TOPICS)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_that_wait_for_their_time_move_with_their_partition(protocol: Any) -> None:
    async def scenario(world: World) -> None:
        await fill(world, 20)
        runs = Runs(world, lambda value, run: run == 1)
        more: dict[str, Any] = {"group_protocol": protocol}
        if protocol == "consumer":
            more = {**more, "heartbeat_interval_ms": 3000}
        async with consumer(world, **more) as first, consumer(world, **more) as second:
            workers = [Worker(each, runs, retry=LISTED) for each in (first, second)]
            tasks = [asyncio.create_task(workers[0].run())]
            await asyncio.sleep(3)
            tasks.append(asyncio.create_task(workers[1].run()))
            for _ in range(600):
                if len(runs.seen) == 40:
                    break
                await asyncio.sleep(0.1)
            for worker in workers:
                worker.stop()
            await asyncio.gather(*tasks)
        assert set(runs.counts.values()) == {2}

    simulate(scenario, topics=TOPICS)


def test_retry_topics_are_subscribed_while_the_worker_runs() -> None:
    async def scenario(world: World) -> None:
        runs = Runs(world)
        async with consumer(world) as reader:
            worker = Worker(reader, runs, retry=LISTED)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            assert reader.subscription() == {"t", "t.5", "t.30"}
            await worker.drain()
            await running
            assert reader.subscription() == {"t"}
        async with consumer(world, re.compile("t")) as reader:
            worker = Worker(reader, runs, retry=LISTED)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            assert reader.subscription() == {"t", "t.5", "t.30"}
            await worker.drain()
            await running
            assert reader.subscription() == {"t"}

    simulate(scenario, topics=TOPICS)


def test_topics_are_created_like_the_main_topic_only_if_that_was_asked_for() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 5, partitions=1)
        missing = Retry(2, topic=[(1, "t.retry")])
        runs = Runs(world, lambda value, run: True)
        async with consumer(world) as reader:
            with pytest.raises(UnknownTopicOrPartitionError, match=r"retry topic t\.retry does"):
                await Worker(reader, runs, retry=missing).run()
            with pytest.raises(UnknownTopicOrPartitionError, match=r"dead letters t\.gone does"):
                await Worker(reader, runs, dead_letter="t.gone").run()
            assert runs.seen == []
            assert not {"t.retry", "t.gone"} & {*world.cluster.topics}
            created = Retry(2, topic=[(1, "t.retry")], create=True)
            letters = DeadLetter("t.gone", create=True)
            worker = Worker(reader, runs, retry=created, dead_letter=letters)
            await run_until(worker, lambda: runs.counts.total() == 10)
        assert world.cluster.topics["t.retry"] == world.cluster.topics["t.gone"] == 2
        assert len(letters_in(world, "t.gone")) == 5

    simulate(scenario, topics={"t": 2})


def test_worker_that_cannot_do_what_is_asked_for_says_so_at_its_start() -> None:
    async def scenario(world: World) -> None:
        runs = Runs(world)
        async with consumer(world, group_id=None) as reader:
            with pytest.raises(IllegalStateError, match="Retry topics need a group"):
                await reader.run(runs, retry=LISTED)
        async with consumer(world, re.compile("t.*")) as reader:
            with pytest.raises(IllegalStateError, match=r"reads t\.dead, to which it would write"):
                await reader.run(runs, dead_letter="t.dead")

    simulate(scenario, topics=TOPICS)


def test_dead_letters_that_are_too_large_lose_parts_and_say_so() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            producer.send("t", b"x" * 5000, key=b"small", partition=0)
            producer.send("t", b"x" * 9000, key=b"large", partition=0)
        limited = {"max.message.bytes": 9500}
        world.cluster.create_topic("small", 1, configs=limited)
        runs = Runs(world, lambda value, run: True)

        async def handle(record: Record) -> None:
            try:
                await runs(record)
            except ValueError as error:
                raise ValueError("y" * 5000) from error

        async with consumer(world) as reader:
            letters = DeadLetter("small", traceback_bytes=4096)
            worker = Worker(reader, handle, retry=Retry(1), dead_letter=letters)
            await run_until(worker, lambda: len(letters_in(world, "small")) == 2)
        found = {record.key: record for record in letters_in(world, "small")}
        infos = {key: DeadLetterInfo.of(record) for key, record in found.items()}
        assert infos[b"small"].dropped == ()
        assert found[b"small"].value == b"x" * 5000
        assert infos[b"large"].dropped == ("traceback", "value")
        assert found[b"large"].value is None

    simulate(scenario, topics=TOPICS)


def test_a_retry_record_that_is_too_large_becomes_a_dead_letter() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            producer.send("t", b"x" * 9000, partition=0)
        world.cluster.create_topic("small", 1, configs={"max.message.bytes": 9100})
        runs = Runs(world, lambda value, run: True)
        async with consumer(world) as reader:
            retry = Retry(3, topic="small")
            worker = Worker(reader, runs, retry=retry, dead_letter="t.dead")
            await run_until(worker, lambda: len(letters_in(world)) == 1)
        (letter,) = letters_in(world)
        assert (letter.value, DeadLetterInfo.of(letter).attempts) == (b"x" * 9000, 1)

    simulate(scenario, topics=TOPICS)


def test_a_record_that_is_too_old_for_the_dead_letters_is_written_with_a_time_of_now() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"old", partition=0, timestamp=1_000)
        world.cluster.create_topic("young", 1, configs={"message.timestamp.before.max.ms": 1000})
        runs = Runs(world, lambda value, run: True)
        async with consumer(world) as reader:
            worker = Worker(reader, runs, retry=Retry(1), dead_letter="young")
            await run_until(worker, lambda: len(letters_in(world, "young")) == 1)
        (letter,) = letters_in(world, "young")
        assert letter.timestamp > 1_000_000
        assert DeadLetterInfo.of(letter).origin_timestamp == 1_000

    simulate(scenario, topics=TOPICS)


def test_original_bytes_of_a_record_that_cannot_be_deserialized_are_in_its_dead_letter() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"\xff", key=b"\xfe", partition=1, headers=[("h", b"\xfd")])
        runs = Runs(world)
        async with consumer(world, value_deserializer=lambda data: data.decode()) as reader:
            worker = Worker(reader, runs, retry=LISTED, dead_letter="t.dead")
            await run_until(worker, lambda: len(letters_in(world)) == 1)
        (letter,) = letters_in(world)
        assert (letter.key, letter.value, letter.headers[0]) == (b"\xfe", b"\xff", ("h", b"\xfd"))
        info = DeadLetterInfo.of(letter)
        assert (info.error_type, info.attempts) == ("aiokclient.errors.RecordError", 1)
        assert runs.seen == []

    simulate(scenario, topics=TOPICS)


def test_commit_of_a_retry_topic_is_its_lowest_record_that_is_not_done() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 6)
        delays = {0: 60, 1: 5, 2: 20, 3: 5, 4: 5, 5: 5}
        done: list[bytes] = []

        async def handle(record: Record) -> None:
            if record.topic == "t":
                raise RetryLater(delays[int(record.value)])
            done.append(record.value)

        tp = TopicPartition("t.30", 0)
        async with consumer(world, auto_commit_interval_ms=500) as reader:
            worker = Worker(reader, handle, retry=Retry(2, topic="t.30"), order=None)
            running = asyncio.create_task(worker.run())
            await wait_until(lambda: len(done) == 5)
            await asyncio.sleep(2)
            assert b"0" not in done
            waiting = [r.offset for r in letters_in(world, "t.30") if r.value == b"0"]
            stored = (await reader.committed([tp]))[tp]
            assert (0 if stored is None else stored.offset) == waiting[0]
            assert worker.health().retries_waiting == 1
            await wait_until(lambda: len(done) == 6)
            await worker.drain()
            await running
            stored = (await reader.committed([tp]))[tp]
            assert stored is not None
            assert stored.offset == 6

    simulate(scenario, topics=TOPICS)

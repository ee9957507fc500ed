"""Workers over a share consumer, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokclient import (
    REJECT,
    SKIP,
    Admin,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from aiokclient.errors import ConfigError, LockLostError, RecordError
from aiokclient.share.locks import Run as LockedRun
from aiokclient.worker import (
    Batch,
    DeadLetter,
    DeadLetterInfo,
    Exponential,
    Reject,
    Retry,
    RetryLater,
    Worker,
)

TIMEOUT_S = 20.0
SOON = Exponential(0.01, max=0.01)
_numbers = itertools.count(1)


class Jobs:
    """A topic with a share group that reads it from its beginning, and one for dead letters."""

    def __init__(self, servers: Any, topic: str, dead: str, group: str, admin: Admin) -> None:
        self.topic, self.dead, self.group, self.admin = topic, dead, group, admin
        self.options: dict[str, Any] = {"bootstrap_servers": servers.bootstrap}

    def consumer(self, **options: Any) -> ShareConsumer[Any, Any]:
        return ShareConsumer(self.topic, group_id=self.group, **{**self.options, **options})

    async def fill(self, *values: bytes) -> None:
        async with Producer(**self.options) as producer:
            await producer.gather([producer.send(self.topic, each, partition=0) for each in values])

    async def read(self, topic: str) -> list[Any]:
        async with Consumer(topic, auto_offset_reset="earliest", **self.options) as consumer:
            return [record async for record in consumer.until_end()]

    async def count_left(self) -> int | None:
        listed = await self.admin.list_share_group_offsets([self.group])
        found = listed.raise_for_errors()[self.group]
        return found[TopicPartition(self.topic, 0)].lag


@pytest.fixture
async def jobs(cluster_servers: Any) -> AsyncIterator[Jobs]:
    topic, dead = await cluster_servers.new_topic(), await cluster_servers.new_topic()
    group = f"share-worker-{time.time_ns()}-{next(_numbers)}"
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        await admin.create_share_group(group, [topic], start="earliest")
        yield Jobs(cluster_servers, topic, dead, group, admin)


async def test_records_are_done_retried_rejected_or_dead_by_what_their_handlers_raise(
    jobs: Jobs,
) -> None:
    values = [b"good %d" % number for number in range(40)]
    await jobs.fill(*values, b"flaky", b"later", b"poison", b"reject")
    runs: Counter[bytes] = Counter()
    seen: set[bytes] = set()
    succeeded = asyncio.Event()

    async def handle(record: Any, worker: Worker) -> None:
        runs[record.value] += 1
        assert record.delivery_count == 1
        await asyncio.sleep(0)
        if record.value == b"flaky" and runs[b"flaky"] < 3:
            raise ConnectionError("try again")
        if record.value == b"later" and runs[b"later"] < 2:
            raise RetryLater(0.01)
        if record.value == b"poison":
            raise LookupError("no such customer")
        if record.value == b"reject":
            raise Reject("not ours")
        seen.add(record.value)
        if len(seen) == 42:
            succeeded.set()

    async with asyncio.timeout(TIMEOUT_S):
        worker = Worker(
            jobs.consumer(), handle, retry=Retry(3, backoff=SOON), dead_letter=jobs.dead
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await succeeded.wait()
            async with Consumer(jobs.dead, auto_offset_reset="earliest", **jobs.options) as letters:
                assert await letters.get(TIMEOUT_S)
                assert await letters.get(TIMEOUT_S)
            worker.stop()
        assert await jobs.count_left() == 0
    assert runs == Counter([*values, *[b"flaky"] * 3, *[b"later"] * 2, *[b"poison"] * 3, b"reject"])
    dead = {record.value: DeadLetterInfo.of(record) for record in await jobs.read(jobs.dead)}
    assert set(dead) == {b"poison", b"reject"}
    assert (dead[b"poison"].attempts, dead[b"poison"].origin_topic) == (3, jobs.topic)
    assert (dead[b"reject"].attempts, dead[b"reject"].origin_group) == (1, jobs.group)


async def test_what_cannot_be_deserialized_is_a_dead_letter_of_its_bytes(
    jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.fill(b"1", b"two", b"3")
    seen: list[Any] = []

    def handle(record: Any) -> None:  # In a thread.
        seen.append((record.value, record.delivery_count, record.lock_lost))
        if len(seen) == 2:
            consumer.stop()

    async with asyncio.timeout(TIMEOUT_S):
        async with jobs.consumer(value_deserializer=int) as consumer:
            await consumer.run(handle, concurrency=1, dead_letter=DeadLetter(jobs.dead))
            assert await consumer.lag() == {TopicPartition(jobs.topic, 0): 0}
        assert seen == [(1, 1, False), (3, 1, False)]
        assert [record.value for record in await jobs.read(jobs.dead)] == [b"two"]
    assert "offset 1 could not be deserialized, and the record is sent to the dead" in caplog.text


async def test_on_record_error_decides_as_it_does_for_the_consumer(jobs: Jobs) -> None:
    await jobs.fill(b"skip", b"reject", b"5", b"1")
    seen: list[Any] = []

    async def handle(record: Any) -> None:
        seen.append(record.value)
        if record.value == 1:
            consumer.stop()

    def decide(error: RecordError) -> Any:
        return SKIP if error.raw_value == b"skip" else REJECT

    async with asyncio.timeout(TIMEOUT_S):
        options = {"value_deserializer": int, "on_record_error": decide}
        async with jobs.consumer(**options) as consumer:
            await consumer.run(handle, concurrency=1)
            assert await consumer.lag() == {TopicPartition(jobs.topic, 0): 0}
    assert seen == [5, 1]


async def test_giving_up_without_dead_letters_ends_the_run_or_rejects(jobs: Jobs) -> None:
    await jobs.fill(b"reject", b"poison")

    async def handle(record: Any) -> None:
        if record.value == b"reject":
            raise Reject("not ours")
        if record.value == b"poison":
            raise LookupError("no such customer")
        consumer.stop()

    async with asyncio.timeout(TIMEOUT_S), jobs.consumer() as consumer:
        with pytest.raises(LookupError, match="no such customer") as caught:
            await consumer.run(handle, concurrency=1, retry=Retry(1))
        assert "offset 1 failed in run 1" in caught.value.__notes__[0]
        # The rejected one is done, and the other one comes again.
        assert await jobs.count_left() == 1
        await jobs.fill(b"last")
        await consumer.run(handle, concurrency=1, retry=Retry(1), on_giving_up="skip")
        assert await jobs.count_left() == 0


async def test_earlier_deliveries_count_as_runs(jobs: Jobs) -> None:
    await jobs.fill(b"poison")
    runs: list[int] = []

    async def handle(record: Any) -> None:
        runs.append(record.delivery_count)
        raise LookupError("no such customer")

    async with asyncio.timeout(TIMEOUT_S), jobs.consumer() as consumer:
        for count in (1, 2):
            (record,) = await consumer.poll(TIMEOUT_S, 1, tracked=True)
            assert record.delivery_count == count
            consumer.release(record)
            await consumer.commit()
        with pytest.raises(LookupError):
            await consumer.run(handle, retry=Retry(4, backoff=SOON))
    assert runs == [3, 3]


async def test_a_record_that_waits_for_a_retry_takes_no_concurrency(jobs: Jobs) -> None:
    await jobs.fill(b"waits", b"other")
    other_ran = False
    runs: list[bytes] = []

    async def handle(record: Any) -> None:
        nonlocal other_ran
        runs.append(record.value)
        if record.value == b"other":
            other_ran = True
            assert worker.health().retries_waiting == 1
            assert worker.health().ready
        elif other_ran:
            worker.stop()
        else:
            raise RetryLater(0.3)

    async with asyncio.timeout(TIMEOUT_S):
        worker = Worker(jobs.consumer(), handle, concurrency=1, retry=Retry(1000))
        await worker.run()
    assert runs[0] == b"waits"
    assert runs[-1] == b"waits"
    assert runs.count(b"other") == 1
    assert await jobs.count_left() == 0


async def test_a_stop_releases_what_is_not_done_by_then(jobs: Jobs) -> None:
    await jobs.fill(b"slow", b"failed", b"done")
    running = asyncio.Event()
    ended: list[bytes] = []

    async def handle(record: Any) -> None:
        if record.value == b"failed":
            raise RetryLater(3600)
        if record.value == b"done":
            running.set()
            return
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(record.value)

    async with asyncio.timeout(TIMEOUT_S), jobs.consumer() as consumer:
        worker = Worker(consumer, handle, drain_timeout=0.2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(worker.run())
            await running.wait()
            await worker.drain()
        assert ended == [b"slow"]
        await consumer.drain(1)
        found: list[Any] = []
        while len(found) < 2:
            found += await consumer.poll(TIMEOUT_S)
        again = {record.value: record.delivery_count for record in found}
        assert again == {b"slow": 2, b"failed": 2}


async def test_a_cancelled_run_releases_its_records_and_raises_the_cancellation(jobs: Jobs) -> None:
    await jobs.fill(b"slow")
    running = asyncio.Event()

    async def handle(record: Any) -> None:
        running.set()
        await asyncio.sleep(3600)

    async with asyncio.timeout(TIMEOUT_S), jobs.consumer() as consumer:
        task = asyncio.create_task(consumer.run(handle))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (record,) = await consumer.poll(TIMEOUT_S)
        assert record.delivery_count == 2


async def test_a_record_is_done_when_what_its_handler_sent_is_acknowledged(jobs: Jobs) -> None:
    await jobs.fill(*[b"%d" % number for number in range(20)])
    left = 20

    async def handle(record: Any, worker: Worker) -> None:
        nonlocal left
        worker.send(jobs.dead, record.value)
        left -= 1
        if not left:
            worker.stop()

    async with asyncio.timeout(TIMEOUT_S):
        await Worker(jobs.consumer(), handle).run()
        sent = sorted(int(record.value) for record in await jobs.read(jobs.dead))
        assert sent == list(range(20))
        assert await jobs.count_left() == 0


async def test_a_send_that_fails_leaves_its_record_to_be_retried(jobs: Jobs) -> None:
    await jobs.fill(b"large")
    runs = 0

    async def handle(record: Any, worker: Worker) -> None:
        nonlocal runs
        runs += 1
        worker.send(jobs.dead, b"x" * (2_000_000 if runs == 1 else 1))
        if runs == 2:
            worker.stop()

    async with asyncio.timeout(TIMEOUT_S):
        await Worker(jobs.consumer(), handle, retry=Retry(2, backoff=SOON)).run()
    assert [record.value for record in await jobs.read(jobs.dead)] == [b"x"]


async def test_a_record_that_the_handler_has_settled_is_left_alone(jobs: Jobs) -> None:
    await jobs.fill(b"done", b"failed", b"last")

    async def handle(record: Any) -> None:
        if record.value == b"last":
            consumer.stop()
            return
        consumer.done(record)
        if record.value == b"failed":
            raise LookupError("after the settlement")

    async with asyncio.timeout(TIMEOUT_S), jobs.consumer() as consumer:
        await consumer.run(handle, concurrency=1)
        assert await jobs.count_left() == 0


async def test_a_handler_whose_lock_is_lost_is_cancelled_and_the_run_goes_on(jobs: Jobs) -> None:
    await jobs.fill(b"first", b"second")
    deliveries: list[int] = []
    losses: list[Any] = []
    cancelled = 0

    async def handle(record: Any) -> None:
        nonlocal cancelled
        deliveries.append(record.delivery_count)
        if record.value == b"first" and record.delivery_count == 1:
            consumer._engine.settlements.lose_run(*lost_run(record))  # type: ignore[union-attr]
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled += 1
                # The lock at the broker, of which a lost leader would have taken it.
                worker.stop()
                raise

    async with asyncio.timeout(TIMEOUT_S):
        async with jobs.consumer(on_acknowledge_error=losses.append) as consumer:
            worker = Worker(consumer, handle)
            await worker.run()
    assert cancelled == 1
    assert [type(error) for error in losses] == [LockLostError]


def lost_run(record: Any) -> tuple[Any, ...]:
    """Return the arguments by which the lock of a record is lost, as if its leader had moved."""
    acquisition = record._acquisition
    index = record.offset - acquisition.first
    return LockedRun(acquisition, index, index + 1), "moved", False, None


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"order": "key"}, ValueError, "order must be None"),
        ({"order": "partition"}, ValueError, "order must be None"),
        ({"batch": Batch()}, ValueError, "batch is for a Consumer"),
        ({"retry": Retry(topic="later")}, ValueError, "topic=.* is for a Consumer"),
        ({"timeout": 600, "retry": Retry(2)}, ConfigError, "max_processing_ms"),
    ],
)
async def test_what_a_share_group_does_not_have_is_refused(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    consumer = ShareConsumer("jobs", group_id="g", bootstrap_servers="localhost:1")
    with pytest.raises(error, match=text):
        Worker(consumer, print, **options)


async def test_transactions_are_refused_because_settlements_cannot_be_part_of_them() -> None:
    consumer = ShareConsumer("jobs", group_id="g", bootstrap_servers="localhost:1")
    producer = Producer(transactional_id="t", bootstrap_servers="localhost:1")
    with pytest.raises(ValueError, match="settlements cannot be part of a transaction"):
        Worker(consumer, print, producer=producer)

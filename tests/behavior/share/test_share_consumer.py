"""The share consumer, on the embedded cluster and on a real Kafka."""

import asyncio
import contextlib
import gc
import pickle
from typing import Any

import pytest
from share_queue import TIMEOUT_S, Queue, take

from aiokclient import REJECT, RELEASE, Producer, ShareConsumer, TopicPartition
from aiokclient.errors import (
    AcknowledgeErrors,
    ConcurrentReadError,
    ConfigError,
    IllegalStateError,
    LockLostError,
    RecordError,
    SchemaRegistryUnavailableError,
)


async def test_an_iteration_accepts_each_record_when_the_next_is_requested(queue: Queue) -> None:
    await queue.fill(30)
    async with queue.consumer() as consumer:
        values = []
        async for record in consumer:
            assert record.delivery_count == 1
            assert not record.lock_lost
            assert record.lock_deadline > asyncio.get_running_loop().time()
            values.append(record.value)
            if len(values) == 20:
                break
        assert values == [b"%d" % number for number in range(20)]
        await consumer.commit()
    # The record in work was released at the end, and those that were not delivered.
    async with queue.consumer() as consumer:
        records = await take(consumer, 11)
        assert [record.value for record in records] == [b"%d" % n for n in range(19, 30)]
        assert records[0].delivery_count == 2
        consumer.mark_processed()
        assert set((await consumer.commit()).values()) <= {None}
    assert await queue.lag() == 0


async def test_records_are_released_rejected_and_done_one_by_one(queue: Queue) -> None:
    await queue.fill(4)
    async with queue.consumer() as consumer:
        records = await take(consumer, 4, tracked=True)
        assert consumer.done(records[0])
        assert consumer.reject(records[1])
        assert consumer.release(records[2])
        assert consumer.done([records[3]])
        outcomes = await consumer.commit(records)
        assert outcomes == dict.fromkeys(records)
        with pytest.raises(IllegalStateError, match="settled already"):
            consumer.done(records[0])
        (again,) = await take(consumer, 1, tracked=True)
        assert (again.value, again.delivery_count) == (b"2", 2)
        assert consumer.done(again)
        assert await consumer.commit() == {again: None}
        assert await consumer.lag() == {TopicPartition(queue.topic, 0): 0}


async def test_handlers_settle_their_records_by_how_they_end(queue: Queue) -> None:
    await queue.fill(20)
    seen: dict[bytes, list[int]] = {}

    async def work(consumer: ShareConsumer[Any, Any], record: Any) -> None:
        async with consumer.processing(record):
            seen.setdefault(record.value, []).append(record.delivery_count)
            await asyncio.sleep(0)
            if record.value.endswith(b"3") and record.delivery_count == 1:
                raise RuntimeError("fails the first time")

    async with queue.consumer() as consumer:
        tasks: list[asyncio.Task[None]] = []
        async for record in consumer.tracked(max_outstanding=5):
            tasks.append(asyncio.create_task(work(consumer, record)))
            if len(tasks) == 22:
                break
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await consumer.drain(TIMEOUT_S)
    assert [type(each) for each in results].count(RuntimeError) == 2
    assert len(seen) == 20
    assert seen[b"3"] == seen[b"13"] == [1, 2]
    assert await queue.lag() == 0


async def test_the_record_in_work_of_a_loop_is_held(queue: Queue) -> None:
    """Though the loop has taken it without a call of anything that knows of it."""
    await queue.fill(4)
    async with queue.consumer() as consumer:
        seen = []
        async for record in consumer:
            seen.append((record.value, record.delivery_count))
            if len(seen) == 1:
                with contextlib.suppress(RuntimeError):
                    async with consumer.processing(record):
                        raise RuntimeError("fails the first time")
            elif len(seen) == 2:
                assert consumer.renew(record)
            elif len(seen) == 3:
                waiting = asyncio.create_task(consumer.lock_lost(record))
                await asyncio.sleep(0)
                assert not waiting.done()
                assert consumer.done(record)
                await waiting
            elif (b"0", 2) in seen and len(seen) == 5:
                break
        assert (b"0", 2) in seen
        consumer.mark_processed()
        assert set((await consumer.commit()).values()) <= {None}
    assert await queue.lag() == 0


async def test_locks_are_renewed_while_a_handler_works(queue: Queue) -> None:
    await queue.configure(record_lock_duration_ms="1500")
    await queue.fill(1)
    async with queue.consumer() as consumer, queue.consumer() as other:
        (record,) = await take(consumer, 1, tracked=True)
        begin = record.lock_deadline
        assert consumer.acquisition_lock_timeout_ms == 1500
        async with consumer.processing(record):
            assert await other.get(4.0) is None
            assert record.lock_deadline > begin + 1.5
        assert await consumer.commit() == {record: None}
    assert await queue.lag() == 0


async def test_a_handler_is_cancelled_when_its_lock_ends(queue: Queue) -> None:
    await queue.configure(record_lock_duration_ms="1500")
    await queue.fill(1)
    errors: asyncio.Queue[Any] = asyncio.Queue()
    tell = errors.put_nowait
    async with queue.consumer(renew_locks=False, on_acknowledge_error=tell) as consumer:
        record = await consumer.get(TIMEOUT_S)
        assert record is not None
        cancelled = []

        async def work() -> None:
            async with consumer.processing(record):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(record)
                    raise

        with pytest.raises(LockLostError) as caught:
            await work()
        assert (caught.value.reason, caught.value.record) == ("expired", record)
        assert cancelled == [record]
        assert record.lock_lost
        assert errors.empty()
        again = await consumer.get(TIMEOUT_S)
        assert again is not None
        assert (again.value, again.delivery_count) == (b"0", 2)
        async with consumer.processing(again, on_lost="return"):
            await asyncio.Event().wait()
        error = await errors.get()
        assert (error.reason, error.record.delivery_count) == ("expired", 2)


async def test_a_settlement_after_the_end_of_the_lock_is_told(queue: Queue) -> None:
    await queue.configure(record_lock_duration_ms="1500")
    await queue.fill(2)
    errors: list[Any] = []
    async with queue.consumer(renew_locks=False, on_acknowledge_error=errors.append) as consumer:
        records = await take(consumer, 2, tracked=True)
        await asyncio.wait_for(consumer.lock_lost(records[0]), TIMEOUT_S)
        assert not consumer.done(records[0])
        outcomes = await consumer.commit(records[0], return_exceptions=True)
        (error,) = outcomes.values()
        assert isinstance(error, LockLostError)
        assert (error.reason, error.confirmed) == ("expired", False)
        with pytest.raises(AcknowledgeErrors):
            await consumer.commit(records[0])


async def test_an_undecodable_record_is_told_once_and_released(queue: Queue) -> None:
    await queue.fill(3)

    def decode(data: bytes) -> int:
        if data == b"1":
            raise ValueError("no")
        return int(data)

    async with queue.consumer(value_deserializer=decode) as consumer:
        values: list[int] = []
        counts: list[int] = []
        while len(counts) < 2 or len(values) < 2:
            try:
                record = await consumer.get(TIMEOUT_S)
                assert record is not None
                values.append(record.value)
            except RecordError as error:
                counts.append(error.offset)
        assert values == [0, 2]
        assert counts == [1, 1]


async def test_a_hook_decides_about_undecodable_records(queue: Queue) -> None:
    await queue.fill(4)
    answers = {b"0": 7, b"1": REJECT, b"2": RELEASE}

    def decode(data: bytes) -> int:
        if data == b"3" or answers.get(data) == "again":
            return int(data)
        raise ValueError("no")

    def choose(error: RecordError) -> Any:
        answer = answers[error.raw_value or b""]
        if answer is RELEASE:
            answers[b"2"] = "again"
        return answer

    async with queue.consumer(value_deserializer=decode, on_record_error=choose) as consumer:
        records = await take(consumer, 3)
        assert sorted((r.value, r.delivery_count) for r in records) == [(2, 2), (3, 1), (7, 1)]
        consumer.mark_processed()
        await consumer.commit()
    assert await queue.lag() == 0


async def test_lists_of_locked_records_wait_for_more(queue: Queue) -> None:
    await queue.fill(10)
    async with queue.consumer() as consumer:
        batches = consumer.batches(max_records=25, max_wait=TIMEOUT_S)
        reading = asyncio.create_task(anext(batches))
        await queue.fill(15)
        records = await reading
        assert [record.delivery_count for record in records] == [1] * 25
        consumer.mark_processed()
        assert await consumer.commit(records) == dict.fromkeys(records)


async def test_a_cancelled_request_for_locked_records_loses_none(queue: Queue) -> None:
    async with queue.consumer() as consumer:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await consumer.get(TIMEOUT_S)
        reading = asyncio.create_task(consumer.get(TIMEOUT_S))
        await asyncio.sleep(0)
        with pytest.raises(ConcurrentReadError):
            await consumer.get(TIMEOUT_S)
        await queue.fill(1)
        record = await reading
        assert record is not None
        assert record.delivery_count == 1


async def test_stopped_iterations_end(queue: Queue) -> None:
    await queue.fill(3)
    async with queue.consumer() as consumer:
        seen = []
        async for record in consumer.tracked():
            seen.append(record)
            if len(seen) == 3:
                consumer.stop()
                for each in seen:
                    consumer.done(each)
        assert len(seen) == 3
        assert await consumer.poll(TIMEOUT_S) == []
        await consumer.drain(TIMEOUT_S)
    assert await queue.lag() == 0


async def test_a_record_has_its_lock_alone(queue: Queue) -> None:
    await queue.fill(1)
    async with queue.consumer() as consumer:
        record = await consumer.get(TIMEOUT_S)
        assert record is not None
        copy = pickle.loads(pickle.dumps(record))
        assert copy != record
        assert copy == pickle.loads(pickle.dumps(copy))
        assert (copy._fields(), copy.delivery_count) == (record._fields(), 1)
        assert copy.lock_lost
        assert copy.lock_deadline < 0
        with pytest.raises(IllegalStateError, match="no lock"):
            consumer.done(copy)
        with pytest.raises(TypeError):
            await consumer.commit({TopicPartition(queue.topic, 0): 1})  # type: ignore[arg-type]


def test_options_of_the_group_are_named() -> None:
    with pytest.raises(ConfigError, match=r"share\.auto\.offset\.reset"):
        ShareConsumer("orders", group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="group_id"):
        ShareConsumer("orders")


async def test_metrics_health_and_events_tell_of_locks(queue: Queue) -> None:
    await queue.configure(record_lock_duration_ms="1500")
    await queue.fill(2)
    async with queue.consumer(renew_locks=False) as consumer:
        events = consumer.events()
        records = await take(consumer, 2, tracked=True)
        assert consumer.done(records[0])
        await consumer.commit()
        seen: dict[str, Any] = {}
        async with asyncio.timeout(TIMEOUT_S):
            while "LockLost" not in seen:
                event = await anext(events)
                seen[type(event).__name__] = event
        assert seen["LockExpiring"].record == seen["LockLost"].record == records[1]
        assert seen["LockLost"].reason == "expired"
        assert any("locks are lost: 1" in reason for reason in consumer.health().reasons)
        (again,) = await take(consumer, 1, tracked=True)
        assert again.delivery_count == 2
        metrics = consumer.metrics()
    assert metrics["share.records"] == 3
    assert metrics["share.records.redelivered"] == 1
    assert metrics["share.acknowledgements{type=accept}"] == 1
    assert metrics["share.locks.lost{reason=expired}"] == 1


class Prepared:
    """A deserializer that needs a schema, which its registry has only at the third request."""

    def __init__(self) -> None:
        self.requests = 0

    def is_prepared(self, data: bytes | None, headers: Any) -> bool:
        return self.requests >= 3

    async def prepare(self, topic: str, items: Any) -> None:
        self.requests += 1
        if self.requests < 3:
            raise SchemaRegistryUnavailableError("The registry is away.")

    def deserialize(self, topic: str, data: bytes | None, headers: Any) -> int:
        assert self.requests >= 3
        return int(data or b"")


async def test_locks_are_kept_while_a_deserializer_is_prepared(queue: Queue) -> None:
    await queue.fill(20)
    async with queue.consumer(value_deserializer=Prepared()) as consumer:
        records = await take(consumer, 10)
        assert [record.value for record in records] == list(range(10))
        # What was not tracked before takes no place of what is tracked.
        async for record in consumer.tracked(max_outstanding=1):
            assert (record.value, record.delivery_count) == (len(records), 1)
            records.append(record)
            assert consumer.done(record)
            if len(records) == 20:
                break
        await consumer.drain(TIMEOUT_S)
    assert await queue.lag() == 0


async def test_large_batches_of_locked_records_are_decoded_apart(queue: Queue) -> None:
    options = {"compression_type": "gzip", "batch_size": 1 << 20, "linger_ms": 1000}
    async with Producer(**queue.options, **options) as producer:
        values = [bytes([number % 251]) * 20_000 for number in range(400)]
        await producer.gather([producer.send(queue.topic, each, partition=0) for each in values])
    async with queue.consumer() as consumer:
        records = await take(consumer, 400)
        assert [record.value for record in records] == values
        assert {record.delivery_count for record in records} == {1}


async def test_a_commit_waits_for_records_that_the_program_has_dropped(queue: Queue) -> None:
    await queue.fill(3)
    async with queue.consumer() as consumer:
        records = await take(consumer, 3, tracked=True)
        assert consumer.done(records)
        offsets = {record.offset for record in records}
        records.clear()
        gc.collect()
        outcomes = await consumer.commit()
        assert {record.offset for record in outcomes} == offsets
        assert await queue.lag() == 0


async def test_a_tracked_record_that_the_program_drops_comes_again(queue: Queue) -> None:
    await queue.fill(3)
    async with queue.consumer() as consumer:
        records = consumer.tracked(max_outstanding=3)
        held = [await anext(records), await anext(records)]
        dropped = (await anext(records)).offset
        gc.collect()
        assert consumer.done(held)
        async with asyncio.timeout(TIMEOUT_S):
            again = await anext(records)
        assert (again.offset, again.delivery_count) == (dropped, 2)
        assert consumer.done(again)

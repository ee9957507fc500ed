"""Workers in virtual time: order, retries, timeouts, stops, and the commit of what is done."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, ConsumerRecord, TopicPartition
from aiokclient.errors import (
    ConfigError,
    HandlerStuckError,
    IllegalStateError,
    TopicAuthorizationError,
)
from aiokclient.protocol import ApiKey
from aiokclient.worker import (
    Batch,
    BatchError,
    Exponential,
    Reject,
    Retry,
    RetryLater,
    Worker,
)
from aiokclient.worker.calls import current_run
from aiokclient.worker.lanes import Run
from aiokclient.worker.run import WorkerRun
from aiokclient.worker.transactions import TransactionalRun

Record = ConsumerRecord[bytes, bytes]
QUICK = Exponential(1.0, max=1.0, jitter=0.0)
T0 = TopicPartition("t", 0)


async def fill(world: World, count: int, partitions: int = 1, keys: int = 0) -> None:
    async with world.producer() as producer:
        for number in range(count):
            producer.send(
                "t",
                str(number).encode(),
                key=b"k%d" % (number % keys) if keys else None,
                partition=number % partitions,
            )


def consumer(world: World, **more: Any) -> Any:
    more = {"group_id": "g", "auto_commit_interval_ms": 1000, **more}
    return world.consumer("t", checked=False, **more)


async def committed(world: World, partitions: int = 1) -> list[int | None]:
    tps = [TopicPartition("t", index) for index in range(partitions)]
    async with world.consumer(group_id="g", checked=False) as reader:
        found = await reader.committed(tps)
    return [None if found[tp] is None else found[tp].offset for tp in tps]


async def until(worker: Worker, condition: Any) -> None:
    """Run a worker until a condition holds, and stop it."""
    running = asyncio.create_task(worker.run())
    for _ in range(20_000):
        if condition() or running.done():
            break
        await asyncio.sleep(0.05)
    worker.stop()
    await running


@pytest.mark.parametrize("order", ["partition", "key", None])
def test_a_worker_handles_each_record_once_and_commits_the_end(order: Any) -> None:
    async def scenario(world: World) -> None:
        await fill(world, 300, partitions=3, keys=10)
        seen: list[tuple[int, bytes, int]] = []

        async def handle(record: Record) -> None:
            await asyncio.sleep(world.sim.clock.rng.uniform(0, 0.05))
            seen.append((record.partition, record.key or b"", record.offset))

        async with consumer(world) as reader:
            worker = Worker(reader, handle, order=order, concurrency=10)
            await until(worker, lambda: len(seen) == 300)
        assert len(set(seen)) == 300
        if order == "partition":
            for partition in range(3):
                offsets = [offset for p, _, offset in seen if p == partition]
                assert offsets == sorted(offsets)
        if order == "key":
            for lane in {(p, key) for p, key, _ in seen}:
                offsets = [offset for p, key, offset in seen if (p, key) == lane]
                assert offsets == sorted(offsets)
        assert await committed(world, 3) == [100, 100, 100]

    simulate(scenario, topics={"t": 3})


@pytest.mark.parametrize("order", ["partition", "key", None])
def test_a_failed_record_is_retried_in_place_and_holds_back_only_its_lane(order: Any) -> None:
    async def scenario(world: World) -> None:
        await fill(world, 6, keys=2)
        seen: list[tuple[int, float]] = []

        async def handle(record: Record) -> None:
            seen.append((record.offset, world.now))
            if record.offset == 0 and len([1 for offset, _ in seen if offset == 0]) < 3:
                raise ValueError("not yet")

        async with consumer(world) as reader:
            worker = Worker(reader, handle, order=order, retry=Retry(3, QUICK), concurrency=4)
            await until(worker, lambda: len(seen) == 8)
        first = min(at for offset, at in seen if offset == 0)
        done = {offset: at - first for offset, at in seen}
        assert done[0] == pytest.approx(2.0, abs=0.1)
        held = {"partition": {1, 2, 3, 4, 5}, "key": {2, 4}, None: set()}[order]
        assert {offset for offset, at in done.items() if at > 1.9 and offset} == held
        assert await committed(world) == [6]

    simulate(scenario)


def test_giving_up_ends_the_run_with_the_error_of_the_handler() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 5)
        seen: list[int] = []

        async def handle(record: Record) -> None:
            seen.append(record.offset)
            if record.offset == 2:
                raise ValueError("poison")

        async with consumer(world) as reader:
            worker = Worker(reader, handle, retry=Retry(2, QUICK))
            with pytest.raises(ValueError, match="poison") as raised:
                await worker.run()
            assert raised.value.__notes__ == ["The handler of t-0 offset 2 failed in run 2."]
            assert not worker.health().live
            assert seen == [0, 1, 2, 2]
            assert await committed(world) == [2]
            # The same consumer delivers the record again.
            record = await reader.get(timeout=10)
            assert record is not None
            assert record.offset == 2

    simulate(scenario)


def test_giving_up_skips_a_record_when_that_was_asked_for() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 5)
        seen: list[int] = []

        async def handle(record: Record) -> None:
            seen.append(record.offset)
            if record.offset == 2:
                raise Reject("too old")

        async with consumer(world) as reader:
            worker = Worker(reader, handle, on_giving_up="skip")
            await until(worker, lambda: len(seen) == 5)
        assert seen == [0, 1, 2, 3, 4]
        assert await committed(world) == [5]

    simulate(scenario)


def test_retry_later_counts_as_a_run() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 1)
        seen: list[float] = []

        async def handle(record: Record) -> None:
            seen.append(world.now)
            raise RetryLater(7)

        async with consumer(world) as reader:
            with pytest.raises(RetryLater):
                await reader.run(handle, retry=Retry(3))
        assert [round(at - seen[0]) for at in seen] == [0, 7, 14]

    simulate(scenario)


def test_an_outage_is_retried_without_limit_and_its_partition_is_paused() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 2, partitions=2)
        seen: list[tuple[int, float]] = []

        async def handle(record: Record) -> None:
            seen.append((record.partition, world.now))
            if record.partition == 0 and world.now < 100:
                raise ConnectionError("the database is away")

        async with consumer(world, max_poll_interval_ms=20_000) as reader:
            retry = Retry(2, QUICK, always=ConnectionError)
            worker = Worker(reader, handle, retry=retry)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(5)
            assert not worker.health().ready
            assert "the database is away" in worker.health().reasons[0]
            assert reader.paused() == set()
            await asyncio.sleep(25)
            assert reader.paused() == {T0}
            assert reader.assignment() == {T0, TopicPartition("t", 1)}
            await asyncio.sleep(80)
            assert worker.health().ready, worker.health()
            assert reader.paused() == set()
            await worker.drain()
            await running
        assert len([1 for partition, _ in seen if partition == 0]) > 50
        assert await committed(world, 2) == [1, 1]

    simulate(scenario, topics={"t": 2})


def test_an_outage_of_many_records_is_one_reason_for_each_partition() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 600, partitions=2)
        handled: set[tuple[int, int]] = set()

        async def handle(record: Record) -> None:
            if world.now < 60:
                raise ConnectionError("the database is away")
            handled.add((record.partition, record.offset))

        async with consumer(world, max_poll_interval_ms=20_000) as reader:
            retry = Retry(2, QUICK, always=ConnectionError)
            worker = Worker(reader, handle, order=None, retry=retry)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(40)
            health = worker.health()
            assert health.retries_waiting == 600
            assert len(health.reasons) == 2
            assert "t-0 offset 0 has failed for" in health.reasons[0]
            assert "as 299 others of t-0 do" in health.reasons[0]
            assert len(reader.paused()) == 2
            await asyncio.sleep(60)
            assert worker.health().ready, worker.health()
            assert reader.paused() == set()
            await worker.drain()
            await running
        assert len(handled) == 600
        assert await committed(world, 2) == [300, 300]

    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(61)
def test_a_timeout_is_a_failure_and_a_handler_that_ignores_it_is_named() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 2, partitions=2)
        ended = asyncio.Event()
        calls: list[int] = []

        async def handle(record: Record) -> None:
            calls.append(record.partition)
            while record.partition == 0 and not ended.is_set():
                try:
                    await ended.wait()
                except asyncio.CancelledError:
                    continue
            if record.partition == 1:
                await asyncio.sleep(60)

        async with consumer(world) as reader:
            worker = Worker(reader, handle, timeout=2, retry=Retry(2, QUICK), on_giving_up="skip")
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(20)
            assert sorted(calls) == [0, 1, 1]
            health = worker.health()
            assert "goes on although it was cancelled" in health.reasons[0]
            assert health.oldest is not None
            assert "ended.wait()" in health.oldest.stack
            began = world.now
            worker.stop()
            with pytest.raises(HandlerStuckError, match="t-0 offset 0"):
                await running
            assert world.now - began <= 20.5
        ended.set()
        assert await committed(world, 2) == [0, 1]

    simulate(scenario, topics={"t": 2})


@pytest.mark.fault(61)
def test_a_stop_waits_for_handlers_and_cancels_those_that_are_late() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 4, partitions=2)
        ended: list[int] = []

        async def handle(record: Record) -> None:
            try:
                await asyncio.sleep(3 if record.partition else 100)
            finally:
                ended.append(record.partition)

        async with consumer(world) as reader:
            worker = Worker(reader, handle, drain_timeout=10)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(1)
            began = world.now
            worker.stop()
            await running
            assert 8.9 < world.now - began <= 10.1
            assert sorted(ended) == [0, 1]
        assert await committed(world, 2) == [0, 1]

    simulate(scenario, topics={"t": 2})


def test_cancelling_a_run_commits_what_is_done_and_leaves_no_task() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 4)

        async def handle(record: Record) -> None:
            if record.offset == 2:
                await asyncio.sleep(100)

        async with consumer(world, enable_auto_commit=False) as reader:
            running = asyncio.create_task(Worker(reader, handle).run())
            await asyncio.sleep(1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert await committed(world) == [2]

    simulate(scenario)


def test_a_batch_gets_a_list_of_one_lane_and_names_what_failed() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 7)
        lists: list[list[int]] = []

        async def handle(records: list[Record]) -> None:
            lists.append([record.offset for record in records])
            poison = [record for record in records if record.offset in (1, 3)]
            if poison and len(lists) < 3:
                raise BatchError({record: ValueError(str(record.offset)) for record in poison})

        async with consumer(world) as reader:
            worker = Worker(reader, handle, batch=Batch(5, max_wait=0.5), retry=Retry(3, QUICK))
            await until(worker, lambda: sum(map(len, lists)) == 11)
        assert lists == [[0, 1, 2, 3, 4], [1, 3], [1, 3], [5, 6]]
        assert await committed(world) == [7]

    simulate(scenario)


def test_a_record_is_done_when_what_its_handler_has_sent_is_acknowledged() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 3)

        async def handle(record: Record, worker: Worker) -> None:
            worker.send("out", record.value, key=b"k")

        async with consumer(world) as reader:
            worker = Worker(reader, handle)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(3)
            await worker.drain()
            await running
            with pytest.raises(IllegalStateError, match="for handlers"):
                worker.send("out", b"v")
        assert [record.value for record in world.cluster.records("out")] == [b"0", b"1", b"2"]
        assert await committed(world) == [3]

    simulate(scenario, topics={"t": 1, "out": 1})


def test_a_handler_that_knows_its_worker_sends_in_order_without_a_producer() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 2)

        async def handle(record: Record) -> None:
            for number in range(3):
                worker.send("out", b"%d" % (record.offset * 10 + number))

        async with consumer(world) as reader:
            assert reader._client is None
            worker = Worker(reader, handle)
            running = asyncio.create_task(worker.run())
            await asyncio.sleep(3)
            await worker.drain()
            await running
        sent = [int(record.value) for record in world.cluster.records("out")]
        assert sent == [0, 1, 2, 10, 11, 12]
        assert await committed(world) == [2]

    simulate(scenario, topics={"t": 1, "out": 1})


def test_a_revoked_partition_waits_for_the_handler_and_its_next_owner_continues() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 60, partitions=2)
        seen: list[tuple[str, int, int]] = []

        async def handle(name: str, record: Record) -> None:
            await asyncio.sleep(0.5)
            seen.append((name, record.partition, record.offset))

        async def work(name: str, stop: asyncio.Event) -> None:
            async with consumer(world, heartbeat_interval_ms=500) as reader:

                async def call(record: Record) -> None:
                    await handle(name, record)

                worker = Worker(reader, call, name=name)
                running = asyncio.create_task(worker.run())
                await stop.wait()
                await worker.drain()
                await running

        first, second = asyncio.Event(), asyncio.Event()
        tasks = [asyncio.create_task(work("a", first))]
        await asyncio.sleep(4)
        tasks.append(asyncio.create_task(work("b", second)))
        await asyncio.sleep(6)
        first.set()
        await asyncio.sleep(40)
        second.set()
        await asyncio.gather(*tasks)
        for partition in range(2):
            offsets = [offset for _, p, offset in seen if p == partition]
            assert offsets == list(range(30)), "each once, in order"
        assert {name for name, _, _ in seen} == {"a", "b"}

    simulate(scenario, topics={"t": 2})


def test_a_backoff_beyond_the_poll_interval_is_refused() -> None:
    async def scenario(world: World) -> None:
        async def handle(record: Record) -> None: ...

        reader = consumer(world, max_poll_interval_ms=20_000)
        with pytest.raises(ConfigError, match="topic="):
            Worker(reader, handle)

    simulate(scenario)


def test_a_record_that_is_given_up_is_done_when_its_dead_letter_is_written() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 6, keys=2)
        seen: list[int] = []

        async def handle(record: Record) -> None:
            seen.append(record.offset)
            if record.offset in (1, 4):
                raise ValueError(f"poison {record.offset}")

        async with consumer(world) as reader:
            worker = Worker(reader, handle, dead_letter="dead", retry=Retry(2, QUICK), order="key")
            await until(worker, lambda: len(world.cluster.records("dead")) == 2 and len(seen) == 8)
        assert sorted(seen) == [0, 1, 1, 2, 3, 4, 4, 5]
        assert {record.value for record in world.cluster.records("dead")} == {b"1", b"4"}
        assert await committed(world) == [6]

    simulate(scenario, topics={"t": 1, "dead": 1})


@pytest.mark.fault(62)
def test_a_dead_letter_that_cannot_be_written_makes_a_worker_unready_and_then_ends_it() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 2)

        async def handle(record: Record) -> None:
            raise ValueError("poison")

        producer = world.producer(delivery_timeout_ms=60_000, max_block_ms=5000)
        refused = world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1000)
        async with consumer(world) as reader, producer:
            worker = Worker(reader, handle, dead_letter="dead", retry=Retry(1), producer=producer)
            with refused:
                running = asyncio.create_task(worker.run())
                await asyncio.sleep(20)
                assert not worker.health().ready
                assert "dead" in worker.health().reasons[0]
                with pytest.raises(TopicAuthorizationError):
                    await running
        assert await committed(world) == [0]

    simulate(scenario, topics={"t": 1, "dead": 1})


def test_several_workers_share_a_client_and_stop_on_their_own() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 4, partitions=2)
        seen: dict[str, list[int]] = {"g": [], "h": []}

        async with world.client() as client:
            workers = []
            for group in seen:

                async def handle(record: Record, worker: Worker) -> None:
                    seen[worker.name].append(record.offset)

                reader: Any = Consumer(
                    "t", client=client, group_id=group, auto_offset_reset="earliest"
                )
                workers.append(Worker(reader, handle))
            running = [asyncio.create_task(worker.run()) for worker in workers]
            await asyncio.sleep(10)
            assert all(worker.health().ready for worker in workers)
            await workers[0].drain()
            assert running[0].done()
            assert workers[1].health().ready
            workers[1].stop()
            await asyncio.gather(*running)
        assert {group: len(offsets) for group, offsets in seen.items()} == {"g": 4, "h": 4}

    simulate(scenario, topics={"t": 2})


def test_fewer_partitions_than_handlers_are_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        await fill(world, 4, partitions=2)
        seen: list[int] = []

        async def handle(record: Record) -> None:
            seen.append(record.offset)

        async with consumer(world) as reader:
            with caplog.at_level("INFO", logger="aiokclient.worker"):
                await until(Worker(reader, handle, concurrency=5), lambda: len(seen) == 4)
        lines = [r for r in caplog.records if getattr(r, "event", "") == "worker_few_lanes"]
        assert [record.levelname for record in lines] == ["INFO"]
        assert "2 partitions are assigned" in lines[0].getMessage()

    simulate(scenario, topics={"t": 2})


def test_a_slow_partition_does_not_delay_the_others_of_its_broker() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 2000, partitions=2)
        seen: list[tuple[int, float]] = []

        async def handle(record: Record) -> None:
            if record.partition == 0:
                await asyncio.sleep(5)
            seen.append((record.partition, world.now))

        async with consumer(world, fetch_max_bytes=2000, max_partition_fetch_bytes=1000) as reader:
            worker = Worker(reader, handle, drain_timeout=10)
            began = world.now
            await until(worker, lambda: sum(1 for p, _ in seen if p == 1) == 1000)
        assert max(at for partition, at in seen if partition == 1) - began < 60

    simulate(scenario, topics={"t": 2})


@pytest.mark.parametrize("batch", [None, Batch(10, max_wait=0.05)], ids=["records", "lists"])
@pytest.mark.parametrize("order", ["partition", "key", None])
def test_a_worker_keeps_nothing_of_the_records_that_are_done(
    order: Any, batch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("ERROR", "aiokclient.worker")  # Otherwise, what is logged is kept.
    count = 600

    async def scenario(world: World) -> None:
        runs: list[weakref.ref[Run]] = []
        done: set[bytes] = set()

        async def handle(given: Any) -> None:
            entry = current_run.get()
            assert entry is not None
            runs.append(weakref.ref(entry[1]))
            await asyncio.sleep(0)
            failed = {}
            for record in [given] if batch is None else given:
                number = int(record.value)
                if number % 97 == 1 or (number % 50 == 0 and record.value not in done):
                    failed[record] = ValueError(f"{number} fails")
                done.add(record.value)
            if failed:
                raise BatchError(failed) if batch is not None else next(iter(failed.values()))

        values = [(b"%d" % number, b"%d" % number) for number in range(count)]
        world.cluster.produce("t", values)
        async with consumer(world) as reader:
            retry = Retry(2, Exponential(0.1, max=0.1))
            worker = Worker(
                reader, handle, order=order, retry=retry, dead_letter="dead", batch=batch
            )
            running = asyncio.create_task(worker.run())
            stored = None
            while stored is None or stored.offset < count:
                await asyncio.sleep(0.5)
                stored = world.cluster.committed("g").get(T0)
            gc.collect()
            # The loop keeps cancelled timers of some writes of dead letters, with their contexts.
            assert sum(run() is not None for run in runs) < count / 10
            assert len(runs) > count / 10
            worker.stop()
            await running

    simulate(scenario, topics={"t": 1, "dead": 1})


@pytest.mark.parametrize("is_transactional", [False, True])
@pytest.mark.parametrize("order", ["partition", "key", None])
def test_a_worker_uses_one_slice_of_an_iteration_whatever_the_number_of_records(
    order: Any, is_transactional: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = TransactionalRun if is_transactional else WorkerRun
    for module in ("run", "transactions"):  # Each call of the handler takes a slice.
        monkeypatch.setattr(f"aiokclient.worker.{module}.SLICE_S", 0.0)
    iterations = [0]
    dispatch = kind._dispatch_runs

    def count_dispatch(run: Any) -> None:
        if not iterations[-1]:
            asyncio.get_running_loop().call_soon(iterations.append, 0)
        iterations[-1] += 1
        dispatch(run)

    monkeypatch.setattr(kind, "_dispatch_runs", count_dispatch)

    async def scenario(world: World) -> None:
        handled = 0

        async def handle(record: Record) -> None:
            nonlocal handled
            handled += 1
            if handled % 3 == 0:
                await asyncio.sleep(0)

        for partition in range(3):
            world.cluster.produce("t", [(b"%d" % n, b"x") for n in range(100)], partition)
        async with consumer(world, enable_auto_commit=not is_transactional) as reader:
            options: dict[str, Any] = {"order": order}
            if is_transactional:
                options["producer"] = world.producer(transactional_id="w")
            await until(Worker(reader, handle, **options), lambda: handled == 300)
            if is_transactional:
                await options["producer"].close()
        assert max(iterations) <= 3

    simulate(scenario, topics={"t": 3})

"""The current span ends with the body of a loop, in whatever way the body is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from traces import Traces, current

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import ClosedError
from aiokclient.testing import EmbeddedCluster

KNOWS_ERRORS = sys.version_info >= (3, 12)
FORMS = ["consumer", "until_end", "batches", "tracked"]


@pytest.fixture(params=["plain", "eager"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    if request.param == "eager":
        if not hasattr(asyncio, "eager_task_factory"):
            pytest.skip("Python 3.11 has no eager tasks")
        loop = asyncio.get_running_loop()
        if type(loop).__module__.startswith("uvloop"):
            pytest.skip("uvloop cannot use asyncio.eager_task_factory of every Python")
        loop.set_task_factory(asyncio.eager_task_factory)
    async with EmbeddedCluster(topics={"orders": 1}) as running:
        running.produce("orders", [b"0", b"1", b"2"])
        yield running


def reading(cluster: EmbeddedCluster, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **options,
    )


def iterate(consumer: Consumer[Any, Any], form: str) -> Any:
    if form == "batches":
        return consumer.batches(max_records=1)
    return consumer if form == "consumer" else getattr(consumer, form)()


def check(span: ReadableSpan, error: str | None) -> None:
    if error is None:
        assert span.status.status_code is StatusCode.UNSET
        assert "error.type" not in dict(span.attributes or {})
    else:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == (error if KNOWS_ERRORS else "_OTHER")


def processed(traces: Traces) -> list[ReadableSpan]:
    return traces.named("process orders")


@pytest.mark.parametrize("form", FORMS)
async def test_exception_in_the_body_is_recorded(
    cluster: EmbeddedCluster, traces: Traces, form: str
) -> None:
    async def handle() -> None:
        await asyncio.sleep(0)
        raise LookupError("wrong")

    async with reading(cluster) as consumer:
        with traces.of(consumer), traces.tracer.start_as_current_span("job"):
            job = current()
            with suppress(LookupError):
                async for _ in iterate(consumer, form):
                    await handle()
            assert current() == job
            assert (processed(traces) == []) is (form == "tracked")
    check(processed(traces)[0], "LookupError")


@pytest.mark.parametrize("form", FORMS)
async def test_break_ends_the_span(cluster: EmbeddedCluster, traces: Traces, form: str) -> None:
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            iterator = iterate(consumer, form)  # Keep the iterator alive after the loop.
            async for _ in iterator:
                inside = current()
                break
            assert inside != 0
            assert current() == 0
            assert (processed(traces) == []) is (form == "tracked")
            async for _ in iterator:
                break
            assert current() == 0
    first, second = processed(traces)
    assert first.context.span_id == inside
    check(first, None)
    check(second, None)


async def test_return_ends_the_span(cluster: EmbeddedCluster, traces: Traces) -> None:
    async def first(consumer: Consumer[Any, Any]) -> Any:
        async for record in consumer:
            return record.value
        return None

    async with reading(cluster) as consumer:
        with traces.of(consumer):
            assert await first(consumer) == b"0"
            assert current() == 0
            with suppress(LookupError):
                async for _ in consumer:
                    raise LookupError
            assert current() == 0
    spans = processed(traces)
    check(spans[0], None)
    check(spans[1], "LookupError")


async def test_exceptions_that_are_caught_in_the_body_are_no_failures(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            async for record in consumer.until_end():
                with suppress(LookupError):
                    raise LookupError
                if record.offset == 1:
                    break
    for span in processed(traces):
        check(span, None)


@pytest.mark.parametrize("form", FORMS)
async def test_cancellation_ends_the_span(
    cluster: EmbeddedCluster, traces: Traces, form: str
) -> None:
    inside = asyncio.Event()
    after: list[int] = []

    async def work(consumer: Consumer[Any, Any]) -> None:
        try:
            async for _ in iterate(consumer, form):
                inside.set()
                await asyncio.Event().wait()
        finally:
            after.append(current())

    async with reading(cluster) as consumer:
        with traces.of(consumer):
            task = asyncio.create_task(work(consumer))
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert after == [0]
    check(processed(traces)[0], None)


async def test_cancelled_request_leaves_no_span(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            with suppress(TimeoutError):
                async with asyncio.timeout(60) as limit:
                    async for record in consumer:
                        if record.value == b"2":  # The request for the next one is cancelled.
                            limit.reschedule(asyncio.get_running_loop().time() + 0.1)
            assert current() == 0
            cluster.produce("orders", [b"3"])
            async for record in consumer:
                assert record.value == b"3"
                break
    assert len(processed(traces)) == 4


async def test_rebalance_and_close_in_the_body_end_nothing_early(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    options = {"group_id": "g", "heartbeat_interval_ms": 100}
    generations: list[int] = []
    consumer = reading(cluster, **options)
    async with consumer:
        with traces.of(consumer):
            with suppress(ClosedError):
                async for _ in consumer:
                    inside = current()
                    generations.append(consumer.group_metadata().generation_id)
                    if len(generations) == 1:
                        cluster.rebalance("g")
                    elif generations[-1] > generations[0]:
                        await consumer.close()
                    assert current() == inside
                    cluster.produce("orders", [b"more"])
                    await asyncio.sleep(0.01)
                    assert current() == inside
            assert current() == 0
    assert processed(traces)[-1].context.span_id == inside
    assert len(processed(traces)) == len(generations)


async def test_record_that_is_delivered_again_has_another_span(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            seen = 0
            async for record in consumer.tracked():
                seen += 1
                if seen == 2:
                    consumer.done(record)
                    break
                consumer.seek(TopicPartition("orders", 0), 0)
            assert len(processed(traces)) == 2
            async for _ in consumer.tracked():
                break
            assert len(processed(traces)) == 2
            consumer.mark_processed()
            assert len(processed(traces)) == 3


async def take(iterator: AsyncIterator[Any]) -> tuple[int, int]:
    record = await anext(iterator)
    return record.offset, current()


async def test_tasks_that_read_in_turn_have_contexts_of_their_own(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            iterator = aiter(consumer)
            first = await asyncio.create_task(take(iterator))
            second = await asyncio.create_task(take(iterator))
            assert (first[0], second[0]) == (0, 1)
            assert 0 not in (first[1], second[1])
            assert current() == 0
            del iterator
    assert len(processed(traces)) == 2


async def test_iterators_that_are_read_in_turn_leave_no_context(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with reading(cluster) as left, reading(cluster) as right:
        with traces.of(left), traces.of(right), traces.tracer.start_as_current_span("job"):
            job = current()
            one, two = aiter(left), aiter(right)
            for _ in range(3):
                await anext(one)
                await anext(two)
            del one
            assert current() not in (0, job)
            del two
            assert current() == job
    assert len(processed(traces)) == 6


async def test_tasks_of_a_body_keep_its_context_after_loops_of_their_own(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    went_on = asyncio.Event()

    async def handle(consumer: Consumer[Any, Any]) -> tuple[int, int]:
        before = current()
        await went_on.wait()
        async for _ in consumer:
            assert current() != before
            break
        return before, current()

    async with reading(cluster) as outer, reading(cluster) as inner:
        with traces.of(outer), traces.of(inner):
            async for record in outer:
                if record.offset == 0:
                    task = asyncio.create_task(handle(inner))
                else:
                    break
            went_on.set()
            before, after = await task
            assert before == after != 0


async def test_generator_around_a_loop_ends_the_span_when_it_is_closed(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async def values(consumer: Consumer[Any, Any]) -> AsyncIterator[bytes]:
        async for record in consumer:
            yield record.value

    async with reading(cluster) as consumer:
        with traces.of(consumer):
            async with contextlib.aclosing(values(consumer)) as stream:  # type: ignore[type-var]
                async for value in stream:
                    assert current() != 0
                    if value == b"1":
                        break
            assert current() == 0
    for span in processed(traces):
        check(span, None)
    assert len(processed(traces)) == 2


async def test_instrumented_objects_can_be_dropped(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    consumer = reading(cluster)
    handles = [traces.of(producer), traces.of(consumer)]
    async with producer, consumer:
        await producer.send("orders", b"x")
        async for _ in consumer:
            break
        assert traces.values()
    found: list[Any] = [weakref.ref(producer), weakref.ref(consumer)]
    del producer, consumer
    gc.collect()
    assert [one() for one in found] == [None, None]
    for handle in handles:
        handle.uninstrument()

"""Deliveries: any task may await them, any number of times, and no task can cancel them."""

import asyncio
import contextvars
import gc
import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from aiokclient import Producer, ProducerRecord, RecordMetadata
from aiokclient.errors import (
    ClusterAuthorizationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer.delivery.delivery import DeliveryBatch
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]


def reachable_from(root: object) -> list[object]:
    """Return what an object keeps in memory, except classes and what they refer to."""
    found: dict[int, object] = {}
    to_visit = [root]
    while to_visit:
        item = to_visit.pop()
        if not isinstance(item, type) and id(item) not in found:
            found[id(item)] = item
            to_visit += gc.get_referents(item)
    return list(found.values())


async def ends(producer: Producer[Any, Any], delivery: Any) -> None:
    """Wait until the delivery is done, without awaiting it."""
    await producer.flush()
    assert delivery.done()


class TestAwaiting:
    async def test_a_delivery_can_be_awaited_any_number_of_times(
        self, make: Make, topic: str
    ) -> None:
        async with make() as producer:
            delivery = producer.send(topic, b"v")
            first = await delivery
            assert isinstance(first, RecordMetadata)
            assert [await delivery for _ in range(3)] == [first] * 3
        assert await delivery == first, "a delivery can be awaited after its producer was closed"

    async def test_many_tasks_can_await_a_delivery(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async def wait(delivery: Any) -> RecordMetadata:
            metadata: RecordMetadata = await delivery
            return metadata

        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            delivery = producer.send(topic, b"v")
            tasks = [asyncio.create_task(wait(delivery)) for _ in range(50)]
            await asyncio.sleep(0)
            tasks[7].cancel()
            await asyncio.wait([tasks[7]])
            cluster.resume(1)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results.pop(7), asyncio.CancelledError)
            assert set(results) == {await delivery}

    async def test_a_delivery_is_not_a_future(self, make: Make, topic: str) -> None:
        async with make() as producer:
            delivery = producer.send(topic, b"v")
            assert inspect.isawaitable(delivery)
            assert not asyncio.isfuture(delivery)
            assert not asyncio.iscoroutine(delivery)

    async def test_functions_of_asyncio_accept_a_delivery(self, make: Make, topic: str) -> None:
        async with make() as producer:
            one, two, three = (producer.send(topic, bytes([i])) for i in range(3))
            assert [m.offset for m in await asyncio.gather(one, two, one)] == [0, 1, 0]
            assert (await asyncio.wait_for(two, 20)).offset == 1
            assert (await asyncio.shield(three)).offset == 2
            offsets = [(await each).offset for each in asyncio.as_completed([one, two, three])]
            assert sorted(offsets) == [0, 1, 2]
            async with asyncio.timeout(20):
                assert (await one).offset == 0
            task = asyncio.ensure_future(two)
            assert (await task).offset == 1

    @pytest.mark.parametrize("how", ["wait_for", "timeout", "gather", "shield", "anyio"])
    async def test_cancelling_a_waiter_leaves_the_delivery(
        self, make: Make, topic: str, cluster: EmbeddedCluster, how: str, values: Any
    ) -> None:
        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            delivery = producer.send(topic, b"v")
            if how == "anyio":
                with anyio.move_on_after(0.01) as scope:
                    await delivery
                assert scope.cancelled_caught
            elif how == "timeout":
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await delivery
            else:
                waiting = {
                    "wait_for": lambda: delivery,
                    "gather": lambda: asyncio.gather(delivery, delivery),
                    "shield": lambda: asyncio.shield(delivery),
                }[how]()
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.01)
            assert not delivery.done()
            cluster.resume(1)
            assert (await delivery).offset == 0
        assert values(topic) == [b"v"]

    async def test_a_cancelled_waiter_ends_immediately(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make(close_timeout_ms=0) as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            task = asyncio.ensure_future(producer.send(topic, b"v"))
            await asyncio.sleep(0)
            task.cancel()
            for _ in range(3):  # Let the loop run without a delay.
                await asyncio.sleep(0)
            assert task.cancelled()
            cluster.resume(1)

    async def test_send_and_wait_is_a_coroutine_function(self, make: Make, topic: str) -> None:
        async with make() as producer:
            assert inspect.iscoroutinefunction(producer.send_and_wait)
            task = asyncio.create_task(producer.send_and_wait(topic, b"v", key=b"k"))
            assert (await task).topic == topic
            async with anyio.create_task_group() as group:
                group.start_soon(producer.send_and_wait, topic, b"w")
            assert (await producer.send(topic)).offset == 2

    async def test_each_await_of_a_failed_delivery_has_its_own_traceback(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
            delivery = producer.send(topic, b"v")
            depths = set()
            for _ in range(4):
                with pytest.raises(TopicAuthorizationError) as caught:
                    await delivery
                depths.add(len(caught.traceback))
            assert len(depths) == 1


class TestReading:
    async def test_a_pending_delivery_raises_invalid_state_error(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            delivery = producer.send(topic, b"v", timestamp=7)
            assert (delivery.topic, delivery.partition, delivery.done()) == (topic, 0, False)
            for read in (
                lambda: delivery.offset,
                lambda: delivery.timestamp,
                delivery.result,
                delivery.exception,
            ):
                with pytest.raises(asyncio.InvalidStateError):
                    read()
            assert topic in repr(delivery)
            cluster.resume(1)
            await ends(producer, delivery)
            assert (delivery.offset, delivery.timestamp, delivery.exception()) == (0, 7, None)
            assert delivery.result() == RecordMetadata(topic, 0, 0, 7) == (topic, 0, 0, 7)

    async def test_a_failed_delivery_returns_its_error(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
            delivery = producer.send(topic, b"v", timestamp=7)
            await ends(producer, delivery)
            assert (delivery.topic, delivery.partition) == (topic, 0)
            assert (delivery.offset, delivery.timestamp) == (-1, 7)
            assert isinstance(delivery.exception(), TopicAuthorizationError)
            with pytest.raises(TopicAuthorizationError):
                delivery.result()

    async def test_the_partition_is_none_while_the_topic_is_unknown(
        self, make: Make, wide: str
    ) -> None:
        async with make() as producer:
            free, keyed, chosen = (
                producer.send(wide, b"v"),
                producer.send(wide, b"v", key=b"k"),
                producer.send(wide, b"v", partition=3),
            )
            assert (free.partition, keyed.partition, chosen.partition) == (None, None, 3)
            await producer.flush()
            assert free.partition in range(4)
            assert keyed.partition in range(4)
            assert chosen.partition == 3

    async def test_a_delivery_fails_when_its_partition_does_not_exist(
        self, make: Make, topic: str
    ) -> None:
        async with make() as producer:
            delivery = producer.send(topic, b"v", partition=5)
            assert not delivery.done()
            with pytest.raises(UnknownTopicOrPartitionError) as caught:
                await delivery
            assert caught.value.topic_partition == (topic, 5)
            assert delivery.partition == 5
            assert (await producer.send(topic, b"w")).offset == 0

    @pytest.mark.parametrize("acks", [0, 1, "all"])
    async def test_the_offset_depends_on_acks(self, make: Make, topic: str, acks: Any) -> None:
        async with make(acks=acks) as producer:
            delivery = producer.send(topic, b"v")
            assert (await delivery).offset == delivery.offset == (-1 if acks == 0 else 0)

    async def test_the_timestamp_is_the_brokers_with_log_append_time(
        self, make: Make, cluster: EmbeddedCluster
    ) -> None:
        cluster.create_topic("append-time", configs={"message.timestamp.type": "LogAppendTime"})
        async with make() as producer:
            delivery = producer.send("append-time", b"v", timestamp=7)
            assert (await delivery).timestamp == delivery.timestamp > 1_600_000_000_000
        cluster.delete_topic("append-time")


class TestCallbacks:
    async def test_callbacks_are_called_in_the_loop_after_the_outcome(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        called: list[Any] = []
        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            delivery = producer.send(topic, b"v")
            for _ in range(2):
                delivery.add_done_callback(lambda each: called.append((each, each.done())))
            await asyncio.sleep(0)
            assert called == []
            cluster.resume(1)
            await delivery
            await asyncio.sleep(0)
            assert called == [(delivery, True)] * 2
            delivery.add_done_callback(called.append)
            assert len(called) == 2, "the callback must not run within add_done_callback"
            await asyncio.sleep(0)
            assert called[2] is delivery

    async def test_callbacks_run_in_the_context_of_their_registration(
        self, make: Make, topic: str
    ) -> None:
        variable = contextvars.ContextVar("variable", default="none")
        seen: list[str] = []
        async with make() as producer:
            variable.set("mine")
            delivery = producer.send(topic, b"v")
            delivery.add_done_callback(lambda _: seen.append(variable.get()))
            variable.set("later")
            await delivery
            await asyncio.sleep(0)
        assert seen == ["mine"]

    async def test_a_callback_must_be_callable(self, make: Make, topic: str) -> None:
        async with make() as producer:
            delivery = producer.send(topic, b"v")
            with pytest.raises(TypeError):
                delivery.add_done_callback(5)  # type: ignore[arg-type]  # on purpose

    async def test_a_callback_that_raises_affects_no_other(self, make: Make, topic: str) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, c: reported.append(c))
        async with make() as producer:
            delivery = producer.send(topic, b"v")
            called: list[Any] = []
            delivery.add_done_callback(lambda _: 1 / 0)
            delivery.add_done_callback(called.append)
            await delivery
            await asyncio.sleep(0)
            assert called == [delivery]
            assert (await producer.send(topic, b"w")).offset == 1
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


class TestOfManyAtATime:
    async def test_gather_returns_results_in_the_given_order(self, make: Make, wide: str) -> None:
        async with make(linger_ms=0) as producer:
            deliveries = [producer.send(wide, b"%d" % i, partition=i % 4) for i in range(400)]
            results = await producer.gather(reversed(deliveries))
            assert results == [await each for each in reversed(deliveries)]
            assert await producer.gather(iter(deliveries)) == results[::-1]
            assert await producer.gather([]) == []
            twice = await producer.gather([deliveries[0], deliveries[0]])
            assert twice == [results[-1]] * 2

    async def test_gather_raises_the_first_failure_after_all_are_done(
        self, make: Make, wide: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, partition=1)
        passing = cluster.fail(ApiKey.PRODUCE, UnknownTopicOrPartitionError, partition=3)
        async with make() as producer:
            await producer.prepare(wide)
            deliveries = [producer.send(wide, b"v", partition=i) for i in (0, 3, 1, 2)]
            gathering = asyncio.create_task(producer.gather(deliveries))
            others = [deliveries[i] for i in (0, 2, 3)]
            await producer.gather(others, return_exceptions=True)
            assert not gathering.done()
            # The first failed delivery in the list is the one that fails last.
            cluster.fail(ApiKey.PRODUCE, ClusterAuthorizationError, partition=3)
            passing.remove()
            with pytest.raises(ClusterAuthorizationError) as caught:
                await gathering
            assert all(each.done() for each in deliveries)
            assert caught.value is deliveries[1].exception()
            results = await producer.gather(deliveries, return_exceptions=True)
            assert [type(each) for each in results[1:3]] == [
                ClusterAuthorizationError,
                TopicAuthorizationError,
            ]
            assert (results[0].partition, results[3].partition) == (0, 2)

    async def test_results_of_gather_are_a_sequence_but_no_list(
        self, make: Make, wide: str
    ) -> None:
        async with make(linger_ms=0) as producer:
            deliveries = [producer.send(wide, b"v", partition=i % 4) for i in range(40)]
            results = await producer.gather(deliveries)
            assert isinstance(results, Sequence)
            assert not isinstance(results, list)
            with pytest.raises(TypeError):
                results[0] = results[1]  # type: ignore[index]
            match results:
                case [first, *others]:
                    assert (first, len(others)) == (await deliveries[0], 39)
                case _:
                    pytest.fail("a match statement takes the results for no sequence")
            assert results[-1] == await deliveries[-1]
            assert results[:2] == [await each for each in deliveries[:2]]
            assert sorted(results, key=lambda m: -m.offset)[-1].offset == 0
            collected = [results[0]]
            collected += results
            assert len(collected) == 41
            assert json.loads(json.dumps(list(results))) == [list(each) for each in results]

    async def test_results_of_gather_keep_no_batch_in_memory(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            deliveries = [producer.send(topic, b"v")]
            await deliveries[0]
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
            deliveries.append(producer.send(topic, b"w"))
            results = await producer.gather(deliveries, return_exceptions=True)
            assert [type(each) for each in results] == [RecordMetadata, TopicAuthorizationError]
            assert not any(isinstance(each, DeliveryBatch) for each in reachable_from(results))

    async def test_gather_can_be_cancelled(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            await producer.prepare(topic)
            cluster.pause(1)
            deliveries = producer.send_many(topic, [b"v"] * 100)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.gather(deliveries), 0.01)
            cluster.resume(1)
            results = await producer.gather(deliveries)
            assert [metadata.offset for metadata in results] == list(range(100))

    async def test_send_many_returns_a_sequence(self, make: Make, wide: str) -> None:
        async with make() as producer:
            items: list[Any] = [b"a", (b"k", b"b"), ProducerRecord(wide, b"c", partition=2)]
            deliveries = producer.send_many(wide, items)
            assert len(deliveries) == 3
            assert [each.topic for each in deliveries] == [wide] * 3
            assert len(deliveries[1:]) == 2
            assert (await deliveries[-1]).partition == 2
            assert await asyncio.gather(*deliveries) == await producer.gather(deliveries)

    async def test_delivered_handles_hold_no_payload(self, make: Make, topic: str) -> None:
        async with make(batch_size=0) as producer:
            deliveries = [producer.send(topic, b"x" * 100_000) for _ in range(50)]
            await producer.gather(deliveries)
            await asyncio.sleep(0)
            assert buffers_of(deliveries) < 1_000_000


def buffers_of(deliveries: list[Any]) -> int:
    """Return the size of all buffers that the deliveries reference, directly or indirectly."""
    seen: set[int] = set()
    found = 0
    waiting: list[Any] = list(deliveries)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or inspect.ismodule(each) or inspect.isclass(each):
            continue
        seen.add(id(each))
        if isinstance(each, bytes | bytearray):
            found += len(each)
        elif type(each).__module__.startswith("aiokclient") or isinstance(each, list | dict):
            waiting += gc.get_referents(each)
    return found

"""Calls too early, too late, from another thread or loop, twice, or with wrong arguments."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from aiokclient import (
    Admin,
    Client,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    State,
    TopicPartition,
)
from aiokclient.admin import Append
from aiokclient.cluster.lifecycle import lifecycle
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.errors import (
    ClosedError,
    ConcurrentReadError,
    IllegalStateError,
    UsageError,
    WrongLoopError,
    WrongThreadError,
)
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Lifecycle]

PRODUCER_CALLS: list[Callable[[Producer], Any]] = [
    lambda producer: producer.send("orders", b"v"),
    lambda producer: producer.send_many("orders", [b"v"]),
    lambda producer: producer.send_and_wait("orders", b"v"),
    lambda producer: producer.send_all("orders", [b"v"]),
    lambda producer: producer.flush(),
    lambda producer: producer.drain(),
    lambda producer: producer.prepare("orders"),
    lambda producer: producer.metrics(),
]
CONSUMER_CALLS: list[Callable[[Consumer], Any]] = [
    lambda consumer: consumer.poll(),
    lambda consumer: consumer.get(),
    lambda consumer: anext(aiter(consumer)),
    lambda consumer: anext(aiter(consumer.batches())),
    lambda consumer: consumer.position(TopicPartition("orders", 0)),
    lambda consumer: consumer.end_offsets([TopicPartition("orders", 0)]),
    lambda consumer: consumer.list_topics(),
]
ADMIN_CALLS: list[Callable[[Admin], Any]] = [
    lambda admin: admin.list_topics(),
    lambda admin: admin.create_topics([NewTopic("other", 1, 1)]),
]
CALLS = [
    *((Producer, call) for call in PRODUCER_CALLS),
    (Producer, lambda producer: producer.send_threadsafe("orders", b"v")),
    *((Consumer, call) for call in CONSUMER_CALLS),
    *((Admin, call) for call in ADMIN_CALLS),
]


async def settled(result: Any) -> Any:
    return await result if hasattr(result, "__await__") else result


@pytest.mark.parametrize(("make", "call"), CALLS)
async def test_a_client_that_was_not_started_tells_its_callers_to_use_async_with(
    make: Make, call: Callable[[Any], Any]
) -> None:
    made = make(bootstrap_servers="localhost:9092")
    with pytest.raises(IllegalStateError, match=r"not started. Use `async with`"):
        await settled(call(made))


@pytest.mark.parametrize(("make", "call"), CALLS)
async def test_a_closed_client_tells_its_callers_to_make_a_new_one(
    make: Make, call: Callable[[Any], Any], servers: str
) -> None:
    made = make(bootstrap_servers=servers)
    await made.start()
    await made.close()
    with pytest.raises(ClosedError, match=f"This {made.__class__.__name__} is closed. Make a new"):
        await settled(call(made))


async def test_a_start_after_close_raises(servers: str) -> None:
    producer = Producer(bootstrap_servers=servers)
    await producer.close()
    with pytest.raises(ClosedError, match="Make a new one"):
        await producer.start()


async def test_a_child_of_a_closed_client_cannot_start(servers: str) -> None:
    async with Client(bootstrap_servers=servers) as client:
        producer = Producer(client=client)
    with pytest.raises(ClosedError, match="This Client is closed"):
        await producer.start()


async def test_the_outcome_of_a_pending_delivery_raises(producer: Producer) -> None:
    delivery = producer.send("orders", b"v")
    with pytest.raises(asyncio.InvalidStateError, match="await its delivery"):
        delivery.result()
    await delivery


# -- calls from other threads and loops -----------------------------------------------------------


async def test_a_send_from_another_thread_raises(producer: Producer) -> None:
    with pytest.raises(WrongThreadError, match=r"use .*send_threadsafe"):
        await asyncio.to_thread(producer.send, "orders", b"v")
    future = await asyncio.to_thread(producer.send_threadsafe, "orders", b"v")
    assert (await asyncio.wrap_future(future)).topic == "orders"


@pytest.mark.parametrize("call", [*PRODUCER_CALLS, lambda producer: producer.close()])
async def test_a_producer_in_a_loop_of_another_thread_raises(
    producer: Producer, call: Callable[[Producer], Any]
) -> None:
    with pytest.raises(WrongThreadError, match="belongs to the thread of its event loop"):
        await asyncio.to_thread(in_a_loop_of_its_own, lambda: call(producer))


@pytest.mark.parametrize("call", [*CONSUMER_CALLS, lambda consumer: consumer.close()])
async def test_a_consumer_in_a_loop_of_another_thread_raises(
    consumer: Consumer, call: Callable[[Consumer], Any]
) -> None:
    with pytest.raises(WrongThreadError, match=r"use asyncio\.run_coroutine_threadsafe"):
        await asyncio.to_thread(in_a_loop_of_its_own, lambda: call(consumer))


def in_a_loop_of_its_own(call: Callable[[], Any]) -> None:
    async def run() -> None:
        await settled(call())

    asyncio.run(run())


@pytest.mark.parametrize("make", [Producer, Consumer])
def test_calls_in_another_loop_of_the_thread_raise(servers: str, make: Make) -> None:
    made: Any = make(bootstrap_servers=servers)
    call = made.flush if make is Producer else made.poll
    with asyncio.Runner() as runner:
        runner.run(made.start())
        with (
            asyncio.Runner() as another,
            pytest.raises(WrongLoopError, match=r"was started in another event loop. Make one for"),
        ):
            another.run(call())
        runner.run(made.close())


def refuse_as_closed(*_: object) -> None:
    raise RuntimeError("Event loop is closed")


def test_calls_without_a_running_loop_raise(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without a running loop raise, for example between the cells of a notebook.

    Calls also raise if their loop was closed before the clients were closed.
    """
    with asyncio.Runner() as runner:
        producer = Producer(bootstrap_servers=servers)
        runner.run(producer.start())
        with pytest.raises(
            WrongLoopError, match=r"No event loop is running here. Use this Producer"
        ):
            producer.send("orders", b"v")
        with monkeypatch.context() as patch:
            patch.setattr(runner.get_loop(), "is_closed", lambda: True)
            patch.setattr(runner.get_loop(), "call_soon_threadsafe", refuse_as_closed)
            with pytest.raises(WrongLoopError, match=r"started in is closed. Make a new one"):
                producer.send_many("orders", [b"v"])
            with pytest.raises(ClosedError, match=r"loop of this Producer is closed\. Make a new"):
                producer.send_threadsafe("orders", b"v")
        runner.run(producer.close())


async def test_a_delivery_awaited_in_another_loop_raises(producer: Producer) -> None:
    delivery = producer.send("orders", b"v", partition=0)
    with pytest.raises(WrongLoopError, match=r"use producer\.send_threadsafe|send_threadsafe"):
        await asyncio.to_thread(in_a_loop_of_its_own, lambda: delivery)
    await delivery


# -- two readers, and repeated calls --------------------------------------------------------------

READS: list[Callable[[Consumer], Coroutine[Any, Any, Any]]] = [
    lambda consumer: consumer.poll(),
    lambda consumer: consumer.get(),
    lambda consumer: next_of(aiter(consumer)),
    lambda consumer: next_of(aiter(consumer.batches())),
    lambda consumer: next_of(aiter(consumer.arrow_batches())),
]


async def next_of(iterator: Any) -> Any:
    return await anext(iterator)


@pytest.mark.parametrize("first", READS)
@pytest.mark.parametrize("second", READS)
async def test_a_second_reader_raises(
    consumer: Consumer,
    first: Callable[[Consumer], Coroutine[Any, Any, Any]],
    second: Callable[[Consumer], Coroutine[Any, Any, Any]],
) -> None:
    reading = asyncio.create_task(first(consumer))
    await asyncio.sleep(0)
    with pytest.raises(ConcurrentReadError, match="use one consumer per task"):
        await second(consumer)
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()


# -- arguments that do not fit --------------------------------------------------------------------


async def test_calls_that_need_a_group_raise_without_one(consumer: Consumer) -> None:
    for call in (consumer.commit, lambda: consumer.committed([]), consumer.group_metadata):
        with pytest.raises(IllegalStateError, match=r"needs a group.* no group_id"):
            await settled(call())


async def test_calls_for_unassigned_partitions_raise(consumer: Consumer) -> None:
    tp = TopicPartition("other", 0)
    calls = (
        lambda: consumer.seek(tp, 0),
        lambda: consumer.pause([tp]),
        lambda: consumer.resume([tp]),
        lambda: consumer.seek_to_end([tp]),
        lambda: consumer.position(tp),
    )
    for call in calls:
        with pytest.raises(IllegalStateError, match="other-0 is not assigned to this consumer"):
            await settled(call())


TOPICS = [(7,), (None,), (b"orders",), (["orders"],), ("orders", 7)]


@pytest.mark.parametrize("topics", TOPICS)
def test_topics_must_be_names(topics: tuple[Any, ...]) -> None:
    with pytest.raises(IllegalStateError, match=r"is not a topic\. Pass topic names"):
        Consumer(*topics, bootstrap_servers="localhost:9092")


@pytest.mark.parametrize("topics", [[7], None, [b"orders"], [["orders"]]])
async def test_subscribe_needs_at_least_one_name(consumer: Consumer, topics: Any) -> None:
    before = consumer.assignment()
    with pytest.raises(IllegalStateError, match=r"is not a topic\. Pass topic names"):
        consumer.subscribe(topics)
    assert consumer.assignment() == before


WRONG_PARTITIONS = [
    (TopicPartition("orders", 0), "is not a collection of partitions"),
    ("orders", "is not a collection of partitions"),
    (None, "is not a collection of partitions"),
    ([("orders", -1)], r"\('orders', -1\) is not a partition"),
    (["orders"], "'orders' is not a partition"),
    ([("orders", "0")], r"\('orders', '0'\) is not a partition"),
    ([(0, "orders")], r"\(0, 'orders'\) is not a partition"),
]


@pytest.mark.parametrize(("tps", "text"), WRONG_PARTITIONS)
async def test_partitions_must_be_a_collection(consumer: Consumer, tps: Any, text: str) -> None:
    calls = (consumer.assign, consumer.pause, consumer.resume, consumer.beginning_offsets)
    for call in (*calls, consumer.end_offsets):
        with pytest.raises(IllegalStateError, match=text):
            await settled(call(tps))


async def test_seek_needs_a_position(consumer: Consumer) -> None:
    tp = TopicPartition("orders", 0)
    with pytest.raises(IllegalStateError, match="a record, or a partition and an offset"):
        consumer.seek(tp)
    for offset in (-1, 1.5, 2**63, "0", True):
        with pytest.raises(IllegalStateError, match=r"is not an offset\. See also seek_to"):
            consumer.seek(tp, cast(Any, offset))
    for wrong in ("orders", 7, ("orders",)):
        with pytest.raises(IllegalStateError, match="is not a partition"):
            consumer.seek(cast(Any, wrong), 0)
        with pytest.raises(IllegalStateError, match="is not a partition"):
            await consumer.position(cast(Any, wrong))


async def test_impossible_numbers_are_refused(consumer: Consumer) -> None:
    for count in cast(list[Any], [0, -1, "7", 1.5]):
        with pytest.raises(IllegalStateError, match="max_records must be at least 1"):
            await consumer.poll(max_records=count)
        with pytest.raises(IllegalStateError, match="max_records must be at least 1"):
            consumer.batches(max_records=count)
        with pytest.raises(IllegalStateError, match="max_outstanding must be at least 1"):
            consumer.tracked(count)
    with pytest.raises(IllegalStateError, match="max_wait must be at least 0"):
        consumer.batches(max_wait=-1)
    for time in cast(list[Any], [-1, "now", 1.5, 2**63]):
        with pytest.raises(IllegalStateError, match="milliseconds since the epoch"):
            await consumer.offsets_for_times({TopicPartition("orders", 0): time})
    with pytest.raises(IllegalStateError, match="is not a mapping from partitions"):
        await consumer.offsets_for_times(cast(Any, [TopicPartition("orders", 0)]))


WAITS: list[Callable[[Any], Any]] = [
    lambda timeout: lambda consumer: consumer.poll(timeout),
    lambda timeout: lambda consumer: consumer.get(timeout),
    lambda timeout: lambda consumer: consumer.batches(max_wait=timeout),
    lambda timeout: lambda consumer: consumer.end_offsets([], timeout),
    lambda timeout: lambda consumer: consumer.partitions_for("orders", timeout),
    lambda timeout: lambda consumer: consumer.list_topics(timeout),
    lambda timeout: lambda consumer: consumer.close(timeout),
]


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("timeout", ["1", math.nan, [1]])
async def test_a_timeout_must_be_a_number(consumer: Consumer, wait: Any, timeout: Any) -> None:
    """A timeout must be a number, and not NaN, which would break the timers of the event loop."""
    with pytest.raises(TypeError, match=r"is not a number of seconds. Use math\.inf"):
        await settled(wait(timeout)(consumer))
    assert consumer.state is State.RUNNING


class Deaf:
    """A listener without any of the listener's methods."""


class Listening:
    def on_assigned(self, tps: Any) -> None: ...


@pytest.mark.parametrize("listener", [7, "listener", Deaf(), Listening])
async def test_an_object_without_listener_methods_is_refused(
    consumer: Consumer, listener: Any
) -> None:
    with pytest.raises(IllegalStateError, match=r"is not a listener\. .* on_assigned\("):
        consumer.subscribe(["orders"], listener)
    with pytest.raises(IllegalStateError, match="is not a listener"):
        Consumer("orders", listener=listener, bootstrap_servers="localhost:9092")
    consumer.subscribe(["orders"], Listening())


async def test_close_ends_when_a_listener_waits_for_the_closing_task(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`close()` ends by its timeout if a listener awaits another task that closes the consumer."""
    monkeypatch.setattr(lifecycle, "UNWINDING_S", 0.01)

    class Closing:
        async def on_revoked(self, tps: Any) -> None:
            await asyncio.create_task(consumer.close())

    options: dict[str, Any] = {"group_id": "closing", "close_timeout_ms": 10}
    consumer = Consumer("orders", bootstrap_servers=servers, listener=Closing(), **options)
    await consumer.start()
    async with asyncio.timeout(30):
        await consumer.close()
    assert consumer.state is State.CLOSED


async def test_a_pattern_of_bytes_is_refused(consumer: Consumer) -> None:
    with pytest.raises(IllegalStateError, match=r"matches bytes\. Topic names are str"):
        consumer.subscribe(cast(Any, re.compile(b"orders")))


async def test_done_needs_a_record(consumer: Consumer) -> None:
    for record in cast(list[Any], [None, 7, TopicPartition("orders", 0)]):
        with pytest.raises(IllegalStateError, match=r"is not a record\. done\(\) takes"):
            consumer.done(record)


TOPIC = ConfigResource.topic("orders")
ADMIN_ARGUMENTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda admin: admin.create_partitions(["orders"]), "not a mapping from names of topics"),
    (lambda admin: admin.delete_records([("orders", 0)]), "is not a mapping from partitions"),
    (lambda admin: admin.delete_records({"orders": 0}), "'orders' is not a partition"),
    (lambda admin: admin.describe_configs(None), "is not a collection of ConfigResource"),
    (lambda admin: admin.describe_configs(["orders"]), "is not a collection of ConfigResource"),
    (lambda admin: admin.alter_configs(["orders"]), "is not a mapping from ConfigResource"),
    (lambda admin: admin.alter_configs({"orders": {}}), "is not a collection of ConfigResource"),
    (
        lambda admin: admin.alter_consumer_group_offsets("g", [("orders", 0)]),
        "is not a mapping from partitions",
    ),
    (lambda admin: admin.delete_consumer_group_offsets("g", ["orders"]), "is not a partition"),
    (lambda admin: admin.delete_consumer_group_offsets(7, []), "is not the name of a group"),
    (lambda admin: admin.remove_members(7, ["m"]), "is not the name of a group"),
    (lambda admin: admin.describe_configs({TOPIC: 7}), "7 is not a collection of options"),
    (lambda admin: admin.describe_configs({TOPIC: "a"}), "'a' is not a collection of options"),
    (lambda admin: admin.describe_configs({TOPIC: [7]}), "7 is not the name of an option"),
    (lambda admin: admin.alter_configs({TOPIC: 7}), "is not a mapping from names of options"),
    (lambda admin: admin.alter_configs({TOPIC: {7: "a"}}), "7 is not the name of an option"),
    (lambda admin: admin.alter_configs({TOPIC: {"a": [7]}}), "cannot be the value of option a"),
    (
        lambda admin: admin.alter_configs({TOPIC: {"a": Append(cast(Any, None))}}),
        "cannot be the value of option a",
    ),
]


@pytest.mark.parametrize(("call", "text"), ADMIN_ARGUMENTS)
async def test_admin_calls_refuse_wrong_arguments(servers: str, call: Any, text: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        with pytest.raises(IllegalStateError, match=text):
            await call(admin)


async def test_the_embedded_cluster_refuses_wrong_use() -> None:
    async with EmbeddedCluster() as cluster:
        with pytest.raises(IllegalStateError, match=r"use `await cluster\.until\(\)`"):
            cluster.wait_for(lambda: True)
    with pytest.raises(IllegalStateError, match="can be started only once"):
        await cluster.__aenter__()


def test_errors_of_wrong_use_are_usage_errors() -> None:
    for kind in (ClosedError, IllegalStateError, WrongThreadError, WrongLoopError):
        assert issubclass(kind, UsageError)
        assert issubclass(kind, RuntimeError)

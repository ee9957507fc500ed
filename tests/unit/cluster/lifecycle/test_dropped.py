"""Tests of objects that are dropped without `close()`.

A warning names each of them, and their sockets, tasks, and memberships end. Where the dropped
objects form no reference cycle, the tests disable the cyclic garbage collector, because an idle
program may not collect garbage for hours.
"""

import asyncio
import gc
import itertools
import math
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kinds import KINDS, make
from world import World, simulate

from aiokclient import Client, Consumer, GroupMember, Producer, State, TopicPartition
from aiokclient.consumer.assignors.strategy import Range
from aiokclient.errors import ApiTimeoutError
from aiokclient.testing import EmbeddedCluster

CLOSED_S = 5.0
"""Virtual seconds within which everything that a dropped object had open must be closed."""


@pytest.fixture
def recwarn() -> Iterator[list[warnings.WarningMessage]]:
    """Return the warnings of a test that runs with the garbage collector disabled."""
    gc.collect()
    gc.disable()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
    gc.enable()


def names(recorded: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in recorded if warning.category is ResourceWarning]


async def closed(world: World, connections: int = 0) -> None:
    """Wait, and check that this number of connections is left. If it is 0, no task may be left."""
    await asyncio.sleep(CLOSED_S)
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert len(world.network.connections) == connections
    assert connections or not left, left


@pytest.mark.parametrize("kind", [*KINDS, "client"])
def test_a_dropped_object_is_named_and_closed(kind: str, recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        options = world.options(client_id="billing-7")
        one = Client(**options) if kind == "client" else make(kind, **options)
        await one.start()
        del one
        await closed(world)

    simulate(scenario)
    (text,) = names(recwarn)
    assert "billing-7" in text
    assert "close()" in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_child_is_closed_and_its_client_stays_open(kind: str, recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            one = make(kind, client=client)
            await one.start()
            del one
            await asyncio.sleep(CLOSED_S)
            assert client.state is State.RUNNING
            assert not client._children
            if "group" in kind:
                assert not world.cluster.groups["g"].members
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 1


def test_a_client_that_is_dropped_with_its_children_is_closed(recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        client = await world.client()
        children = [await make(kind, client=client) for kind in KINDS]
        del client
        await asyncio.sleep(CLOSED_S)
        assert world.network.connections, "the child objects hold a reference to their client"
        del children
        await asyncio.sleep(3 * CLOSED_S)
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == len(KINDS) + 1


def test_closing_a_client_waits_for_its_dropped_children(recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            await Producer(client=client)  # The producer is dropped here.
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 1


def test_records_of_a_dropped_producer_are_sent(recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(linger_ms=1_000)
        delivery = producer.send("t", b"v")
        del producer
        assert (await delivery).offset == 0
        await closed(world)
        assert len(world.cluster.records("t")) == 1

    simulate(scenario)
    assert len(names(recwarn)) == 1


class Application:
    """An application that holds the client to which it passes its methods as callbacks."""

    def __init__(self) -> None:
        self.client: Any = None
        self.revoked = asyncio.Event()

    def on_assigned(self, tps: Any) -> None: ...

    def on_revoked(self, tps: Any) -> None:
        self.revoked.set()

    def convert(self, data: Any) -> Any:
        return data

    def failed(self, error: Any) -> Any: ...

    def choose(self, key: Any, partitions: Any, available: Any) -> int:
        return 0

    # With the following attributes and methods, the application is a group protocol, too.
    name = "mine"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        return dict.fromkeys(members, b"x")


class HoldingAssignor(Range):
    """An assignor that holds the application, which holds its consumer."""

    name = "holding"

    def __init__(self, app: Application) -> None:
        self.app = app


@pytest.mark.parametrize("collected", [True, False])
@pytest.mark.parametrize("kind", ["producer", "group", "group848", "alone", "assignor", "member"])
def test_callbacks_that_hold_the_object_do_not_keep_it_alive(
    kind: str, collected: bool, recwarn: Any
) -> None:
    async def scenario(world: World) -> None:
        app = Application()
        revoked = app.revoked
        converters: dict[str, Any] = {"key_deserializer": app.convert, "listener": app}
        more = {"group848": {"group_id": "g", "group_protocol": "consumer"}, "alone": {}}
        if kind == "assignor":
            more[kind] = {"group_id": "g", "partition_assignment_strategy": HoldingAssignor(app)}
        if kind == "member":
            app.client = await GroupMember("g", **world.options(protocol_type="p", protocols=[app]))
            await anext(app.client.generations())
        elif kind == "producer":
            app.client = world.producer(
                value_serializer=app.convert,
                on_delivery_error=app.failed,
                partitioner=app.choose,
                linger_ms=1,
            )
            await app.client.start()
            await app.client.send("t", b"v")
        else:
            converters.update(more.get(kind, {"group_id": "g"}))
            app.client = await world.consumer("t", on_record_error=app.failed, **converters)
            world.cluster.produce("t", [b"v"])
            assert await app.client.get()
        if not collected:
            app.client = None  # The application continues to exist, but drops its client.
            await closed(world)
            return
        del app, converters, more
        gc.collect()
        if "group" in kind or kind == "assignor":
            async with asyncio.timeout(10):
                await revoked.wait()
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_notebook_cell_can_be_run_again(protocol: Any, recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"%d" % i for i in range(10)])
        read: list[bytes | None] = []
        for _ in range(3):
            consumer = await world.consumer("t", group_id="g", group_protocol=protocol)
            records = await consumer.poll(30.0, max_records=2)
            read += [record.value for record in records]
            await consumer.commit()
        assert read == [b"%d" % i for i in range(6)]
        await consumer.close()

    simulate(scenario)
    assert len(names(recwarn)) == 2


async def _iterate(app: Any, way: str) -> None:
    async for _ in getattr(app.consumer, way)():
        pass  # No variable holds the iterator.


UNKNOWN = TopicPartition("unknown", 0)
FAILING: dict[str, Callable[[Any], Any]] = {
    "for": lambda app: _iterate(app, "__aiter__"),
    "until_end": lambda app: _iterate(app, "until_end"),
    "batches": lambda app: _iterate(app, "batches"),
    "tracked": lambda app: _iterate(app, "tracked"),
    "arrow_batches": lambda app: _iterate(app, "arrow_batches"),
    "poll": lambda app: app.consumer.poll(math.inf),
    "get": lambda app: app.consumer.get(math.inf),
    "commit": lambda app: app.consumer.commit({UNKNOWN: 1}, timeout=1.0),
    "committed": lambda app: app.consumer.committed([UNKNOWN], timeout=0.0),
    "position": lambda app: app.consumer.position(UNKNOWN),
    "end_offsets": lambda app: app.consumer.end_offsets([UNKNOWN], timeout=1.0),
    "partitions_for": lambda app: app.consumer.partitions_for("unknown", timeout=1.0),
    "subscribe": lambda app: app.consumer.subscribe(1),
    "seek": lambda app: app.consumer.seek(UNKNOWN, 1),
    "pause": lambda app: app.consumer.pause([UNKNOWN]),
}
FAILS = ("cancelled", "refused")
CASES = list(
    itertools.product(FAILING, FAILS)
    if os.environ.get("AIOKCLIENT_EXPLORE")
    else zip(FAILING, itertools.cycle(FAILS), strict=False)
)
if ("until_end", "cancelled") in CASES:
    CASES.remove(("until_end", "cancelled"))  # This iteration ends before it can be cancelled.


@pytest.mark.parametrize(("way", "fails"), CASES)
def test_a_dropped_consumer_is_closed_once_its_error_is_dropped(
    way: str, fails: str, recwarn: Any
) -> None:
    def refuse(data: bytes) -> bytes:
        raise ValueError("no value of this application")

    async def scenario(world: World) -> None:
        app = SimpleNamespace()
        options = {} if fails == "cancelled" else {"value_deserializer": refuse}
        for name in ("b", "a"):  # The partition moves to "a", whose member id sorts first.
            app.consumer = await world.consumer(
                "t", group_id="g", client_id=name, heartbeat_interval_ms=500, **options
            )
            assert app.consumer.assignment()
        if fails == "refused":
            world.cluster.produce("t", [b"v"])

        kept: list[BaseException] = []

        async def cell() -> None:
            try:
                async with asyncio.timeout(5):
                    await FAILING[way](app)
            except BaseException as error:
                kept.append(error)

        await cell()
        app.consumer = None
        kept.clear()
        gc.collect()  # The traceback of an error may be part of a reference cycle.
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_object_releases_everything_when_its_error_is_kept(kind: str) -> None:
    async def scenario(world: World) -> None:
        one = await make(kind, **world.options())
        kept: list[BaseException] = []
        task = asyncio.create_task(one.client_instance_id(timeout=0.0))
        try:
            await task
        except ApiTimeoutError as error:
            kept.append(error)
        assert kept
        await one.close()
        await closed(world)
        assert refers_to(kept[0], one), "debuggers see the variables"

    simulate(scenario)


def refers_to(error: BaseException, one: object) -> bool:
    """Return whether a variable of the functions in the traceback of an error is this object."""
    traceback = error.__traceback__
    while traceback is not None:
        if one in traceback.tb_frame.f_locals.values():
            return True
        traceback = traceback.tb_next
    return False


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_of_a_task_that_has_failed_leaves_its_group(protocol: Any, recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"])

        async def work() -> None:
            consumer = await world.consumer("t", group_id="g", group_protocol=protocol)
            async for _ in consumer:
                raise ZeroDivisionError

        await asyncio.gather(asyncio.create_task(work()), return_exceptions=True)
        gc.collect()  # The traceback of the error is part of a reference cycle.
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 1


def test_an_iteration_keeps_its_consumer_alive(recwarn: Any) -> None:
    ways: list[Callable[[Consumer[Any, Any]], Any]] = [
        lambda consumer: aiter(consumer),
        lambda consumer: consumer.until_end(),
        lambda consumer: consumer.batches(),
        lambda consumer: consumer.tracked(),
        lambda consumer: consumer.arrow_batches(),
    ]

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"v"])
        for way in ways:
            iterator = way(await world.consumer("t"))
            await asyncio.sleep(1)
            assert not names(recwarn)
            assert await anext(iterator)
            del iterator
            await closed(world)
            assert len(names(recwarn)) == 1
            recwarn.clear()

    simulate(scenario)


def test_a_failed_object_that_is_dropped_is_closed(recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        one = await world.producer()
        one._supervisor.fail(ZeroDivisionError("a bug"), "test")
        assert one.state is State.FAILED
        del one
        gc.collect()  # The traceback of an error may be part of a reference cycle.
        await closed(world)

    simulate(scenario)
    assert len(names(recwarn)) == 1


def test_closed_and_unstarted_objects_are_dropped_silently(recwarn: Any) -> None:
    async def scenario(world: World) -> None:
        for kind in KINDS:
            make(kind, **world.options())
            one = await make(kind, **world.options())
            await one.close()
            del one
            closing = await make(kind, **world.options())
            task = asyncio.create_task(closing.close())
            del closing
            await task
        await closed(world)

    simulate(scenario)
    assert not names(recwarn)


async def test_an_object_dropped_by_another_thread_is_closed_in_its_loop(recwarn: Any) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        held = [await Producer(bootstrap_servers=cluster.bootstrap_servers)]
        ended = asyncio.Event()
        abandon = held[0]._fail_open_operations
        held[0].__dict__["_fail_open_operations"] = lambda error: (type(held).append, ended.set())
        del abandon
        thread = threading.Thread(target=held.clear)
        thread.start()
        async with asyncio.timeout(20):
            await ended.wait()
        thread.join()
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert len(names(recwarn)) == 1


def test_an_object_that_outlives_its_loop_is_named_and_its_sockets_are_closed() -> None:
    code = (
        "import asyncio, gc, os, warnings\n"
        "from aiokclient import Consumer, Producer\n"
        "from aiokclient.testing import EmbeddedCluster\n"
        "async def main(servers):\n"
        "    return [await Producer(bootstrap_servers=servers),\n"
        "            await Consumer('t', group_id='g', bootstrap_servers=servers)]\n"
        "def sockets():\n"
        "    links = [f'/proc/self/fd/{fd}' for fd in os.listdir('/proc/self/fd')]\n"
        "    return sum(os.path.exists(l) and 'socket' in os.readlink(l) for l in links)\n"
        "with EmbeddedCluster(topics={'t': 1}) as cluster:\n"
        "    before = sockets()\n"
        "    kept = asyncio.run(main(cluster.bootstrap_servers))\n"
        "    with warnings.catch_warnings(record=True) as found:\n"
        "        warnings.simplefilter('always')\n"
        "        del kept\n"
        "        gc.collect()\n"
        "        texts = [str(w.message) for w in found]\n"
        "        del found[:]\n"
        "        gc.collect()\n"
        "    print(sum('was dropped' in text for text in texts))\n"
        "    for _ in range(100):\n"
        "        gc.collect()\n"
        "    cluster.wait_for(lambda: sockets() <= before, 20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr

"""Tests that a kept error does not keep alive the producer, admin, or client that raised it.

A notebook keeps the last error, with the variables of all functions that it passed. The errors of
consumers are tested in `test_dropped.py`.
"""

import asyncio
import gc
import inspect
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Broker, Producer, TopicPartition
from aiokclient.admin import ConfigResource, NewPartitions, NewTopic
from aiokclient.cluster.lifecycle.tracebacks import let_go
from aiokclient.errors import BootstrapError
from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster

CLOSED_S = 5.0
"""Virtual seconds within which everything that a dropped object had open must be closed."""
T0 = TopicPartition("t", 0)
Calls = dict[str, Callable[[Any], Any]]
"""Calls that take the object from `app.one`.

A function that held the object itself would keep it alive.
"""


@pytest.fixture
def recwarn() -> Iterator[list[warnings.WarningMessage]]:
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def names(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in found if warning.category is ResourceWarning]


def refuse(topic: str, data: bytes, headers: Any) -> bytes:
    if data == b"refused":
        raise ValueError("no value of this application")
    return data


async def fill(app: Any) -> None:
    while not app.one.full:
        app.one.send("t", bytes(5_000))
    await app.one.drain()


async def stream() -> Any:
    yield b"v"
    await asyncio.Event().wait()


def failed(app: Any) -> Any:
    app.one._supervisor.fail(ZeroDivisionError("a bug"), "test")
    return app.one


REFUSED: Calls = {
    "a value": lambda app: app.one.send("t", 1),
    "a timestamp": lambda app: app.one.send("t", b"v", timestamp=-1),
    "a partition": lambda app: app.one.send("t", b"v", partition=-9),
    "a topic": lambda app: app.one.send("no topic", b"v"),
    "a large record": lambda app: app.one.send("t", bytes(2_000_000)),
    "values": lambda app: app.one.send_many("t", [b"v", 1]),
    "records": lambda app: app.one.send_many("t", [(b"k", b"v", 9)]),
    "no sequence": lambda app: app.one.send_many("t", 1),
    "send_and_wait": lambda app: app.one.send_and_wait("t", b"v", partition=-9),
    "send_all": lambda app: app.one.send_all("t", [b"v", 1]),
    "prepare": lambda app: app.one.prepare(1),
    "partitions_for": lambda app: app.one.partitions_for("unknown", timeout=1.0),
    "client_instance_id": lambda app: app.one.client_instance_id(timeout="soon"),
    "after a failure": lambda app: failed(app).send("t", b"v"),
    "many after a failure": lambda app: failed(app).send_many("t", [b"v"]),
    "flush after a failure": lambda app: failed(app).flush(),
    "from a thread after a failure": lambda app: failed(app).send_threadsafe("t", b"v"),
    "metrics after a failure": lambda app: failed(app).metrics(),
}
NOT_SERIALIZED: Calls = {
    "send": lambda app: app.one.send("t", b"refused"),
    "send_many": lambda app: app.one.send_many("t", [b"v", b"refused"]),
    "send_and_wait": lambda app: app.one.send_and_wait("t", b"refused"),
    "send_all": lambda app: app.one.send_all("t", [b"v", b"refused"]),
}
CANCELLED: Calls = {
    "send_and_wait": lambda app: app.one.send_and_wait("t", b"v"),
    "send_all": lambda app: app.one.send_all("t", [b"v"] * 3),
    "send_all of a stream": lambda app: app.one.send_all("t", stream()),
    "gather": lambda app: app.one.gather([app.one.send("t", b"v")]),
    "delivery": lambda app: app.one.send("t", b"v"),
    "flush": lambda app: (app.one.send("t", b"v"), app.one.flush())[1],
    "drain": fill,
    "prepare": lambda app: app.one.prepare("new"),
    "partitions_for": lambda app: app.one.partitions_for("t"),
    "partitions_for, its own timeout": lambda app: app.one.partitions_for("t", timeout=1.0),
}
ADMIN: Calls = {
    "create_topics": lambda admin: admin([NewTopic("new")]),
    "delete_topics": lambda admin: admin(["t"]),
    "describe_topics": lambda admin: admin(["t"]),
    "list_topics": lambda admin: admin(),
    "create_partitions": lambda admin: admin({"t": NewPartitions(2)}),
    "delete_records": lambda admin: admin({T0: 0}),
    "describe_cluster": lambda admin: admin(),
    "describe_configs": lambda admin: admin([ConfigResource.topic("t")]),
    "alter_configs": lambda admin: admin({ConfigResource.topic("t"): {"retention.ms": "5"}}),
    "list_groups": lambda admin: admin(),
    "describe_groups": lambda admin: admin(["g"]),
    "delete_groups": lambda admin: admin(["g"]),
    "remove_members": lambda admin: admin("g", ["m"]),
    "list_consumer_group_offsets": lambda admin: admin(["g"]),
    "alter_consumer_group_offsets": lambda admin: admin("g", {T0: 0}),
    "delete_consumer_group_offsets": lambda admin: admin("g", [T0]),
}
CLIENT: Calls = {
    "request": lambda app: app.one.request(messages.ListGroupsRequest(), to=Broker(1)),
    "response": lambda app: app.one.send(messages.ListGroupsRequest(), to=Broker(1)),
    "no request": lambda app: app.one.send(1, to=Broker(1)),
    "metrics": lambda app: failed(app).metrics(),
}


def drop(make: Callable[[World], Any], call: Callable[[Any], Any], *, paused: bool = False) -> None:
    """Make a call fail, drop its object but keep the error, and check that everything is closed."""

    async def scenario(world: World) -> None:
        app = SimpleNamespace(one=await make(world))
        if isinstance(app.one, Producer):
            await app.one.prepare("t")
        gone = weakref.ref(app.one)
        kept: list[Any] = []
        if paused:
            world.cluster.pause(1)

        async def cell() -> None:
            try:
                async with asyncio.timeout(5):
                    found = call(app)
                    kept.append(await found if inspect.isawaitable(found) else found)
            except BaseException as error:
                kept.append(error)

        await cell()
        assert isinstance(kept[0], BaseException) or kept[0].errors
        world.cluster.resume(1)
        del app.one
        gc.collect()  # The traceback of an error may be part of a reference cycle.
        await asyncio.sleep(CLOSED_S)
        gc.collect()
        assert gone() is None
        assert not world.network.connections
        assert asyncio.all_tasks() == {asyncio.current_task()}
        kept.clear()

    simulate(scenario)


@pytest.mark.parametrize("call", REFUSED)
def test_a_producer_is_closed_when_the_error_of_a_refused_record_is_kept(
    call: str, recwarn: Any
) -> None:
    drop(lambda world: world.producer(), REFUSED[call])
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("call", NOT_SERIALIZED)
def test_a_producer_ends_when_an_error_of_its_serializer_is_kept(call: str, recwarn: Any) -> None:
    drop(lambda world: world.producer(value_serializer=refuse), NOT_SERIALIZED[call])
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("call", CANCELLED)
def test_a_producer_ends_when_the_error_of_a_cancelled_call_is_kept(
    call: str, recwarn: Any
) -> None:
    drop(lambda world: world.producer(buffer_memory=40_000), CANCELLED[call], paused=True)
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("timeout", [None, 1.0], ids=["cancelled", "late"])
@pytest.mark.parametrize("call", ADMIN)
def test_an_admin_ends_when_its_errors_are_kept(
    call: str, timeout: float | None, recwarn: Any
) -> None:
    """This holds for errors that a call raises, and for errors in the results of a call."""

    def called(app: Any) -> Any:
        return ADMIN[call](lambda *args: getattr(app.one, call)(*args, timeout=timeout))

    drop(lambda world: Admin(**world.options()), called, paused=True)
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("call", CLIENT)
def test_a_client_ends_when_its_errors_are_kept(call: str, recwarn: Any) -> None:
    drop(lambda world: world.client(), CLIENT[call], paused=True)
    assert len(names(recwarn)) == 1


@pytest.mark.parametrize("kind", [Producer, Admin])
def test_an_object_is_freed_when_the_error_of_its_start_is_kept(kind: Any) -> None:
    async def scenario(world: World) -> None:
        one = kind(**world.options(bootstrap_servers="nowhere:1", default_api_timeout_ms=1_000))
        gone = weakref.ref(one)
        with pytest.raises(BootstrapError) as kept:
            await one.start()
        del one
        gc.collect()
        assert gone() is None
        assert kept.value

    simulate(scenario)


async def test_a_producer_is_freed_when_the_error_of_another_threads_send_is_kept(
    recwarn: Any,
) -> None:
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        producer = await Producer(bootstrap_servers=cluster.bootstrap_servers)
        gone = weakref.ref(producer)
        with pytest.raises(TypeError) as kept:
            await asyncio.wrap_future(producer.send_threadsafe("t", 1))  # type: ignore[arg-type]
        del producer
        gc.collect()
        async with asyncio.timeout(20):
            while gone() is not None or len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert kept.value
    assert len(names(recwarn)) == 1


def test_a_nested_function_that_was_stored_can_be_called_after_its_error() -> None:
    library: dict[str, Any] = {"__name__": "aiokclient.example"}
    exec(
        "def outer(one, stored):\n"
        "    def nested():\n"
        "        raise ValueError(one.name)\n"
        "    stored.append(nested)\n"
        "    nested()\n",
        library,
    )
    one, stored = SimpleNamespace(name="its name"), list[Any]()
    for call in (lambda: library["outer"](one, stored), lambda: stored[0]()):
        with pytest.raises(ValueError, match="its name") as failure:
            call()
        let_go(failure.value, one)

"""Tests of start, close, failure, and wrong use of objects on a scripted broker."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from scripted import ScriptedBroker
from world import World, simulate

from aiokclient import AnyBroker, Client, State
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    BootstrapError,
    ClosedError,
    ConfigError,
    IllegalStateError,
    KafkaError,
    WrongLoopError,
    WrongThreadError,
)
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class Thing(Lifecycle):
    """An object with a lifecycle that logs its steps."""

    def __init__(self, client: Parent | None = None, **options: Any) -> None:
        super().__init__(ClientConfig.build(options, client=client and client.config), client)
        self.log: list[str] = []
        self.opening = asyncio.Event()
        self.opening.set()
        self.ending = asyncio.Event()
        self.ending.set()
        self.broken: Exception | None = None
        self.unseen: Exception | None = None

    async def _open(self, wait: bool) -> None:
        self.log.append("open")
        await self.opening.wait()
        if self.broken is not None:
            raise self.broken

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        self.log.append("shutdown" if graceful else "abort")
        await self.ending.wait()
        self.log.append("done")

    def _fail_open_operations(self, error: ClosedError) -> None:
        self.log.append("abandon")

    def _on_failure(self, error: BaseException) -> None:
        self.log.append("failed")

    def _take_failures(self) -> BaseException | None:
        return self.unseen

    def use(self) -> str:
        self._require_usable()
        return "used"

    def spawn(self, function: Callable[[], Any]) -> None:
        self._supervisor.spawn(function, name="test")


class Late(Thing):
    closing_rank = 1


@pytest.fixture
async def thing(broker: ScriptedBroker, quick: dict[str, Any]) -> AsyncIterator[Thing]:
    thing = Thing(bootstrap_servers=broker.address, **quick)
    yield thing
    thing.ending.set()
    thing.opening.set()
    await thing.close()


@pytest.fixture
async def client(broker: ScriptedBroker, quick: dict[str, Any]) -> AsyncIterator[Client]:
    broker.handlers[ApiKey.LIST_GROUPS] = lambda *_: ListGroupsResponse()
    async with Client(bootstrap_servers=broker.address, **quick) as client:
        yield client


# -- start --------------------------------------------------------------------------------------


async def test_an_object_can_be_started_in_three_ways(
    broker: ScriptedBroker, quick: dict[str, Any]
) -> None:
    options = {"bootstrap_servers": broker.address, **quick}
    async with Thing(**options) as one:
        assert one.use() == "used"
    two = await Thing(**options)
    assert two.state is State.RUNNING
    await two.close()
    three = Thing(**options)
    await three.start()
    await three.start()
    assert three.use() == "used"
    await three.close()
    assert three.state is State.CLOSED


async def test_an_object_can_be_created_without_a_loop(broker: ScriptedBroker) -> None:
    made = await asyncio.to_thread(lambda: Client(bootstrap_servers=broker.address))
    assert made.state is State.NEW
    async with made:
        assert made.state is State.RUNNING


async def test_concurrent_starts_share_one_start(thing: Thing) -> None:
    await asyncio.gather(*(thing.start() for _ in range(5)))
    assert thing.log == ["open"]


async def test_a_failed_start_may_be_repeated(thing: Thing) -> None:
    thing.broken = ValueError("no")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await thing.start()
        assert thing.state is State.NEW
    thing.broken = None
    await thing.start()
    assert thing.use() == "used"


def test_a_start_without_brokers_may_be_repeated() -> None:
    async def scenario(world: World) -> None:
        client = world.client(default_api_timeout_ms=2_000)
        world.cluster.stop(1)
        with pytest.raises(BootstrapError):
            await client
        world.cluster.start(1)
        async with client:
            assert client.state is State.RUNNING

    simulate(scenario)


@pytest.mark.fault(35)
async def test_a_cancelled_start_is_undone(thing: Thing) -> None:
    thing.opening.clear()
    starting = asyncio.create_task(thing.start())
    while "open" not in thing.log:  # noqa: ASYNC110 - set by the code under test
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert thing.state is State.NEW
    assert thing.log == ["open", "abort", "done", "abandon"]
    thing.opening.set()
    await thing.start()
    assert thing.use() == "used"


@pytest.mark.fault(35)
async def test_a_start_continues_for_its_other_callers_after_a_cancellation(thing: Thing) -> None:
    thing.opening.clear()
    one, other = asyncio.create_task(thing.start()), asyncio.create_task(thing.start())
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait([one])
    thing.opening.set()
    await other
    assert thing.use() == "used"


@pytest.mark.fault(35)
@pytest.mark.parametrize("steps", range(4))
async def test_a_start_cancelled_as_it_ends_returns_or_is_undone(thing: Thing, steps: int) -> None:
    thing.opening.clear()
    starting = asyncio.create_task(thing.start())
    while "open" not in thing.log:  # noqa: ASYNC110 - set by the code under test
        await asyncio.sleep(0)
    thing.opening.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting])
    if starting.cancelled():
        assert thing.state is State.NEW
        assert thing.log == ["open", "abort", "done", "abandon"]
        await thing.start()
    assert thing.use() == "used"


@pytest.mark.fault(35)
@pytest.mark.parametrize("steps", range(4))
async def test_a_start_that_another_caller_uses_is_not_undone(thing: Thing, steps: int) -> None:
    thing.opening.clear()
    one, other = asyncio.create_task(thing.start()), asyncio.create_task(thing.start())
    while "open" not in thing.log:  # noqa: ASYNC110 - set by the code under test
        await asyncio.sleep(0)
    thing.opening.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    other.cancel()
    await one
    await asyncio.wait([other])
    assert thing.use() == "used"


@pytest.mark.fault(36)
async def test_close_ends_a_start(thing: Thing) -> None:
    thing.opening.clear()
    starting = asyncio.create_task(thing.start())
    await asyncio.sleep(0)
    await thing.close()
    with pytest.raises(ClosedError):
        await starting
    assert thing.state is State.CLOSED


# -- close --------------------------------------------------------------------------------------


@pytest.mark.fault(36)
async def test_concurrent_closes_share_one_close_and_later_ones_do_nothing(thing: Thing) -> None:
    await thing.start()
    await asyncio.gather(*(thing.close() for _ in range(3)))
    await thing.close()
    assert thing.log == ["open", "shutdown", "done", "abandon"]


@pytest.mark.fault(36)
async def test_close_ends_within_its_timeout(thing: Thing) -> None:
    await thing.start()
    thing.ending.clear()
    await thing.close(timeout=0.02)
    assert thing.log == ["open", "shutdown", "abandon"]


@pytest.mark.fault(36)
async def test_a_second_close_may_shorten_the_first(thing: Thing) -> None:
    await thing.start()
    thing.ending.clear()
    first = asyncio.create_task(thing.close(timeout=1000))
    await asyncio.sleep(0)
    await thing.close(timeout=0.01)
    await first
    assert thing.log == ["open", "shutdown", "abandon"]
    assert thing.state is State.CLOSED


@pytest.mark.fault(36)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_close_ends_everything_and_then_raises(
    broker: ScriptedBroker, quick: dict[str, Any], times: int
) -> None:
    thing = Thing(bootstrap_servers=broker.address, close_timeout_ms=20, **quick)
    await thing.start()
    thing.ending.clear()
    closing = asyncio.create_task(thing.close(timeout=1000))
    await asyncio.sleep(0)
    for _ in range(times):
        closing.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert thing.state is State.CLOSED
    assert thing.log[-1] == "abandon"


@pytest.mark.fault(36)
async def test_level_cancellation_shortens_a_close(
    broker: ScriptedBroker, quick: dict[str, Any]
) -> None:
    thing = Thing(bootstrap_servers=broker.address, close_timeout_ms=20, **quick)
    await thing.start()
    thing.ending.clear()
    with anyio.move_on_after(0.01) as scope:
        await thing.close(timeout=1000)
    assert scope.cancelled_caught
    assert thing.state is State.CLOSED


@pytest.mark.fault(36)
async def test_leaving_by_level_cancellation_aborts(
    broker: ScriptedBroker, quick: dict[str, Any]
) -> None:
    with anyio.CancelScope() as scope:
        async with Thing(bootstrap_servers=broker.address, **quick) as thing:
            scope.cancel()
            await anyio.sleep_forever()
    assert thing.state is State.CLOSED
    assert thing.log == ["open", "abort", "done", "abandon"]


async def test_leaving_by_an_exception_aborts_and_raises_it(thing: Thing) -> None:
    thing.unseen = RuntimeError("not this one")
    with pytest.raises(ValueError, match="mine"):
        async with thing:
            raise ValueError("mine")
    assert thing.log == ["open", "abort", "done", "abandon"]


async def test_leaving_normally_raises_an_unretrieved_failure(thing: Thing) -> None:
    thing.unseen = RuntimeError("unseen")
    with pytest.raises(RuntimeError, match="unseen"):
        async with thing:
            pass
    assert thing.log == ["open", "shutdown", "done", "abandon"]


async def test_close_does_not_raise_an_unretrieved_failure(thing: Thing) -> None:
    thing.unseen = RuntimeError("unseen")
    await thing.start()
    await thing.close()


async def test_an_unstarted_object_can_be_closed(thing: Thing) -> None:
    await thing.close()
    assert thing.log == []
    with pytest.raises(ClosedError, match="Make a new one"):
        await thing.start()


@pytest.mark.fault(36)
async def test_close_leaves_no_task_or_connection(
    broker: ScriptedBroker, quick: dict[str, Any]
) -> None:
    before = asyncio.all_tasks()
    async with Thing(bootstrap_servers=broker.address, **quick):
        pass
    await broker.stop()
    assert asyncio.all_tasks() == before


# -- failure ------------------------------------------------------------------------------------


async def test_a_task_that_dies_fails_the_object(
    thing: Thing, caplog: pytest.LogCaptureFixture
) -> None:
    async def die() -> None:
        raise ZeroDivisionError("bug")

    await thing.start()
    thing.spawn(die)
    while thing.state is not State.FAILED:  # noqa: ASYNC110 - set by the code under test
        await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="bug"):
            thing.use()
    assert "bug" in thing.health().reasons[0]
    assert thing.log == ["open", "failed"]
    assert "died" in caplog.text
    await thing.close()
    assert thing.log[2:] == ["abort", "done", "abandon"]
    with pytest.raises(ZeroDivisionError):
        thing.use()


async def test_leaving_normally_raises_the_error_of_a_dead_task(thing: Thing) -> None:
    async def die() -> None:
        raise ZeroDivisionError("bug")

    await thing.start()
    thing.spawn(die)
    while thing.state is not State.FAILED:  # noqa: ASYNC110 - set by the code under test
        await asyncio.sleep(0)
    with pytest.raises(ZeroDivisionError):
        await thing.__aexit__(None, None, None)


# -- wrong use ----------------------------------------------------------------------------------


async def test_calls_before_the_start_raise(thing: Thing) -> None:
    with pytest.raises(IllegalStateError, match="async with"):
        thing.use()


async def test_calls_after_close_raise(thing: Thing) -> None:
    await thing.start()
    await thing.close()
    with pytest.raises(ClosedError, match="Make a new one"):
        thing.use()


async def test_calls_from_another_thread_raise(thing: Thing) -> None:
    await thing.start()
    with pytest.raises(WrongThreadError, match="run_coroutine_threadsafe"):
        await asyncio.to_thread(thing.use)


async def test_calls_from_another_loop_raise(thing: Thing) -> None:
    await thing.start()
    errors: list[BaseException] = []

    async def use() -> None:
        try:
            thing.use()
        except WrongThreadError as error:
            errors.append(error)

    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert len(errors) == 1


def test_calls_from_another_loop_of_the_thread_raise() -> None:
    async def open_it() -> tuple[ScriptedBroker, Thing]:
        broker = await ScriptedBroker().__aenter__()
        return broker, await Thing(bootstrap_servers=broker.address)

    async def use(thing: Thing) -> None:
        thing.use()

    async def close(broker: ScriptedBroker, thing: Thing) -> None:
        await thing.close()
        await broker.stop()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        broker, thing = first.run(open_it())
        with pytest.raises(WrongLoopError):
            second.run(use(thing))
        with pytest.raises(WrongLoopError):
            second.run(thing.close())
        first.run(close(broker, thing))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="client_id"):
        Client(bootstrap_servers="b:9092", clientid="x")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"request\.timeout\.ms"):
        Client.from_properties({"bootstrap.servers": "b:9092", "request.timout.ms": "1"})


def test_client_options_have_kafkas_names_in_from_properties() -> None:
    client = Client.from_properties({"bootstrap.servers": "b:9092", "request.timeout.ms": "7"})
    assert client.config.request_timeout_ms == 7
    assert client.config.bootstrap_servers == (("b", 9092),)


# -- a shared client ----------------------------------------------------------------------------


async def test_children_close_in_order_the_youngest_first(client: Client) -> None:
    order: list[Thing] = []
    children = [Late(client), Thing(client), Late(client), Thing(client)]
    for child in children:
        await child.start()
        child._fail_open_operations = lambda error, child=child: order.append(child)  # type: ignore[method-assign,misc]
    await client.close()
    assert order == [children[3], children[1], children[2], children[0]]
    assert all(child.state is State.CLOSED for child in children)


async def test_closing_a_child_leaves_the_client(client: Client) -> None:
    async with Thing(client) as child:
        assert child.use() == "used"
    await client.request(ListGroupsRequest(), to=AnyBroker())
    assert client.state is State.RUNNING


async def test_a_child_of_an_unopened_client_cannot_start(broker: ScriptedBroker) -> None:
    client = Client(bootstrap_servers=broker.address)
    with pytest.raises(IllegalStateError, match="not started"):
        await Thing(client)
    await client.close()
    with pytest.raises(ClosedError):
        await Thing(client)


async def test_a_client_closes_all_children_within_its_timeout(client: Client) -> None:
    children = [Thing(client) for _ in range(3)]
    for child in children:
        await child.start()
        child.ending.clear()
    await client.close(timeout=0.05)
    assert [child.state for child in children] == [State.CLOSED] * 3


async def test_a_failing_child_does_not_keep_the_others_open(client: Client) -> None:
    async def fail(graceful: bool, timeout: float) -> None:
        raise RuntimeError("cannot end")

    bad, good = Thing(client), Late(client)
    await bad.start()
    await good.start()
    bad._shutdown = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="cannot end"):
        await client.close()
    assert good.state is bad.state is client.state is State.CLOSED


async def test_health_has_the_reasons(client: Client, broker: ScriptedBroker) -> None:
    assert client.health().reasons == ()
    assert client.health().brokers == {1: "connected"}
    await broker.stop()
    while client.state is not State.DEGRADED:  # noqa: ASYNC110 - seen by the client some time
        await asyncio.sleep(0)
    assert "no broker can be reached" in client.health().reasons[-1]


async def test_metrics_are_a_snapshot(client: Client) -> None:
    assert isinstance(client.metrics(), dict)


async def test_send_returns_a_handle_without_waiting(client: Client) -> None:
    handle = client.send(ListGroupsRequest(), to=AnyBroker())
    assert isinstance(await handle, ListGroupsResponse)


async def test_dropped_object_is_closed_without_a_report_of_the_loop_when_its_close_fails(
    broker: ScriptedBroker, quick: dict[str, Any]
) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    closing, before = asyncio.Event(), asyncio.all_tasks()

    class Failing(Thing):
        async def _shutdown(self, graceful: bool, timeout: float) -> None:
            closing.set()
            raise ZeroDivisionError

    things = [Failing(bootstrap_servers=broker.address, **quick)]
    await things[0].start()
    with pytest.warns(ResourceWarning, match="was dropped without close"):
        things.clear()
    await closing.wait()
    await asyncio.wait(asyncio.all_tasks() - before)
    gc.collect()
    assert reported == []


async def test_error_that_failed_an_object_is_not_logged_again_by_its_tasks(
    thing: Thing, caplog: pytest.LogCaptureFixture
) -> None:
    await thing.start()
    failure, ended = KafkaError("the cluster is another one"), asyncio.Event()

    async def work() -> None:
        try:
            raise failure
        finally:
            ended.set()

    thing._fail(failure)
    thing.spawn(work)
    await ended.wait()
    await asyncio.sleep(0)
    assert "task_died" not in [record.__dict__.get("event") for record in caplog.records]
    with pytest.raises(KafkaError, match="the cluster is another one"):
        thing.use()


@pytest.mark.parametrize("turns", range(6))
async def test_start_can_be_repeated_when_it_was_cancelled_at_any_turn_of_the_loop(
    thing: Thing, turns: int
) -> None:
    call = asyncio.ensure_future(thing.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert thing.state is State.NEW
    await thing.start()
    assert thing.use() == "used"


@pytest.mark.parametrize("turns", range(6))
async def test_close_ends_a_start_at_any_turn_of_the_loop(thing: Thing, turns: int) -> None:
    call = asyncio.ensure_future(thing.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.wait_for(thing.close(), 5)
    assert thing.state is State.CLOSED
    await asyncio.wait([call])
    with pytest.raises(ClosedError):
        thing.use()

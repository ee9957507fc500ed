"""Tests that client calls can be cancelled at every moment and suspension, in virtual time."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import anyio
import pytest
from world import World, simulate

from aiokclient import AnyBroker, Broker, Client, Coordinator, Leader, State
from aiokclient.protocol.messages.metadata import MetadataRequest

Call = Callable[[Client], Awaitable[Any]]
STEP_S = 0.0004

CALLS: dict[str, Call] = {
    "request": lambda client: client.request(MetadataRequest(topics=[]), to=Broker(2)),
    "leader": lambda client: client.request(MetadataRequest(topics=[]), to=Leader("t", 0)),
    "retried": lambda client: client.request(MetadataRequest(topics=[]), to=Leader("no", 0)),
    "refresh": lambda client: client.cluster.updater.refresh(["t"], timeout=60),
    "close": lambda client: client.close(),
}


class Stopper:
    """An awaitable that runs a coroutine and calls `stop` at its n-th suspension."""

    def __init__(self, awaited: Awaitable[Any], n: int) -> None:
        self.awaited, self.n, self.met = awaited, n, 0
        self.stop: Callable[[], object] = lambda: None

    def __await__(self) -> Generator[Any, Any, None]:
        inner = self.awaited.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waits_for = next(inner) if thrown is None else inner.throw(thrown)  # type: ignore[attr-defined]
            except StopIteration:
                return
            self.met += 1
            if self.met == self.n:
                self.stop()
            thrown = None
            try:
                yield waits_for
            except BaseException as error:
                thrown = error


async def by_task(stopper: Stopper) -> bool:
    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        stopper.stop = task.cancel
        await stopper

    task = asyncio.create_task(run())
    await asyncio.wait([task])
    return task.cancelled() or task.result() is not None


async def by_scope(stopper: Stopper) -> bool:
    with anyio.CancelScope() as scope:
        stopper.stop = scope.cancel
        await stopper
    return scope.cancelled_caught


def until_uncut(scenario: Callable[[World, int], Coroutine[Any, Any, bool]], what: str) -> None:
    """Run the scenario with n = 1, 2, ... until it ends without an interruption."""

    def run(n: int) -> bool:
        return simulate(lambda world: scenario(world, n), brokers=3, seed=n)

    n = 1
    while run(n):
        n += 1
        assert n < 300
    assert n > 1
    sys.stdout.write(f"{what}: cut off {n - 1} times\n")


async def use(client: Client) -> None:
    await client.request(MetadataRequest(topics=[]), to=AnyBroker(), timeout=30)


@pytest.mark.fault(35, 36)
@pytest.mark.parametrize("cut", [by_task, by_scope])
@pytest.mark.parametrize("name", CALLS)
def test_calls_of_a_client_can_be_cancelled_at_every_suspension(
    name: str, cut: Callable[[Stopper], Awaitable[bool]]
) -> None:
    async def scenario(world: World, n: int) -> bool:
        async with world.client(default_api_timeout_ms=500, close_timeout_ms=100) as client:
            stopper = Stopper(absent(CALLS[name](client)), n)
            cancelled = await cut(stopper)
            if name == "close":
                assert client.state is State.CLOSED
            else:
                await use(client)
        return cancelled

    until_uncut(scenario, f"{name} {cut.__name__}")


async def absent(call: Awaitable[Any]) -> None:
    # One of the calls is for a topic that does not exist, so that it is retried.
    try:
        await call
    except TimeoutError:
        pass


@pytest.mark.fault(35)
def test_a_start_can_be_cancelled_at_every_moment() -> None:
    async def scenario(world: World, n: int) -> bool:
        client = world.client()
        with anyio.move_on_after((n - 1) * STEP_S) as scope:
            await client.start()
        if scope.cancelled_caught:
            assert client.state is State.NEW
        async with client:
            await use(client)
        return scope.cancelled_caught

    until_uncut(scenario, "start")


@pytest.mark.fault(36)
def test_a_start_can_be_closed_at_every_moment() -> None:
    async def scenario(world: World, n: int) -> bool:
        client = world.client()
        starting = asyncio.create_task(client.start())
        await asyncio.sleep((n - 1) * STEP_S)
        early = not starting.done()
        await client.close()
        await asyncio.wait([starting])
        assert client.state is State.CLOSED
        return early

    until_uncut(scenario, "close during start")


@pytest.mark.fault(35)
def test_a_coordinator_lookup_can_be_cancelled_at_every_moment() -> None:
    async def scenario(world: World, n: int) -> bool:
        async with world.client() as client:
            locate = client.cluster.coordinators.locate_coordinator
            with anyio.move_on_after((n - 1) * STEP_S) as scope:
                await locate("transaction", "t-1")
            shared = await asyncio.gather(*(locate("transaction", "t-1") for _ in range(3)))
            assert len(dict.fromkeys(shared)) == 1
            await client.request(MetadataRequest(topics=[]), to=Coordinator("transaction", "t-1"))
        return scope.cancelled_caught

    until_uncut(scenario, "coordinator")

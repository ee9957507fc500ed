"""Functions of the application that raise in a task of the library, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from group_world import PROTOCOLS, every_protocol, fill, member
from owned import until
from world import World, simulate

from aiokclient import GroupMember, GroupProtocol, State
from aiokclient.consumer.assignors.strategy import RoundRobin
from aiokclient.errors import AssignmentFailedError, IllegalStateError


def cancelled_future() -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def until_it_raises(call: Callable[[], Awaitable[Any]]) -> None:
    while True:
        await call()


class Failing(GroupProtocol):
    """A protocol whose functions call `fails` the first `times` times."""

    name = "failing"

    def __init__(self, where: str, how: Callable[[], Any], times: int) -> None:
        self.where, self.how, self.left = where, how, times

    def metadata(self) -> bytes:
        if self.where == "metadata" and self._is_due():
            return self.how()  # type: ignore[no-any-return]
        return b"m"

    async def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.where == "assign" and self._is_due():
            await self.how()
        return dict.fromkeys(members, b"assigned")

    def _is_due(self) -> bool:
        self.left -= 1
        return self.left >= 0


def raise_error() -> Any:
    raise LookupError("no")


def raise_cancelled() -> Any:
    return cancelled_future().result()


@pytest.mark.parametrize(
    ("where", "how", "error"),
    [
        ("assign", cancelled_future, AssignmentFailedError),
        ("assign", raise_error, LookupError),
        ("metadata", raise_error, LookupError),
        ("metadata", raise_cancelled, IllegalStateError),
        ("metadata", lambda: "text", TypeError),
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_a_protocol_that_raises_is_reported_and_the_group_tries_again(
    where: str, how: Callable[[], Any], error: type[Exception], times: int
) -> None:
    async def scenario(world: World) -> None:
        protocol = Failing(where, how, times)
        options = world.options(session_timeout_ms=10_000)
        async with GroupMember("g", protocol_type="t", protocols=[protocol], **options) as left:
            failures, generations = [], left.generations()
            async with asyncio.timeout(60):
                while True:
                    try:
                        generation = await anext(generations)
                        break
                    except Exception as failure:
                        failures.append(failure)
            assert failures
            assert all(type(each) is error for each in failures)
            assert generation.assignment == b"assigned"
            assert left.state is State.RUNNING

    simulate(scenario)


def test_metadata_that_raises_in_a_rebalance_does_not_stop_the_other_members() -> None:
    async def scenario(world: World) -> None:
        options = world.options(session_timeout_ms=10_000, rebalance_timeout_ms=5_000)
        first, second = (Failing("metadata", raise_error, 0) for _ in range(2))
        async with (
            GroupMember("g", protocol_type="t", protocols=[first], **options) as one,
            GroupMember("g", protocol_type="t", protocols=[second], **options) as other,
        ):
            steps = one.generations(), other.generations()
            for each in steps:
                await anext(each)
            first.left = 1
            other.rejoin("new input")
            with pytest.raises(LookupError):
                await until_it_raises(steps[0].__anext__)
            async with asyncio.timeout(30):
                for each in steps:
                    generation = await anext(each)
                    while generation.generation_id < 3:
                        generation = await anext(each)

    simulate(scenario)


def test_closing_a_member_cancels_its_assign() -> None:
    async def scenario(world: World) -> None:
        entered = asyncio.Event()

        async def wait() -> None:
            entered.set()
            await asyncio.Event().wait()

        protocol = Failing("assign", wait, 1)
        async with GroupMember(
            "g", protocol_type="t", protocols=[protocol], **world.options()
        ) as left:
            await entered.wait()
            began = world.now
        assert world.now - began < 5
        assert left.state is State.CLOSED

    simulate(scenario)


class Cancelling(RoundRobin):
    """An assignor that once reads the result of a cancelled future."""

    name = "cancelling"

    def __init__(self) -> None:
        self.calls = 0

    def user_data(self, topics: Any) -> bytes | None:
        self.calls += 1
        return raise_cancelled() if self.calls == 3 else None  # type: ignore[no-any-return]


def test_an_assignor_of_a_consumer_that_raises_is_reported_and_the_consumer_joins_again() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3)
        assignor = Cancelling()
        async with member(world, partition_assignment_strategy=assignor) as consumer:
            assert len(await consumer.poll(timeout=30)) == 3
            consumer.subscribe(["t", "u"])
            with pytest.raises(IllegalStateError, match="raised CancelledError"):
                await until_it_raises(lambda: consumer.poll(timeout=1))
            await until(lambda: assignor.calls >= 4)
            world.cluster.produce("t", [b"4"])
            while not await consumer.poll(timeout=1):
                pass
            assert consumer.state is State.RUNNING

    simulate(scenario, topics={"t": 1, "u": 1})


class Listening:
    """A listener that awaits a cancelled future."""

    async def on_assigned(self, tps: Any) -> None:
        await cancelled_future()


@every_protocol
def test_a_listener_that_awaits_a_cancelled_future_fails_its_consumer_with_that_reason(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, **{**PROTOCOLS[protocol], "listener": Listening()})
        with pytest.raises(IllegalStateError, match=r"on_assigned\(\) raised CancelledError"):
            async with consumer:
                await consumer.poll(timeout=30)

    simulate(scenario)

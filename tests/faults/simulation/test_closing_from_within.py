"""`close()` called from code for whose end `close()` normally waits."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from sharing import Sharing
from world import World, simulate

from aiokclient import Consumer, GroupMember, State, TopicPartition
from aiokclient.errors import IllegalStateError

Call = Callable[[], Awaitable[Any]]
PROTOCOLS = ("classic", "consumer")


class Calling:
    """A listener that calls a function in one of its methods."""

    def __init__(self, method: str, call: Call) -> None:
        self.call = call
        self.refused: list[Exception] = []
        setattr(self, method, self.told)

    async def told(self, tps: Sequence[TopicPartition]) -> None:
        try:
            await self.call()
        except IllegalStateError as error:
            self.refused.append(error)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", ["on_assigned", "on_revoked"])
@pytest.mark.parametrize("of_client", [False, True])
def test_a_listener_may_close_its_consumer(protocol: str, method: str, of_client: bool) -> None:
    """A listener may close its consumer, and the client that the consumer uses."""

    async def scenario(world: World) -> None:
        async with world.client() as client:
            listener = Calling(method, lambda: (client if of_client else consumer).close())
            consumer: Consumer[Any, Any] = Consumer(
                "t", group_id="g", group_protocol=protocol, client=client, listener=listener
            )
            async with consumer:
                assert await consumer.poll() == []
            assert [str(error)[:25] for error in listener.refused] == ["a listener must not close"]
            assert client.state is State.RUNNING

    simulate(scenario)


def test_a_listener_without_a_group_may_close_its_consumer() -> None:
    async def scenario(world: World) -> None:
        listener = Calling("on_assigned", lambda: consumer.close())
        consumer = world.consumer("t", listener=listener)
        async with consumer:
            assert len(listener.refused) == 1

    simulate(scenario)


def test_a_listener_must_not_rewind() -> None:
    async def scenario(world: World) -> None:
        tp = TopicPartition("t", 0)
        listener = Calling("on_assigned", lambda: consumer.rewind_group({tp: 0}))
        consumer = world.consumer("t", group_id="g", listener=listener)
        async with consumer:
            assert [str(e)[:26] for e in listener.refused] == ["A listener must not rewind"]

    simulate(scenario)


def member_of(world: World, protocol: Sharing) -> GroupMember:
    return GroupMember("g", protocol_type="test", protocols=[protocol], **world.options())


def test_assign_must_not_close_its_member() -> None:
    async def scenario(world: World) -> None:
        async def assign(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
            await member.close()
            return {}

        member = member_of(world, Sharing("a", how=assign))
        async with member:
            with pytest.raises(IllegalStateError, match=r"assign\(\) must not close"):
                await anext(member.generations())

    simulate(scenario)


def test_the_body_of_a_generation_may_close_the_member() -> None:
    """The body of a generation may close the member.

    The close does not wait for the body, which is cancelled as at any end of its generation.
    """

    async def scenario(world: World) -> None:
        member = await member_of(world, Sharing("a"))
        went_on = False
        before = world.now
        async for generation in member.generations():
            async with generation:
                await member.close()
                went_on = True
        assert member.state is State.CLOSED
        assert not went_on
        assert world.now - before < 1

    simulate(scenario)

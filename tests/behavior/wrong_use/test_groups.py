"""Members of groups: calls too early, too late, twice, from another loop, or with wrong options."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from sharing import Sharing

from aiokclient import GroupMember, State, work_pool
from aiokclient.errors import (
    ClosedError,
    ConfigError,
    IllegalStateError,
    WrongLoopError,
    WrongThreadError,
)

groups = itertools.count()


def made(servers: str = "localhost:9092", **options: Any) -> GroupMember:
    options = {
        "protocol_type": "test",
        "protocols": [Sharing("a")],
        "bootstrap_servers": servers,
        **options,
    }
    return GroupMember(f"wrongly used {next(groups)}", **options)


@pytest.fixture
async def member(servers: str) -> AsyncIterator[GroupMember]:
    async with made(servers) as member:
        yield member


CALLS: list[Callable[[GroupMember], Any]] = [
    lambda member: member.generations(),
    lambda member: member.rejoin("reason"),
    lambda member: member.group_metadata(),
    lambda member: member.metrics(),
]


@pytest.mark.parametrize("call", CALLS)
async def test_member_calls_before_the_start_raise(call: Callable[[GroupMember], Any]) -> None:
    with pytest.raises(IllegalStateError, match=r"not started. Use `async with`"):
        call(made())


@pytest.mark.parametrize("call", CALLS)
async def test_member_calls_after_close_raise(
    call: Callable[[GroupMember], Any], servers: str
) -> None:
    member = made(servers)
    async with member:
        pass
    with pytest.raises(ClosedError, match=r"This GroupMember is closed. Make a new one"):
        call(member)


@pytest.mark.parametrize("call", CALLS)
async def test_member_calls_from_another_thread_raise(
    call: Callable[[GroupMember], Any], member: GroupMember
) -> None:
    with pytest.raises(WrongThreadError, match="belongs to the thread of its event loop"):
        await asyncio.to_thread(call, member)


def test_member_calls_in_another_loop_raise(servers: str) -> None:
    with asyncio.Runner() as one, asyncio.Runner() as other:
        member = made(servers)
        one.run(member.start())

        async def call() -> None:
            member.rejoin("reason")

        with pytest.raises(WrongLoopError):
            other.run(call())
        one.run(member.close())


async def test_two_tasks_cannot_wait_for_generations(member: GroupMember) -> None:
    async with await anext(member.generations()):
        waiting = asyncio.create_task(anext(member.generations()))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateError, match="Another task is already waiting"):
            await anext(member.generations())
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_generation_cannot_be_entered_twice(member: GroupMember) -> None:
    generation = await anext(member.generations())
    async with generation:
        pass
    with pytest.raises(IllegalStateError, match="entered only once"):
        async with generation:
            pass


async def test_close_is_allowed_within_a_generation(servers: str) -> None:
    member = await made(servers)
    async for generation in member.generations():
        async with generation:
            await member.close()
    assert generation.ended


async def test_an_iteration_begins_again_after_a_body_raised(member: GroupMember) -> None:
    """After an error in the body, a new iteration begins with the current generation.

    The member still has its assignment, which no other member can take meanwhile.
    """
    generations = member.generations()
    first = await anext(generations)
    with pytest.raises(ZeroDivisionError):
        async with first:
            raise ZeroDivisionError
    assert not first.ended
    async with asyncio.timeout(30):
        second = await anext(member.generations())
        assert second.generation_id == first.generation_id
        async with second:
            member.rejoin("changed")
            await asyncio.get_running_loop().create_future()
        assert second.ended
        async with await anext(generations) as third:
            assert third.generation_id > second.generation_id


class Says(Sharing):
    def metadata(self) -> Any:
        return self.says


@pytest.mark.parametrize("said", ["text", None, 7])
async def test_metadata_must_be_bytes(servers: str, said: Any) -> None:
    member = await made(servers, protocols=[Says(said)])
    with pytest.raises(TypeError, match=r"metadata\(\) of protocol sharing returned .* not bytes"):
        await anext(member.generations())
    await member.close()


@pytest.mark.parametrize("assigned", [None, 7, [b"a"]])
async def test_an_assignment_must_be_a_mapping(servers: str, assigned: Any) -> None:
    protocol = Sharing("a", how=lambda members: assigned)
    async with made(servers, protocols=[protocol]) as member:
        with pytest.raises(TypeError, match="not a mapping from member ids to bytes"):
            await anext(member.generations())


async def test_items_of_a_work_pool_need_weights() -> None:
    for items in cast(list[Any], [["a", "b"], None, 7, "ab"]):
        with pytest.raises(ConfigError, match="is not a mapping from names to weights") as caught:
            work_pool("pool", items)
        assert isinstance(caught.value, TypeError)
    for items in cast(list[Any], [{7: 1}, {"a": "1"}, {"a": None}, {"a": True}]):
        with pytest.raises(TypeError, match=r"is not a (name|weight)"):
            work_pool("pool", items)


@pytest.mark.parametrize("reason", [None, 7, b"text"])
async def test_reason_of_a_rejoin_must_be_text(servers: str, reason: Any) -> None:
    async with made(servers) as member:
        generation = await anext(member.generations())
        with pytest.raises(TypeError, match="is not a str"):
            member.rejoin(reason)
        async with generation:
            assert member.state is State.RUNNING


class Nameless:
    def assign(self, members: Any) -> Any: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"protocols": []}, "the list is empty"),
        ({"protocols": [Sharing("a"), Sharing("b")]}, "a name is in the list twice: sharing"),
        ({"protocols": [Nameless()]}, "must have a name"),
        ({"protocols": [Sharing]}, "is a class. Give an instance of it"),
        ({"protocols": Sharing("a")}, "is not a list of protocols"),
        ({"protocols": None}, "is not a list of protocols"),
        ({"protocol_type": ""}, "protocol_type: '' is not allowed"),
        ({"session_timeout_ms": 0}, "session_timeout_ms: 0 is not allowed"),
        ({"heartbeat_interval_ms": 50_000}, "is not below session_timeout_ms"),
        ({"sesion_timeout_ms": 1}, "Did you mean session_timeout_ms"),
    ],
)
def test_wrong_constructor_arguments_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        made(**options)


def test_from_properties_takes_group_options() -> None:
    texts = {"bootstrap.servers": "h:1", "group.id": "g", "session.timeout.ms": "7000"}
    wanted: Any = {"protocol_type": "test", "protocols": [Sharing("a")]}
    member = GroupMember.from_properties(texts, **wanted)
    assert (member._config.group_id, member._config.session_timeout_ms) == ("g", 7000)
    with pytest.raises(ConfigError, match=r"Did you mean group\.id"):
        GroupMember.from_properties({**texts, "group.idd": "g"}, **wanted)

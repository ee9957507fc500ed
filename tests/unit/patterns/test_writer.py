"""The handler of a member that competes to be the writer: whom it claims, chooses, and stops."""

from __future__ import annotations

import asyncio

import pytest

from aiokclient.errors import ClosedError, GroupAuthorizationError
from aiokclient.group.handler import Generation, MemberInfo
from aiokclient.patterns.writer import FORMER, PROTOCOL, WRITER, Candidacy, WriterBody
from aiokclient.types import GroupMetadata


def generation(assignment: bytes) -> Generation:
    return Generation(GroupMetadata("g", 1, "m"), PROTOCOL, "m", assignment)


async def writing() -> tuple[Candidacy, WriterBody]:
    """Return the candidacy of a writer in its body."""
    candidacy = Candidacy()
    candidacy.on_confirmed_changed(True)
    await candidacy.on_generation(generation(WRITER))
    await candidacy.wait_until_chosen()
    return candidacy, candidacy.enter_body()


async def is_cancelled(body: WriterBody) -> bool:
    """Leave a body after one turn of the loop. Return whether it was cancelled."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as error:
        return body.leave_body(error)
    return body.leave_body(None)


def members(**claims: bytes) -> list[MemberInfo]:
    return [MemberInfo(name, None, claim) for name, claim in claims.items()]


@pytest.mark.parametrize(
    ("claims", "writer"),
    [
        ({"a": b"", "b": b""}, "a"),
        ({"b": b"", "a": b""}, "a"),
        ({"a": b"", "b": WRITER}, "b"),
        ({"c": WRITER, "b": WRITER, "a": b""}, "b"),
        ({"a": FORMER, "b": b""}, "b"),
        ({"a": FORMER, "b": b"", "c": WRITER}, "c"),
        ({"a": FORMER}, None),
        ({}, None),
    ],
)
async def test_the_leader_chooses_the_writer_that_claims_or_one_that_waits(
    claims: dict[str, bytes], writer: str | None
) -> None:
    chosen = await Candidacy().assign(PROTOCOL, "a", members(**claims))
    assert chosen == ({} if writer is None else {writer: WRITER})


async def test_claim_follows_the_turn_and_the_body() -> None:
    candidacy = Candidacy()
    assert candidacy.offer_protocols() == [(PROTOCOL, b"")]
    await candidacy.on_generation(generation(b""))
    assert candidacy.offer_protocols() == [(PROTOCOL, b"")]
    await candidacy.on_generation(generation(WRITER))
    assert candidacy.offer_protocols() == [(PROTOCOL, WRITER)], "chosen, before it has begun"
    await candidacy.on_lost_membership("the session ended")
    assert candidacy.offer_protocols() == [(PROTOCOL, b"")], "it has written nothing"
    assert not candidacy.over
    assert not candidacy.stopped.is_set()


async def test_writer_claims_until_it_is_over_and_is_not_chosen_while_its_body_ends() -> None:
    candidacy, body = await writing()
    await candidacy.before_rejoin("a member came")
    assert candidacy.offer_protocols() == [(PROTOCOL, WRITER)]
    await candidacy.on_lost_membership("the session ended")
    assert candidacy.over
    assert candidacy.stopped.is_set()
    assert candidacy.offer_protocols() == [(PROTOCOL, FORMER)]
    assert await is_cancelled(body)


async def test_writer_goes_on_in_a_generation_that_chooses_it_again() -> None:
    candidacy, body = await writing()
    await candidacy.on_generation(generation(WRITER))
    candidacy.on_confirmed_changed(True)
    assert not candidacy.over
    assert not await is_cancelled(body)


async def test_writer_stops_when_another_member_is_elected() -> None:
    candidacy, body = await writing()
    await candidacy.on_generation(generation(b""))
    assert candidacy.over
    assert await is_cancelled(body)


async def test_writer_stops_when_the_coordinator_is_silent_and_does_not_begin_again() -> None:
    candidacy, body = await writing()
    candidacy.on_confirmed_changed(False)
    assert candidacy.over
    assert await is_cancelled(body)
    candidacy.on_confirmed_changed(True)
    assert candidacy.over


@pytest.mark.parametrize("first", ["chosen", "confirmed"])
async def test_wait_for_the_turn_needs_the_choice_and_its_confirmation(first: str) -> None:
    candidacy = Candidacy()
    waiting = asyncio.ensure_future(candidacy.wait_until_chosen())
    await asyncio.sleep(0)
    if first == "chosen":
        await candidacy.on_generation(generation(WRITER))
    else:
        candidacy.on_confirmed_changed(True)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    if first == "chosen":
        candidacy.on_confirmed_changed(True)
    else:
        await candidacy.on_generation(generation(WRITER))
    async with asyncio.timeout(10):
        await waiting


async def test_wait_for_the_turn_raises_an_error_once_and_can_be_repeated() -> None:
    candidacy = Candidacy()
    waiting = asyncio.ensure_future(candidacy.wait_until_chosen())
    await asyncio.sleep(0)
    candidacy.report_error(GroupAuthorizationError("no"))
    async with asyncio.timeout(10):
        with pytest.raises(GroupAuthorizationError):
            await waiting
    assert isinstance(candidacy.last_error, GroupAuthorizationError)
    candidacy.on_confirmed_changed(True)
    await candidacy.on_generation(generation(WRITER))
    async with asyncio.timeout(10):
        await candidacy.wait_until_chosen()


async def test_wait_for_the_turn_ends_when_the_member_is_closed() -> None:
    candidacy = Candidacy()
    waiting = asyncio.ensure_future(candidacy.wait_until_chosen())
    await asyncio.sleep(0)
    candidacy.close()
    async with asyncio.timeout(10):
        with pytest.raises(ClosedError, match="closed before it became the writer"):
            await waiting


async def test_end_stops_the_writer_and_waits_until_its_body_has_ended() -> None:
    candidacy, body = await writing()
    ending = asyncio.ensure_future(candidacy.end_work())
    assert await is_cancelled(body)
    assert candidacy.over
    assert not ending.done(), "the next writer must not begin before the body has ended"
    candidacy.body_end.set()
    async with asyncio.timeout(10):
        await ending


async def test_end_waits_for_nothing_when_there_was_no_body() -> None:
    async with asyncio.timeout(10):
        await Candidacy().end_work()


async def test_body_keeps_an_error_that_is_not_its_cancellation() -> None:
    body = WriterBody()
    assert not body.leave_body(ValueError("mine"))
    body = WriterBody()
    assert not body.leave_body(None)


async def test_body_is_cancelled_from_the_outside_as_any_task() -> None:
    async def wait() -> None:
        body = WriterBody()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            if not body.leave_body(error):
                raise

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_body_of_a_task_that_has_ended_is_not_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def enter() -> WriterBody:
        return WriterBody()

    body = await asyncio.ensure_future(enter())
    cancelled: list[object] = []
    monkeypatch.setattr(type(body._scope), "cancel", cancelled.append)
    body.cancel()
    assert cancelled == []
    assert not body.leave_body(None)
    assert not body.leave_body(asyncio.CancelledError()), "not by the task that has entered it"

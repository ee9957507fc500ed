"""Tests of members with a group protocol of the program.

They run on the embedded cluster and on a real Kafka.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from sharing import Life, Sharing, living, together

from aiokclient import Admin, Client, Coordinator, GroupMember, State
from aiokclient.errors import (
    AssignmentFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
)
from aiokclient.group.requests import MAGIC
from aiokclient.network.pool import Purpose
from aiokclient.protocol.messages import (
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment

Make = Callable[..., Life]


async def test_a_lone_member_is_leader_and_assigns_to_itself(make: Make, group_id: str) -> None:
    life = make("alone")
    async with living(life):
        await together(life)
        now = life.now
        assert now is not None
        assert now.is_leader
        assert now.protocol == "sharing"
        assert now.assignment == b"alone of 1"
        assert now.member_id == now.leader_id == life.member.group_metadata().member_id
        assert life.member.group_metadata()[:2] == (group_id, now.generation_id)
        assert life.member.state is State.RUNNING
    assert life.errors == []
    assert now.ended
    assert not now.lost


async def test_the_leader_sees_all_and_assigns_once_in_a_generation(make: Make) -> None:
    lives = [make(name) for name in "abc"]
    async with living(*lives):
        await together(*lives)
        leaders = [life for life in lives if life.now is not None and life.now.is_leader]
        assert len(leaders) == 1
        asked = leaders[0].protocols[0].asked[-1]
        assert sorted(asked.values()) == [b"a", b"b", b"c"]
        assert set(asked) == {life.now.member_id for life in lives if life.now}
        for life in lives:
            assert life.assignment == f"{life.protocols[0].says} of 3".encode()
        # Earlier generations may have ended before any member had entered them.
        assert sum(len(life.protocols[0].asked) for life in lives) <= lives[0].generation


async def test_assignments_change_when_members_join_and_leave(make: Make) -> None:
    first, second = make("first"), make("second")
    async with living(first):
        before = await together(first)
        async with living(second):
            both = await together(first, second, after=before)
        await together(first, after=both)
    assert [assignment for _, assignment in first.log][-1] == b"first of 1"
    assert first.errors == second.errors == []


@pytest.mark.parametrize("leader", [True, False], ids=["leader", "follower"])
async def test_a_new_generation_is_asked_for(make: Make, leader: bool) -> None:
    lives = [make(name) for name in "ab"]
    async with living(*lives):
        before = await together(*lives)
        asking = next(life for life in lives if life.now and life.now.is_leader is leader)
        asking.protocols[0].says = "changed"
        asking.member.rejoin("something outside has changed")
        after = await together(*lives, after=before)
        assert asking.assignment == b"changed of 2"
        asking.member.rejoin("and again, with the same metadata")
        await together(*lives, after=after)


async def test_assign_may_be_a_coroutine_and_slow(make: Make) -> None:
    """Heartbeats continue if the leader needs more than the session timeout for the assignment."""
    thought = asyncio.Event()

    async def think(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        await thought.wait()
        return dict.fromkeys(members, b"thought")

    life = make("slow", Sharing("slow", how=think))
    async with living(life):
        asyncio.get_running_loop().call_later(0.5, thought.set)
        await together(life)
        assert life.assignment == b"thought"


@pytest.fixture
async def raw(cluster_servers: Any) -> AsyncIterator[Client]:
    """Open a client for a member that sends raw requests."""
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        yield client


async def test_assignments_travel_byte_for_byte(make: Make, raw: Client, group_id: str) -> None:
    """A raw member receives exactly the bytes that `assign` returned for it.

    The assignments that it sends itself, although it is not the leader, are ignored.
    """
    given = {b"raw": bytes(range(256)) + MAGIC, b"ours": b""}

    def how(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return {member: given[metadata] for member, metadata in members.items()}

    life = make("ours", Sharing("ours", how=how))
    async with living(life):
        await life.until(lambda life: life.now)
        member, generation = await raw_join(raw, group_id, "sharing", b"raw")
        assert await raw_sync(raw, group_id, member, generation) == given[b"raw"]
        await life.until(lambda life: life.assignment == b"")
        await raw_leave(raw, group_id, member)


async def test_a_raw_member_sees_a_failed_assignment_as_what_is_documented(
    make: Make, raw: Client, group_id: str
) -> None:
    def how(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if len(members) > 1:
            raise ValueError("no shelf is free")
        return {}

    # The retry is late, so that the raw member has joined by then.
    life = make("ours", Sharing("ours", how=how), retry_backoff_ms=8_000)
    async with living(life):
        await life.until(lambda life: life.now)
        member, generation = await raw_join(raw, group_id, "sharing", b"raw")
        told = await raw_sync(raw, group_id, member, generation)
        assert told == MAGIC + b"ValueError\nno shelf is free"
        await raw_leave(raw, group_id, member)
        await life.until(lambda life: life.now)
        assert isinstance(life.errors[0], ValueError)


async def raw_sync(raw: Client, group_id: str, member: str, generation: int) -> bytes:
    """Return the assignment of a raw member.

    Its request also contains an assignment, which the coordinator must ignore.
    """
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member,
        protocol_type="test",
        protocol_name="sharing",
        assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"mine")],
    )
    answer = await raw.request(request, to=Coordinator("group", group_id))
    return bytes(answer.assignment)


async def raw_leave(raw: Client, group_id: str, member: str) -> None:
    request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member)])
    await raw.request(request, to=Coordinator("group", group_id))


async def raw_join(raw: Client, group_id: str, protocol: str, metadata: bytes) -> tuple[str, int]:
    """Join until the member is not the leader, and return its id and the generation."""
    member = ""
    for _ in range(100):
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="test",
            protocols=[JoinGroupRequestProtocol(name=protocol, metadata=metadata)],
        )
        node = await raw.cluster.coordinators.locate_coordinator("group", group_id)
        connection = await raw.cluster.connect(node, Purpose.JOIN, raw)
        answer = await connection.send(request, timeout_s=30)
        member = answer.member_id or member
        if answer.error_code == 0 and answer.leader != member:
            return member, answer.generation_id
        if answer.error_code == 0:
            # The raw member is the leader, and sends no assignment. Let it leave, and try again.
            await raw_leave(raw, group_id, member)
            member = ""
    raise AssertionError("The raw member was the leader after each of 100 joins.")


async def test_a_rolling_upgrade_of_protocols(make: Make) -> None:
    """The group uses the old protocol until all members offer the new one.

    No member gets an error during the upgrade.
    """
    old_a, old_b = make("a", Sharing("a", "v1")), make("b", Sharing("b", "v1"))
    new_a = make("a", Sharing("a", "v2"), Sharing("a", "v1"))
    new_b = make("b", Sharing("b", "v2"), Sharing("b", "v1"))
    async with living(old_b):
        async with living(old_a):
            before = await together(old_a, old_b)
            assert old_a.now is not None
            assert old_a.now.protocol == "v1"
        async with living(new_a):
            after = await together(new_a, old_b, after=before)
            assert new_a.now is not None
            assert new_a.now.protocol == "v1"
            await old_b.member.close()
            async with living(new_b):
                await together(new_a, new_b, after=after)
                assert new_a.now.protocol == "v2"
    assert old_b.errors == new_a.errors == new_b.errors == []


async def test_a_static_member_comes_back_without_a_rebalance(make: Make) -> None:
    """Closing sends no LeaveGroup. The next member with the instance id gets the old assignment.

    This is KIP-345.
    """
    other = make("other", group_instance_id="i-1")
    first = make("same", group_instance_id="i-2")
    async with living(other):
        async with living(first):
            before = await together(first, other)
        again = make("same", group_instance_id="i-2")
        async with living(again):
            now = await again.until(lambda life: life.now)
            assert now.assignment == b"same of 2"
            assert other.generation == now.generation_id == before


async def test_a_static_leader_comes_back_without_assigning_again(make: Make) -> None:
    """The coordinator still has the assignment, and tells the leader so (KIP-814)."""
    first = make("same", group_instance_id="i-1")
    async with living(first):
        before = await together(first)
    again = make("same", group_instance_id="i-1")
    async with living(again):
        now = await again.until(lambda life: life.now)
        assert (now.generation_id, now.assignment) == (before, b"same of 1")
        assert again.protocols[0].asked == []
        again.member.rejoin("it leads still")
        await together(again, after=before)
        assert len(again.protocols[0].asked) == 1


@pytest.mark.fault(44)
async def test_a_static_member_is_fenced_by_one_with_its_instance_id(make: Make) -> None:
    """The first of the two members is fenced and fails."""
    first, second = make("1", group_instance_id="i"), make("2", group_instance_id="i")
    async with living(first):
        await together(first)
        async with living(second):
            await second.until(lambda life: life.now)
            await first.until(lambda life: life.errors)
            assert isinstance(first.errors[0], FencedInstanceIdError)
            assert first.member.state is State.FAILED
            with pytest.raises(FencedInstanceIdError):
                first.member.rejoin("")


def shared_by_two(life: Life) -> bool:
    return life.assignment == b"2"


async def test_a_failed_assignment_is_reported_to_every_member(make: Make) -> None:
    """The leader's caller gets the original error, and others get AssignmentFailedError.

    The group recovers.
    """
    boom, failing = ValueError("no shelf is free"), True

    def how(members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if failing and len(members) == 2:
            raise boom
        return dict.fromkeys(members, b"%d" % len(members))

    lives = [make(name, Sharing(name, how=how)) for name in "ab"]
    async with living(*lives):
        for life in lives:
            await life.until(lambda life: life.errors)
        failing = False
        await asyncio.gather(*(life.until(shared_by_two) for life in lives))
    by_kind = {type(error): error for life in lives for error in life.errors}
    assert set(by_kind) == {ValueError, AssignmentFailedError}
    assert by_kind[ValueError] is boom
    assert "ValueError: no shelf is free" in str(by_kind[AssignmentFailedError])
    failed = sum(len(members) == 2 for life in lives for members in life.protocols[0].asked)
    assert failed < 20, "the members must not rejoin in a hot loop"


@pytest.mark.parametrize("wrong", [{"nobody": b""}, {"": b""}], ids=str)
async def test_an_assignment_to_nobody_is_a_failure(make: Make, wrong: dict[str, bytes]) -> None:
    life = make("a", Sharing("a", how=lambda members: wrong))
    async with living(life):
        await life.until(lambda life: life.errors)
        assert "not a member" in str(life.errors[0])
        life.protocols[0].how = lambda members: dict.fromkeys(members, b"right")
        await life.until(lambda life: life.assignment == b"right")


async def test_a_member_with_another_protocol_is_refused_and_told_which_is_in_use(
    make: Make,
) -> None:
    first = make("1", Sharing("1", "shelves"))
    async with living(first):
        await together(first)
        for stranger in (
            make("2", Sharing("2", "boxes")),
            make("3", Sharing("3", "shelves"), protocol_type="other"),
        ):
            async with living(stranger):
                await stranger.until(lambda life: life.errors)
                error = stranger.errors[0]
                assert isinstance(error, InconsistentGroupProtocolError)
                assert "shelves" in str(error)
                assert "test" in str(error)


async def test_a_session_timeout_that_the_broker_does_not_allow(make: Make) -> None:
    life = make("a", session_timeout_ms=2_000_000)
    async with living(life):
        await life.until(lambda life: life.errors)
        assert isinstance(life.errors[0], InvalidSessionTimeoutError)
        assert life.member.health().reasons


async def test_iteration_ends_when_the_member_is_closed(make: Make) -> None:
    life = make("a")
    async with living(life):
        now = await life.until(lambda life: life.now)
        await life.member.close()
        assert life.task is not None
        await life.task
        assert now.ended
        assert not now.lost


async def test_a_client_is_shared(cluster_servers: Any, group_id: str) -> None:
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        lives = []
        for name in "ab":
            protocol = Sharing(name)
            member = GroupMember(
                group_id, protocol_type="test", protocols=[protocol], client=client
            )
            lives.append(Life(member, protocol))
        async with living(*lives):
            await together(*lives)
            assert client.state is State.RUNNING
        async with Admin(client=client) as admin:
            await admin.describe_cluster()

"""The timers of a group, in virtual time: to the millisecond, and at no cost."""

import asyncio
from collections import deque

import pytest

from aiokclient.protocol import messages
from aiokclient.protocol.framing import ClientPipeline, FrameReader
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment
from aiokclient.testing import Simulation


class Line(asyncio.BufferedProtocol):
    """A connection of a simulated network; answers come in order."""

    def __init__(self):
        self.pipeline, self.frames = ClientPipeline("line"), FrameReader(1 << 20)
        self.waiting = deque()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.frames.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in self.frames.received(nbytes):
            self.waiting.popleft().set_result(self.pipeline.receive(frame)[2])

    def send(self, request):
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.writelines(self.pipeline.send(request, request.max_version)[1])
        return future


class Member:
    """A member in virtual time, with a session of 10 s and a rebalance timeout of 5 s.

    What it asks gives error codes.
    """

    def __init__(self, sim, cluster, instance, timeouts):
        self.sim, self.cluster, self.instance = sim, cluster, instance
        self.timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 5_000} | timeouts
        self.member_id, self.generation, self.leads, self.given = "", -1, False, None
        self.metadata = b""

    async def connect(self):
        address = self.cluster.address(self.cluster.coordinator("g"))
        options = {"tls": None, "server_hostname": None}
        transport = await self.sim.connector.connect(address, Line, **options)
        return transport.get_protocol()

    async def start(self):
        self.parks, self.side = await self.connect(), await self.connect()
        if self.instance is None and not self.member_id:
            self.member_id = (await self.side.send(self.request())).member_id
        return self

    def request(self):
        return messages.JoinGroupRequest(
            group_id="g",
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
            **self.timeouts,
        )

    async def join(self):
        answer = await self.parks.send(self.request())
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id
        return answer.error_code

    def whoami(self):
        return {
            "group_id": "g",
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }

    async def sync(self, *members):
        given = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"%d" % number)
            for number, each in enumerate(members)
        ]
        request = messages.SyncGroupRequest(assignments=given, **self.whoami())
        request.protocol_type, request.protocol_name = "consumer", "range"
        answer = await self.parks.send(request)
        self.given = answer.assignment
        return answer.error_code

    async def beat(self):
        return (await self.side.send(messages.HeartbeatRequest(**self.whoami()))).error_code

    async def commit(self):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic_id = self.cluster.topic_id("orders")
        topic = OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
        fields = self.whoami()
        request = messages.OffsetCommitRequest(
            topics=[topic], generation_id_or_member_epoch=fields.pop("generation_id"), **fields
        )
        return (await self.side.send(request)).topics[0].partitions[0].error_code


class World:
    """One cluster of two brokers, and the seconds since it started."""

    def __init__(self, sim, cluster):
        self.sim, self.cluster = sim, cluster
        self.started = sim.clock.monotonic()

    @property
    def now(self):
        return round(self.sim.clock.monotonic() - self.started, 1)

    @property
    def group(self):
        return self.cluster.groups["g"]

    @property
    def members(self):
        return set(self.group.members)

    async def make(self, instance=None, **timeouts):
        return await Member(self.sim, self.cluster, instance, timeouts).start()

    async def settled(self, *members, sync=True):
        """All of them in one generation; the leader, then the others."""
        assert await asyncio.gather(*(each.join() for each in members)) == [0] * len(members)
        if sync:
            await asyncio.gather(*(each.sync(*members if each.leads else ()) for each in members))
        return sorted(members, key=lambda each: not each.leads)

    async def until_state(self, state):
        await self.cluster.until(lambda: self.group.state == state, 1000)
        return self.now


def in_virtual_time(scenario, delay_ms=1000, **options):
    """Runs `scenario(world)`; the first rebalance waits for `delay_ms`."""
    options["configs"] = {"group.initial.rebalance.delay.ms": delay_ms}

    async def main(sim):
        async with sim.cluster(brokers=2, topics={"orders": 1}, **options) as cluster:
            return await scenario(World(sim, cluster))

    return Simulation(5).run(main)


@pytest.mark.parametrize(
    ("joins", "rebalance_ms", "begins"),
    [
        ([0], 60_000, 3),
        # 3 s more for each that came meanwhile, up to the rebalance timeout.
        ([0, 1], 60_000, 6),
        ([0, 1, 4], 60_000, 9),
        ([0, 1, 4], 7_000, 7),
        ([0, 1], 2_000, 3),
    ],
)
def test_the_first_rebalance(joins, rebalance_ms, begins):
    async def scenario(world):
        members = [await world.make(rebalance_timeout_ms=rebalance_ms) for _ in joins]

        async def join(member, at):
            await asyncio.sleep(at)
            return await member.join(), world.now

        answers = await asyncio.gather(*map(join, members, joins))
        assert {each.generation for each in members} == {1}
        return answers

    assert in_virtual_time(scenario, 3000) == [(0, begins)] * len(joins)


@pytest.mark.parametrize("sign", [Member.beat, Member.commit])
def test_signs_of_life(sign):
    async def scenario(world):
        (member,) = await world.settled(await world.make())
        for _ in range(5):
            await asyncio.sleep(9.8)
            assert await sign(member) == 0
        silent = world.now
        return round(await world.until_state("Empty") - silent, 1), await member.beat()

    assert in_virtual_time(scenario) == (10.0, 25)


def test_an_unused_id_lasts_for_a_session():
    async def scenario(world):
        member, lost = await world.make(rebalance_timeout_ms=60_000), await world.make()
        await member.join()
        world.cluster.rebalance("g")
        assert await member.join() == 0
        return world.now, await lost.join()

    assert in_virtual_time(scenario) == (10.0, 25)


def test_who_does_not_join_is_out_after_the_longest_rebalance_timeout():
    async def scenario(world):
        members = [await world.make(rebalance_timeout_ms=each) for each in (2_000, 7_000, 1_000)]
        await world.settled(*members)
        started = world.now
        world.cluster.rebalance("g")
        assert await members[0].join() == 0
        assert world.members == {members[0].member_id}
        return world.now - started, await members[1].beat()

    assert in_virtual_time(scenario) == (7.0, 25)


def test_static_members_keep_their_places_until_their_session_ends():
    async def scenario(world):
        here, away = await world.make(), await world.make("away")
        await world.settled(here, away)
        world.cluster.rebalance("g")
        await here.join()
        assert world.members == {here.member_id, away.member_id}
        assert here.leads
        assert await here.sync(here, away) == 0
        assert await away.beat() == 22
        assert await away.join() == await away.sync() == 0
        return world.now, away.given

    assert in_virtual_time(scenario) == (7.0, b"1")


def test_static_members_alone_are_waited_for():
    async def scenario(world):
        (member,) = await world.settled(await world.make("one", session_timeout_ms=60_000))
        world.cluster.rebalance("g")
        await asyncio.sleep(33)
        assert world.group.state == "PreparingRebalance"
        assert await member.join() == 0
        return member.generation, world.now

    assert in_virtual_time(scenario) == (2, 34.0)


def test_who_does_not_sync_is_out():
    async def scenario(world):
        leader, late = await world.settled(*[await world.make() for _ in range(2)], sync=False)
        started = world.now
        await leader.sync(leader, late)
        assert world.group.state == "Stable"
        await world.until_state("PreparingRebalance")
        assert world.members == {leader.member_id}
        return world.now - started, await late.sync(), await leader.join()

    assert in_virtual_time(scenario) == (5.0, 25, 0)


def test_a_leader_that_does_not_sync_is_out():
    async def scenario(world):
        leader, other = await world.settled(*[await world.make() for _ in range(2)], sync=False)
        started = world.now
        told = await other.sync(), world.now - started
        assert await other.join() == 0
        assert other.leads
        return *told, world.members == {other.member_id}, await leader.sync()

    assert in_virtual_time(scenario) == (27, 5.0, True, 25)


def test_parked_members_need_not_be_heard_of():
    async def scenario(world):
        timeouts = {"rebalance_timeout_ms": 60_000}
        parked, slow = [await world.make(**timeouts) for _ in range(2)]
        await world.settled(parked, slow)
        world.cluster.rebalance("g")
        joining = asyncio.ensure_future(parked.join())
        for _ in range(4):
            await asyncio.sleep(9)
            assert await slow.beat() == 27
        return await slow.join(), await joining, len(world.members)

    assert in_virtual_time(scenario) == (0, 0, 2)


def test_a_new_member_is_waited_for_five_minutes():
    """Its JoinGroup is parked and it does not send heartbeats; its session does not count."""

    async def scenario(world):
        timeouts = {"rebalance_timeout_ms": 1_000_000, "session_timeout_ms": 1_000_000}
        (first,) = await world.settled(await world.make(**timeouts))
        started = world.now
        new = await world.make()
        code = await new.join()
        return code, world.now - started, world.members == {first.member_id}

    assert in_virtual_time(scenario) == (25, 300.0, True)


def test_sessions_begin_anew_with_another_coordinator():
    async def scenario(world):
        members = await world.settled(*[await world.make() for _ in range(2)])
        await asyncio.sleep(9)
        world.cluster.move_coordinator("g")
        for each in members:
            await each.start()
        await asyncio.sleep(9)
        assert [await each.beat() for each in members] == [0, 0]
        started = world.now
        # Both are out at once; the generation of nobody is the next one.
        return await world.until_state("Empty") - started, world.group.generation

    assert in_virtual_time(scenario) == (10.0, 2)


@pytest.mark.parametrize("resync", [False, True])
def test_who_does_not_ask_anew_in_a_resync_is_out(resync):
    async def scenario(world):
        leader, one, two = await world.settled(*[await world.make() for _ in range(3)])
        started = world.now
        syncing = [asyncio.ensure_future(leader.sync(two, one, leader))]
        await world.cluster.until(lambda: world.group.state == "CompletingRebalance" or not resync)
        syncing.append(asyncio.ensure_future(one.sync()))
        codes = await asyncio.gather(*syncing)
        out = two.member_id not in world.members
        return codes, world.now - started, out, await leader.beat()

    expected = ([27, 27], 5.0, True, 27) if resync else ([0, 0], 0.0, False, 0)
    assert in_virtual_time(scenario, resync=resync) == expected

"""Members of a classic group on a simulated network, with raw requests and virtual time."""

import asyncio
from collections import deque

from owned import check_successor

from aiokclient.protocol import messages
from aiokclient.protocol.framing import ClientPipeline, FrameReader
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment
from aiokclient.testing import Simulation


class Line(asyncio.BufferedProtocol):
    """A connection of a simulated network, on which responses come in order."""

    def __init__(self):
        self.pipeline, self.frames = ClientPipeline("line"), FrameReader(1 << 20)
        self.waiting, self.lost = deque(), False

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, sizehint):
        return self.frames.get_buffer()

    def buffer_updated(self, nbytes):
        for frame in self.frames.take_frames(nbytes):
            answer = self.pipeline.match_response(frame).decode(frame)
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(answer)

    def connection_lost(self, exc):
        self.lost = True
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                future.set_exception(EOFError())

    def send(self, request):
        if self.lost:
            raise EOFError
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.writelines(self.pipeline.encode_request(request, request.max_version)[1])
        return future


class Member:
    """A member with a session timeout of 10 s and a rebalance timeout of 5 s, in virtual time.

    Its requests return error codes.
    """

    def __init__(self, sim, cluster, instance, timeouts):
        self.sim, self.cluster, self.instance = sim, cluster, instance
        self.timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 5_000} | timeouts
        self.waiting = self.side = None
        self.member_id, self.generation, self.leads, self.given = "", -1, False, None
        self.metadata, self.told = b"", []

    async def connect(self):
        node = self.cluster.coordinator("g")
        if node < 0:
            raise EOFError
        address = self.cluster.address(node)
        options = {"tls": None, "server_hostname": None}
        transport = await self.sim.connector.connect(address, Line, **options)
        return transport.get_protocol()

    async def start(self):
        self.hang_up()
        self.waiting, self.side = await self.connect(), await self.connect()
        if self.instance is None and not self.member_id:
            answer = await self.side.send(self.request())
            if not answer.member_id:
                raise EOFError(answer.error_code)
            self.member_id = answer.member_id
        return self

    def hang_up(self):
        for line in (self.waiting, self.side):
            if line is not None:
                line.transport.abort()

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
        answer = await self.waiting.send(self.request())
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leads = answer.leader == answer.member_id
            self.told = [each.member_id for each in answer.members]
        return answer.error_code

    def whoami(self):
        return {
            "group_id": "g",
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }

    async def sync(self, *members):
        """Send the assignments as the leader. Each member is assigned its index in `members`."""
        return await self.give({each.member_id: b"%d" % n for n, each in enumerate(members)})

    async def give(self, assignments):
        """Send a SyncGroup request with assignments by member id."""
        given = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=data)
            for member_id, data in assignments.items()
        ]
        request = messages.SyncGroupRequest(assignments=given, **self.whoami())
        request.protocol_type, request.protocol_name = "consumer", "range"
        answer = await self.waiting.send(request)
        self.given = answer.assignment
        return answer.error_code

    async def leave(self):
        who = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = messages.LeaveGroupRequest(group_id="g", members=[who])
        return (await self.side.send(request)).error_code

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
    """A cluster with one group, and the seconds since it started."""

    def __init__(self, sim, cluster):
        self.sim, self.cluster = sim, cluster
        self.started = sim.clock.monotonic()
        self._made: list[Member] = []

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
        return await self.meet(instance, **timeouts).start()

    def meet(self, instance=None, **timeouts):
        """Return a member that is not connected yet."""
        member = Member(self.sim, self.cluster, instance, timeouts)
        self._made.append(member)
        return member

    async def check_group(self):
        """Check that a consumer gets and reads the group's topic when all members have gone."""
        if "g" not in self.cluster.groups or "orders" not in self.cluster.topics:
            return
        self.cluster.reset()
        for member in self._made:
            member.hang_up()
        options = {"connector": self.sim.connector, "clock": self.sim.clock}
        await check_successor(
            self, "g", bootstrap_servers=self.cluster.bootstrap_servers, **options
        )

    async def settled(self, *members, sync=True):
        """Bring all members into one generation, and return them, the leader first."""
        assert await asyncio.gather(*(each.join() for each in members)) == [0] * len(members)
        if sync:
            await asyncio.gather(*(each.sync(*members if each.leads else ()) for each in members))
        return sorted(members, key=lambda each: not each.leads)

    async def until_state(self, state):
        await self.cluster.until(lambda: self.group.state == state, 1000)
        return self.now


def in_virtual_time(scenario, delay_ms=1000, *, seed=5, brokers=2, **options):
    """Run `scenario(world)`; the first rebalance waits for `delay_ms`."""
    delay = {"group.initial.rebalance.delay.ms": delay_ms}
    options["configs"] = {**delay, **options.get("configs", {})}
    options["brokers"] = brokers

    async def main(sim):
        async with sim.cluster(topics={"orders": 1}, **options) as cluster:
            world = World(sim, cluster)
            result = await scenario(world)
            await world.check_group()
            return result

    return Simulation(seed).run(main)

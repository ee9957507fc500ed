"""Tests of share groups in virtual time: locks, renewals, and sessions of members."""

import asyncio
from contextlib import asynccontextmanager

from aiokclient import Admin, Client
from aiokclient.admin import ConfigResource
from aiokclient.cluster.targets import Broker, Coordinator
from aiokclient.protocol import messages
from aiokclient.protocol.messages import share_acknowledge, share_fetch
from aiokclient.testing import Simulation

ACCEPT, RELEASE, RENEW = 1, 2, 4
NOT_AVAILABLE, BAD_STATE = 15, 121
LOCK_S, SESSION_S = 20.0, 45.0


class Member:
    """A member of the group "g" with a client of its own, on a cluster of one broker."""

    def __init__(self, client, topic_id, name):
        self.client, self.topic_id, self.id, self.epoch = client, topic_id, name, 0

    def take_epoch(self):
        self.epoch += 1
        return self.epoch - 1

    async def beat(self, epoch, **fields):
        request = messages.ShareGroupHeartbeatRequest(
            group_id="g", member_id=self.id, member_epoch=epoch, **fields
        )
        return await self.client.request(request, Coordinator("group", "g"))

    async def fetch(self, wait_s):
        partition = share_fetch.FetchPartition(partition_index=0)
        request = messages.ShareFetchRequest(
            group_id="g",
            member_id=self.id,
            share_session_epoch=self.take_epoch(),
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            max_records=10,
            batch_size=10,
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id, partitions=[partition])],
        )
        answer = await self.client.request(request, Broker(1))
        assert not answer.error_code
        return [
            (acquired.first_offset, acquired.last_offset, acquired.delivery_count)
            for topic in answer.responses
            for each in topic.partitions
            for acquired in each.acquired_records
        ]

    async def renew(self, first, last):
        assert not await self.acknowledge(first, last, RENEW)

    async def acknowledge(self, first, last, kind):
        """Acknowledge records, and return the code of the partition."""
        batch = share_acknowledge.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[kind]
        )
        partition = share_acknowledge.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=[batch]
        )
        request = messages.ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.id,
            share_session_epoch=self.take_epoch(),
            is_renew_ack=kind == RENEW,
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])
            ],
        )
        answer = await self.client.request(request, Broker(1), timeout=90)
        return answer.responses[0].partitions[0].error_code


@asynccontextmanager
async def two_members(sim, cluster):
    """Yield two members of a group that has begun with a partition of ten records."""
    # An acknowledgement may wait for 61 seconds.
    options = {"connector": sim.connector, "clock": sim.clock, "request_timeout_ms": 90_000}
    servers = cluster.bootstrap_servers
    cluster.produce("orders", [b"v"] * 10)
    topic_id = cluster.topic_id("orders")
    async with Admin(bootstrap_servers=servers, **options) as admin:
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": int(LOCK_S * 1000),
        }
        (await admin.alter_configs({ConfigResource.group("g"): configs})).raise_for_errors()
    async with (
        Client(bootstrap_servers=servers, **options) as one,
        Client(bootstrap_servers=servers, **options) as two,
    ):
        a, b = Member(one, topic_id, "a"), Member(two, topic_id, "b")
        await a.beat(0, subscribed_topic_names=["orders"])
        joined = await a.beat(2)
        assert joined.assignment.topic_partitions[0].partitions == [0]
        yield a, b


def run(seed=3):
    """Let a lock end, renew another, and let members be silent. Return what was seen, and when."""
    seen = []

    async def main(sim):
        async with (
            sim.cluster(brokers=1, topics={"orders": 1}) as cluster,
            two_members(sim, cluster) as (a, b),
        ):

            async def take(member, wait_s):
                begun = sim.clock.monotonic()
                ranges = await member.fetch(wait_s)
                seen.append((member.id, ranges, round(sim.clock.monotonic() - begun)))

            await take(a, 0)
            await take(b, 25)  # The lock of the first member ends.
            await asyncio.sleep(15)
            await b.renew(0, 9)
            await take(a, 10)  # It would have ended now.
            await take(a, 25)
            await asyncio.sleep(SESSION_S)
            seen.append(cluster.groups["g"].state)

    simulation = Simulation(seed=seed)
    simulation.run(main)
    return seen, simulation.trace


def test_locks_and_sessions_end_in_virtual_time():
    seen, trace = run()
    assert seen == [
        ("a", [(0, 9, 1)], 0),
        ("b", [(0, 9, 2)], 20),
        ("a", [], 10),
        ("a", [(0, 9, 3)], 10),
        "Empty",
    ]
    assert run() == (seen, trace)


def run_without_share_coordinator(scenario):
    """Run a scenario with two members and the cluster, and return what it has seen."""
    seen = []

    async def main(sim):
        async with (
            sim.cluster(brokers=1, topics={"orders": 1}) as cluster,
            two_members(sim, cluster) as (a, b),
        ):
            begun = sim.clock.monotonic()

            def see(*what):
                seen.append((*what, round(sim.clock.monotonic() - begun)))

            await scenario(cluster, a, b, see)

    Simulation(seed=5).run(main)
    return seen


def test_acknowledgements_end_after_61_seconds_without_the_share_coordinator():
    async def scenario(cluster, a, b, see):
        see(await a.fetch(0))
        with cluster.hold_share_coordinator():
            see(await b.fetch(0))  # Fetches go on, of partitions that were loaded before.
            see(await a.acknowledge(5, 9, RENEW))
            see(await a.acknowledge(0, 3, ACCEPT))
            see(await b.fetch(0))  # Locks end, and the records are delivered again.
            see(await a.acknowledge(0, 0, RELEASE))
        see(await b.acknowledge(0, 9, ACCEPT))

    seen = run_without_share_coordinator(scenario)
    assert seen == [
        ([(0, 9, 1)], 0),
        ([], 0),
        (0, 0),
        (NOT_AVAILABLE, 61),
        ([(0, 9, 2)], 61),
        (BAD_STATE, 61),
        (0, 61),
    ]


def test_acknowledgements_succeed_once_the_share_coordinator_is_back():
    async def scenario(cluster, a, b, see):
        see(await a.fetch(0))
        with cluster.hold_share_coordinator("g"):
            waiting = asyncio.create_task(a.acknowledge(0, 3, ACCEPT))
            await asyncio.sleep(LOCK_S + 5)
            see(await b.fetch(0))  # What waits is not delivered, although its lock has ended.
            assert not waiting.done()
        see(await waiting)
        with cluster.hold_share_coordinator("another"):
            see(await b.acknowledge(4, 9, ACCEPT))

    seen = run_without_share_coordinator(scenario)
    assert seen == [([(0, 9, 1)], 0), ([(4, 9, 2)], 25), (0, 25), (0, 25)]


def test_partition_that_nobody_has_fetched_is_loaded_once_the_share_coordinator_is_back():
    async def scenario(cluster, a, b, see):
        with cluster.hold_share_coordinator():
            see(await a.fetch(10))
        see(await a.fetch(10))

    assert run_without_share_coordinator(scenario) == [([], 10), ([(0, 9, 1)], 10)]


def test_reset_of_the_cluster_brings_the_share_coordinator_back():
    async def scenario(cluster, a, b, see):
        await a.fetch(0)
        with cluster.hold_share_coordinator():
            cluster.reset()
            see(await a.acknowledge(0, 9, ACCEPT))
        see(await a.fetch(0))

    assert run_without_share_coordinator(scenario) == [(0, 0), ([], 0)]


def test_lost_connection_does_not_end_what_waits_for_the_share_coordinator():
    async def scenario(cluster, a, b, see):
        await a.fetch(0)
        with cluster.hold_share_coordinator():
            waiting = asyncio.create_task(a.acknowledge(0, 3, ACCEPT))
            await asyncio.sleep(1)
            waiting.cancel()
            cluster.disconnect()
            await asyncio.sleep(1)
            # The broker notices the loss with the end of the request. So it releases nothing.
            b.epoch = 0
            see(await b.fetch(0))
        await asyncio.sleep(1)
        see(await b.fetch(0))

    assert run_without_share_coordinator(scenario) == [([], 2), ([(4, 9, 2)], 3)]

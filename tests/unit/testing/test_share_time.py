"""Tests of share groups in virtual time: locks, renewals, and sessions of members."""

import asyncio

from aiokclient import Admin, Client
from aiokclient.admin import ConfigResource
from aiokclient.cluster.targets import Broker, Coordinator
from aiokclient.protocol import messages
from aiokclient.protocol.messages import share_acknowledge, share_fetch
from aiokclient.testing import Simulation

RENEW = 4
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
        batch = share_acknowledge.AcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[RENEW]
        )
        partition = share_acknowledge.AcknowledgePartition(
            partition_index=0, acknowledgement_batches=[batch]
        )
        request = messages.ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.id,
            share_session_epoch=self.take_epoch(),
            is_renew_ack=True,
            topics=[
                share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])
            ],
        )
        answer = await self.client.request(request, Broker(1))
        assert not answer.responses[0].partitions[0].error_code


def run(seed=3):
    """Let a lock end, renew another, and let members be silent. Return what was seen, and when."""
    seen = []

    async def main(sim):
        options = {"connector": sim.connector, "clock": sim.clock}
        async with sim.cluster(brokers=1, topics={"orders": 1}) as cluster:
            servers = cluster.bootstrap_servers
            cluster.produce("orders", [b"v"] * 10)
            topic_id = cluster.topic_id("orders")
            async with Admin(bootstrap_servers=servers, **options) as admin:
                configs = {
                    "share.auto.offset.reset": "earliest",
                    "share.record.lock.duration.ms": int(LOCK_S * 1000),
                }
                changed = await admin.alter_configs({ConfigResource.group("g"): configs})
                changed.raise_for_errors()
            async with (
                Client(bootstrap_servers=servers, **options) as one,
                Client(bootstrap_servers=servers, **options) as two,
            ):
                a, b = Member(one, topic_id, "a"), Member(two, topic_id, "b")
                await a.beat(0, subscribed_topic_names=["orders"])
                joined = await a.beat(2)
                assert joined.assignment.topic_partitions[0].partitions == [0]

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

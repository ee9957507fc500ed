"""Tests that brokers answer group requests in any order, from any sender, and stay consistent."""

import random

import pytest

from aiokclient.protocol import ApiKey
from aiokclient.protocol.api import request_class
from aiokclient.protocol.messages import offset_commit
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment
from aiokclient.testing import EmbeddedCluster

ROUNDS = 250
APIS = (
    *(ApiKey.JOIN_GROUP, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SYNC_GROUP),
    *(ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.DESCRIBE_GROUPS),
    *(ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT),
    *(ApiKey.OFFSET_COMMIT, ApiKey.DELETE_GROUPS),
)


class Stranger:
    """A sender of random requests that knows the existing member ids and generations."""

    def __init__(self, cluster, wire, rng):
        self.cluster, self.wire, self.rng = cluster, wire, rng
        self.given = []

    def some(self):
        """Return a member id, a generation, and an instance id, each one right or wrong."""
        rng, group = self.rng, self.cluster.groups.get("g")
        ids, generation = [*self.given[-2:], ""], 0
        if group is not None and group.kind.value == "classic":
            ids += [*group.members] * 4
            generation = group.generation
        instance = rng.choice((None, "a", "b")) if rng.random() < 0.2 else None
        member_id = rng.choice([*ids, "nobody"])
        known = group and group.members.get(member_id)
        if known and rng.random() < 0.9:
            instance = known.instance_id
        return member_id, generation + rng.choice((*[0] * 9, 1, -1)), instance

    def request(self, api):
        rng, (member_id, generation, instance) = self.rng, self.some()
        request = request_class(api)()
        for name, value in {
            "group_id": "g",
            "member_id": member_id,
            "group_instance_id": instance,
            "generation_id": generation,
            "generation_id_or_member_epoch": generation,
            "protocol_type": rng.choice(("consumer",) * 9 + ("other",)),
            "session_timeout_ms": rng.choice((20, 300, 300, 300)),
            "rebalance_timeout_ms": rng.choice((-1, 0, 20, 100)),
        }.items():
            if hasattr(request, name):
                setattr(request, name, value)
        if api == ApiKey.JOIN_GROUP:
            names = rng.sample(("one", "two", "three"), rng.randrange(1, 4))
            metadata = rng.choice((b"", b"\0\1"))
            request.protocols = [
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name in names
            ]
        elif api == ApiKey.SYNC_GROUP:
            group = self.cluster.groups.get("g")
            request.protocol_name = group.protocol if group else "one"
            request.assignments = [
                SyncGroupRequestAssignment(member_id=each, assignment=rng.randbytes(1))
                for each in (group.members if group and rng.random() < 0.8 else ())
            ]
        elif api == ApiKey.LEAVE_GROUP:
            request.member_id = ""
            request.members = [MemberIdentity(member_id=member_id, group_instance_id=instance)]
        elif api == ApiKey.OFFSET_COMMIT:
            part = offset_commit.OffsetCommitRequestPartition(partition_index=0)
            topic_id = self.cluster.topic_id("orders")
            request.topics = [
                offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[part])
            ]
        elif api == ApiKey.DESCRIBE_GROUPS:
            request.groups = ["g"]
        elif api == ApiKey.DELETE_GROUPS:
            request.groups_names = ["g"]
        return request

    def go(self):
        connection = self.wire.to(self.cluster.coordinator("g"))
        for _ in range(ROUNDS):
            group = self.cluster.groups.get("g")
            alone = (group is None or not group.members) and self.rng.random() < 0.8
            request = self.request(ApiKey.JOIN_GROUP if alone else self.rng.choice(APIS))
            connection.socket.settimeout(0.004)
            try:
                answer = connection.request(request)
                if getattr(answer, "member_id", ""):
                    self.given = [*self.given[-3:], answer.member_id]
            except TimeoutError:
                # The broker holds the request, perhaps forever.
                connection = self.wire.to(self.cluster.coordinator("g"))
            if self.rng.random() < 0.02:
                self.cluster.move_coordinator("g")
                connection = self.wire.to(self.cluster.coordinator("g"))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("resync", [False, True])
def test_groups_stay_consistent_for_random_requests(seed, resync, wire_to, peers_of):
    configs = {"group.min.session.timeout.ms": 1, "group.max.size": 4}
    with EmbeddedCluster(2, {"orders": 1}, seed=seed, configs=configs, resync=resync) as cluster:
        Stranger(cluster, wire_to(cluster), random.Random(seed)).go()
        # The remaining members expire. After that, the group works again.
        cluster.wait_for(lambda: not (cluster.groups.get("g") and cluster.groups["g"].members))
        member = peers_of(cluster)()
        assert member.join().error_code == 0
        assert member.sync({member: b"1"}) == ("ok", b"1")

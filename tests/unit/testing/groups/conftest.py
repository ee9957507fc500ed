"""Fixtures: members of groups that send raw requests, with one method for each request."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.protocol import messages
from aiokclient.protocol.messages import offset_commit, offset_fetch
from aiokclient.protocol.messages.join_group import JoinGroupRequestProtocol
from aiokclient.protocol.messages.leave_group import MemberIdentity
from aiokclient.protocol.messages.sync_group import SyncGroupRequestAssignment
from aiokclient.testing import EmbeddedCluster

_numbers = itertools.count()
PATIENCE_S = 60.0


def named(code: int) -> str:
    name = ERRORS_BY_CODE[code].name if code else "ok"
    assert name is not None
    return name


class Peer:
    """One member of a group, which stores its id, generation, and leader from the responses.

    `open` makes a connection to the coordinator. The member has one for requests that the broker
    may hold, and one for all others.
    """

    def __init__(
        self,
        open: Callable[[], Any],
        group: str,
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        kind: str = "consumer",
        session_ms: int = 60_000,
        rebalance_ms: int = 60_000,
    ) -> None:
        self.open, self.group, self.instance, self.kind = open, group, instance, kind
        self.protocols = dict(protocols or {"range": b"metadata"})
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.member_id, self.generation, self.leader, self.protocol = "", -1, "", None
        self.waiting, self.side = open(), open()

    def moved(self, open: Callable[[], Any] | None = None) -> None:
        """Connect to another coordinator."""
        self.open = open or self.open
        self.waiting, self.side = self.open(), self.open()

    # -- joining ---------------------------------------------------------------------------

    def join_request(self) -> messages.JoinGroupRequest:
        return messages.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.kind,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data)
                for name, data in self.protocols.items()
            ],
        )

    def get_id(self) -> None:
        answer = self.side.request(self.join_request())
        assert named(answer.error_code) == "MEMBER_ID_REQUIRED"
        self.member_id = answer.member_id

    def start_join(self, version: int | None = None) -> None:
        """Send a JoinGroup request, which the broker holds.

        A new member requests its id first.
        """
        if not self.member_id and self.instance is None and (version is None or version >= 4):
            self.get_id()
        self.waiting.send(self.join_request(), version)

    def joined(self) -> Any:
        """Return the response to JoinGroup, and store its fields."""
        answer = self.waiting.receive()
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.leader, self.protocol = answer.leader, answer.protocol_name
        return answer

    def join(self, version: int | None = None) -> Any:
        self.start_join(version)
        return self.joined()

    @property
    def leads(self) -> bool:
        return self.leader == self.member_id

    # -- syncing ---------------------------------------------------------------------------

    def start_sync(
        self, given: Mapping[Any, bytes] | None = None, version: int | None = None, **others: Any
    ) -> None:
        """Send SyncGroup.

        `given` has the assignment of each peer. Only the leader passes it.
        """
        assignments = [
            SyncGroupRequestAssignment(member_id=peer.member_id, assignment=data)
            for peer, data in (given or {}).items()
        ]
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.kind,
            "protocol_name": self.protocol,
            "assignments": assignments,
        }
        self.waiting.send(messages.SyncGroupRequest(**fields | others), version)

    def synced(self) -> Any:
        answer = self.waiting.receive()
        return named(answer.error_code), bytes(answer.assignment)

    def sync(self, given: Mapping[Any, bytes] | None = None, **others: Any) -> Any:
        self.start_sync(given, **others)
        return self.synced()

    # -- everything else -------------------------------------------------------------------

    def beat(self, version: int | None = None, **others: Any) -> str:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return named(
            self.side.request(messages.HeartbeatRequest(**fields | others), version).error_code
        )

    def leave(self, *others: tuple[str, str | None], version: int | None = None) -> Any:
        """Send LeaveGroup for this member, or for others by (member id, instance id)."""
        request = messages.LeaveGroupRequest(group_id=self.group)
        if version is not None and version < 3:
            request.member_id = self.member_id
            return named(self.side.request(request, version).error_code)
        request.members = [
            MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in others or [(self.member_id, self.instance)]
        ]
        answer = self.side.request(request, version)
        return named(answer.error_code), [named(each.error_code) for each in answer.members]

    def commit(self, topic: str | uuid.UUID, *offsets: int, **others: Any) -> list[str]:
        """Commit offsets for the partitions 0, 1, ..., and return the error of each."""
        version, metadata = others.pop("version", None), others.pop("metadata", "")
        partitions = [
            offset_commit.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
            for index, offset in enumerate(offsets)
        ]
        wanted = offset_commit.OffsetCommitRequestTopic(partitions=partitions)
        if isinstance(topic, str):
            wanted.name, version = topic, 9 if version is None else version
        else:
            wanted.topic_id = topic
        fields = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": [wanted],
        }
        answer = self.side.request(messages.OffsetCommitRequest(**fields | others), version)
        found = [each for topic in answer.topics for each in topic.partitions]
        return [named(each.error_code) for each in sorted(found, key=lambda p: p.partition_index)]

    def fetch(self, topic: str | uuid.UUID | None, *partitions: int, **others: Any) -> Any:
        """Return the offset, metadata, and error of each partition.

        Without a topic, return those of all topics.
        """
        wanted = offset_fetch.OffsetFetchRequestTopics(partition_indexes=list(partitions))
        version = 10
        if isinstance(topic, str):
            wanted.name, version = topic, 9
        elif topic is not None:
            wanted.topic_id = topic
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=self.group, topics=None if topic is None else [wanted]
        )
        request = messages.OffsetFetchRequest(groups=[group], **others)
        (answer,) = self.side.request(request, version).groups
        return named(answer.error_code), [
            (each.partition_index, each.committed_offset, each.metadata, named(each.error_code))
            for topic in answer.topics
            for each in topic.partitions
        ]

    def described(self) -> Any:
        return self.side.request(messages.DescribeGroupsRequest(groups=[self.group])).groups[0]

    @property
    def state(self) -> str:
        state = self.described().group_state
        assert isinstance(state, str)
        return state

    def until(self, state: str, members: int | None = None) -> None:
        """Wait until the group has this state, and this number of members if it is passed."""

        def there() -> bool:
            found = self.described()
            return found.group_state == state and members in (None, len(found.members))

        wait(there)


def wait(check: Callable[[], bool]) -> None:
    """Check the condition repeatedly until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.005)


class Peers:
    """The members of one group, and the steps that they take together."""

    def __init__(self, open: Callable[[], Any], group: str) -> None:
        self.open, self.group = open, group

    def __call__(self, **options: Any) -> Peer:
        return Peer(self.open, self.group, **options)

    @staticmethod
    def gather(*new: Peer, old: tuple[Peer, ...] = ()) -> Peer:
        """Join new members to one generation with the old ones, and return the leader."""
        if not old:
            first, *new = new
            first.join()
            old = (first,)
        for peer in new:
            peer.start_join()
        if new:
            old[0].until("PreparingRebalance", len(old) + len(new))
            for peer in old:
                peer.start_join()
            for peer in (*old, *new):
                assert peer.joined().error_code == 0
        return next(peer for peer in (*old, *new) if peer.leads)

    def settle(self, *new: Peer, old: tuple[Peer, ...] = ()) -> Peer:
        """Call `gather`, and assign to each member its index as bytes."""
        leader = self.gather(*new, old=old)
        self.assign(*old, *new)
        return leader

    @staticmethod
    def assign(*peers: Peer) -> None:
        """Send SyncGroup from all members of a generation, the leader included."""
        given = {peer: b"%d" % number for number, peer in enumerate(peers)}
        for peer in peers:
            peer.start_sync(given if peer.leads else None)
        assert [peer.synced() for peer in peers] == [("ok", data) for data in given.values()]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    configs = {"group.min.session.timeout.ms": 1}
    with EmbeddedCluster(3, {"orders": 3}, seed=7, configs=configs) as cluster:
        yield cluster


@pytest.fixture
def peers(cluster: EmbeddedCluster, wire: Any) -> Peers:
    """Return a factory of members of the group "g"."""
    return Peers(lambda: wire.to(cluster.coordinator("g")), "g")


@pytest.fixture
def peers_of(wire_to: Any) -> Any:
    """Return a function that makes a factory of members for a cluster that the test starts."""

    def make(cluster: EmbeddedCluster, group: str = "g") -> Peers:
        wire = wire_to(cluster)
        return Peers(lambda: wire.to(cluster.coordinator(group)), group)

    return make


@pytest.fixture
def fresh_group() -> Callable[[Any], Peers]:
    """Return a function that makes members of a new group, on the broker of a parity scenario."""

    def make(broker: Any) -> Peers:
        group = f"group-{next(_numbers)}-{uuid.uuid4().hex[:6]}"
        find = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        wait(lambda: not broker.request(find).coordinators[0].error_code)
        peers = Peers(broker.again, group)
        lone = peers()
        wait(lambda: lone.fetch(None)[0] == "ok")
        return peers

    return make

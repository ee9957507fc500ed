"""Wrong use of consumer groups, on both clusters: the errors say what to do."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping
from typing import Any, cast

import pytest
from sharing import Sharing

from aiokclient import Assignor, Consumer, GroupMember, Producer, TopicPartition
from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    MemberAssignment,
    MemberSubscription,
)
from aiokclient.consumer.assignors.strategy import Range
from aiokclient.errors import (
    AssignmentFailedError,
    CommitFailedError,
    ConfigError,
    FencedInstanceIdError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)

PROTOCOLS: Mapping[str, dict[str, Any]] = {
    "classic": {"heartbeat_interval_ms": 100},
    "kip848": {"group_protocol": "consumer"},
}
PATIENCE_S = 60


class Site:
    """A topic of two partitions with one record in each, and a group."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.group = f"g-{uuid.uuid4().hex[:8]}"

    def member(self, protocol: str = "classic", **options: Any) -> Consumer[Any, Any]:
        options = {**PROTOCOLS[protocol], "auto_offset_reset": "earliest", **options}
        options = {"group_id": self.group, **options}
        return Consumer(self.topic, bootstrap_servers=self.bootstrap, **options)

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


@pytest.fixture
async def site(cluster_servers: Any) -> Site:
    site = Site(str(cluster_servers.bootstrap), await cluster_servers.new_topic(partitions=2))
    async with Producer(bootstrap_servers=site.bootstrap) as producer:
        for partition in range(2):
            await producer.send(site.topic, b"v", partition=partition)
    return site


async def until_it_raises(consumer: Consumer[Any, Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await consumer.poll()


async def until_read(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(records) < count:
            records += await consumer.poll()
    return records


# -- options that the constructor refuses ---------------------------------------------------------

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"group_id": ""}, "group_id: It is empty. Name a group, or leave it out"),
    ({"group_instance_id": ""}, "group_instance_id: '' is not allowed. It must be 1 to 249"),
    ({"heartbeat_interval_ms": 50_000}, r"not below session_timeout_ms \(45000\)\. A third of it"),
    ({"partition_assignment_strategy": "best"}, "'best' is not an assignor. It must be one of"),
    ({"partition_assignment_strategy": []}, "must be one of 'range'"),
    ({"partition_assignment_strategy": ["range", Range()]}, "Each name may occur once"),
    ({"partition_assignment_strategy": 5}, "5 is not an assignor. It must be one of 'range'"),
    ({"group_protocol": "kip848"}, "It must be one of 'classic' and 'consumer'"),
    ({"group_protocol": "consumer", "heartbeat_interval_ms": 1}, "The brokers decide it"),
    ({"max_poll_interval_ms": 0}, "max_poll_interval_ms: 0 is not allowed"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
async def test_group_options_are_checked(options: dict[str, Any], said: str, servers: str) -> None:
    with pytest.raises(ConfigError, match=said):
        await begin({"bootstrap_servers": servers, "group_id": "g", **options})


async def begin(options: dict[str, Any]) -> None:
    async with Consumer("t", **options):
        pass


async def test_a_group_without_a_subscription_waits(servers: str) -> None:
    async with Consumer(bootstrap_servers=servers, group_id="g") as consumer:
        consumer.subscribe([])
        assert await consumer.poll(0.01) == []
        assert consumer.group_metadata().generation_id == -1


# -- calls that need a group or other group options -----------------------------------------------


async def test_errors_of_group_calls_without_a_group_say_what_to_do(
    consumer: Consumer[Any, Any],
) -> None:
    tp = TopicPartition("orders", 0)
    with pytest.raises(IllegalStateError, match=r"no group_id\. Store offsets"):
        await consumer.commit()
    with pytest.raises(IllegalStateError, match=r"committed\(\) needs a group"):
        await consumer.committed([tp])
    with pytest.raises(IllegalStateError, match=r"group_metadata\(\) needs a group"):
        consumer.group_metadata()
    with pytest.raises(IllegalStateError, match=r"rewind_group\(\) needs a group"):
        await consumer.rewind_group({tp: 0})


async def test_tracked_without_a_group_affects_consumed(site: Site) -> None:
    async with site.member(group_id=None) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            async for record in consumer.tracked():
                consumer.done(record)
                break
        assert consumer.consumed()[site.tp(record.partition)].offset == 1


async def test_done_ignores_records_of_other_readers(site: Site) -> None:
    async with site.member(group_id=None) as other, site.member() as consumer:
        theirs = {record.partition: record for record in await until_read(other, 2)}
        async with asyncio.timeout(PATIENCE_S):
            async for record in consumer.tracked():
                tp = site.tp(record.partition)
                consumer.done(theirs[record.partition])
                assert consumer.consumed()[tp].offset == 0
                for _ in range(2):
                    consumer.done(record)
                    assert consumer.consumed()[tp].offset == 1
                break


async def test_rewind_group_refuses_wrong_arguments(site: Site) -> None:
    async with site.member() as consumer:
        for offset in cast(list[Any], [-1, "0", 1.5, 2**63]):
            with pytest.raises(IllegalStateError, match="is not an offset"):
                await consumer.rewind_group({site.tp(0): offset})
        with pytest.raises(IllegalStateError, match="is not a mapping from partitions"):
            await consumer.rewind_group(cast(Any, [site.tp(0)]))
        with pytest.raises(IllegalStateError, match="is not a partition"):
            await consumer.rewind_group({(site.topic, -1): 0})  # type: ignore[dict-item]
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match=r"Call subscribe\(\) first"):
            await consumer.rewind_group({site.tp(0): 0})
    async with site.member("kip848", group_id=f"{site.group}-newer") as consumer:
        with pytest.raises(UnsupportedVersionError, match="needs group_protocol='classic'"):
            await consumer.rewind_group({site.tp(0): 0})


# -- refusals of the group ------------------------------------------------------------------------


async def test_a_strategy_that_no_other_member_has_is_refused(site: Site) -> None:
    async with site.member(partition_assignment_strategy="range") as first:
        await until_read(first, 2)
        with pytest.raises(InconsistentGroupProtocolError) as caught:
            await site.member(partition_assignment_strategy=["roundrobin", "sticky"]).start()
        said = str(caught.value)
        assert "The group of type 'consumer' uses 'range'" in said
        assert "This member offers roundrobin, sticky" in said
        assert "Configure a common partition_assignment_strategy" in said
        assert len(first.assignment()) == 2


async def test_a_group_of_another_kind_is_refused(site: Site) -> None:
    options: dict[str, Any] = {"bootstrap_servers": site.bootstrap}
    member = GroupMember(site.group, protocol_type="test", protocols=[Sharing("a")], **options)
    async with member, await anext(member.generations()):
        with pytest.raises(InconsistentGroupProtocolError, match="type 'test' uses 'sharing'"):
            await site.member().start()


async def test_a_session_timeout_out_of_range_is_refused(site: Site) -> None:
    with pytest.raises(InvalidSessionTimeoutError) as caught:
        await site.member(session_timeout_ms=100_000_000).start()
    assert "session_timeout_ms is 100000000" in str(caught.value)
    assert "group.max.session.timeout.ms" in str(caught.value)


async def test_a_remote_assignor_that_the_brokers_do_not_have_is_refused(site: Site) -> None:
    with pytest.raises(UnsupportedAssignorError, match=r"Use one of group\.consumer\.assignors"):
        async with site.member("kip848", group_remote_assignor="best") as consumer:
            await until_it_raises(consumer)


async def test_a_member_whose_instance_id_is_taken_is_fenced(site: Site) -> None:
    first = await site.member(group_instance_id="one")
    await until_read(first, 2)
    async with site.member(group_instance_id="one") as second:
        with pytest.raises(FencedInstanceIdError, match="its own group_instance_id"):
            await until_it_raises(first)
        await first.close()
        assert len(second.assignment()) == 2


async def test_an_instance_id_in_use_is_refused(site: Site) -> None:
    async with site.member("kip848", group_instance_id="one") as first:
        await until_read(first, 2)
        with pytest.raises(UnreleasedInstanceIdError, match="ids must be unique"):
            async with site.member("kip848", group_instance_id="one") as second:
                await until_it_raises(second)
        assert len(first.assignment()) == 2


# -- user-defined assignors -----------------------------------------------------------------------


class Mine(Assignor):
    name = "mine"
    calls = 0

    def give(self, cluster: AssignmentCluster, topic: str, names: list[str]) -> Any:
        raise NotImplementedError

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, MemberAssignment]:
        (topic,) = cluster.topics
        self.calls += 1
        return self.give(cluster, topic, sorted(members))  # type: ignore[no-any-return]


class TooMany(Mine):
    """An assignor that assigns a partition which does not exist."""

    def give(self, cluster: AssignmentCluster, topic: str, names: list[str]) -> Any:
        return {names[0]: MemberAssignment((TopicPartition(topic, 7),))}


class ToAll(Mine):
    """An assignor that assigns each partition to every member, but does not declare that."""

    def give(self, cluster: AssignmentCluster, topic: str, names: list[str]) -> Any:
        return {name: MemberAssignment(tuple(cluster.partitions(topic))) for name in names}


class Lists(Mine):
    """An assignor that returns something other than assignments."""

    def give(self, cluster: AssignmentCluster, topic: str, names: list[str]) -> Any:
        return {name: cluster.partitions(topic) for name in names}


class Broken(Mine):
    """An assignor that raises an exception."""

    def give(self, cluster: AssignmentCluster, topic: str, names: list[str]) -> Any:
        raise ZeroDivisionError("no members with weight")


@pytest.mark.parametrize(
    ("assignor", "members", "leaders", "said"),
    [
        (TooMany, 1, AssignmentFailedError, r"-7 to .* has 2 partitions\. Give only part"),
        (ToAll, 2, AssignmentFailedError, "to one of them, or set `overlapping = True`"),
        (Lists, 1, AssignmentFailedError, "Give a MemberAssignment: a tuple of TopicPartition"),
        (Broken, 2, ZeroDivisionError, "no members with weight"),
    ],
)
async def test_a_wrong_result_of_an_assignor_is_explained(
    site: Site, assignor: type[Mine], members: int, leaders: type[Exception], said: str
) -> None:
    """The leader raises the error itself. The other members raise that the leader failed."""
    assignors = [assignor() for _ in range(members)]
    consumers = [site.member(partition_assignment_strategy=one) for one in assignors]

    async def run(consumer: Consumer[Any, Any]) -> None:
        await consumer.start()
        await until_it_raises(consumer)

    try:
        runs = [asyncio.create_task(run(consumer)) for consumer in consumers]
        # Wait for the first error only: that consumer leaves the group, and then the result of the
        # assignor may be valid for the others.
        done, rest = await asyncio.wait(
            runs, timeout=PATIENCE_S, return_when=asyncio.FIRST_EXCEPTION
        )
        errors = [each.exception() for each in done]
        for each in rest:
            each.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        if members == 1:  # The error is raised at once, and not after several attempts.
            assert assignors[0].calls <= 2
    finally:
        for consumer in consumers:
            await consumer.close()
    assert errors
    assert all(isinstance(error, leaders | AssignmentFailedError) for error in errors)
    assert all(re.search(said, str(error)) for error in errors)


# -- commits of partitions that another member owns -----------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_commit_after_the_partition_was_lost_raises(site: Site, protocol: str) -> None:
    """A commit is refused if another member took the partition after the record was delivered."""
    async with site.member(protocol, enable_auto_commit=False) as consumer:
        records = await until_read(consumer, 2)
        keeps_on = asyncio.create_task(until_it_raises(consumer))
        async with site.member(protocol, enable_auto_commit=False) as other:
            async with asyncio.timeout(PATIENCE_S):
                await other.poll(PATIENCE_S)
            (lost,) = [r for r in records if site.tp(r.partition) in other.assignment()]
            with pytest.raises(CommitFailedError, match="no longer owns") as caught:
                await consumer.commit(lost)
            assert caught.value.topic_partition == site.tp(lost.partition)
            with pytest.raises(CommitFailedError):
                await consumer.commit({site.tp(lost.partition): 1})
            with pytest.raises(CommitFailedError):
                await consumer.commit([site.tp(lost.partition)])
            (kept,) = [r for r in records if r is not lost]
            await consumer.commit(kept)
            keeps_on.cancel()
            await asyncio.wait([keeps_on])


async def test_commit_refuses_wrong_arguments(site: Site) -> None:
    async with site.member() as consumer:
        for wrong in (5, [site.tp(0), "orders"], {site.tp(0): -1}, {site.tp(0): "1"}, b"orders"):
            with pytest.raises(IllegalStateError):
                await consumer.commit(wrong)

"""Groups of the KIP-848 protocol in a simulation.

Members are fenced, wait for partitions of others, and learn late of topics. No committed offset is
beyond the processed records, no record is delivered after its partition was revoked (promises F and
G of `tests/faults.md`), and every record is read.
"""

import asyncio
import random
import re
from typing import Any

import pytest
from ownership import Member, Ownership
from thinned import one_in
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import (
    CoordinatorNotAvailableError,
    FencedMemberEpochError,
    NotCoordinatorError,
    UnknownMemberIdError,
)
from aiokclient.protocol import ApiKey

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
PARTITIONS, COUNT = 6, 60
FENCES = (FencedMemberEpochError, UnknownMemberIdError)
PASSING = (NotCoordinatorError, CoordinatorNotAvailableError)
CONFIGS = {"group.consumer.session.timeout.ms": 6000, "group.consumer.heartbeat.interval.ms": 500}


class Group:
    """Consumers of one group in a simulation, and their recorded ownership."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.ownership = Ownership(lambda: world.now)
        self.running: dict[str, tuple[Consumer[Any, Any], asyncio.Task[None], Member]] = {}
        self.topics: dict[str, int] = {}
        self._made = 0

    def join(self, *topics: Any, **options: Any) -> str:
        self._made += 1
        name = f"m{self._made}"
        member = self.ownership.member(name)
        settings: dict[str, Any] = {
            "group_id": "g",
            "group_protocol": "consumer",
            "connector": self.world.network.connector(name),
            "checked": False,  # Members that have stopped release nothing before they close.
            "listener": member,
            "auto_commit_interval_ms": 1000,
            "max_poll_interval_ms": 20_000,
            "metadata_max_age_ms": 2000,
            **options,
        }
        consumer = self.world.consumer(*(topics or ("t",)), **settings)
        task = asyncio.create_task(self._work(consumer, member))
        self.running[name] = consumer, task, member
        return name

    async def _work(self, consumer: Consumer[Any, Any], member: Member) -> None:
        async with consumer:
            async for record in consumer:
                member.delivered(record)
                try:
                    await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.05)))
                except asyncio.CancelledError:
                    member.dropped(record)
                    raise
                member.ended(record)

    async def leave(self, name: str) -> None:
        consumer, task, _ = self.running.pop(name)
        consumer.stop()
        await task

    async def kill(self, name: str) -> None:
        _, task, member = self.running.pop(name)
        self.world.network.part([name], [self.world.address(b) for b in self.world.cluster.brokers])
        member.kill()
        task.cancel()
        await asyncio.wait([task])

    def produce(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions
        for partition in range(partitions):
            self.world.cluster.produce(topic, [b"%d" % i for i in range(COUNT)], partition)

    async def complete(self) -> None:
        """Wait until every record is processed and committed."""
        wanted = {
            TopicPartition(topic, partition): COUNT
            for topic, size in self.topics.items()
            for partition in range(size)
        }
        async with asyncio.timeout(300):
            while {tp: s.offset for tp, s in self.world.cluster.committed("g").items()} != wanted:
                for _, task, _ in self.running.values():
                    if task.done():
                        task.result()
                await asyncio.sleep(0.5)
                self.check()
        assert self.ownership.count() == sum(wanted.values())

    def check(self) -> None:
        self.ownership.check_committed(self.world.cluster.committed("g"))
        self.ownership.check()

    async def end(self) -> None:
        for name in list(self.running):
            await self.leave(name)
        self.check()


async def churn(group: Group) -> None:
    world, rng = group.world, group.rng
    group.produce("t", PARTITIONS)
    group.join()
    for _ in range(14):
        await asyncio.sleep(rng.uniform(0.1, 2.0))
        group.check()
        names = list(group.running)
        actions = ["join", "join", "leave", "kill", "fence", "fail", "drop", "part", "move"]
        action = rng.choice(actions)
        if action == "join" or len(names) < 2:
            group.join()
        elif action == "leave":
            await group.leave(rng.choice(names))
        elif action == "kill":
            await group.kill(rng.choice(names))
        elif action == "part":
            world.network.part([rng.choice(names)], [world.address(b) for b in (1, 2)])
            await asyncio.sleep(rng.uniform(0.5, 10.0))
            world.network.heal()
        elif action == "move":
            world.cluster.move_coordinator("g")
        elif action == "drop":
            world.cluster.drop(HEARTBEAT, when=rng.choice(["before", "after"]), times=1)
        else:
            errors = FENCES if action == "fence" else PASSING
            world.cluster.fail(HEARTBEAT, rng.choice(errors), times=rng.choice([1, 3]))
    world.network.heal()
    group.join()
    await group.complete()
    await group.end()


@pytest.mark.fault(5, 41, 43)
@pytest.mark.parametrize("seed", one_in(6, range(12)))
def test_records_are_processed_while_members_come_go_and_are_fenced(seed: int) -> None:
    async def scenario(world: World) -> None:
        await churn(Group(world, seed))

    simulate(scenario, seed=seed, brokers=2, topics={"t": PARTITIONS}, configs=CONFIGS)


class MixedGroup(Group):
    """A group whose members use the classic or the newer protocol at random.

    The coordinator repeatedly converts the group from one protocol to the other.
    """

    strategy = ""

    def join(self, *topics: Any, **options: Any) -> str:
        if self.rng.random() < 0.5:
            options = {
                "group_protocol": "classic",
                "partition_assignment_strategy": self.strategy,
                "session_timeout_ms": 6000,
                "heartbeat_interval_ms": 500,
            }
        return super().join(*topics, **options)


@pytest.mark.fault(41)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_members_of_both_protocols_share_a_group(seed: int, strategy: str) -> None:
    async def scenario(world: World) -> None:
        group = MixedGroup(world, seed)
        group.strategy = strategy
        await churn(group)

    simulate(scenario, seed=seed, brokers=2, topics={"t": PARTITIONS}, configs=CONFIGS)


@pytest.mark.fault(43)
def test_a_fenced_member_joins_again_soon() -> None:
    async def scenario(world: World) -> None:
        group = Group(world)
        group.produce("t", PARTITIONS)
        name = group.join()
        await group.ownership.until(lambda: group.ownership.count() > 50)
        member = group.running[name][2]
        told = len(member.told)
        with world.cluster.fail(HEARTBEAT, FencedMemberEpochError, times=1):
            began = world.now
            await group.ownership.until(lambda: len(member.told) >= told + 2)
        assert [what for what, _ in member.told[told:]] == ["lost", "assigned"]
        assert world.now - began < 2.0
        await group.complete()
        await group.end()

    simulate(scenario, topics={"t": PARTITIONS}, configs=CONFIGS)


@pytest.mark.fault(43)
def test_a_revoked_partition_waits_for_the_record_in_progress() -> None:
    """A member keeps a revoked partition until its record is processed, and heartbeats continue."""

    async def scenario(world: World) -> None:
        group = Group(world)
        # The first member keeps partition 0 and has to release partition 1.
        world.cluster.produce("t", [b"0", b"1"], 1)
        release = asyncio.Event()
        slow, quick = group.ownership.member("slow"), group.ownership.member("quick")
        # The member that crawls leaves with its last record in progress.
        options: dict[str, Any] = {"group_id": "g", "group_protocol": "consumer", "checked": False}

        async def crawl() -> None:
            async with world.consumer("t", listener=slow, **options) as consumer:
                async for record in consumer:
                    slow.delivered(record)
                    await release.wait()
                    slow.ended(record)
                    if release.is_set():
                        return

        crawling = asyncio.create_task(crawl())
        await group.ownership.until(lambda: slow.owned)
        async with world.consumer("t", listener=quick, **options) as consumer:
            assert await consumer.poll(timeout=60.0) == []
            assert quick.owned == {}
            release.set()
            while group.ownership.count() < 2:
                for record in await consumer.poll(timeout=1.0):
                    quick.delivered(record)
                    quick.ended(record)
            await crawling
            group.ownership.check()

    simulate(scenario, topics={"t": 2}, configs=CONFIGS)


@pytest.mark.fault(43)
@pytest.mark.parametrize("new", ["earliest", "reset"])
def test_a_matching_topic_created_later_is_read_from_its_beginning(new: str) -> None:
    """Members read records from before they noticed the topic, even with `latest`.

    With `new_partitions="reset"`, which is what Kafka does, these records are skipped.
    """

    async def scenario(world: World) -> None:
        group = Group(world)
        for _ in range(2):
            group.join(re.compile("[a-z]+"), auto_offset_reset="latest", new_partitions=new)
        await group.ownership.until(lambda: len(group.ownership.owner) == PARTITIONS)
        world.cluster.create_topic("late", 3)
        for partition in range(3):
            world.cluster.produce("late", [b"%d" % i for i in range(COUNT)], partition)
        await group.ownership.until(lambda: len(group.ownership.owner) == PARTITIONS + 3)
        await asyncio.sleep(5.0)
        assert group.ownership.count() == (3 * COUNT if new == "earliest" else 0)
        for name in list(group.running):
            await group.leave(name)

    simulate(scenario, topics={"t": PARTITIONS}, configs=CONFIGS)


@pytest.mark.fault(25)
def test_partitions_that_are_added_are_read_from_their_beginning() -> None:
    """Members read records from before they noticed the partitions, even with `latest`."""

    async def scenario(world: World) -> None:
        group = Group(world)
        for _ in range(2):
            group.join(auto_offset_reset="latest")
        await group.ownership.until(lambda: len(group.ownership.owner) == PARTITIONS)
        await asyncio.sleep(1.0)
        world.cluster.add_partitions("t", PARTITIONS + 4)
        for partition in range(PARTITIONS + 4):
            world.cluster.produce("t", [b"%d" % i for i in range(COUNT)], partition)
        group.topics["t"] = PARTITIONS + 4
        await group.complete()
        await group.end()

    simulate(scenario, topics={"t": PARTITIONS}, configs=CONFIGS)


@pytest.mark.fault(18, 43)
def test_a_member_that_was_cut_off_delivers_nothing_of_others() -> None:
    """A member that was cut off delivers nothing while another member owns its partition."""

    async def scenario(world: World) -> None:
        group = Group(world)
        group.produce("t", PARTITIONS)
        first, second = group.join(), group.join()
        members = [group.running[name][2] for name in (first, second)]
        await group.ownership.until(lambda: all(len(each.owned) == 3 for each in members))
        world.network.part([first], [world.address(1)])
        await group.ownership.until(lambda: len(members[1].owned) == PARTITIONS)
        await asyncio.sleep(600)
        world.network.heal()
        await group.ownership.until(lambda: all(len(each.owned) == 3 for each in members))
        await group.complete()
        await group.end()

    simulate(scenario, topics={"t": PARTITIONS}, configs=CONFIGS)

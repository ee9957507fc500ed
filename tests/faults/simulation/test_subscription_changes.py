"""Changes of the subscription: the rebalances that they cause, and the listener that is called."""

import asyncio
import gc
import re
from itertools import pairwise
from typing import Any

import pytest
from group_world import PROTOCOLS, Diary, every_protocol, fill, member, reading
from owned import check_owned, until, view_of
from world import World, simulate

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import IllegalStateError
from aiokclient.protocol import ApiKey


async def rebalances(world: World) -> int:
    """Wait 20 s for rebalances, and return how often a member has joined so far."""
    await asyncio.sleep(20)
    joins = len(world.requests(ApiKey.JOIN_GROUP))
    beats = world.requests(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    return joins + sum(1 for beat in beats if beat.message.member_epoch == 0)


@every_protocol
def test_subscribe_to_the_current_topics_changes_only_the_listener(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        old, new = Diary(), Diary()
        consumer = member(world, old, **PROTOCOLS[protocol])
        async with consumer, reading(consumer) as records:
            await old.until(lambda: old.owned)
            before = await rebalances(world)
            for _ in range(3):
                consumer.subscribe(["t"], new)
                assert consumer.assignment() == {TopicPartition("t", 0)}
                await asyncio.sleep(0)
            assert await rebalances(world) == before
            fill(world, 5)
            await asyncio.sleep(1)
            assert [record.offset for record in records] == list(range(15))
        assert old.pages == [("assigned", [0])]
        assert new.pages == [("revoked", [0])]

    simulate(scenario)


@every_protocol
@pytest.mark.parametrize("topics", [["t"], re.compile("t")])
def test_unsubscribe_before_a_subscribe_to_the_same_hands_the_partitions_to_the_new_listener(
    protocol: str, topics: Any
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, 2)
        diaries = [Diary() for _ in range(4)]
        consumer = member(world, None, **PROTOCOLS[protocol])
        consumer.subscribe(topics, diaries[0])
        async with consumer, reading(consumer) as records:
            await diaries[0].until(lambda: diaries[0].owned)
            await asyncio.sleep(1)
            assert len(records) == 20
            before = await rebalances(world)
            owned = consumer.assignment()
            for old, new in pairwise(diaries):
                consumer.unsubscribe()
                assert consumer.assignment() == set()
                consumer.subscribe(topics, new)
                with pytest.raises(IllegalStateError):
                    consumer.seek(TopicPartition("t", 0), 5)
                await new.until(lambda new=new: new.owned == owned)  # type: ignore[misc]
                assert consumer.assignment() == owned
                assert old.pages == [("assigned", [0, 1]), ("revoked", [0, 1])]
            assert await rebalances(world) == before
            fill(world, 5, 2)
            await asyncio.sleep(1)
            assert sorted(record.offset for record in records) == sorted([*range(15)] * 2)
        assert diaries[-1].pages == [("assigned", [0, 1]), ("revoked", [0, 1])]

    simulate(scenario, topics={"t": 2})


@every_protocol
def test_calls_for_all_assigned_partitions_leave_out_those_that_were_given_up(
    protocol: str,
) -> None:
    """After `unsubscribe()`, partitions stay until they are released."""

    async def scenario(world: World) -> None:
        fill(world, 10, 2)
        async with member(world, Diary(), **PROTOCOLS[protocol]) as consumer:
            assert await consumer.poll(max_records=5)
            consumer.pause(consumer.assignment())
            consumer.unsubscribe()
            assert consumer.assignment() == consumer.paused() == set()
            consumer.resume(consumer.paused())
            assert await consumer.lag() == {}
            consumed = consumer.consumed()
            consumer.seek_to_beginning()
            consumer.seek_to_end()
            assert consumer.consumed() == consumed

    simulate(scenario, topics={"t": 2})


@every_protocol
def test_earlier_listeners_are_kept_until_they_have_heard_of_the_revocation(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 1)
        pages: list[str] = []

        class Told:
            def __init__(self, name: str) -> None:
                self.name = name

            async def on_revoked(self, tps: Any) -> None:
                consumer.resume(tps)
                assert [await consumer.position(tp) for tp in tps] == [1]
                assert consumer.assignment() == set(tps)
                pages.append(self.name)

        consumer = member(world, None, **PROTOCOLS[protocol])
        consumer.subscribe(["t"], Told("first"))
        async with consumer:
            assert await consumer.poll(timeout=30)
            # The record is in progress, so the partition is not revoked yet.
            for name in ("second", "third"):
                consumer.unsubscribe()
                await asyncio.sleep(0.5)
                consumer.subscribe(["t"], Told(name))
                gc.collect()
            await consumer.poll(timeout=5)
            assert pages == ["first"]
        assert pages == ["first", "third"]

    simulate(scenario)


@every_protocol
def test_subscribe_to_the_current_pattern_changes_only_the_listener(protocol: str) -> None:
    async def scenario(world: World) -> None:
        old, new = Diary(), Diary()
        async with member(world, None, **PROTOCOLS[protocol]) as consumer:
            consumer.subscribe(re.compile("t.*"), old)
            async with reading(consumer):
                await asyncio.sleep(5)
                before = await rebalances(world)
                told = list(old.pages)
                consumer.subscribe(re.compile("t.*"), new)
                assert await rebalances(world) == before
        assert old.pages == told
        assert new.pages == [("revoked", [0])]

    simulate(scenario)


@every_protocol
def test_an_earlier_listener_hears_only_of_the_revocation_after_another_subscribe(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        old, new = Diary(), Diary()
        consumer = member(world, old, **PROTOCOLS[protocol])
        async with consumer, reading(consumer):
            await old.until(lambda: old.owned)
            consumer.unsubscribe()
            consumer.subscribe(["other"], new)
            await new.until(lambda: ("assigned", [0, 1]) in new.pages)
        assert old.pages == [("assigned", [0]), ("revoked", [0])]
        assert [page for page in new.pages if page[1]] == [
            ("assigned", [0, 1]),
            ("revoked", [0, 1]),
        ]

    simulate(scenario, topics={"t": 1, "other": 2})


@every_protocol
def test_unsubscribe_is_told_to_the_listener_that_was_subscribed(protocol: str) -> None:
    async def scenario(world: World) -> None:
        diary = Diary()
        consumer = member(world, diary, **PROTOCOLS[protocol])
        async with consumer, reading(consumer):
            await diary.until(lambda: diary.owned)
            consumer.unsubscribe()
            await diary.until(lambda: ("revoked", [0]) in diary.pages)

    simulate(scenario)


@every_protocol
def test_a_member_left_without_partitions_is_told_once(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 1)
        diaries = [Diary(), Diary()]
        one = member(world, diaries[0], **PROTOCOLS[protocol])
        async with one, reading(one):
            await diaries[0].until(lambda: diaries[0].owned)
            two = member(world, diaries[1], name="two", **PROTOCOLS[protocol])
            async with two, reading(two):
                await until(lambda: any(("assigned", []) in diary.pages for diary in diaries))
                await until(lambda: any(diary.owned for diary in diaries))
                assert len(diaries[0].owned) + len(diaries[1].owned) == 1
                await asyncio.sleep(30)
                told = [diary.pages.count(("assigned", [])) for diary in diaries]
                assert sorted(told) == [0, 1]

    simulate(scenario)


@pytest.mark.parametrize("other", [["t"], ["t", "more"], re.compile("t")])
def test_positions_without_a_group_are_kept_when_subscribe_follows_unsubscribe(other: Any) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        consumer = world.consumer("t", auto_offset_reset="latest")
        async with consumer:
            fill(world, 10)
            records = await consumer.poll(timeout=10, max_records=4)
            assert [record.offset for record in records] == [10, 11, 12, 13]
            consumer.unsubscribe()
            consumer.subscribe(other)
            assert await consumer.position(TopicPartition("t", 0)) == 14
            records = await consumer.poll(timeout=10)
            assert [record.offset for record in records] == [14, 15, 16, 17, 18, 19]
            consumer.unsubscribe()
            assert consumer.assignment() == set()
            await asyncio.sleep(1)
            consumer.subscribe(other)
            await asyncio.sleep(1)
            fill(world, 1)
            records = await consumer.poll(timeout=10)
            assert [record.offset for record in records] == [20]

    simulate(scenario, topics={"t": 1, "more": 1})


async def until_owned(world: World, *consumers: Consumer[Any, Any]) -> None:
    """Wait until the members own what they have subscribed to, which takes no rebalance timeout."""
    await check_owned(world, lambda: [view_of(each) for each in consumers], "g", within_s=5)


@every_protocol
@pytest.mark.parametrize("following", [["t"], re.compile("t")], ids=["names", "pattern"])
def test_topics_are_owned_soon_after_a_pattern_that_matches_only_internal_ones(
    protocol: str, following: Any
) -> None:
    """With KIP-848, the coordinator assigns internal topics, and the consumer ignores them."""

    async def scenario(world: World) -> None:
        world.cluster.create_topic("__consumer_offsets", 4)
        consumer = member(world, None, **PROTOCOLS[protocol])
        consumer.subscribe(re.compile("__.*"))
        async with consumer:
            await asyncio.sleep(5)
            consumer.subscribe(following)
            await until_owned(world, consumer)

    simulate(scenario, topics={"t": 2})


@every_protocol
def test_members_whose_pattern_matches_internal_topics_share_the_others_soon(protocol: str) -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("__consumer_offsets", 4)
        one, two = (member(world, None, name, **PROTOCOLS[protocol]) for name in ("one", "two"))
        for consumer in (one, two):
            consumer.subscribe(re.compile(".*"))
        async with one:
            await until_owned(world, one)
            async with two:
                await until_owned(world, one, two)
            await until_owned(world, one)
            assert len(one.assignment()) == 4

    simulate(scenario, topics={"t": 4})


@every_protocol
@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.004, 0.01, 0.03])
def test_topics_are_owned_soon_after_several_subscriptions(protocol: str, pause_s: float) -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, None, **PROTOCOLS[protocol])
        async with consumer:
            for topics in (["t"], ["u"], ["v"], ["u", "v"], ["t"], re.compile("u")):
                consumer.subscribe(topics)
                await asyncio.sleep(pause_s)
            await until_owned(world, consumer)
            assert consumer.subscription() == {"u"}

    simulate(scenario, topics={"t": 2, "u": 2, "v": 2})

"""Tests of the arguments of `commit`, and of the commit requests in every version."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from group_world import committed, fill, member
from hypothesis import given
from hypothesis import strategies as st
from world import World, simulate

from aiokclient import ConsumerRecord, OffsetAndMetadata, TopicPartition
from aiokclient.consumer.membership.offsets.commit_forms import to_commit
from aiokclient.consumer.membership.offsets.initial_offsets import first_commit, speaks_for
from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.errors import IllegalStateError, ProtocolError
from aiokclient.protocol import ApiKey

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
CONSUMED = {T0: OffsetAndMetadata(5, "", 1), U0: OffsetAndMetadata(7)}


def record(tp: TopicPartition, offset: int) -> Any:
    return ConsumerRecord(tp.topic, tp.partition, offset, 0, 0, None, b"", (), 3)


class TestForms:
    def test_commit_without_arguments_covers_delivered_records(self) -> None:
        assert to_commit(None, CONSUMED) == (CONSUMED, [])

    def test_commit_takes_records_in_any_order(self) -> None:
        given = [record(T0, 4), record(T1, 9), record(T0, 2)]
        expected = {T0: OffsetAndMetadata(5, "", 3), T1: OffsetAndMetadata(10, "", 3)}
        assert to_commit(given, {}) == (expected, [])
        assert to_commit(given[0], {}) == ({T0: OffsetAndMetadata(5, "", 3)}, [])
        assert to_commit([], CONSUMED) == ({}, [])

    def test_commit_takes_offsets_by_partition(self) -> None:
        to = OffsetAndMetadata(1, "m", 2)
        assert to_commit({T0: 3, T1: to}, {}) == ({T0: OffsetAndMetadata(3), T1: to}, [])
        assert to_commit({("t", 0): 3}, {})[0] == {T0: OffsetAndMetadata(3)}

    def test_commit_takes_topics_and_partitions(self) -> None:
        assert to_commit("t", CONSUMED) == ({T0: CONSUMED[T0]}, [])
        assert to_commit(["t", "u"], CONSUMED) == (CONSUMED, [])
        assert to_commit([T0, T1], CONSUMED) == ({T0: CONSUMED[T0]}, [T1])
        assert to_commit(T0, CONSUMED) == to_commit(("t", 0), CONSUMED) == to_commit([T0], CONSUMED)

    @pytest.mark.parametrize(
        "what", [0, 1.5, {T0: None}, {T0: -2}, {"t": 1}, [record(T0, 1), T0], ["t", T0], b"t"]
    )
    def test_commit_refuses_other_arguments(self, what: Any) -> None:
        with pytest.raises(IllegalStateError):
            to_commit(what, CONSUMED)


class TestNotes:
    @given(st.integers(0, 1000), st.integers(1, 1000))
    def test_a_first_commit_speaks_for_partitions_that_came_later(self, index: int, n: int) -> None:
        assert speaks_for(index, first_commit(OffsetAndMetadata(0), n)) is (index >= n)

    @pytest.mark.parametrize("metadata", ["", "mine", "aiokclient: first of", "first of 3"])
    def test_any_other_speaks_for_all(self, metadata: str) -> None:
        assert speaks_for(0, OffsetAndMetadata(0, metadata))

    def test_rewind_requests_after_any_bytes(self) -> None:
        data = b"\x00\x03 a subscription"
        assert not rewind_requests.is_ours(data)
        wanted = {"ab": {T0: 3, T1: 4}, "cd": {U0: 0}}
        assert rewind_requests.read(rewind_requests.append(data, wanted)) == wanted
        assert rewind_requests.read(rewind_requests.append(data, {})) == {}
        assert rewind_requests.read(data) == {}
        assert rewind_requests.append(data, wanted).startswith(data)
        assert rewind_requests.merged(
            [rewind_requests.append(b"", {"ab": wanted["ab"]}), data]
        ) == {"ab": wanted["ab"]}

    @given(st.binary(max_size=60))
    def test_orders_that_are_none(self, data: bytes) -> None:
        try:
            found = rewind_requests.read(rewind_requests.MARK + data)
        except ProtocolError:
            return
        assert all(isinstance(offset, int) for part in found.values() for offset in part.values())

    def test_a_note_keeps_the_latest_orders(self) -> None:
        note, many = "", rewind_requests.NOTED + 12
        for i in range(many):
            note = rewind_requests.with_note(note, f"{i:020x}", i)
        assert rewind_requests.noted(note, f"{many - 1:020x}")
        assert rewind_requests.rewound_to(note, f"{12:020x}") == 12
        assert not rewind_requests.noted(note, f"{11:020x}")
        assert not rewind_requests.noted("mine 0000", "0000")

    @pytest.mark.parametrize("mine", ["", "mine", "a b\nc"])
    def test_a_note_follows_what_the_program_wrote(self, mine: str) -> None:
        older = rewind_requests.with_note("", "1", 5)
        newer = rewind_requests.with_note("", "2", 7)
        both = rewind_requests.annotated(rewind_requests.annotated(mine, older), newer)
        assert both == mine + newer
        assert rewind_requests.plain(both) == mine
        assert rewind_requests.note_in(both) == newer
        assert rewind_requests.rewound_to(both, "2") == 7
        assert rewind_requests.rewound_to(both, "1") is None
        assert not rewind_requests.noted(both, "1")
        assert rewind_requests.annotated(mine, "") == mine
        assert rewind_requests.note_in(mine) == ""


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_offset_commit_is_encoded(version: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        world.cluster.limit_versions({ApiKey.OFFSET_COMMIT: (2, version)})
        async with member(world) as consumer:
            await consumer.poll(max_records=4)
            await consumer.commit()
            assert committed(world) == 4
            await consumer.commit({T0: OffsetAndMetadata(2, "m", 0)})
            epoch = 0 if version >= 6 else None
            assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(2, "m", epoch)}
        assert {r.version for r in world.requests(ApiKey.OFFSET_COMMIT)} == {version}

    simulate(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch_is_decoded(version: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        world.cluster.limit_versions({ApiKey.OFFSET_FETCH: (1, version)})
        epoch = 0 if version >= 5 else None
        for first in (0, 4):
            async with member(world) as consumer:
                records = await consumer.poll(max_records=4)
                assert records[0].offset == first
                await consumer.commit()
                await consumer.commit({T1: 2})
                found = await consumer.committed([T0, T1, TopicPartition("t", 7)])
                assert found == {
                    T0: OffsetAndMetadata(first + 4, "", epoch),
                    T1: OffsetAndMetadata(2),
                    TopicPartition("t", 7): None,
                }
        assert {r.version for r in world.requests(ApiKey.OFFSET_FETCH)} == {version}

    simulate(scenario, topics={"t": 2})


def test_topics_without_ids_are_called_by_their_names() -> None:
    """This also works with brokers that accept only topic ids in later versions of the request."""

    def nameless(request: Any, response: Any) -> Any:
        for topic in response.topics:
            topic.topic_id = UUID(int=0)
        return response

    async def scenario(world: World) -> None:
        fill(world, 10)
        world.cluster.alter(ApiKey.METADATA, nameless)
        async with member(world) as consumer:
            await consumer.poll(max_records=4)
            await consumer.commit()
            assert committed(world) == 4
            assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(4, "", 0)}
        for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
            assert {r.version for r in world.requests(api)} == {9}

    simulate(scenario)


def test_a_commit_by_hand_does_not_wait_for_the_group() -> None:
    """Manual assignments do not wait for the coordinator to answer heartbeats."""

    async def scenario(world: World) -> None:
        fill(world, 10)
        fill(world, 10, topic="u")
        async with member(world) as consumer:
            consumer.assign([U0])
            await asyncio.sleep(1)
            assert set(consumer.consumed()) == {T0, U0}
            seen = {record.topic for record in await consumer.poll(timeout=5)}
            with world.cluster.drop(ApiKey.HEARTBEAT, when="before"):
                world.cluster.produce("u", [b"x"])
                world.cluster.produce("t", [b"x"])
                records = []
                for _ in range(20):
                    await asyncio.sleep(1)
                    records += await consumer.poll(timeout=1)
                    world.cluster.produce("u", [b"x"])
                    world.cluster.produce("t", [b"x"])
            last = {r.topic: r.offset for r in records}
            assert seen | set(last) == {"t", "u"}
            assert last["u"] > last["t"] + 5

    simulate(scenario, topics={"t": 1, "u": 1})

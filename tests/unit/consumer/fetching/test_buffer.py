"""Tests of the buffer of fetched responses: its content, its limit, and how it is unpacked."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.background import Wakeup
from aiokclient.cluster.lifecycle.supervisor import Callbacks, Supervisor
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.delivery.unpack import GROUP_RECORDS, Chunk, Unpacker
from aiokclient.consumer.fetching.buffer import FetchBuffer, PartitionFetch
from aiokclient.consumer.fetching.responses import Slot
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.decoding.batches import CONTENT, RECORDS, Damage
from aiokclient.decoding.deserialize import Deserializers
from aiokclient.errors import CorruptRecordError
from aiokclient.record.batch import Compression, RecordBatchBuilder, walk, with_offset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batches(*sizes: int, compression: Compression = Compression.NONE, pad: int = 0) -> bytes:
    """Return encoded batches with these numbers of records, at consecutive offsets from 0."""
    data, offset = b"", 0
    for size in sizes:
        builder = RecordBatchBuilder(compression=compression, limit=1 << 30)
        for i in range(size):
            builder.append(1, None, b"%d" % (offset + i) + bytes(pad))
        builder.close()
        data += with_offset(bytes(builder.seal()), offset, 0)
        offset += size
    return data


def flowing(tp: TopicPartition = T0) -> PartitionState:
    state = PartitionState(tp)
    state.seek(0)
    return state


def fetched(
    state: PartitionState, data: bytes, slot: Slot | None = None, damage: Damage | None = None
) -> PartitionFetch:
    found = walk(memoryview(data))
    return PartitionFetch(state, 0, found, [True] * len(found), slot, damage)


class Responses:
    """A stand-in for `BrokerResponses`, which notes that a response was read."""

    def __init__(self) -> None:
        self.is_read = False

    def on_response_read(self) -> None:
        assert not self.is_read
        self.is_read = True


def unpacker(buffer: FetchBuffer, arrived: Wakeup | None = None, **options: Any) -> Unpacker:
    no_loop: Any = None  # Only threads need the event loop.
    callbacks = Callbacks(no_loop, Supervisor("unpacker"))
    config = ConsumerConfig(bootstrap_servers="b:1", **options)
    return Unpacker(buffer, Deserializers(), arrived or Wakeup(), callbacks, config)


def offsets(chunk: Chunk | None) -> list[int]:
    assert chunk is not None
    return [record.offset for record in chunk.records]


def test_a_slot_is_free_when_all_its_parts_are() -> None:
    responses: Any = Responses()
    slot = Slot(responses)
    buffer = FetchBuffer(1 << 20)
    parts = [fetched(flowing(tp), batches(3), slot) for tp in (T0, T1)]
    for part in parts:
        buffer.add(part)
    slot.release_part()
    assert len(buffer) == 2
    assert buffer.size == 2 * len(batches(3))
    buffer.remove(parts[0])
    buffer.remove(parts[0])
    assert not responses.is_read
    buffer.clear()
    assert responses.is_read
    assert buffer.get_next() is None


def test_invalid_parts_are_dropped() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    buffer.add(fetched(state, batches(3)))
    state.seek(1)
    buffer.sort_parts()
    assert len(buffer) == 0


@pytest.mark.fault(38)
def test_a_paused_part_is_copied_out_of_its_response() -> None:
    responses: Any = Responses()
    slot, state, buffer = Slot(responses), flowing(), FetchBuffer(1 << 20)
    buffer.add(fetched(state, batches(3, 4, 5), slot))
    slot.release_part()
    state.move_position(4, -1)
    state.pause(True)
    buffer.sort_parts()
    assert responses.is_read
    assert buffer.get_next() is None
    assert 0 < buffer.paused_size < len(batches(3, 4, 5))
    state.pause(False)
    buffer.sort_parts()
    assert offsets(unpacker(buffer).unpack_next()) == list(range(4, 12))


@pytest.mark.fault(38)
def test_paused_parts_beyond_the_limit_are_fetched_again() -> None:
    first, second = flowing(), flowing(T1)
    buffer = FetchBuffer(len(batches(3)) + 10)
    for state in (first, second):
        state.fetch.fetch_from(3)
        buffer.add(fetched(state, batches(3)))
        state.pause(True)
    buffer.sort_parts()
    assert (first.fetch.offset, second.fetch.offset) == (3, 0)
    assert len(buffer) == 1


def test_a_part_that_comes_for_a_paused_partition_is_set_aside() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    state.pause(True)
    buffer.add(fetched(state, batches(3)))
    assert buffer.get_next() is None
    assert buffer.paused_size


def test_small_batches_make_one_chunk() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    buffer.add(fetched(state, batches(*[10] * (GROUP_RECORDS // 10 + 10))))
    stepping = unpacker(buffer)
    chunk = stepping.unpack_next()
    assert offsets(chunk) == list(range(GROUP_RECORDS))
    assert offsets(stepping.unpack_next()) == list(range(GROUP_RECORDS, GROUP_RECORDS + 100))
    assert stepping.unpack_next() is None


def test_unpacking_begins_at_the_position() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    part = fetched(state, batches(10, 10))
    buffer.add(part)
    stepping = unpacker(buffer)
    stepping.unpack_next()
    state.move_position(13, -1)
    part.rewind()
    assert offsets(stepping.unpack_next()) == list(range(13, 20))


@pytest.mark.parametrize("step", range(1, 6))
def test_damage_comes_after_what_is_before_it(step: int) -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    data = bytearray(batches(*[GROUP_RECORDS] * 5))
    data[sum(b.size for b in walk(memoryview(bytes(data)))[:step]) - 1] ^= 1
    part = fetched(state, bytes(data))
    buffer.add(part)
    stepping = unpacker(buffer)
    for i in range(step - 1):
        assert offsets(stepping.unpack_next())[0] == i * GROUP_RECORDS
    for _ in range(2):
        chunk = stepping.unpack_next()
        assert chunk is not None
        assert chunk.damage is not None
        assert chunk.damage[:2] == ((step - 1) * GROUP_RECORDS, step * GROUP_RECORDS - 1)
        assert stepping.unpack_next() is None
        state.move_position((step - 1) * GROUP_RECORDS, -1)
        part.rewind()


@pytest.mark.parametrize("damaged", range(4))
def test_small_batches_before_a_damaged_one_are_delivered(damaged: int) -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    data = bytearray(batches(3, 3, 3, 3))
    data[sum(batch.size for batch in walk(bytes(data))[: damaged + 1]) - 1] ^= 1
    buffer.add(fetched(state, bytes(data)))
    stepping = unpacker(buffer)
    found: list[int] = []
    while (chunk := stepping.unpack_next()) is not None and chunk.damage is None:
        found += offsets(chunk)
    assert found == list(range(3 * damaged))
    assert chunk is not None
    assert chunk.damage is not None
    assert chunk.damage.offset == 3 * damaged


@pytest.mark.parametrize("check_crcs", [True, False])
def test_small_batches_around_a_hidden_one_make_one_chunk(check_crcs: bool) -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    part = PartitionFetch(state, 0, walk(batches(3, 3, 3)), [True, False, True], None)
    buffer.add(part)
    stepping = unpacker(buffer, check_crcs=check_crcs)
    assert offsets(stepping.unpack_next()) == [0, 1, 2, 6, 7, 8]
    assert stepping.unpack_next() is None
    assert part.offset == 9


def test_fetched_batches_are_not_checked_when_check_crcs_is_false() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    data = bytearray(batches(3))
    data[17] ^= 1
    buffer.add(fetched(state, bytes(data)))
    assert offsets(unpacker(buffer, check_crcs=False).unpack_next()) == [0, 1, 2]


def test_a_part_that_holds_nothing_but_damage() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    damage = Damage(0, 0, CorruptRecordError("no"))
    buffer.add(PartitionFetch(state, 0, [], [], None, damage))
    chunk = unpacker(buffer).unpack_next()
    assert chunk is not None
    assert chunk.damage is damage


def test_limits_cut_a_chunk() -> None:
    state, buffer = flowing(), FetchBuffer(1 << 20)
    buffer.add(fetched(state, batches(10)))
    stepping = unpacker(buffer)
    stepping.set_limits({state: 4})
    chunk = stepping.unpack_next()
    assert offsets(chunk) == [0, 1, 2, 3]
    assert chunk is not None
    assert chunk.next_offset == 4


async def test_a_large_batch_is_decoded_in_a_thread_and_one_ahead() -> None:
    state, buffer, woken = flowing(), FetchBuffer(1 << 30), Wakeup()
    large = RECORDS + 1
    data = batches(large, large, 10, compression=Compression.LZ4, pad=30)
    part = fetched(state, data)
    buffer.add(part)
    stepping = unpacker(buffer, woken)
    assert stepping.unpack_next() is None
    await woken.wait()
    assert len(offsets(stepping.unpack_next())) == large
    assert part.job is not None
    await asyncio.wait([part.job])
    assert len(offsets(stepping.unpack_next())) == large
    assert len(offsets(stepping.unpack_next())) == 10


async def test_a_small_batch_with_much_in_it_is_left_to_a_thread() -> None:
    state, buffer, woken = flowing(), FetchBuffer(1 << 30), Wakeup()
    part = fetched(state, batches(10, 3, compression=Compression.LZ4, pad=CONTENT // 8))
    buffer.add(part)
    assert part.batches[0].size < 1 << 17
    stepping = unpacker(buffer, woken)
    assert stepping.unpack_next() is None
    assert part.job is not None
    await woken.wait()
    assert offsets(stepping.unpack_next()) == list(range(10))
    assert part.job is None
    assert offsets(stepping.unpack_next()) == [10, 11, 12]


def test_an_exposed_chunk_tells_how_far_it_went() -> None:
    chunk = unpacked(batches(5))
    assert [r.offset for r in chunk.take_records(1, 100, first=True)[0]] == [0]
    iterator = chunk.expose_records()
    assert (chunk.count_delivered(), chunk.delivered) == (0, 1)
    assert next(iterator).offset == 1
    assert (chunk.count_delivered(), chunk.delivered) == (1, 2)
    assert [r.offset for r in iterator] == [2, 3, 4]
    assert chunk.count_delivered() == 3
    assert (chunk.delivered, chunk.next_offset) == (5, 5)


def unpacked(data: bytes) -> Chunk:
    buffer = FetchBuffer(1 << 20)
    buffer.add(fetched(flowing(), data))
    chunk = unpacker(buffer).unpack_next()
    assert chunk is not None
    return chunk


def part(state: PartitionState, first: int) -> PartitionFetch:
    """Return a part of a response with two records, the first of them at the offset `first`."""
    found = walk(memoryview(with_offset(batches(2), first, 0)))
    return PartitionFetch(state, first, found, [True], None)


def test_a_part_that_comes_when_its_partition_was_resumed_follows_those_set_aside() -> None:
    buffer, state = FetchBuffer(1 << 20), flowing()
    first, second = part(state, 0), part(state, 2)
    state.pause(True)
    buffer.add(first)
    state.pause(False)
    buffer.add(second)  # The reader has not called `sort_parts` yet.
    buffer.sort_parts()
    assert list(buffer) == [first, second]
    steps = unpacker(buffer)
    assert [*offsets(steps.unpack_next()), *offsets(steps.unpack_next())] == [0, 1, 2, 3]


def test_a_part_that_comes_when_its_partition_was_paused_follows_those_in_the_queue() -> None:
    buffer, state = FetchBuffer(1 << 20), flowing()
    first, second = part(state, 0), part(state, 2)
    buffer.add(first)
    state.pause(True)
    buffer.add(second)
    buffer.sort_parts()
    assert list(buffer) == [first, second]
    state.pause(False)
    buffer.sort_parts()
    assert list(buffer) == [first, second]
    steps = unpacker(buffer)
    assert [*offsets(steps.unpack_next()), *offsets(steps.unpack_next())] == [0, 1, 2, 3]


@given(st.lists(st.sampled_from(["pause", "resume", "other", "add", "sort out", "read"])))
def test_parts_of_a_partition_are_read_in_order_whatever_is_paused(events: list[str]) -> None:
    buffer, state, other = FetchBuffer(1 << 20), flowing(), flowing(T1)
    added, read = 0, 0
    for event in [*events, "resume", "sort out", *["read"] * len(events)]:
        if event in ("pause", "resume"):
            state.pause(event == "pause")
        elif event == "other":
            buffer.add(part(other, 0))
        elif event == "add":
            buffer.add(part(state, 2 * added))
            added += 1
        elif event == "sort out":
            buffer.sort_parts()
        else:
            buffer.sort_parts()  # The reader calls this after each change.
            fetch = buffer.get_next()
            if fetch is not None:
                if fetch.state is state:
                    assert fetch.first == 2 * read
                    state.move_position(fetch.next_offset, 0)
                    read += 1
                buffer.remove(fetch)
    assert read == added

"""Tests of the memory of batches: it is used again when nothing refers to it any more."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient._native import in_use
from aiokclient.memory import BufferPool
from aiokclient.protocol.produce_template import frame_batches
from aiokclient.record.batch import Compression, RecordBatch, RecordBatchBuilder

KIB = 1 << 10
LIMIT = 128 * KIB

pytestmark = pytest.mark.skipif(not in_use(), reason="only native builders use the pool")


def filled(memory: BufferPool, count: int = 120, **options: Any) -> RecordBatchBuilder:
    builder = RecordBatchBuilder(limit=LIMIT, likely=LIMIT, memory=memory, **options)
    for index in range(count):
        assert builder.append(1, None, bytes([index]) * 1_000) == index
    return builder


def values(sealed: memoryview) -> list[bytes | None]:
    return [record.value for record in RecordBatch(sealed).records("t", 0)]


def test_memory_returns_only_after_the_builder_and_every_view_are_gone() -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory)
    sealed = builder.seal()
    part = sealed[100:200]  # A transport keeps such a view of what it could not send yet.
    before = bytes(part)
    del builder, sealed
    assert memory.kept == 0
    other = filled(memory)
    assert bytes(part) == before
    del part
    kept = memory.kept
    assert kept >= LIMIT
    del other
    assert memory.kept >= 2 * LIMIT
    again = filled(memory)
    assert memory.kept == kept
    assert values(again.seal()) == [bytes([index]) * 1_000 for index in range(120)]


def test_a_batch_that_is_sealed_anew_leaves_the_earlier_bytes_as_they_were() -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory)
    first = builder.seal(1, 0, 0)
    before = bytes(first)
    second = builder.seal(1, 1, 0)
    assert bytes(first) == before != bytes(second)
    assert memory.kept == 0
    del first
    assert memory.kept >= LIMIT
    assert len(values(second)) == 120


def test_a_small_batch_gives_its_large_block_back_when_it_is_closed() -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory, count=3)
    assert memory.kept == 0
    builder.close()
    assert memory.kept >= LIMIT
    assert values(builder.seal()) == [bytes([index]) * 1_000 for index in range(3)]


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.GZIP])
def test_a_compressed_batch_gives_the_block_of_its_records_back(codec: Compression) -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory, compression=codec)
    builder.close()
    assert builder.compressed
    assert memory.kept >= LIMIT
    assert values(builder.seal()) == [bytes([index]) * 1_000 for index in range(120)]
    assert [value for _, _, value, _ in builder.records()][5] == b"\x05" * 1_000


def test_a_batch_grows_into_larger_blocks() -> None:
    memory = BufferPool(1 << 20)
    builder = RecordBatchBuilder(limit=LIMIT, memory=memory)
    count = 0
    while builder.append(1, b"key", bytes([count % 256]) * 5_000, (("h", b"v"),)) >= 0:
        count += 1
    assert count > 20
    found = values(builder.seal())
    assert found == [bytes([index % 256]) * 5_000 for index in range(count)]


def test_a_builder_without_records_needs_no_memory() -> None:
    builder = RecordBatchBuilder(limit=LIMIT, memory=BufferPool(0), compression=Compression.LZ4)
    assert builder.encoded_size == builder.size
    builder.close()
    assert (builder.encoded_size, builder.compressed) == (builder.size, False)
    assert list(builder.records()) == []


def length(number: int) -> bytes:
    return number.to_bytes(4)


def frame_batch(batch: Any, head: bytes, tail: bytes, flexible: bool) -> Any:
    """Return the frame of a request with one batch, or None."""
    frames = frame_batches([batch], [head], tail, flexible)
    return None if frames is None else frames[0]


def frame_of(batch: memoryview, head: bytes, tail: bytes) -> bytes:
    """Return the frame of a request in a version that is not flexible."""
    rest = head + length(len(batch)) + bytes(batch) + tail
    return length(len(rest)) + rest


@pytest.mark.parametrize("count", [3, 120])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_request_is_written_around_a_batch_once(count: int, codec: Compression) -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory, count, compression=codec)
    sealed = builder.seal(1, 0, 0)
    before = bytes(sealed)
    frame = frame_batch(sealed, b"    head", b"end", False)
    assert frame is not None
    assert frame.readonly
    expected = frame_of(sealed, b"head", b"end")
    assert frame == expected
    assert sealed == before == builder.seal(1, 0, 0)
    assert frame_batch(sealed, b"    h", b"", False) is None
    assert len(list(builder.records())) == count
    second = builder.seal(1, 1, 0)
    assert frame == expected
    other = frame_batch(second, b"    other", b"", False)
    assert other == frame_of(second, b"other", b"")
    assert len(values(second)) == count


def test_memory_returns_only_after_the_frames_of_the_batch_are_gone() -> None:
    memory = BufferPool(1 << 20)
    builder = filled(memory)
    frame = frame_batch(builder.seal(), b"    head", b"end", True)
    assert frame is not None
    part = frame[-10:]  # A transport keeps such a view of what it could not send yet.
    before = bytes(part)
    del builder, frame
    assert memory.kept == 0
    other = filled(memory)
    assert bytes(part) == before
    del part
    assert memory.kept >= LIMIT
    del other
    assert memory.kept >= 2 * LIMIT


def test_nothing_is_written_around_other_views_or_where_it_does_not_fit() -> None:
    builder = filled(BufferPool(0))
    sealed = builder.seal()
    before = bytes(sealed)
    others = [
        before,
        memoryview(before),
        memoryview(bytearray(100)),
        BufferPool(0).take(100),
        sealed[1:],
        sealed[:-1],
        sealed[:0],
    ]
    for view in others:
        assert frame_batch(view, b"    head", b"end", True) is None
    assert frame_batch(sealed, bytes(3), b"end", False) is None
    assert frame_batch(sealed, bytes(125), b"end", False) is None
    assert frame_batch(sealed, b"    head", bytes(LIMIT), False) is None
    assert sealed == before
    frame = frame_batch(sealed, bytes(124), b"end!", False)
    assert frame == frame_of(sealed, bytes(120), b"end!")

"""Tests of the memory of batches: it is used again when nothing refers to it any more."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient._native import in_use
from aiokclient.memory import BufferPool
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

"""Tests of the choice whether a batch is decoded on the event loop or in a thread."""

import random

import pytest
import zstandard
from world import World, simulate

from aiokclient.consumer.delivery.unpack import GROUP_PACKED, GROUP_RECORDS, LIGHT_SIZE
from aiokclient.decoding.batches import RECORDS, is_light
from aiokclient.record.batch import HEADER_SIZE, Compression, RecordBatch, RecordBatchBuilder, walk
from aiokclient.record.compression import MANY_BLOCKS
from aiokclient.record.header import seal_crc

XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def plain(values: list[bytes]) -> bytes:
    builder = RecordBatchBuilder(limit=1 << 30)
    for value in values:
        builder.append(1, None, value)
    builder.close()
    return bytes(builder.seal())


def with_content(batch: bytes, codec: Compression, content: bytes) -> bytes:
    """Return the batch with its records replaced by `content`, which `codec` has compressed."""
    made = bytearray(batch[:HEADER_SIZE] + content)
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[22] = codec
    seal_crc(made)
    return bytes(made)


def in_snappy_blocks(data: bytes, size: int) -> bytes:
    """Return the data in xerial's snappy framing, in blocks of `size` bytes, all literals."""
    pieces = [XERIAL]
    for start in range(0, len(data), size):
        part = data[start : start + size]
        block = bytes((len(part), (len(part) - 1) << 2)) + part
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def in_zstd_blocks(data: bytes, size: int) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    pieces = []
    for start in range(0, len(data), size):
        pieces.append(compressor.compress(data[start : start + size]))
        pieces.append(compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    return b"".join((*pieces, compressor.flush()))


@pytest.mark.parametrize(
    ("codec", "cut"),
    [(Compression.SNAPPY, in_snappy_blocks), (Compression.ZSTD, in_zstd_blocks)],
)
def test_a_batch_of_many_tiny_blocks_is_left_to_a_thread(codec: Compression, cut: object) -> None:
    batch = plain([random.Random(1).randbytes(10_000)])
    records = batch[HEADER_SIZE:]
    tiny = with_content(batch, codec, cut(records, 1))  # type: ignore[operator]
    usual = with_content(batch, codec, cut(records, 50))  # type: ignore[operator]
    assert not light(tiny)
    assert light(usual)

    async def scenario(world: World) -> None:
        for data in (tiny, usual):
            world.cluster.append("t", 0, data)
        async with world.consumer("t") as consumer:
            found = [record.value async for record in consumer.until_end()]
        assert found == [random.Random(1).randbytes(10_000)] * 2

    simulate(scenario)


def light(data: bytes) -> bool:
    (batch,) = walk(data)
    assert isinstance(batch, RecordBatch)
    return is_light((batch,))


@pytest.mark.parametrize("codec", Compression)
def test_a_small_group_is_light_with_any_codec(codec: Compression) -> None:
    """A consumer does not ask `is_light` about such groups."""
    largest = LIGHT_SIZE if codec is Compression.NONE else LIGHT_SIZE // GROUP_PACKED
    assert largest / codec.traits.decode_inline + GROUP_RECORDS / RECORDS < 1
    assert codec is Compression.NONE or largest <= MANY_BLOCKS

"""Tests of codecs: complete content, limited output, and CorruptRecordError for invalid bytes."""

import gzip
import random
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.errors import CorruptRecordError
from aiokclient.record.codecs.lz4 import mend
from aiokclient.record.compression import Compression, compress, decompress, pieces

CODECS = [codec for codec in Compression if codec]
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
MIB = 1 << 20


@given(st.sampled_from(Compression), st.binary(max_size=300), st.integers(1, 3000))
def test_compressed_content_is_restored(codec: Compression, data: bytes, times: int) -> None:
    content = data * times
    assert decompress(codec, compress(codec, content), len(content)) == content


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (codec, level)
        for codec in Compression
        if codec.traits.levels
        for level in codec.traits.levels[-22:]
    ],
)
def test_every_level_can_be_decompressed(codec: Compression, level: int) -> None:
    content = b"the same again and again, " * 1000
    assert decompress(codec, compress(codec, content, level), len(content)) == content


@pytest.mark.parametrize("codec", CODECS)
def test_content_of_exactly_the_limit_is_accepted(codec: Compression) -> None:
    content = random.Random(1).randbytes(1000) * 300
    packed = compress(codec, content)
    assert decompress(codec, packed, len(content)) == content
    with pytest.raises(
        CorruptRecordError, match=f"more than {len(content) - 1} bytes|more content"
    ):
        decompress(codec, packed, len(content) - 1)


@pytest.mark.fault(32)
@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_stays_within_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(codec, bomb, 4 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(bomb) + 12 * MIB
    finally:
        tracemalloc.stop()


STATED = {
    "zstd": (Compression.ZSTD, zstandard.ZstdCompressor().compress(bytes(MIB))),
    "lz4": (Compression.LZ4, lz4.frame.compress(bytes(MIB), store_size=True)),
    "snappy": (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 20),
}


@pytest.mark.parametrize(("codec", "data"), STATED.values(), ids=list(STATED))
def test_a_false_content_size_is_not_trusted(codec: Compression, data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, data, MIB - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_stream_is_refused(codec: Compression) -> None:
    content = random.Random(2).randbytes(500) * 400
    packed = bytes(compress(codec, content))
    for end in (0, 1, 3, 4, 7, 15, 18, 40, len(packed) // 2, len(packed) - 1):
        if codec is Compression.SNAPPY and end in (0,):
            continue
        try:
            assert len(decompress(codec, packed[:end], len(content))) < len(content)
        except CorruptRecordError:
            continue
        # Only the framing of snappy can be cut between two blocks, or before the first one.
        assert codec is Compression.SNAPPY


@given(st.sampled_from(CODECS), st.binary(max_size=200))
def test_other_bytes_are_refused_or_limited(codec: Compression, data: bytes) -> None:
    for prefix in (b"", bytes(compress(codec, b"content" * 50))[:15]):
        try:
            assert len(decompress(codec, prefix + data, 5000)) <= 5000
        except CorruptRecordError:
            pass


def test_decompress_refuses_an_unknown_codec() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CorruptRecordError, match=f"codec {codec}"):
            decompress(codec, b"data", 10)


@pytest.mark.parametrize("padding", [1, 7, 512, 100_000])
@pytest.mark.parametrize("members", [1, 3])
def test_zero_bytes_after_gzip_members_are_ignored(members: int, padding: int) -> None:
    packed = gzip.compress(b"one " * 1_000) * members + bytes(padding)
    content = b"one " * 1_000 * members
    assert decompress(Compression.GZIP, packed, len(content)) == content
    assert b"".join(pieces(Compression.GZIP, packed, 300)) == content
    apart = gzip.compress(b"one ") + bytes(padding) + gzip.compress(b"two") + bytes(padding)
    assert decompress(Compression.GZIP, apart, 7) == gzip.decompress(apart) == b"one two"
    with pytest.raises(CorruptRecordError):
        decompress(Compression.GZIP, packed + b"\1", len(content))
    with pytest.raises(CorruptRecordError):
        decompress(Compression.GZIP, bytes(padding), 10)


def test_consecutive_gzip_members_are_read() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two") + zlib.compress(b"!", 9, 31)
    assert decompress(Compression.GZIP, packed, 100) == b"one two!"


def test_snappy_is_read_with_and_without_framing() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"content" * 100))
    assert decompress(Compression.SNAPPY, raw, 1000) == b"content" * 100
    block = len(raw).to_bytes(4, "big") + raw
    for framed in (XERIAL + block, XERIAL + block + XERIAL + block):
        copies = framed.count(XERIAL)
        assert decompress(Compression.SNAPPY, framed, 2000) == b"content" * 100 * copies
    ours = bytes(compress(Compression.SNAPPY, bytes(100_000)))
    assert ours.startswith(XERIAL)
    for broken in (XERIAL[:-1], XERIAL + block[:3], XERIAL + block[:-1], XERIAL + b"\xff" * 8):
        with pytest.raises(CorruptRecordError):
            decompress(Compression.SNAPPY, broken, 2000)


def test_lz4_blocks_are_independent() -> None:
    packed = bytes(compress(Compression.LZ4, bytes(range(256)) * 2000))
    information = lz4.frame.get_frame_info(packed)
    assert not information["block_linked"]


@pytest.mark.parametrize("store_size", [True, False])
def test_lz4_is_read_with_the_checksum_of_format_v0(store_size: bool) -> None:
    frame = lz4.frame.compress(b"content" * 100, block_linked=False, store_size=store_size)
    at = 14 if store_size else 6
    # Old writers included the magic number in the hash of the descriptor.
    broken = bytearray(frame)
    broken[at] ^= 0x5A
    with pytest.raises(CorruptRecordError):
        decompress(Compression.LZ4, bytes(broken), 1000)
    assert mend(bytes(broken)) == frame
    for end in (0, 3, 6, at):
        with pytest.raises(CorruptRecordError):
            mend(frame[:end])


def test_zstd_is_read_without_content_size_and_in_several_frames() -> None:
    content = random.Random(3).randbytes(100) * 30_000
    stream = zstandard.ZstdCompressor(level=1).compressobj()
    unsized = stream.compress(content) + stream.flush()
    assert zstandard.frame_content_size(unsized) == -1
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(b"tail")
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    packed = unsized + skipped + checked + zstandard.ZstdCompressor().compress(b"x" * 255)
    assert decompress(Compression.ZSTD, packed, 4 * MIB) == content + b"tail" + b"x" * 255
    for end in (len(unsized) - 1, len(unsized) + len(skipped) + len(checked) - 1):
        with pytest.raises(CorruptRecordError, match="incomplete"):
            decompress(Compression.ZSTD, packed[:end], 4 * MIB)

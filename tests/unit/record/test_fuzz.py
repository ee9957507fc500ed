"""Tests that any bytes are read or refused with CorruptRecordError, within a limit of memory.

`make fuzz` runs the test of mutated batches for a given time. A failure prints the seed and the
bytes.
"""

import os
import random
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thinned import IS_WHOLE

from aiokclient.errors import CorruptRecordError
from aiokclient.memory import BufferPool
from aiokclient.record.arrow import to_arrow
from aiokclient.record.batch import (
    Compression,
    RecordBatch,
    RecordBatchBuilder,
    walk,
    with_append_time,
)
from aiokclient.record.compression import compress
from aiokclient.record.control import end_transaction_batch
from aiokclient.record.crc import crc32c

LIMIT = 1 << 20
POOL = BufferPool(LIMIT)
SECONDS = float(os.environ.get("AIOKCLIENT_FUZZ", "0"))
ROUNDS = 2500 if IS_WHOLE else 600
NAMES = ("offset", "key", "value")


def to_columns(batch: RecordBatch, check: bool) -> list[tuple[object, ...]]:
    """Return the records of the batch by way of an Arrow table. A control batch gives none."""
    if batch.is_control:
        batch.records("fuzz", 0, check_crcs=check, limit=LIMIT)
    table = to_arrow("fuzz", 0, [batch], check_crcs=check, limit=LIMIT, pool=POOL)
    table.validate(full=True)
    return list(zip(*(table.column(n).to_pylist() for n in NAMES), strict=True))


def read_all(data: bytes) -> None:
    try:
        batches = walk(data)
    except CorruptRecordError:
        return
    for batch in batches:
        for check in (True, False):
            try:
                records = batch.records("fuzz", 0, check_crcs=check, limit=LIMIT)
                assert records == batch.records(
                    "fuzz", 0, copy=not check, check_crcs=check, limit=LIMIT
                )
            except CorruptRecordError:
                with pytest.raises(CorruptRecordError):
                    to_columns(batch, check)
                continue
            if not batch.is_control:
                assert to_columns(batch, check) == [(r.offset, r.key, r.value) for r in records]
            for record in records:
                assert -(1 << 63) <= record.timestamp < 1 << 63
                assert batch.magic < 2 or batch.base_offset <= record.offset <= batch.last_offset
        for ask in (batch.control_type, batch.validate, lambda b=batch: b.compression):
            try:
                ask()
            except CorruptRecordError:
                pass


@pytest.mark.fault(32)
@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_all(data)


@pytest.mark.fault(32)
@given(st.binary(max_size=150), st.integers(0, 5), st.sampled_from(range(8)))
def test_any_records_in_a_valid_batch_are_read_or_refused(
    data: bytes, count: int, codec: int
) -> None:
    builder = RecordBatchBuilder(limit=1 << 20)
    builder.append_values(1000, [b""] * max(count, 1), 0)
    for content in (data, compress(Compression(codec % 5), data)):
        header = bytearray(builder.seal()[:61])
        header[8:12] = (49 + len(content)).to_bytes(4, "big")
        header[22] = codec
        header[17:21] = crc32c(bytes(header[21:]) + bytes(content)).to_bytes(4, "big")
        read_all(bytes(header) + bytes(content))


def seeds() -> list[bytes]:
    """Return batches of all kinds, which the tests mutate."""
    found = [end_transaction_batch(True, 1, 2, 3)]
    for codec in Compression:
        builder = RecordBatchBuilder(compression=codec, limit=LIMIT)
        for index in range(40):
            headers = [("header", b"x" * index)] if index % 5 == 0 else ()
            builder.append(1000 + index * 50, b"key" if index % 2 else None, b"v" * 70, headers)
        found += [bytes(builder.seal(5, 1, 0)), with_append_time(builder.seal(5, 1, 0), 77)]
    old = bytes.fromhex(
        "0000000000000007 00000010 00000000 00 00 ffffffff 00000002 7630".replace(" ", "")
    )
    inner = b"".join(bytes(7) + bytes((offset,)) + old[8:] for offset in range(3))
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
        value = bytes(compress(codec, inner))
        size = (14 + len(value)).to_bytes(4, "big")
        wrapper = bytes(8) + size + bytes(4) + bytes((0, codec)) + b"\xff" * 4
        found.append(wrapper + len(value).to_bytes(4, "big") + value)
    return [*found, old]


def mutate(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(changed)) if rng.random() < 0.5 else rng.randrange(8, 80)
        at = min(at, len(changed) - 1)
        kind = rng.randrange(5)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at : at + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
        elif kind == 3:
            del changed[at : at + rng.randrange(1, 9)]
        else:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        if not changed:
            return b""
    # With a correct length, the reader gets beyond the check of the length.
    if rng.random() < 0.7 and len(changed) >= 61:
        changed[8:12] = (len(changed) - 12).to_bytes(4, "big")
        changed[16] = data[16]
    return bytes(changed)


def rounds() -> Iterator[int]:
    if not SECONDS:
        yield from range(ROUNDS)
        return
    deadline = time.monotonic() + SECONDS
    seed = random.SystemRandom().getrandbits(48)
    while time.monotonic() < deadline:
        yield seed
        seed += 1


@pytest.mark.fuzz
def test_mutated_batches_are_read_or_refused() -> None:
    originals = seeds()
    for data in originals:
        assert sum(len(b.rows(check_crcs=False)) for b in walk(data, strict=True)) > 0
    tracemalloc.start()
    try:
        for seed in rounds():
            rng = random.Random(seed)
            data = mutate(rng, rng.choice(originals))
            try:
                read_all(data)
            except BaseException:
                pytest.fail(f"seed {seed}: {data.hex()}")
        assert tracemalloc.get_traced_memory()[1] < 16 * LIMIT
    finally:
        tracemalloc.stop()

"""Tests that the native implementation gives the same results as the one in Python.

They also check its use of memory. All other tests in this folder run with one implementation: the
native one, or with `AIOKCLIENT_PURE=1` the one in Python.
"""

import gc
import importlib.util
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import IS_WHOLE

from aiokclient import types
from aiokclient._native import in_use
from aiokclient.errors import KafkaError
from aiokclient.memory import BufferPool
from aiokclient.record import batch
from aiokclient.record._pure import batch as pure_batch
from aiokclient.record._pure import builder as pure_builder
from aiokclient.record._pure import walk as pure_walk
from aiokclient.record.batch import Compression, with_append_time
from aiokclient.record.control import end_transaction_batch
from aiokclient.record.crc import crc32c
from aiokclient.types import ConsumerRecord, TimestampType

if not in_use():
    # The native modules cannot be tested if the package was imported in pure Python.
    pytest.skip("the native modules are not in use", allow_module_level=True)
from aiokclient._native import record as native

pyarrow = pytest.importorskip("pyarrow")

LIMIT = 1 << 20
HEADER = 61
FIELDS = (
    *("base_offset", "last_offset", "next_offset", "count", "size", "magic", "crc", "buffer"),
    *("leader_epoch", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch"),
    *("base_sequence", "last_sequence", "timestamp_type", "is_transactional", "is_control"),
    *("is_compressed", "valid"),
)


def outcome(ask: Callable[[], Any]) -> Any:
    """Return the result of a call, or its error with all causes."""
    try:
        return ask()
    except (KafkaError, ValueError, TypeError, AttributeError) as error:
        found: list[Any] = []
        cause: BaseException | None = error
        while cause is not None:
            found.append((type(cause), str(cause), getattr(cause, "topic_partition", None)))
            cause = cause.__cause__
        return found


def read(module: Any, walk: Any, data: bytes) -> Any:
    """Return everything that can be read from the bytes."""

    def one(found: Any) -> list[Any]:
        asks = [
            lambda: [getattr(found, name) for name in FIELDS],
            lambda: found.compression,
            lambda: found.check_crc(),
            lambda: found.validate(),
            lambda: found.control_type(),
            lambda: found.records("t", 1, limit=LIMIT),
            lambda: found.records("t", 1, 3, check_crcs=False, limit=LIMIT),
            lambda: found.records("", 0, copy=False, check_crcs=False, limit=LIMIT),
            lambda: found.rows(2, check_crcs=False, limit=LIMIT),
            lambda: found.rows(check_crcs=False, limit=70),
        ]
        return [outcome(ask) for ask in asks]

    walked = [
        outcome(lambda: [one(found) for found in walk(data)]),
        outcome(lambda: len(walk(memoryview(bytearray(data)), strict=True))),
    ]
    return [*walked, outcome(lambda: one(module.RecordBatch(data)))]


def assert_equal(data: bytes) -> None:
    ours = read(native, native.walk, data)
    assert ours == read(pure_batch, pure_walk.walk, data)


CONTENT = st.one_of(
    st.none(),
    st.binary(max_size=70),
    st.sampled_from([b"", b"x" * 63, b"x" * 64, b"y" * 8191, b"y" * 8192]),
)
NAME = st.text(max_size=8)
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(-2, 100), st.integers(-(1 << 63), (1 << 63) - 1)),
        CONTENT,
        CONTENT,
        st.lists(st.tuples(NAME, CONTENT), max_size=3),
    ),
    min_size=1,
    max_size=8,
)


def built(builder: Any, records: list[Any], codec: Compression = Compression.NONE) -> Any:
    made = builder(compression=codec, limit=LIMIT)
    for fields in records:
        made.append(*fields)
    return made


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("limit", [100, 200, 1 << 40])
def test_builders_made_by_the_function_and_by_the_class_are_equal(
    codec: Compression, limit: int
) -> None:
    made = [
        kind.RecordBatchBuilder(compression=codec, level=1, limit=limit, likely=150)
        for kind in (native, pure_builder)
    ]
    made += [kind.new_builder(codec, 1, limit, 150, None) for kind in (native, pure_builder)]
    seen = [[each.append(5, b"k", b"v" * 40) for _ in range(5)] for each in made]
    assert seen == [seen[0]] * 4
    sealed = [bytes(each.seal(3, 1, 7, True, 2)) for each in made]
    assert sealed == [sealed[0]] * 4


@given(RECORDS, st.sampled_from(Compression), st.integers(-1, 9), st.booleans())
def test_native_and_pure_read_the_same_from_valid_batches(
    records: list[Any], codec: Compression, epoch: int, append: bool
) -> None:
    data = bytes(built(native.RecordBatchBuilder, records, codec).seal(leader_epoch=epoch))
    assert_equal(with_append_time(data, 1234) if append else data)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a batch with some changed bytes, whose length and checksum may be correct or not."""
    records, codec = draw(RECORDS), draw(st.sampled_from(Compression))
    data = bytearray(built(native.RecordBatchBuilder, records, codec).seal())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1) | st.integers(HEADER, HEADER + 20))
        cut = draw(st.sampled_from([0, 1, 1, 1, 4]))
        data[at : at + cut] = draw(st.binary(max_size=5) | st.just(b"\xff" * 5))
    if draw(st.booleans()) and len(data) >= HEADER:
        struct.pack_into(">i", data, 8, len(data) - 12)
        data[16] = 2
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@settings(max_examples=400 if IS_WHOLE else 100)
@given(mutated(), st.booleans())
def test_native_and_pure_read_the_same_from_mutated_batches(data: bytes, twice: bool) -> None:
    marker = end_transaction_batch(True, 1, 2, 3) if twice else b""
    assert_equal(marker + data)


@given(st.binary(max_size=60), st.integers(0, 4), st.integers(0, 3), st.sampled_from([0, 5, 8]))
def test_native_and_pure_read_the_same_from_any_records(
    content: bytes, count: int, last: int, attributes: int
) -> None:
    header = bytearray(built(native.RecordBatchBuilder, [(0, None, b"")]).seal()[:HEADER])
    struct.pack_into(">i", header, 8, HEADER - 12 + len(content))
    struct.pack_into(">hi", header, 21, attributes, last)
    struct.pack_into(">i", header, 57, count)
    struct.pack_into(">I", header, 17, crc32c(bytes(header[21:]) + content))
    assert_equal(bytes(header) + content)


@pytest.mark.parametrize("byte", [0, 1, 2, 3, 127, 128, 255])
def test_native_and_pure_read_the_same_after_a_change_of_any_byte_of_short_records(
    byte: int,
) -> None:
    short = [(0, None, b"v"), (1, b"k", b"x" * 64), (300, b"", b""), (300, b"key", None)]
    data = bytes(built(native.RecordBatchBuilder, short).seal())
    for position in range(HEADER, len(data)):
        changed = bytearray(data)
        changed[position] = byte
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
        assert_equal(bytes(changed))


@given(st.binary(max_size=100))
def test_native_and_pure_read_the_same_from_any_bytes(data: bytes) -> None:
    assert_equal(data)


ODD = st.one_of(
    CONTENT,
    st.binary(max_size=9).map(bytearray),
    st.binary(max_size=9).map(memoryview),
    st.sampled_from(["i", "b"]).map(lambda code: memoryview(bytes(8)).cast(code)),
    st.integers(1, 2).map(lambda step: memoryview(bytes(8))[::step]),
    st.sampled_from(["text", 5, (), object]),
)
ODD_TIME = st.integers(-(1 << 65), 1 << 65) | st.integers(0, 3)
ODD_HEADERS = st.lists(st.tuples(st.text(max_size=4) | st.just("\ud800"), ODD), max_size=2)
APPEND = st.tuples(ODD_TIME, ODD, ODD, st.just(()) | ODD_HEADERS)
PLAIN = CONTENT | st.binary(max_size=9).map(bytearray)
VALUES = st.tuples(st.integers(0, 3), st.lists(PLAIN, max_size=12), st.integers(0, 13))


@settings(max_examples=300 if IS_WHOLE else 100)
@given(
    st.lists(APPEND | VALUES, max_size=8),
    st.integers(0, 400),
    st.sampled_from(Compression),
    st.tuples(st.integers(-1, 1 << 62), st.integers(-1, 9), st.integers(-1, 1 << 30)),
)
def test_native_and_pure_build_the_same_bytes(
    steps: list[Any], limit: int, codec: Compression, numbers: Any
) -> None:
    made = [
        module.RecordBatchBuilder(compression=codec, limit=limit)
        for module in (native, pure_builder)
    ]

    def same(ask: Callable[[Any], Any], *, message: bool = True) -> None:
        ours, theirs = [outcome(lambda b=b: ask(b)) for b in made]
        # If a step has several errors, each implementation may report another one of them.
        if not message and isinstance(theirs, list):
            assert isinstance(ours, list)
        else:
            assert ours == theirs

    def look(b: Any) -> Any:
        return b.size, b.count, b.closed, b.compressed, b.compression, b.encoded_size, b.records

    for step in steps:
        add = "append" if len(step) == 4 else "append_values"
        same(lambda b, step=step, add=add: getattr(b, add)(*step), message=False)
        same(lambda b: (*look(b)[:-1], b.max_timestamp, list(b.records())))
    same(lambda b: bytes(b.seal(*numbers)))
    same(lambda b: bytes(b.seal(*numbers, transactional=True, leader_epoch=5)))
    same(lambda b: (*look(b)[:-1], b.max_timestamp, list(b.records())))
    same(lambda b: b.append(1, None, b""))


EDGES = [0, 1, 55, 56, 57, 58, 62, 63, 64, 65, 8180, *range(8183, 8195), 1 << 20]
DELTAS = [0, 63, 64, -64, -65, 8191, 8192, -8193, 1 << 40]


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("before", [1, 63, 64, 65, 8191, 8192])
def test_native_and_pure_agree_where_varints_get_longer(before: int, delta: int) -> None:
    """Each varint is tested with unlimited room, exactly enough room, and one byte less."""
    for size in EDGES if before < 100 else EDGES[:3]:
        value = bytes(size)
        free = None
        for spare in (LIMIT, 0, -1):
            limit = 4 * LIMIT if free is None else free + spare
            made = []
            for module in (native, pure_builder):
                for many in (False, True):
                    b = module.RecordBatchBuilder(limit=limit)
                    assert b.append_values(1 << 41, [b""] * before, 0) == before
                    if many:
                        taken = b.append_values((1 << 41) + delta, [b"", value, value], 0)
                        made.append((taken, b.size, b.max_timestamp, bytes(b.seal())))
                    else:
                        added = [b""] + [value] * 2
                        indexes = [b.append((1 << 41) + delta, None, v) for v in added]
                        taken = sum(index >= 0 for index in indexes)
                        made.append((taken, b.size, b.max_timestamp, bytes(b.seal())))
            assert made[1:] == made[:-1]
            assert made[0][0] == (2 if spare == -1 else 3)
            free = made[0][1] if free is None else free


@given(st.binary(max_size=1100), st.integers(0, 9), st.booleans())
def test_native_and_pure_checksums_agree_for_all_sizes(
    value: bytes, before: int, right: bool
) -> None:
    data = bytearray(built(native.RecordBatchBuilder, [(0, None, value)]).seal())
    if not right:
        data[-1] ^= 1
    held = memoryview(bytes(before) + data)[before:]
    for module in (native, pure_batch):
        assert module.RecordBatch(held).check_crc() is right


@given(st.binary(max_size=40))
def test_native_and_pure_hashes_agree(data: bytes) -> None:
    source = importlib.util.find_spec("aiokclient.record.murmur2")
    assert source is not None
    assert native.murmur2(data) == pure(str(source.origin)).murmur2(data)


LOADED: dict[str, Any] = {}


def pure(path: str) -> Any:
    """Return a module as it is with `AIOKCLIENT_PURE=1`, under another name."""
    if path not in LOADED:
        spec = importlib.util.spec_from_file_location(f"pure_{Path(path).stem}", path)
        assert spec is not None
        assert spec.loader is not None
        LOADED[path] = module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("aiokclient._native.WANTED", False)
            spec.loader.exec_module(module)
    return LOADED[path]


ARGUMENTS: tuple[Any, ...] = ("t", 3, 5, 9, TimestampType.CREATE_TIME, b"k", None, [("h", b"")], 7)


def test_native_records_behave_as_those_in_python() -> None:
    theirs = pure(types.__file__).ConsumerRecord
    assert theirs is not ConsumerRecord
    ours_one, theirs_one = ConsumerRecord(*ARGUMENTS), theirs(*ARGUMENTS)
    assert repr(ours_one) == repr(theirs_one)
    assert hash(ours_one) == hash(theirs_one)
    for name in types.RECORD_FIELDS:
        assert getattr(ours_one, name) == getattr(theirs_one, name)
        changed: Any = ConsumerRecord(*ARGUMENTS)
        setattr(changed, name, 77)
        assert getattr(changed, name) == 77
        if name != "headers":
            assert changed != ours_one
    with pytest.raises(AttributeError):
        ours_one.other = 1  # type: ignore[attr-defined]
    for made in (ConsumerRecord, theirs):
        with pytest.raises(TypeError):
            made("t")
        with pytest.raises(TypeError):
            made(*ARGUMENTS, 1)


class Anything:
    record: Any = None


def test_a_reference_cycle_through_a_record_is_collected() -> None:
    class Sub(ConsumerRecord[Any, Any]):
        pass

    gc.collect()
    for kind in (ConsumerRecord, Sub):
        thing = Anything()
        thing.record = kind("t", 0, 0, 0, TimestampType.CREATE_TIME, None, thing)
        assert gc.is_tracked(thing.record)
        del thing
        assert any(isinstance(found, Anything) for found in gc.get_objects())
        gc.collect()
        assert not any(isinstance(found, Anything) for found in gc.get_objects())
    [read_one] = batch.walk(built(native.RecordBatchBuilder, [(1, b"k", b"v")]).seal())
    [record] = read_one.records("t", 0)
    assert not gc.is_tracked(record)


def test_native_batches_created_without_their_fields_are_safe() -> None:
    for kind in (native.RecordBatch, native.RecordBatchBuilder, ConsumerRecord):
        made: Any = kind.__new__(kind)
        for name in dir(made):
            asked = outcome(lambda made=made, name=name: getattr(made, name, None))
            if callable(asked) and not name.startswith("__"):
                outcome(asked)
        for ask in (repr, hash, lambda made: made == made):
            try:
                ask(made)
            except AttributeError:
                pass


def arrow_columns(found: Any) -> Any:
    columns = native.Columns(250, BufferPool(0))
    columns.add(found, 0, False, LIMIT)
    return columns.table(lambda address, schema: None, None, 7, (), 0, 0), columns.count


def work(rounds: int) -> None:
    """Use everything native, with and without errors."""
    topic = "a topic"
    good = bytes(built(native.RecordBatchBuilder, [(1, b"k", b"v", [("h", b"x")])] * 3).seal())
    bad = bytearray(good)
    bad[-3] = 200
    for _ in range(rounds):
        builder = native.RecordBatchBuilder(limit=300)
        builder.append_values(1, [b"v" * 100, None, bytearray(5), b"v" * 200], 0)
        outcome(lambda b=builder: b.append(1, None, "text"))
        outcome(lambda b=builder: b.append(1, b"k", b"", [("h", 5)]))
        builder.seal(1, 2, 3)
        builder.seal(1, 2, 4)
        list(builder.records())
        for data in (good, bad, builder.seal(), good[:-1]):
            for found in native.walk(data):
                outcome(lambda f=found: f.records(topic, 1))
                outcome(lambda f=found: f.records(topic, 1, check_crcs=False))
                outcome(lambda f=found: f.records(topic, 1, copy=False, check_crcs=False))
                outcome(lambda f=found: f.rows(check_crcs=False))
                outcome(lambda f=found: f.validate())
                outcome(lambda f=found: arrow_columns(f))
        outcome(lambda: native.walk(good[:70] + bytes(20)))


def blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def grown(rounds: int) -> int:
    before = blocks()
    work(rounds)
    return blocks() - before


def test_native_batches_leak_no_memory() -> None:
    """A leak would show in each run.

    Free lists, including Python's own, grow only in the first runs.
    """
    work(200)
    assert any(grown(8_000) < 200 for _ in range(4))  # Each run reads and writes 1e5 batches.


@pytest.mark.parametrize("seal", [b"good", b"bad"])
def test_native_batches_keep_reference_counts_correct(seal: bytes) -> None:
    topic, partition = "".join(["a", " topic"]), 1 << 40
    headers = [("".join(["he", "ader"]), b"x" * 9)]
    key, value = b"k" * 50, b"v" * 60
    shared = (topic, partition, headers, headers[0], key, value)
    before = [sys.getrefcount(thing) for thing in shared]
    for _ in range(50):
        builder = built(native.RecordBatchBuilder, [(1, key, value, headers)] * 5)
        outcome(lambda b=builder: b.append_values(1, [value, 5], 0))
        data = bytearray(builder.seal())
        if seal == b"bad":
            data[-1] = 9
        for found in native.walk(data):
            outcome(lambda f=found: f.records(topic, partition, check_crcs=False))
    # The module keeps the topic and partition of the last record. This call replaces them.
    ConsumerRecord("", 0, 0, 0, TimestampType.CREATE_TIME, None, None)
    assert [sys.getrefcount(thing) for thing in shared] == before


def test_native_batches_never_misuse_memory() -> None:
    """The tests run under an allocator that detects writes past the end and uses after free."""
    code = f"""
import runpy
from hypothesis import settings
settings.register_profile("any time", deadline=None, derandomize={not IS_WHOLE})
settings.load_profile("any time")
names = runpy.run_path({__file__!r})
names["work"](300)
names["test_native_and_pure_read_the_same_from_mutated_batches"]()
names["test_native_and_pure_read_the_same_from_any_records"]()
names["test_native_and_pure_build_the_same_bytes"]()
"""
    paths = os.pathsep.join(filter(None, sys.path))  # Those of the harness among them.
    env = {**os.environ, "PYTHONMALLOC": "debug", "AIOKCLIENT_PURE": "0", "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-X", "dev", "-c", code], env=env, check=True, timeout=250)


def test_the_setting_selects_native_or_pure_batches() -> None:
    code = "from aiokclient.record.batch import RecordBatch; print(RecordBatch.__module__)"
    pure, native = "aiokclient.record._pure.batch", "aiokclient._native.record"
    for setting, expected in (("1", pure), ("0", native), ("", native)):
        env = {**os.environ, "AIOKCLIENT_PURE": setting}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected

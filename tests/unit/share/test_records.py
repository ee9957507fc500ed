"""Tests of the records with locks: how they are decoded, and that no memory is lost with them."""

import gc
import sys
import weakref
from collections.abc import Iterator
from itertools import repeat
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import ConsumerRecord, ShareRecord
from aiokclient.record import batch
from aiokclient.record._pure import batch as pure_batch
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.share.delivery.record import lock_records, set_locks
from aiokclient.types import TimestampType

Made = ShareRecord[Any, Any]

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=40),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)
SOME = [(index, b"key", b"value %d" % index, []) for index in range(50)]


class Lock:
    """An acquisition, with as much as a record needs of it."""

    delivery_count = 3

    def is_lost(self, offset: int) -> bool:
        return False


def seal(records: Any) -> bytes:
    builder = RecordBatchBuilder(limit=1 << 20)
    for record in records:
        assert builder.append(*record) >= 0
    return bytes(builder.seal())


def decode(module: Any, data: bytes, lock: Any, **options: Any) -> list[Made]:
    """Return the records of a batch, which are decoded with locks."""
    found = module.RecordBatch(data).records("jobs", 1, kind=ShareRecord, **options)
    set_locks(found, ShareRecord, lock)
    return cast("list[Made]", found)


def lock_decoded(data: bytes, lock: Any) -> list[Made]:
    """Return the records of a batch, which get their locks after they were decoded."""
    return lock_records(batch.RecordBatch(data).records("jobs", 1), ShareRecord, lock)


@given(RECORDS, st.integers(0, 3))
def test_records_decoded_with_locks_are_those_that_get_them_later(
    records: Any, start_offset: int
) -> None:
    data, lock = seal(records), cast("Any", Lock())
    expected = lock_decoded(data, lock)[start_offset:]
    for module in (batch, pure_batch):
        assert decode(module, data, lock, start_offset=start_offset) == expected
        assert decode(module, data, lock, start_offset=start_offset, copy=False) == expected


def test_decoded_records_have_the_properties_of_their_lock() -> None:
    (record,) = decode(batch, seal(SOME[:1]), Lock())
    assert (record.delivery_count, record.lock_lost) == (3, False)
    assert (record.offset, record.key, record.value) == (0, b"key", b"value 0")
    assert (record.serialized_key_size, record.serialized_value_size) == (3, 7)


def test_only_classes_with_slots_are_decoded() -> None:
    class Free(ShareRecord[Any, Any]):
        pass

    found = batch.RecordBatch(seal(SOME))
    with pytest.raises(TypeError):
        set_locks(cast("Any", found.records("jobs", 1)), ShareRecord, cast("Any", Lock()))
    if batch.RecordBatch is not cast("Any", pure_batch.RecordBatch):
        with pytest.raises(TypeError, match="Free"):
            found.records("jobs", 1, kind=Free)
        with pytest.raises(TypeError, match="int"):
            found.records("jobs", 1, kind=cast("Any", int))


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """Collect the records of earlier tests now, which refer to their class, and not in the test."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("make", [lambda data, lock: decode(batch, data, lock), lock_decoded])
def test_dropped_records_give_back_their_locks_and_their_memory(make: Any) -> None:
    data, lock = seal(SOME), Lock()
    before = sys.getrefcount(lock), sys.getrefcount(ShareRecord)
    dropped: list[object] = []
    for _ in range(5):
        # The memory of records that were dropped is used again.
        records = make(data, lock)
        references = list(map(weakref.ref, records, repeat(dropped.append)))
        assert [each() for each in references] == records
        assert sys.getrefcount(lock) == before[0] + len(records)
        del records
        assert [each() for each in references] == [None] * len(SOME)
    assert len(dropped) == 5 * len(SOME)
    assert (sys.getrefcount(lock), sys.getrefcount(ShareRecord)) == before


def test_new_records_in_memory_of_others_have_no_lock_of_theirs() -> None:
    data, lock = seal(SOME), Lock()
    del [decode(batch, data, lock)][0]
    found = batch.RecordBatch(data).records("jobs", 1, kind=ShareRecord)
    assert {getattr(each, "_acquisition", None) for each in found} == {None}


def test_a_reference_cycle_through_a_record_with_a_lock_is_collected() -> None:
    class Value:
        pass

    value = Value()
    plain: Any = ConsumerRecord("jobs", 1, 0, 0, TimestampType.CREATE_TIME, None, value)
    (record,) = lock_records([plain], ShareRecord, cast("Any", Lock()))
    value.__dict__["record"] = record
    found = weakref.ref(value), weakref.ref(record)
    del value, plain, record
    gc.collect()
    assert [each() for each in found] == [None, None]


def test_deep_chains_of_records_are_dropped() -> None:
    record: Any = None
    for _ in range(100_000):
        record = ShareRecord("jobs", 1, 0, 0, TimestampType.CREATE_TIME, None, record)
    del record


def test_a_subclass_of_share_records_drops_what_it_has() -> None:
    class Job(ShareRecord[Any, Any]):
        __slots__ = ("note",)

        note: object

    note, before = Lock(), sys.getrefcount(Job)
    for _ in range(3):
        record = Job("jobs", 1, 0, 0, TimestampType.CREATE_TIME, None, b"value")
        record.note = note
        reference = weakref.ref(record)
        assert (record.delivery_count, record.lock_lost) == (1, True)
        del record
        assert reference() is None
    assert sys.getrefcount(note) == 2
    assert sys.getrefcount(Job) == before

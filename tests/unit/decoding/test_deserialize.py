"""Tests of deserializers: their results, and the errors of records that they refuse."""

import copy
import pickle
from typing import Any

import pytest

from aiokclient import SKIP, ConsumerRecord, TimestampType, TopicPartition
from aiokclient.decoding.deserialize import Deserializers
from aiokclient.errors import RecordError


def record(
    offset: int, partition: int = 0, key: Any = b"k", value: Any = b"v"
) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(
        "t", partition, offset, 1, TimestampType.CREATE_TIME, key, value, (("h", b"x"),), 3
    )


class Upper:
    def deserialize(self, topic: str, data: bytes, headers: Any) -> str:
        return f"{topic}:{data.decode().upper()}:{headers[0][0]}"


def test_deserializers_may_be_functions_or_objects() -> None:
    both = Deserializers(bytes.decode, Upper())
    made = both.deserialize_record(record(1))
    assert made is not None
    assert (made.key, made.value, made.offset) == ("k", "t:V:h", 1)
    assert both
    assert not Deserializers()


def test_a_tombstone_is_never_deserialized() -> None:
    made = Deserializers(bytes.decode, bytes.decode).deserialize_record(
        record(1, key=None, value=None)
    )
    assert made is not None
    assert (made.key, made.value) == (None, None)


@pytest.mark.parametrize("view", [False, True])
def test_deserialize_none_calls_the_deserializers_with_none(view: bool) -> None:
    seen: list[Any] = []
    value: Any = memoryview if view else lambda data: seen.append(data) or "value"
    made = Deserializers(
        lambda data: seen.append(data) or "key", value, nulls=True
    ).deserialize_record(record(1, key=None, value=None))
    assert made is not None
    assert (made.key, made.value) == ("key", None if view else "value")
    assert seen == ([None] if view else [None, None])


@pytest.mark.parametrize(
    ("key", "value", "sizes"),
    [(b"k", b"abc", (1, 3)), (None, b"", (-1, 0)), (memoryview(b"kk"), None, (2, -1))],
)
def test_records_tell_the_serialized_sizes(key: Any, value: Any, sizes: tuple[int, int]) -> None:
    raw = record(1, key=key, value=value)
    made = Deserializers(
        lambda data: "a longer key", lambda data: 5, nulls=True
    ).deserialize_record(raw)
    assert made is not None
    copies = [copy.copy(made), pickle.loads(pickle.dumps(made))]
    for each in [raw, made, *copies]:
        assert (each.serialized_key_size, each.serialized_value_size) == sizes
    assert copies == [made, made]


def test_the_sizes_of_an_own_record_with_objects_are_unknown() -> None:
    made = record(1, key="key", value=5)
    assert (made.serialized_key_size, made.serialized_value_size) == (-1, -1)


def test_a_deserializer_error_names_the_record() -> None:
    with pytest.raises(RecordError, match="value") as raised:
        Deserializers(None, int).deserialize_record(record(9, 2))
    error = raised.value
    assert error.topic_partition == TopicPartition("t", 2)
    assert (error.offset, error.raw_key, error.raw_value) == (9, b"k", b"v")
    assert error.headers == (("h", b"x"),)
    assert isinstance(error.__cause__, ValueError)


def test_the_program_decides_about_failures() -> None:
    seen: list[RecordError] = []

    def decide(error: RecordError) -> Any:
        seen.append(error)
        return SKIP if error.offset == 1 else -1

    both = Deserializers(None, int, decide)
    assert both.deserialize_record(record(1)) is None
    made = both.deserialize_record(record(2))
    assert made is not None
    assert made.value == -1
    assert [error.offset for error in seen] == [1, 2]


def test_a_key_error_names_the_key() -> None:
    skipping = Deserializers(int, None, lambda error: SKIP)
    assert skipping.deserialize_record(record(1)) is None
    replacing = Deserializers(int, bytes.decode, lambda error: 0)
    made = replacing.deserialize_record(record(1))
    assert made is not None
    assert (made.key, made.value) == (0, "v")

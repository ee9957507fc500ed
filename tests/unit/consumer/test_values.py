"""Tests of initial offsets and lists of records."""

from typing import Any

import pytest

from aiokclient import ConsumerRecord, OffsetAndMetadata, TimestampType, TopicPartition
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.records import Records
from aiokclient.consumer.state.offset_reset import EARLIEST, LATEST, NONE, Reset


def record(offset: int, partition: int = 0) -> ConsumerRecord[Any, Any]:
    kind = TimestampType.CREATE_TIME
    return ConsumerRecord("t", partition, offset, 1, kind, b"k", b"v", (("h", b"x"),), 3)


@pytest.mark.parametrize(
    ("option", "reset"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", NONE),
        ("by_duration:PT1.5S", Reset("by_duration", 1500)),
        ("by_duration:P1DT2H", Reset("by_duration", 93_600_000)),
    ],
)
def test_auto_offset_reset_values_are_parsed(option: str, reset: Reset) -> None:
    assert Reset.of(ConsumerConfig(bootstrap_servers="b:1", auto_offset_reset=option)) == reset


def test_resets_send_their_list_offsets_timestamps() -> None:
    assert EARLIEST.find_timestamp(5_000) == -2
    assert LATEST.find_timestamp(5_000) == -1
    assert Reset("by_duration", 1_500).find_timestamp(5_000) == 3_500
    assert Reset("by_duration", 9_000).find_timestamp(5_000) == 0


def test_records_by_partition_and_their_offsets() -> None:
    records: Records[Any, Any] = Records([record(1), record(7, 1), record(4), record(8, 1)])
    assert [r.offset for r in records.by_partition()[TopicPartition("t", 1)]] == [7, 8]
    assert records.offsets() == {
        TopicPartition("t", 0): OffsetAndMetadata(5, "", 3),
        TopicPartition("t", 1): OffsetAndMetadata(9, "", 3),
    }
    assert Records().offsets() == {}

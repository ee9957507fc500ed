"""The markers of the exactly-once sink, and the next step that each marker determines."""

from __future__ import annotations

import pytest

from aiokclient import OffsetAndMetadata, TopicPartition
from aiokclient.spark.sink.markers import (
    Marker,
    Position,
    Step,
    difference,
    newest,
    next_step,
    refusal,
    unreadable,
)

HERE = Position("query-1", 3, 7)


def marker(batch: int, rows: int = 10, digest: str = "ab") -> Marker:
    return Marker(batch, rows, digest)


@pytest.mark.parametrize(
    ("committed", "step"),
    [
        (None, Step.WRITE),
        (marker(0), Step.WRITE),
        (marker(6), Step.WRITE),
        (marker(7), Step.VERIFY),
        (marker(8), Step.REFUSE),
        (marker(100), Step.REFUSE),
    ],
)
def test_next_step_follows_from_the_batch_of_the_marker(
    committed: Marker | None, step: Step
) -> None:
    assert next_step(committed, HERE) is step


@pytest.mark.parametrize("batch", [0, 7, 2**40])
def test_marker_survives_being_committed_as_an_offset(batch: int) -> None:
    encoded = marker(batch).encode()
    assert encoded.offset == batch + 1
    assert Marker.decode(encoded) == marker(batch)


@pytest.mark.parametrize(
    "metadata",
    ["", "x", "[]", "7", "{}", '{"version":2,"rows":1,"digest":"a"}', '{"version":1,"rows":1.0}'],
)
def test_decode_refuses_an_offset_that_is_not_a_marker(metadata: str) -> None:
    committed = OffsetAndMetadata(8, metadata)
    with pytest.raises(ValueError, match=r"marker|Expecting"):
        Marker.decode(committed)
    assert "aiokclient-spark-query-1-3" in unreadable(committed, HERE.group)


def test_marker_fits_into_the_metadata_that_a_broker_allows() -> None:
    large = Marker(2**62, 2**62, "f" * 24)
    assert len(large.encode().metadata) < 4096


def test_difference_names_what_was_committed_and_what_was_repeated() -> None:
    assert difference(marker(7), marker(7), HERE) is None
    for other in (marker(7, rows=11), marker(7, digest="cd")):
        text = difference(marker(7), other, HERE)
        assert text is not None
        assert text.startswith("Spark partition 3 of batch 7, query query-1 is committed with 10 ")
        assert f"{other.rows} rows (digest {other.digest})" in text


def test_refusal_names_both_batches() -> None:
    text = refusal(marker(9), HERE)
    assert "batch 7" in text
    assert "batch 9 is committed already" in text


def test_newest_marker_counts_where_topics_are_in_a_column() -> None:
    found = {TopicPartition("a", 0): marker(5), TopicPartition("b", 0): marker(6)}
    assert newest(found) == marker(6)
    assert newest({}) is None


def test_ids_do_not_depend_on_the_batch() -> None:
    later = Position("query-1", 3, 8)
    assert later.transactional_id == HERE.transactional_id == "aiokclient-spark-query-1-3"
    assert later.group == HERE.group
    assert Position("query-1", 4, 7).transactional_id != HERE.transactional_id


def test_position_of_a_batch_write_has_the_name_of_the_write() -> None:
    assert str(Position("load-1", 2, 0, False)) == "Spark partition 2 of the write 'load-1'"

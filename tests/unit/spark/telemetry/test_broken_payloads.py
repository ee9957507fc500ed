"""Tests that no payload makes the pipeline fail: a push becomes rows, or is marked as broken."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from otlp_payloads import CUMULATIVE, DELTA, SECOND_US, payload

from aiokclient.spark.telemetry import arrow
from aiokclient.spark.telemetry.arrow import (
    POINTS,
    PUSHES,
    points_of_pushes,
    pushes_of_records,
    totals_of_points,
)
from aiokclient.spark.telemetry.otlp import LARGEST_TIME_US, parse, points

NOW = 1_700_000_000 * SECOND_US
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HUGE = (1 << 64) - 1
GOOD = payload(NOW - SECOND_US, NOW, {"sent.total": 3})


def record(value: bytes | None, **changes: Any) -> pa.RecordBatch:
    """Return a record of the topic as the source delivers it."""
    row = {"key": b"i1", "headers": [("client_id", b"shop")], "timestamp": NOW, **changes}
    listed = [{"key": key, "value": text} for key, text in row["headers"] or ()]
    columns: dict[str, Any] = {
        "key": pa.array([row["key"]], pa.binary()),
        "value": pa.array([value], pa.binary()),
        "headers": pa.array([None if row["headers"] is None else listed], HEADERS),
        "timestamp": pa.array([row["timestamp"]], pa.timestamp("us", tz="UTC")),
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([7], pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def push(value: bytes | None, **changes: Any) -> dict[str, Any]:
    """Return the push of a record."""
    (batch,) = pushes_of_records([record(value, **changes)])
    assert batch.schema == PUSHES
    (row,) = batch.to_pylist()
    found: dict[str, Any] = row
    return found


def tables(value: bytes | None, **changes: Any) -> tuple[str | None, int]:
    """Run all steps. Return what is wrong with the push, and the number of its points."""
    (pushes,) = pushes_of_records([record(value, **changes)])
    problem: str | None = pushes.column("problem")[0].as_py()
    event = pushes.column("event_us")[0].as_py()
    assert event is None or 0 <= event <= LARGEST_TIME_US
    if problem is not None or event is None:
        return problem or "no time", 0
    table = pa.Table.from_batches(points_of_pushes([pushes]), POINTS)
    table.to_pylist()  # This fails if Python cannot represent a time.
    sums = table.filter(pa.compute.is_valid(table.column("temporality")))
    if sums.num_rows:
        totals_of_points(pa.concat_tables([sums] * 3)).to_pylist()
    return None, table.num_rows


def metrics(change: Callable[[Any], object]) -> bytes:
    """Return a payload after `change` was called with its list of metrics."""
    whole = MetricsData()
    change(whole.resource_metrics.add().scope_metrics.add().metrics)
    data: bytes = whole.SerializeToString()
    return data


def histogram(**fields: Any) -> bytes:
    def change(added: Any) -> None:
        metric = added.add(name="lag")
        metric.histogram.aggregation_temporality = DELTA
        metric.histogram.data_points.add(time_unix_nano=NOW * 1_000, **fields)

    return metrics(change)


def gauge(name: str = "g", **fields: Any) -> bytes:
    def change(added: Any) -> None:
        added.add(name=name).gauge.data_points.add(**{"time_unix_nano": NOW * 1_000, **fields})

    return metrics(change)


def wide(added: Any) -> None:
    data = added.add(name="g").gauge
    for _ in range(100):
        data.data_points.add(time_unix_nano=NOW * 1_000, as_double=1)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (histogram(count=1 << 63), "the count 9223372036854775808, which is larger than"),
        (
            histogram(count=3, explicit_bounds=[1], bucket_counts=[HUGE, 1]),
            "the count 18446744073709551615",
        ),
        (
            histogram(count=3, explicit_bounds=[1, 2], bucket_counts=[1, 2]),
            "A histogram of 'lag' has 2 buckets and 2 bounds",
        ),
        (
            histogram(count=3, explicit_bounds=[1], bucket_counts=[1, 1, 1]),
            "has 3 buckets and 1 bounds",
        ),
        (
            histogram(count=3, explicit_bounds=[2, 1], bucket_counts=[1, 1, 1]),
            "The bounds of a histogram of 'lag' do not increase.",
        ),
        (
            histogram(count=2, explicit_bounds=[math.nan], bucket_counts=[1, 1]),
            "do not increase",
        ),
        (gauge(time_unix_nano=HUGE, as_double=1), "which is after the year 2262"),
        (gauge(start_time_unix_nano=HUGE, as_double=1), "which is after the year 2262"),
        (gauge(name="", as_double=1), "A metric has no name."),
        (metrics(lambda added: added.add(name="nothing")), "has metrics, but no points"),
        (metrics(lambda added: added.add(name="g").gauge.SetInParent()), "but no points"),
        (gauge(name="n" * 500, time_unix_nano=HUGE), f"'{'n' * 80}...' has the time"),
    ],
)
def test_payload_that_cannot_be_rows_is_broken_with_the_reason(value: bytes, reason: str) -> None:
    found = push(value)
    assert reason in found["problem"]
    assert found["payload"] == value


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (histogram(count=(1 << 63) - 1), 1),
        (histogram(count=3, explicit_bounds=[1], bucket_counts=[1, 2]), 1),
        (histogram(count=0, sum=-math.inf), 1),
        (gauge(as_double=math.inf), 1),
        (gauge(as_double=math.nan), 1),
        (gauge(as_int=-(1 << 63)), 1),
        (gauge(), 1),
        (gauge(time_unix_nano=0, as_double=1), 1),
        (gauge(name="ä\x00" * 10_000, as_double=1), 1),
    ],
)
def test_unusual_numbers_and_names_are_rows(value: bytes, count: int) -> None:
    assert tables(value) == (None, count)


def test_label_that_repeats_has_its_last_value() -> None:
    def change(added: Any) -> None:
        point = added.add(name="g").gauge.data_points.add(time_unix_nano=1)
        for text in ("one", "two"):
            point.attributes.add(key="topic").value.string_value = text

    (point,) = points(parse(metrics(change)))
    assert point.labels == (("topic", "two"),)


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (253_402_300_800 * SECOND_US, "The record has the timestamp 253402300800000 ms"),
        (-2_000, "The record has the timestamp -2 ms"),
        (LARGEST_TIME_US + 1_000, "not between the years 1970 and 2262"),
    ],
)
def test_record_whose_time_is_out_of_range_is_broken(timestamp: int, reason: str) -> None:
    found = push(GOOD, timestamp=timestamp)
    assert reason in found["problem"]
    assert (found["received_us"], found["event_us"]) == (None, NOW)


@pytest.mark.parametrize("timestamp", [-1_000, None])
def test_record_without_a_timestamp_has_the_time_of_its_points(timestamp: int | None) -> None:
    found = push(GOOD, timestamp=timestamp)
    assert (found["problem"], found["received_us"], found["event_us"]) == (None, None, NOW)
    assert tables(GOOD, timestamp=timestamp) == (None, 1)


@pytest.mark.parametrize("interval", ["9" * 5_000, "9" * 30, "-5", "\u0663", "", "1.5"])
def test_interval_that_is_no_number_of_the_protocol_is_unknown(interval: str) -> None:
    found = push(GOOD, headers=[("push_interval_ms", interval.encode())])
    assert (found["problem"], found["interval_ms"]) == (None, 0)


def test_headers_may_be_missing_null_or_not_utf8() -> None:
    assert push(GOOD, headers=None)["problem"] is None
    found = push(GOOD, headers=[("client_id", b"\xff"), ("software_name", None), ("", b"")])
    assert (found["client_id"], found["software"]) == ("\ufffd", "")
    assert push(GOOD, key=b"\xff\xfe", headers=[])["instance_id"] == "\ufffd\ufffd"
    batch = record(GOOD)
    null = pa.array([[None, {"key": "client_id", "value": b"shop"}]], HEADERS)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", null)
    (found_batch,) = pushes_of_records([batch])
    assert found_batch.column("client_id").to_pylist() == ["shop"]


def test_payload_whose_rows_would_not_fit_in_memory_is_broken() -> None:
    whole = MetricsData()
    entry = whole.resource_metrics.add()
    entry.resource.attributes.add(key="k").value.string_value = "x" * 900_000
    wide(entry.scope_metrics.add().metrics)
    assert "The rows of the payload would have 9" in push(whole.SerializeToString())["problem"]
    client = [("client_id", b"x" * 900_000)]
    assert "The rows of the payload would have 9" in push(metrics(wide), headers=client)["problem"]


def test_rows_with_long_labels_are_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BYTES", 10_000)
    pushes = list(pushes_of_records([record(metrics(wide))] * 12))
    found = list(points_of_pushes(pushes))
    assert sum(batch.num_rows for batch in found) == 1_200
    assert len(found) > 3


TIMES = st.sampled_from([0, 1, NOW * 1_000, HUGE]) | st.integers(0, HUGE)
COUNTS = st.sampled_from([0, 1, (1 << 63) - 1, HUGE]) | st.integers(0, HUGE)
NUMBERS = st.floats() | st.sampled_from([0.0, math.nan, math.inf])
SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
LABELS = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Draw a payload that is OTLP, with fields of any value."""
    whole = MetricsData()
    for _ in range(draw(st.integers(0, 2))):
        entry = whole.resource_metrics.add()
        for key, text in draw(LABELS):
            entry.resource.attributes.add(key=key).value.string_value = text
        for _ in range(draw(st.integers(0, 3))):
            _draw_metric(draw, entry.scope_metrics.add().metrics)
    data: bytes = whole.SerializeToString()
    return data


def _draw_metric(draw: st.DrawFn, added: Any) -> None:
    metric = added.add(name=draw(st.text(max_size=4)))
    kinds = ("gauge", "sum", "histogram", "exponential_histogram", "summary", None)
    kind = draw(st.sampled_from(kinds))
    if kind is None:
        return
    data = getattr(metric, kind)
    if kind not in ("gauge", "summary"):
        data.aggregation_temporality = draw(st.sampled_from([0, DELTA, CUMULATIVE, 77]))
    if kind == "sum":
        data.is_monotonic = draw(st.booleans())
    for _ in range(draw(st.integers(0, 3))):
        point = data.data_points.add(time_unix_nano=draw(TIMES), start_time_unix_nano=draw(TIMES))
        for key, text in draw(LABELS):
            point.attributes.add(key=key).value.string_value = text
        if kind in ("gauge", "sum"):
            if draw(st.booleans()):
                point.as_int = draw(SIGNED)
            elif draw(st.booleans()):
                point.as_double = draw(NUMBERS)
            continue
        point.count, point.sum = draw(COUNTS), draw(NUMBERS)
        if kind == "histogram":
            point.explicit_bounds.extend(draw(st.lists(NUMBERS, max_size=3)))
            point.bucket_counts.extend(draw(st.lists(COUNTS, max_size=4)))


RECORDS = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=3),
        "headers": st.none()
        | st.lists(
            st.tuples(
                st.sampled_from(["client_id", "push_interval_ms", "terminating", ""]),
                st.none() | st.binary(max_size=12) | st.just(b"9" * 40),
            ),
            max_size=4,
        ),
        "timestamp": st.none() | st.just(NOW) | st.integers(-(1 << 63), (1 << 63) - 1),
    }
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(value=messages() | st.none() | st.binary(max_size=60), changes=RECORDS)
@example(value=GOOD, changes={"timestamp": None, "headers": None, "key": b"i"})
def test_any_record_is_rows_or_broken(value: bytes | None, changes: dict[str, Any]) -> None:
    problem, count = tables(value, **changes)
    assert (problem is None) == (count > 0)

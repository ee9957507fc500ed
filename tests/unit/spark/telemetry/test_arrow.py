"""The steps of the pipeline on Arrow data: records, pushes, points, totals."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pyarrow as pa
from otlp_payloads import SECOND_US, headers, histogram, payload

from aiokclient.spark.telemetry.arrow import (
    POINTS,
    PUSHES,
    TOTALS,
    points_of_pushes,
    pushes_of_records,
    totals_of_points,
)
from aiokclient.spark.telemetry.tables import ddl

NOW = 1_700_000_000 * SECOND_US
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def records(*payloads: bytes | None) -> pa.RecordBatch:
    listed = [{"key": key, "value": value} for key, value in headers("i1", "shop")]
    count = len(payloads)
    columns: dict[str, Any] = {
        "key": pa.array([b"i1"] * count, pa.binary()),
        "value": pa.array(payloads, pa.binary()),
        "headers": pa.array([listed] * count, HEADERS),
        "timestamp": pa.array([NOW + 1_500] * count, pa.timestamp("us", tz="America/New_York")),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def tidy(*payloads: bytes | None) -> pa.Table:
    return pa.Table.from_batches(points_of_pushes(pushes_of_records([records(*payloads)])))


def test_record_is_one_push_and_one_row_for_each_point() -> None:
    data = payload(
        NOW - SECOND_US, NOW, {"sent.total": 3}, {"lag": 2}, attributes={"group_id": "g"}
    )
    (pushes,) = pushes_of_records([records(data, None)])
    assert pushes.schema == PUSHES
    assert [problem is None for problem in pushes.column("problem").to_pylist()] == [True, False]
    table = tidy(data)
    assert table.schema == POINTS
    sent, lag = table.to_pylist()
    utc = datetime.datetime.fromtimestamp(NOW / SECOND_US, datetime.UTC)
    assert sent["time"] == utc
    assert sent["received"] == utc + datetime.timedelta(microseconds=1_500)
    assert sent["date"] == utc.date()
    assert (sent["client_id"], sent["metric"], sent["value"]) == ("shop", "sent.total", 3)
    assert sent["attributes"] == [("group_id", "g")]
    assert (lag["kind"], lag["start"], lag["temporality"]) == ("gauge", None, None)


def test_points_without_rows_have_the_schema() -> None:
    empty = points_of_pushes([])
    assert [batch.schema for batch in empty] == [POINTS]


def test_totals_have_one_row_for_each_series_that_is_no_gauge() -> None:
    table = tidy(
        payload(NOW, NOW + 10, {"sent.total": 3}, {"lag": 2}),
        histogram(NOW, NOW + 10, "size", [1, 10], [1, 0, 2]),
        histogram(NOW + 10, NOW + 20, "size", [1, 10], [1, 1, 0]),
        payload(NOW + 15, NOW + 20, {"sent.total": 4}),
    )
    totals = totals_of_points(table)
    assert totals.schema == TOTALS
    sent, size = totals.to_pylist()
    assert (sent["metric"], sent["value"], sent["points"]) == ("sent.total", 7, 2)
    assert len(sent["gaps"]) == 1
    assert (size["value"], size["count"], size["gaps"]) == (5, 5, [])
    assert [each["count"] for each in size["buckets"]] == [2, 1, 2]
    assert math.isinf(size["buckets"][-1]["bound"])
    assert size["labels"] == [("topic", "orders")]


def test_schemas_have_a_notation_for_spark() -> None:
    text = ddl(POINTS)
    assert "`time` timestamp, `start` timestamp" in text
    assert "`labels` map<string, string>" in text
    assert "`buckets` array<struct<`bound`: double, `count`: bigint>>" in text
    assert "`partition` int, `offset` bigint, `date` date" in text
    assert "`payload` binary" in ddl(PUSHES)

"""Tests of how the records of the topic are read, including broken ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
from otlp_payloads import SECOND_US, headers, histogram, payload

from aiokclient.spark.telemetry.otlp import Bucket, parse, points
from aiokclient.spark.telemetry.pushes import BUCKETS, Push, read_push

NOW = 1_700_000_000 * SECOND_US
GOOD = payload(NOW - SECOND_US, NOW, {"sent.total": 3}, {"lag": math.nan}, attributes={"a": "b"})


def read(value: bytes | None, **changes: Any) -> Push:
    whole = {"key": b"i1", "headers": headers("i1", "shop"), "received_us": NOW, **changes}
    return read_push(whole["key"], value, whole["headers"], whole["received_us"], 0, 7)


def test_push_has_the_client_of_the_headers_and_the_time_of_its_points() -> None:
    push = read(GOOD, received_us=NOW + 5)
    assert push.problem is None
    assert (push.instance_id, push.client_id, push.software) == ("i1", "shop", "test")
    assert (push.version, push.address, push.terminating) == ("1.2", "10.0.0.1", False)
    assert (push.time_us, push.received_us, push.event_us) == (NOW, NOW + 5, NOW)
    assert 0 <= push.bucket < BUCKETS


def test_clock_of_a_client_that_is_ahead_does_not_move_the_event_time() -> None:
    assert read(GOOD, received_us=NOW - SECOND_US).event_us == NOW - SECOND_US


def test_instance_id_is_the_key_if_no_header_has_it() -> None:
    assert read(GOOD, headers=[]).instance_id == "i1"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "no payload"),
        (b"", "no payload"),
        (b"\xff\xff\xff", "not OTLP"),
        (GOOD[:-3], "not OTLP"),
        (b"\x0a\x00", "no metrics"),
    ],
)
def test_broken_push_says_why(value: bytes | None, problem: str) -> None:
    assert problem in str(read(value).problem)


def test_push_without_an_instance_id_is_broken() -> None:
    push = read(GOOD, key=None, headers=[])
    assert "no client instance id" in str(push.problem)
    assert push.instance_id is None


def test_digest_is_that_of_the_instance_and_the_payload() -> None:
    other = payload(NOW - SECOND_US, NOW, {"sent.total": 4})
    assert read(GOOD).digest == read(GOOD, received_us=NOW + 9).digest
    assert read(GOOD).digest != read(other).digest
    assert read(GOOD).digest != read(GOOD, headers=headers("i2", "shop")).digest


def test_interval_is_that_of_the_header() -> None:
    assert read(GOOD).interval_ms == 0
    assert read(GOOD, headers=headers("i1", "shop", push_interval_ms="500")).interval_ms == 500
    assert read(GOOD, headers=headers("i1", "shop", push_interval_ms="-")).interval_ms == 0


def test_points_have_kind_temporality_and_labels() -> None:
    total, gauge = points(parse(GOOD))
    assert (total.metric, total.kind, total.temporality) == ("sent.total", "sum", "delta")
    assert (total.value, total.start, total.time) == (3, NOW - SECOND_US, NOW)
    assert total.monotonic
    assert total.attributes == (("a", "b"),)
    assert (gauge.kind, gauge.temporality, gauge.start) == ("gauge", None, None)
    assert math.isnan(gauge.value)


def test_histogram_has_buckets_of_which_the_last_is_infinite() -> None:
    (point,) = points(parse(histogram(0, NOW, "lag", [1, 10], [3, 2, 1])))
    assert point.buckets == (Bucket(1, 3), Bucket(10, 2), Bucket(math.inf, 1))
    assert (point.value, point.count) == (2.5, 6)
    assert point.labels == (("topic", "orders"),)
    assert point.start is None

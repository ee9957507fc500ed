"""The content of pushes: differences, OTLP, sizes, and compression."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aiokclient.config.codecs import Compression
from aiokclient.metrics import Labels
from aiokclient.record.compression import decompress
from aiokclient.telemetry import pushes
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.pushes import (
    AcceptedValues,
    Accumulation,
    Measurement,
    Payloads,
    make_payloads,
)

TOPIC: Labels = (("topic", "t"),)
PARTITION: Labels = (*TOPIC, ("partition", "3"))


def sum_of(value: float, labels: Labels = (), name: str = "a.total") -> Point:
    return Point(name, PointKind.SUM, value, labels, (("group_id", "g"),))


def histogram(*counts: int, total: float = 0.0) -> Point:
    value = HistogramValue((1.0, 2.0), counts, total)
    return Point("a.seconds", PointKind.HISTOGRAM, value)


def measured(points: Sequence[Point]) -> list[Measurement]:
    return [Measurement(point, point.value, 5_000) for point in points]


def made(points: list[Point], *, delta: bool = True, **more: Any) -> Payloads:
    options: dict[str, Any] = {"max_bytes": 10**6, "codec": Compression.NONE, **more}
    return make_payloads(measured(points), 7_000, delta=delta, **options)


def test_deltas_count_from_the_last_accepted_push() -> None:
    sums = Accumulation(1_000)
    sums.follow_temporality(True)
    assert [m[1:] for m in sums.measure_points([sum_of(3)])] == [(3, 1_000)]
    assert [m[1:] for m in sums.measure_points([sum_of(5)])] == [(5, 1_000)]
    sums.accept_values(AcceptedValues([sum_of(5)], 2_000))
    assert [m[1:] for m in sums.measure_points([sum_of(5.5)])] == [(0.5, 2_000)]
    assert [m[1:] for m in sums.measure_points([sum_of(9, TOPIC)])] == [(9, 1_000)]
    # A sum that became smaller belongs to a new metric.
    assert [m[1:] for m in sums.measure_points([sum_of(2)])] == [(2, 2_000)]


def test_a_sum_goes_on_when_the_attributes_of_its_object_change() -> None:
    sums = Accumulation(1_000)
    sums.follow_temporality(True)
    sums.accept_values(AcceptedValues([sum_of(5)], 2_000))
    joined = sum_of(6)._replace(resource=(("group_id", "g"), ("group_member_id", "m")))
    assert [m[1:] for m in sums.measure_points([joined])] == [(1, 2_000)]
    assert [m[1:] for m in sums.measure_points([joined._replace(source=2)])] == [(6, 1_000)]


def test_cumulative_sums_begin_again_when_the_temporality_changes() -> None:
    sums = Accumulation(1_000)
    sums.follow_temporality(False)
    sums.accept_values(AcceptedValues([sum_of(5)], 2_000))
    assert [m[1:] for m in sums.measure_points([sum_of(6)])] == [(6, 1_000)]
    sums.follow_temporality(True)
    assert [m[1:] for m in sums.measure_points([sum_of(8)])] == [(3, 2_000)]
    sums.accept_values(AcceptedValues([sum_of(8)], 3_000))
    sums.follow_temporality(True)
    sums.follow_temporality(False)
    sums.accept_values(AcceptedValues([sum_of(10)], 4_000))
    assert [m[1:] for m in sums.measure_points([sum_of(12)])] == [(4, 3_000)]


def test_deltas_of_histograms() -> None:
    sums = Accumulation(1_000)
    sums.follow_temporality(True)
    sums.accept_values(AcceptedValues([histogram(1, 2, 3, total=9.0)], 2_000))
    (found,) = sums.measure_points([histogram(1, 4, 3, total=12.0)])
    assert found.value == HistogramValue((1.0, 2.0), (0, 2, 0), 3.0)
    (found,) = sums.measure_points([histogram(0, 4, 3, total=12.0)])
    assert found.value == HistogramValue((1.0, 2.0), (0, 4, 3), 12.0)


def test_number_of_kept_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushes, "MOST_SERIES", 10)
    sums = Accumulation(0)
    sums.follow_temporality(True)
    for turn in range(5):
        sums.accept_values(AcceptedValues([sum_of(1, name=f"{turn} {n}") for n in range(5)], 1))
    assert len(sums._accepted) == 10
    assert [
        m.value for m in sums.measure_points([sum_of(1, name="4 0"), sum_of(1, name="0 0")])
    ] == [0, 1]


@pytest.mark.parametrize("delta", [True, False])
def test_otlp_has_one_resource_for_each_series(delta: bool) -> None:
    points = [
        sum_of(2.0, PARTITION),
        Point("a.avg", PointKind.GAUGE, 1.5, TOPIC),
        Point("a.count", PointKind.GAUGE_INT, 4),
        histogram(1, 2, 3, total=9.0),
    ]
    (payload,) = made(points, delta=delta).payloads
    found = MetricsData.FromString(payload.data).resource_metrics
    metrics = []
    for each in found:
        (scope,) = each.scope_metrics
        assert not scope.HasField("scope")
        metrics += scope.metrics
    assert len(found) == len(metrics) == 4
    assert [metric.name for metric in metrics] == [point.name for point in points]
    assert not any(metric.unit for metric in metrics)
    (attribute,) = found[0].resource.attributes
    assert (attribute.key, attribute.value.string_value) == ("group_id", "g")
    (number,) = metrics[0].sum.data_points
    labels = {each.key: each.value.string_value for each in number.attributes}
    assert labels == {"topic": "t", "partition": "3"}
    assert metrics[0].sum.is_monotonic
    assert metrics[0].sum.aggregation_temporality == (1 if delta else 2)
    assert (number.as_double, number.time_unix_nano) == (2.0, 7_000_000_000)
    assert number.start_time_unix_nano == 5_000_000_000
    assert metrics[1].gauge.data_points[0].as_double == 1.5
    assert metrics[2].gauge.data_points[0].as_int == 4
    (distribution,) = metrics[3].histogram.data_points
    assert (distribution.count, distribution.sum) == (6, 9.0)
    assert list(distribution.bucket_counts) == [1, 2, 3]
    assert list(distribution.explicit_bounds) == [1.0, 2.0]


def test_a_metric_of_the_application_has_its_unit() -> None:
    (payload,) = made([Point("shop.waits", PointKind.GAUGE, 1.5, unit="s")]).payloads
    (found,) = MetricsData.FromString(payload.data).resource_metrics
    assert found.scope_metrics[0].metrics[0].unit == "s"


def test_series_that_cannot_be_expressed_are_skipped() -> None:
    points = [
        Point("a", PointKind.GAUGE_INT, 2**70),
        Point("\ud800", PointKind.GAUGE, 1),
        Point("b", PointKind.GAUGE, math.nan),
        Point("c", PointKind.GAUGE_INT, math.inf),
    ]
    whole = made(points)
    assert whole.skipped == 3
    (found,) = MetricsData.FromString(whole.payloads[0].data).resource_metrics
    assert found.scope_metrics[0].metrics[0].name == "b"


def test_large_payloads_lose_partitions_then_topics_and_are_split_then() -> None:
    points = [sum_of(1.0, PARTITION)] * 20 + [sum_of(1.0, TOPIC)] * 10 + [sum_of(1.0)] * 5
    sizes = []
    for max_bytes in (10_000, 2_000, 700, 200, 10):
        whole = made(points, max_bytes=max_bytes)
        assert all(len(each.data) <= max_bytes for each in whole.payloads)
        counts = [each.series for each in whole.payloads]
        sizes.append((whole.without_partitions, whole.without_topics, counts, whole.skipped))
    assert sizes == [
        (False, False, [35], 0),
        (True, False, [15], 0),
        (True, True, [5], 0),
        (True, True, [2, 2, 1], 0),
        (True, True, [0], 5),
    ]


@pytest.mark.parametrize("codec", Compression)
def test_payloads_above_a_thousand_bytes_are_compressed(codec: Compression) -> None:
    (small,) = made([sum_of(1.0)], codec=codec).payloads
    assert small.codec is Compression.NONE
    (large,) = made([sum_of(1.0, PARTITION)] * 50, codec=codec).payloads
    assert large.codec is codec
    content = decompress(large.codec, large.data)
    assert len(content) == large.size > len(large.data) - (codec is Compression.NONE)
    assert len(MetricsData.FromString(bytes(content)).resource_metrics) == 50

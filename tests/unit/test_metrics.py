"""Tests of counters, gauges, and histograms."""

from __future__ import annotations

import json
import math

import pytest

from aiokclient.metrics import (
    FORMER,
    OTHER,
    SERIES,
    UNCOUNTED,
    Histogram,
    Metrics,
    MetricValue,
    OwnMetrics,
)


def test_a_name_with_the_same_labels_is_the_same_instrument() -> None:
    metrics = Metrics()
    metrics.counter("sent", topic="t", broker=1).add(2)
    metrics.counter("sent", broker="1", topic="t").add()
    assert metrics.take_snapshot() == {"sent{broker=1,topic=t}": 3}


def test_a_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("sent")
    with pytest.raises(TypeError, match="sent already exists as a Counter"):
        metrics.gauge("sent")


def test_gauges_are_set_or_read() -> None:
    metrics = Metrics()
    waiting = [1, 2, 3]
    metrics.gauge("waiting", lambda: len(waiting))
    gauge = metrics.gauge("open")
    gauge.set(5)
    gauge.add(-2)
    waiting.pop()
    assert metrics.take_snapshot() == {"open": 3, "waiting": 2}


def test_several_owners_of_a_gauge() -> None:
    metrics = Metrics()
    one, two = [1], [2, 3]
    metrics.gauge("held").add_source(lambda: len(one))
    end = metrics.gauge("held").add_source(lambda: len(two))
    assert metrics.take_snapshot() == {"held": 3}
    end()
    end()
    assert metrics.take_snapshot() == {"held": 1}


def test_a_histogram_has_its_counts_its_quantiles_and_its_buckets() -> None:
    histogram = Metrics().histogram("latency", bounds=(1, 10, 100))
    assert histogram.value["mean"] == histogram.quantile(0.5) == 0
    for value in (0.5, 1, 2, 50, 1000):
        histogram.observe(value)
    seen = histogram.value
    assert (seen["count"], seen["sum"], seen["max"]) == (5, 1053.5, 1000)
    assert seen["buckets"] == {"1": 2, "10": 1, "100": 1, "+Inf": 1}
    assert (seen["p50"], seen["p99"]) == (10, 1000)
    assert [histogram.quantile(q) for q in (0.1, 0.5, 0.8, 1)] == [1, 10, 100, 1000]


def test_a_quantile_is_never_above_what_was_seen() -> None:
    histogram = Metrics().histogram("latency", bounds=(1, 10))
    histogram.observe(3)
    assert histogram.quantile(0.99) == 3


def test_instruments_are_removed_by_label() -> None:
    metrics = Metrics()
    metrics.counter("sent", broker=1, topic="a").add()
    metrics.counter("sent", broker=2, topic="a").add()
    metrics.counter("sent")
    metrics.remove_series(broker=1)
    assert list(metrics.take_snapshot()) == ["sent", "sent{broker=2,topic=a}"]


def test_a_snapshot_is_json_whatever_it_holds() -> None:
    metrics = Metrics()
    metrics.counter("sent", topic="t").add(2)
    metrics.histogram("latency", bounds=(1, 10)).observe(0.25)
    metrics.gauge("age", lambda: None)
    metrics.gauge("left", lambda: math.inf)
    metrics.gauge("ratio", lambda: math.nan)
    metrics.collect_series("lag", lambda: [({"partition": 0}, 7), ({"partition": 1}, None)])
    shown = metrics.take_snapshot()
    assert list(shown) == ["lag{partition=0}", "latency", "sent{topic=t}"]
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown


def test_values_have_name_labels_kind_and_unit() -> None:
    metrics = Metrics()
    metrics.counter("sent.bytes", unit="By", topic="t").add(2)
    metrics.gauge("sent.age", lambda: 1.5, unit="s")
    metrics.collect_series("lag", lambda: [({"partition": 0}, 7)], unit="{record}")
    assert metrics.collect_values("sent") == [
        MetricValue("sent.age", {}, "gauge", "s", 1.5),
        MetricValue("sent.bytes", {"topic": "t"}, "counter", "By", 2),
    ]
    assert metrics.collect_values("lag")[0] == ("lag", {"partition": "0"}, "gauge", "{record}", 7)
    assert len(metrics.collect_values()) == 3


def test_collected_series_when_two_owners_have_the_same_show_the_larger_until_one_ends() -> None:
    metrics = Metrics()
    end = metrics.collect_series("lag", lambda: [({"partition": 0}, 9)])
    metrics.collect_series("lag", lambda: [({"partition": 0}, 7)])
    assert metrics.take_snapshot() == {"lag{partition=0}": 9}
    end()
    end()
    assert metrics.take_snapshot() == {"lag{partition=0}": 7}


def test_topics_beyond_the_limit_share_a_series_and_forgotten_ones_go_away() -> None:
    metrics = Metrics()
    sent = metrics.get_topic_counters("sent")
    for number in range(SERIES + 50):
        sent.get_counter(f"t{number}").add()
    shown = metrics.take_snapshot()
    assert len(shown) == SERIES + 1
    assert shown[f"sent{{topic={OTHER}}}"] == 50
    sent.forget_topic("t0")
    metrics.keep_topics(lambda topic: topic in ("t1", "t2"))
    assert sorted(metrics.take_snapshot()) == [
        f"sent{{topic={OTHER}}}",
        "sent{topic=t1}",
        "sent{topic=t2}",
    ]
    sent.get_counter("t0").add()
    assert metrics.take_snapshot()["sent{topic=t0}"] == 1


def test_a_snapshot_in_a_notebook_is_a_table_with_everything_escaped() -> None:
    metrics = Metrics()
    metrics.counter("sent", topic="<script>").add(1234567)
    metrics.histogram("latency").observe(0.5)
    html = metrics.take_snapshot()._repr_html_()
    assert "<script>" not in html
    assert "sent{topic=&lt;script&gt;}" in html
    assert "1,234,567" in html
    assert "count 1, mean 0.5" in html


def test_series_that_several_share_go_away_with_the_last_of_them() -> None:
    metrics = Metrics()
    first, second = metrics.share_labels(group="g"), metrics.share_labels(group="g")
    metrics.counter("rebalances", group="g").add()
    metrics.counter("rebalances", group="other").add()
    first()
    first()
    assert metrics.take_snapshot() == {"rebalances{group=g}": 1, "rebalances{group=other}": 1}
    second()
    assert metrics.take_snapshot() == {"rebalances{group=other}": 1}


def test_a_histogram_counts_all_observations_however_many_there_are() -> None:
    values = [number * 0.0005 for number in range(3 * UNCOUNTED + 7)]
    histogram = Histogram((0.05, 0.1, 0.2))
    for value in values:
        histogram.observe(value)
    histogram.observe_all([0.1, 7.0])
    found = histogram.value
    values += [0.1, 7.0]
    assert found["count"] == len(values) == histogram.count
    assert found["sum"] == pytest.approx(sum(values))
    assert (found["max"], histogram.quantile(1.0)) == (7.0, 7.0)
    buckets, below = found["buckets"], 0
    for bound in (0.05, 0.1, 0.2):
        assert buckets[f"{bound:g}"] == sum(value <= bound for value in values) - below
        below += buckets[f"{bound:g}"]
    assert buckets["+Inf"] == len(values) - below


def test_owners_count_what_they_noted_before_values_are_read() -> None:
    metrics = Metrics()
    topics = metrics.get_topic_counters("topic.records")
    noted = ["gone", "kept", "kept"]

    def count() -> None:
        for topic in noted:
            topics.get_counter(topic).add()
        noted.clear()

    metrics.connections.add_updater(count)
    metrics.keep_topics(lambda topic: topic == "kept")
    assert metrics.take_snapshot() == {"topic.records{topic=kept}": 2}
    noted.append("kept")
    assert metrics.take_snapshot() == {"topic.records{topic=kept}": 3}


def producer_of(metrics: Metrics) -> OwnMetrics:
    own = OwnMetrics(metrics, "producer")
    own.show_series("records", "sent")
    own.show_series("topic.records", "topic.sent")
    own.histogram("queued")
    own.show_series("queued", "queue.seconds")
    metrics.add_owner(own)
    return own


def test_what_several_owners_show_is_their_sum_also_after_they_have_ended() -> None:
    metrics = Metrics()
    for number in range(2 * FORMER):
        own = producer_of(metrics)
        own.counter("records").add(2)
        own.counter("topic.records", topic="t").add(number)
        own.histogram("queued").observe(0.25)
        own.end_owner()
        own.end_owner()
        own.counter("records").add(1)  # The last events may be counted late.
    live = producer_of(metrics)
    live.counter("topic.records", topic="t").add(1)
    live.counter("topic.records", topic="silent")
    shown = metrics.take_snapshot()
    assert shown["sent"] == 2 * FORMER * 3
    assert shown["topic.sent{topic=t}"] == sum(range(2 * FORMER)) + 1
    assert "topic.sent{topic=silent}" not in shown
    assert (shown["queue.seconds"]["count"], shown["queue.seconds"]["sum"]) == (32, 8.0)
    assert shown["queue.seconds"]["buckets"]["0.25"] == 32
    assert metrics.owners == [live]
    metrics.keep_topics(lambda topic: False)
    assert list(metrics.take_snapshot()) == ["queue.seconds", "sent"]


def test_topics_beyond_the_limit_share_a_series_if_several_owners_show_them() -> None:
    metrics = Metrics()
    for name in ("a", "b"):
        own = producer_of(metrics)
        for number in range(SERIES):
            own.counter("topic.records", topic=f"{name}{number}").add()
    shown = metrics.take_snapshot()
    topics = {name: value for name, value in shown.items() if name.startswith("topic.sent")}
    assert len(topics) == SERIES + 1
    assert topics[f"topic.sent{{topic={OTHER}}}"] == SERIES


def test_owners_that_end_are_kept_for_the_next_push_if_metrics_are_pushed() -> None:
    metrics = Metrics()
    producer_of(metrics).end_owner()
    assert metrics.owners == []
    metrics.are_collected = True
    own = producer_of(metrics)
    own.end_owner()
    assert metrics.owners == metrics.ended_owners == [own]
    metrics.drop_owners(metrics.ended_owners)
    assert metrics.owners == []

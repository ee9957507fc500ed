"""Counters, gauges and histograms."""

from __future__ import annotations

import pytest

from aiokclient.metrics import Metrics


def test_a_name_with_the_same_labels_is_the_same_instrument() -> None:
    metrics = Metrics()
    metrics.counter("sent", topic="t", broker=1).add(2)
    metrics.counter("sent", broker="1", topic="t").add()
    assert metrics.snapshot() == {"sent{broker=1,topic=t}": 3}


def test_a_name_has_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("sent")
    with pytest.raises(TypeError, match="sent is a Counter already"):
        metrics.gauge("sent")


def test_gauges_are_set_or_read() -> None:
    metrics = Metrics()
    waiting = [1, 2, 3]
    metrics.gauge("waiting", lambda: len(waiting))
    gauge = metrics.gauge("open")
    gauge.set(5)
    gauge.add(-2)
    waiting.pop()
    assert metrics.snapshot() == {"open": 3, "waiting": 2}


def test_several_owners_of_a_gauge() -> None:
    metrics = Metrics()
    one, two = [1], [2, 3]
    metrics.gauge("held").include(lambda: len(one))
    end = metrics.gauge("held").include(lambda: len(two))
    assert metrics.snapshot() == {"held": 3}
    end()
    end()
    assert metrics.snapshot() == {"held": 1}


def test_histograms() -> None:
    histogram = Metrics().histogram("latency", bounds=(1, 10, 100))
    assert histogram.value.mean == histogram.value.quantile(0.5) == 0
    for value in (0.5, 1, 2, 50, 1000):
        histogram.observe(value)
    seen = histogram.value
    assert (seen.count, seen.total, seen.maximum) == (5, 1053.5, 1000)
    assert seen.counts == (2, 1, 1, 1)
    assert [seen.quantile(q) for q in (0.1, 0.5, 0.8, 1)] == [1, 10, 100, 1000]
    assert repr(seen) == "HistogramValue(count=5, mean=210.7, max=1000)"


def test_a_quantile_is_never_above_what_was_seen() -> None:
    histogram = Metrics().histogram("latency", bounds=(1, 10))
    histogram.observe(3)
    assert histogram.value.quantile(0.99) == 3


def test_instruments_are_removed_by_label() -> None:
    metrics = Metrics()
    metrics.counter("sent", broker=1, topic="a").add()
    metrics.counter("sent", broker=2, topic="a").add()
    metrics.counter("sent")
    metrics.remove(broker=1)
    assert list(metrics.snapshot()) == ["sent", "sent{broker=2,topic=a}"]

"""Tests of which offsets each batch of a stream covers, on a cluster of two dictionaries."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.source.continuity import DataLossError, Logs
from aiokclient.spark.source.offsets import Positions, StreamOffsets, parse
from aiokclient.spark.source.stream_batches import StreamBatches

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BEGINNING = StreamOffsets.beginning()


class FakeCluster:
    """Topics with ids, and logs with a start and an end."""

    def __init__(self, **logs: dict[int, tuple[int, int]]) -> None:
        self.ids: dict[str, str | None] = {topic: f"{topic}-1" for topic in logs}
        self.spans = {
            TopicPartition(topic, number): span
            for topic, partitions in logs.items()
            for number, span in partitions.items()
        }
        self.open: dict[TopicPartition, int] = {}
        """The first offset of an open transaction, by partition."""
        self.start: str | dict[TopicPartition, int] = "earliest"
        self.requests = 0

    def fetch_logs(self, max_age_s: float) -> Logs:
        self.requests += 1
        return Logs(dict(self.ids), {**self.fetch_log_ends(self.spans), **self.open})

    def fetch_log_ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        return {tp: self.spans[tp][1] for tp in partitions}

    def fetch_first_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        return {tp: self.spans[tp][0] for tp in partitions if tp in self.spans}

    def fetch_starts(self, partitions: Iterable[TopicPartition]) -> Positions:
        if isinstance(self.start, dict):
            return self.start
        return {tp: self.spans[tp][self.start == "latest"] for tp in partitions}

    def recreate(self, topic: str, **spans: tuple[int, int]) -> None:
        self.ids[topic] = f"{topic}-2"
        for tp in [tp for tp in self.spans if tp.topic == topic]:
            del self.spans[tp]
        for number, span in spans.items():
            self.spans[TopicPartition(topic, int(number[1:]))] = span


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def batches(cluster: FakeCluster, clock: Clock | None = None, **changed: Any) -> StreamBatches:
    options: dict[str, Any] = {
        "topics": tuple(cluster.ids),
        "partitions": (),
        "starting": SimpleNamespace(option="startingOffsets"),
        "fail_on_data_loss": True,
        "isolation_level": "read_uncommitted",
        "min_offsets_per_trigger": None,
        "max_trigger_delay_ms": 900_000,
        "fetch_offset_num_retries": 3,
        "fetch_offset_retry_interval_ms": 10,
    }
    clock = clock or Clock()
    named: Any = SimpleNamespace(**{**options, **changed})
    return StreamBatches(named, cluster, clock=clock, sleep=clock.sleep)


def spans(stream: StreamBatches, start: StreamOffsets, end: StreamOffsets) -> dict[Any, Any]:
    """Return the ranges of a batch, with its offsets as Spark stores them."""
    parts = stream.plan_ranges(parse(start.as_json()), parse(end.as_json()))
    return {TopicPartition(p.topic, p.partition): (p.start, p.end) for p in parts}


def at(offsets: dict[TopicPartition, int], **ids: str | None) -> StreamOffsets:
    found = {tp.topic: ids.get(tp.topic, f"{tp.topic}-1") for tp in offsets}
    return StreamOffsets(found, offsets)


def test_the_first_batch_stores_where_it_starts() -> None:
    cluster = FakeCluster(a={0: (3, 10), 1: (0, 0)})
    end = batches(cluster).plan_end(BEGINNING)
    assert end.starts == {A0: 3, A1: 0}
    assert end.offsets == {A0: 10, A1: 0}
    assert end.ids == {"a": "a-1"}
    assert spans(batches(cluster), BEGINNING, end) == {A0: (3, 10)}


def test_a_repeated_first_batch_reads_what_was_planned_after_latest_has_moved() -> None:
    cluster = FakeCluster(a={0: (0, 1000)})
    cluster.start = "latest"
    stream = batches(cluster)
    end = stream.plan_end(stream.plan_end(BEGINNING))
    cluster.spans[A0] = (0, 1100)
    end = stream.plan_end(BEGINNING, maximum=50)
    assert end.offsets == {A0: 1100}, "A start at the end has nothing to read."
    planned = StreamOffsets({"a": "a-1"}, {A0: 1100}, {A0: 1000})
    cluster.spans[A0] = (0, 5000)
    assert spans(batches(cluster), BEGINNING, planned) == {A0: (1000, 1100)}


def test_a_first_batch_without_its_starts_is_an_error_and_not_an_empty_batch() -> None:
    with pytest.raises(ConfigError, match=r"does not have the starting offsets .* for a-0"):
        batches(FakeCluster(a={0: (0, 5)})).plan_ranges(BEGINNING, at({A0: 5}))


def test_a_start_beyond_the_end_of_the_log_raises() -> None:
    cluster = FakeCluster(a={0: (0, 1100)})
    cluster.fetch_starts = lambda partitions: {A0: 5000}  # type: ignore[method-assign]
    with pytest.raises(
        ConfigError, match=r"startingOffsets .* a-0 is offset 5000, .* ends at offs.* 1100"
    ):
        batches(cluster).plan_end(BEGINNING)


@pytest.mark.parametrize("fail", [True, False])
def test_a_batch_whose_start_is_beyond_its_end_raises(fail: bool) -> None:
    stream = batches(FakeCluster(a={0: (0, 9000)}), fail_on_data_loss=fail)
    with pytest.raises(
        DataLossError, match=r"a-0 is offset 5000, and the batch ends at offset 1100"
    ):
        stream.plan_ranges(at({A0: 5000}), at({A0: 1100}))


def test_an_idle_stream_returns_the_same_offsets() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster)
    first = stream.plan_end(BEGINNING)
    assert stream.plan_end(first) is first


def test_a_batch_in_which_the_source_has_nothing_new_repeats_no_records() -> None:
    stream = batches(FakeCluster(a={0: (0, 10)}))
    first = stream.plan_end(BEGINNING)
    assert first.starts == {A0: 0}
    assert spans(stream, first, first) == {}


def test_a_batch_continues_where_the_one_before_ended() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster)
    first = stream.plan_end(BEGINNING)
    cluster.spans[A0] = (0, 15)
    second = stream.plan_end(first)
    assert (second.offsets, second.starts) == ({A0: 15}, {})
    assert spans(stream, first, second) == {A0: (10, 15)}


def test_a_partition_added_in_mid_stream_is_read_from_its_first_offset() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster)
    first = stream.plan_end(BEGINNING)
    cluster.spans[A1] = (0, 7)
    second = stream.plan_end(first)
    assert second.starts == {A1: 0}
    assert spans(stream, first, second) == {A1: (0, 7)}
    assert stream.plan_end(second) is second


def test_an_added_partition_whose_first_records_are_gone_is_a_loss() -> None:
    cluster = FakeCluster(a={0: (0, 10), 1: (4, 7)})
    with pytest.raises(
        DataLossError, match=r"a-1 is new .* offset 0 to 3 were deleted .* offset 4"
    ):
        batches(cluster).plan_end(at({A0: 10}))
    end = batches(cluster, fail_on_data_loss=False).plan_end(at({A0: 10}))
    assert end.starts == {A1: 4}


@pytest.mark.parametrize("length", [5, 5000])
def test_a_recreated_topic_is_recognized_by_its_id_shorter_and_longer(length: int) -> None:
    cluster = FakeCluster(a={0: (0, 100)})
    first = batches(cluster).plan_end(BEGINNING)
    cluster.recreate("a", p0=(0, length))
    with pytest.raises(DataLossError) as raised:
        batches(cluster).plan_end(first)
    for part in ("a-1, and is a-2 now", "a-0 up to offset 100", f"new log ends at {length}"):
        assert part in str(raised.value)
    lenient = batches(cluster, fail_on_data_loss=False)
    second = lenient.plan_end(first)
    assert spans(lenient, first, second) == {A0: (0, length)}
    assert batches(cluster).plan_end(second) is second


def test_a_topic_recreated_between_plan_and_repetition_is_not_read_as_the_old_one() -> None:
    cluster = FakeCluster(a={0: (0, 5000)})
    start, planned = at({A0: 10}, a="a-0"), at({A0: 100}, a="a-0")
    with pytest.raises(DataLossError, match=r"its id was a-0, and is a-1 now"):
        batches(cluster).plan_ranges(start, planned)
    lenient = batches(cluster, fail_on_data_loss=False)
    assert spans(lenient, start, planned) == {}
    assert spans(lenient, planned, lenient.plan_end(planned)) == {A0: (0, 5000)}


def test_a_log_that_ends_before_the_offset_of_the_query_is_a_loss_after_a_second_look() -> None:
    clock, cluster = Clock(), FakeCluster(a={0: (0, 70)})
    with pytest.raises(DataLossError, match=r"a-0 up to offset 100, and its log ends at offset 70"):
        batches(cluster, clock).plan_end(at({A0: 100}))
    assert clock.now >= 1.0
    end = batches(cluster, fail_on_data_loss=False).plan_end(at({A0: 100}))
    assert (end.offsets, end.starts) == ({A0: 70}, {A0: 70})


def test_an_end_offset_that_is_low_for_a_moment_is_no_loss() -> None:
    clock, cluster = Clock(), FakeCluster(a={0: (0, 70)})

    def recover(seconds: float) -> None:
        clock.now += seconds
        cluster.spans[A0] = (0, 120)

    stream = batches(cluster, clock)
    stream._sleep = recover
    assert stream.plan_end(at({A0: 100})).offsets == {A0: 120}


def test_retention_that_overtakes_the_query_is_a_loss() -> None:
    cluster = FakeCluster(a={0: (40, 100)})
    start = at({A0: 10})
    stream = batches(cluster)
    end = stream.plan_end(start)
    with pytest.raises(
        DataLossError, match=r"a-0 from offset 10 to 39 were deleted .* starts at offset 40"
    ):
        stream.plan_ranges(start, end)
    assert spans(batches(cluster, fail_on_data_loss=False), start, end) == {A0: (40, 100)}


def test_a_planned_range_that_is_deleted_entirely_is_skipped_without_an_error_only_if_allowed() -> (
    None
):
    cluster = FakeCluster(a={0: (200, 300)})
    with pytest.raises(DataLossError, match=r"from offset 10 to 199"):
        batches(cluster).plan_ranges(at({A0: 10}), at({A0: 100}))
    assert spans(batches(cluster, fail_on_data_loss=False), at({A0: 10}), at({A0: 100})) == {}


def test_a_planned_batch_beyond_the_end_of_the_log_is_a_loss() -> None:
    cluster = FakeCluster(a={0: (0, 50)})
    with pytest.raises(DataLossError, match=r"a-0 up to offset 100, and its log ends at offset 50"):
        batches(cluster).plan_ranges(at({A0: 10}), at({A0: 100}))
    assert spans(batches(cluster, fail_on_data_loss=False), at({A0: 10}), at({A0: 100})) == {
        A0: (10, 50)
    }


def test_a_checkpoint_of_another_topic_is_a_loss_that_names_what_was_read() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    with pytest.raises(
        DataLossError, match=r"has read b-0 up to offset 5, and the partition is gone"
    ):
        batches(cluster).plan_end(at({B0: 5}))
    lenient = batches(cluster, fail_on_data_loss=False)
    assert lenient.plan_end(at({B0: 5})).starts == {A0: 0}


def test_a_topic_that_does_not_exist_is_an_error() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    with pytest.raises(
        ConfigError, match=r"The topic missing, which the query names, does not exist"
    ):
        batches(cluster, topics=("a", "missing")).plan_end(BEGINNING)


def test_ids_are_taken_from_the_cluster_after_a_conversion() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    start = at({A0: 10}, a=None)
    end = batches(cluster).plan_end(start)
    assert end.ids == {"a": "a-1"}
    assert spans(batches(cluster), start, end) == {}


def test_an_added_partition_in_a_converted_plan_starts_at_its_first_offset() -> None:
    cluster = FakeCluster(a={0: (0, 10), 1: (2, 9)})
    start, end = at({A0: 5}, a=None), at({A0: 10, A1: 9}, a=None)
    assert spans(batches(cluster), start, end) == {A0: (5, 10), A1: (2, 9)}


def test_the_maximum_is_divided_among_the_partitions() -> None:
    cluster = FakeCluster(a={0: (0, 300), 1: (0, 100)})
    stream = batches(cluster)
    first = stream.plan_end(BEGINNING, maximum=40)
    assert first.offsets == {A0: 30, A1: 10}
    second = stream.plan_end(first, maximum=36)
    assert spans(stream, first, second) == {A0: (30, 57), A1: (10, 19)}


def test_a_batch_waits_for_the_minimum_by_returning_its_start() -> None:
    clock, cluster = Clock(), FakeCluster(a={0: (0, 10)})
    stream = batches(cluster, clock, min_offsets_per_trigger=100, max_trigger_delay_ms=5000)
    first = stream.plan_end(BEGINNING)
    assert first.offsets == {A0: 10}
    cluster.spans[A0] = (0, 50)
    assert stream.plan_end(first) is first
    assert stream.plan_end(first, bounded=False).offsets == {A0: 50}
    clock.now = 5.0
    assert stream.plan_end(first).offsets == {A0: 50}


def test_available_now_reads_up_to_what_existed_and_ends() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster, min_offsets_per_trigger=100)
    stream.stop_at_present_end()
    cluster.spans.update({A0: (0, 99), A1: (0, 5)})
    first = stream.plan_end(BEGINNING, maximum=4)
    assert first.offsets == {A0: 4}
    second = stream.plan_end(first)
    assert second.offsets == {A0: 10}
    assert stream.plan_end(second) is second


def test_available_now_from_latest_starts_where_the_log_ends_although_it_has_grown() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    cluster.start = "latest"
    stream = batches(cluster)
    stream.stop_at_present_end()
    cluster.spans[A0] = (0, 12)
    first = stream.plan_end(BEGINNING)
    assert (first.starts, first.offsets) == ({A0: 12}, {A0: 12})
    assert stream.plan_end(first) is first, "What was passed is not taken for a truncation."


def test_a_loss_that_is_allowed_is_logged_once_while_the_query_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster, fail_on_data_loss=False, min_offsets_per_trigger=100)
    stream.plan_end(at({A0: 10}))
    start = at({A0: 10, B0: 5})
    assert stream.plan_end(start) is start
    assert stream.plan_end(start) is start
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "b-0 up to offset 5" in caplog.text
    assert "failOnDataLoss is false" in caplog.text


def test_the_lag_is_what_follows_the_last_planned_batch() -> None:
    cluster = FakeCluster(a={0: (0, 300), 1: (0, 100)})
    stream = batches(cluster)
    assert (stream.compute_total_lag(), stream.compute_highest_lag(), stream.count_planned()) == (
        0,
        0,
        0,
    )
    first = stream.plan_end(BEGINNING, maximum=40)
    stream.plan_ranges(BEGINNING, first)
    assert (stream.compute_total_lag(), stream.compute_highest_lag(), stream.count_planned()) == (
        360,
        270,
        1,
    )


def test_start_within_an_open_transaction_is_not_beyond_the_end() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    cluster.open[A0] = 4
    cluster.start = {A0: 7}
    stream = batches(cluster, isolation_level="read_committed")
    end = stream.plan_end(BEGINNING)
    assert end.offsets == {A0: 7}
    assert spans(stream, BEGINNING, end) == {}
    assert stream.plan_end(end) is end
    del cluster.open[A0]
    after = stream.plan_end(end)
    assert spans(stream, end, after) == {A0: (7, 10)}


def test_planned_batch_with_an_open_transaction_is_not_truncated() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    end = batches(cluster).plan_end(BEGINNING)
    cluster.open[A0] = 4
    stream = batches(cluster, isolation_level="read_committed")
    assert spans(stream, BEGINNING, end) == {A0: (0, 10)}
    cluster.spans[A0] = (0, 9)
    with pytest.raises(DataLossError, match="its log ends at offset 9"):
        stream.plan_ranges(BEGINNING, end)


def test_assigned_partition_that_does_not_exist_is_an_error() -> None:
    cluster = FakeCluster(a={0: (0, 10)})
    stream = batches(cluster, topics=(), partitions=(A0, A1))
    with pytest.raises(ConfigError, match="assign: the partition a-1 does not exist"):
        stream.plan_end(BEGINNING)
    # If the query has read a partition that no longer exists, its data is lost.
    with pytest.raises(DataLossError, match="a-1 up to offset 5, and the partition is gone"):
        stream.plan_end(at({A0: 10, A1: 5}))


class LaggingCluster(FakeCluster):
    """A cluster whose broker knows only an older state until a time of the clock."""

    def __init__(self, clock: Clock, until: float, old: FakeCluster, **logs: Any) -> None:
        super().__init__(**logs)
        self._clock, self._until, self._old = clock, until, old

    def fetch_logs(self, max_age_s: float) -> Logs:
        lags = self._clock() < self._until
        return self._old.fetch_logs(max_age_s) if lags else super().fetch_logs(max_age_s)


LAGS = pytest.mark.parametrize("lag", [0.0, 0.15, 1.2, 2.5])


@LAGS
@pytest.mark.parametrize("old", [{"a": {0: (0, 3)}}, {"a": {}}, {}])
@pytest.mark.parametrize("available_now", [False, True])
def test_broker_that_lags_for_some_seconds_hides_no_records(
    lag: float, old: dict[str, Any], available_now: bool
) -> None:
    clock = Clock()
    cluster = LaggingCluster(clock, lag, FakeCluster(**old), a={0: (0, 10), 1: (0, 2)})
    stream = batches(cluster, clock)
    if available_now:
        stream.stop_at_present_end()
    start = at({A0: 5})
    end = stream.plan_end(start)
    assert end.offsets == {A0: 10, A1: 2}
    assert spans(stream, start, end) == {A0: (5, 10), A1: (0, 2)}
    # Records that are added later are not read by availableNow.
    cluster.spans[A0] = (0, 11)
    assert (stream.plan_end(end) is end) is available_now


@LAGS
@pytest.mark.parametrize("available_now", [False, True])
def test_start_that_a_lagging_broker_does_not_have_yet_is_no_error(
    lag: float, available_now: bool
) -> None:
    clock = Clock()
    old = FakeCluster(a={0: (0, 3)})
    cluster = LaggingCluster(clock, lag, old, a={0: (0, 10)})
    cluster.start = {A0: 5}
    stream = batches(cluster, clock)
    if available_now:
        stream.stop_at_present_end()
    end = stream.plan_end(BEGINNING)
    assert (end.starts, end.offsets) == ({A0: 5}, {A0: 10})


@LAGS
def test_repeated_batch_that_a_lagging_broker_does_not_have_yet_is_read(lag: float) -> None:
    clock = Clock()
    for old in (FakeCluster(a={0: (0, 3)}), FakeCluster(a={}), FakeCluster()):
        clock.now = 0.0
        cluster = LaggingCluster(clock, lag, old, a={0: (0, 10)})
        found = spans(batches(cluster, clock), at({A0: 5}), at({A0: 9}))
        assert found == {A0: (5, 9)}


@LAGS
def test_topic_that_a_lagging_broker_does_not_know_yet_is_not_missing(lag: float) -> None:
    clock = Clock()
    cluster = LaggingCluster(clock, lag, FakeCluster(), a={0: (0, 10)})
    assert batches(cluster, clock).plan_end(BEGINNING).offsets == {A0: 10}


@LAGS
def test_new_topic_whose_old_id_a_lagging_broker_still_returns_is_no_loss(lag: float) -> None:
    clock, old = Clock(), FakeCluster(a={0: (0, 3)})
    cluster = LaggingCluster(clock, lag, old, a={0: (0, 10)})
    cluster.ids["a"] = "a-2"
    assert batches(cluster, clock).plan_end(at({A0: 5}, a="a-2")).offsets == {A0: 10}


def test_loss_that_is_certain_is_not_checked_again_at_each_trigger() -> None:
    clock, cluster = Clock(), FakeCluster(a={0: (0, 10)})
    stream = batches(cluster, clock, fail_on_data_loss=False, min_offsets_per_trigger=100)
    start = at({A0: 10, B0: 5})
    cluster.recreate("a", p0=(0, 1))
    stream.plan_end(start)
    looked = clock.now
    assert looked >= 2.0
    stream.plan_end(start)
    assert clock.now == looked

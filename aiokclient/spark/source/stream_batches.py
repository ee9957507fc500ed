"""The ranges of offsets of each batch of a stream, as its reader on the driver decides them.

    plan_end      the end of the next batch, from the end of the previous one and the cluster's logs
    plan_ranges   the ranges of a planned batch, also of one that is repeated after a crash

Neither function assumes that the log is still the one for which the offsets were written.
`plan_end` compares topic ids and end offsets. `plan_ranges` compares them again for the batch that
is to be read, and the first offsets as well. If records are lost, DataLossError is raised, or the
loss is logged if `failOnDataLoss` is false.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from aiokclient import TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.spark.source.continuity import (
    Comparison,
    DataLossError,
    Logs,
    added_late,
    beyond,
    compare,
    differ,
    gone,
    recreated,
    trimmed,
    truncated,
)
from aiokclient.spark.source.limits import TriggerDelay, available, prorate
from aiokclient.spark.source.offsets import Positions, StreamOffsets
from aiokclient.spark.source.options import SourceOptions
from aiokclient.spark.source.planning import RangePartition

log = logging.getLogger("aiokclient.spark")

CONFIRM_S = 3.0
"""Minimum number of seconds for which a loss of records, or a topic that is missing, is checked
repeatedly. If the answers are still the same after that time, they count as true.

A new leader returns an end offset that is too low until its followers have reported theirs, and a
broker that lags returns old metadata. Spark's connector looks three times, a second apart.
"""
PAUSE_S = 0.25
"""The longest pause between two such checks, in seconds, unless the options set a longer one."""


class Cluster(Protocol):
    """The requests to the cluster on which the decisions are based."""

    def fetch_logs(self, max_age_s: float) -> Logs:
        """Return the topics and end offsets, which are at most `max_age_s` seconds old."""

    def fetch_first_offsets(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the first offset of each partition that exists."""

    def fetch_log_ends(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the end offset of each log, including the records of open transactions."""

    def fetch_starts(self, partitions: Iterable[TopicPartition]) -> Positions:
        """Return the starting offset of each partition, as the options define it."""


class StreamBatches:
    """The batches of one run of a query."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        *,
        cache_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._cache_s = cache_s
        self._clock = clock
        self._sleep = sleep
        self._delay: TriggerDelay | None = None
        if options.min_offsets_per_trigger is not None:
            self._delay = TriggerDelay(
                options.min_offsets_per_trigger, options.max_trigger_delay_ms / 1000
            )
        self._target: Logs | None = None
        self._seen: Logs | None = None
        self._reached: Positions = {}
        self._planned = 0
        self._logged: list[str] = []
        self._certain: list[str] = []
        """The losses that the last check has confirmed."""

    def stop_at_present_end(self) -> None:
        """Let later batches read only the records that exist now, and none that are added later."""
        self._target = self._cluster.fetch_logs(0)

    def get_latest(self) -> StreamOffsets | None:
        """Return the end offsets on which the last decision was based."""
        if self._seen is None:
            return None
        return StreamOffsets(self._seen.ids, self._seen.ends)

    def compute_total_lag(self) -> float:
        """Return the number of offsets after the last planned batch, in all partitions."""
        return sum(self._compute_lags())

    def compute_highest_lag(self) -> float:
        """Return the highest number of offsets after the last planned batch in a partition."""
        return max(self._compute_lags(), default=0)

    def count_planned(self) -> float:
        """Return the number of batches with records that this run has planned."""
        return self._planned

    def plan_end(
        self, start: StreamOffsets, *, maximum: int | None = None, bounded: bool = True
    ) -> StreamOffsets:
        """Return the end of the batch after `start`; `start` itself if there is nothing to read.

        The batch has at most `maximum` offsets. It may wait for the minimum number of offsets that
        the options require, unless `bounded` is false.
        """
        logs = self._target or self._cluster.fetch_logs(self._cache_s)
        if self._describe_missing(start, logs) is not None:
            logs = self._wait_for_topics(start)
        self._seen = logs
        if start.initial:
            return self._plan_first_end(logs, maximum)
        comparison = compare(start, logs)
        if comparison.losses and comparison.losses != self._certain:
            logs, comparison = self._confirm_losses(start)
            self._seen, self._certain = logs, comparison.losses
        self._report_losses(comparison.losses)
        earliest = self._cluster.fetch_first_offsets(comparison.fresh) if comparison.fresh else {}
        self._report_losses(added_late(comparison.added, earliest))
        fresh = {tp: earliest[tp] for tp in comparison.fresh if tp in earliest}
        starts = {**comparison.continuing, **comparison.moved, **fresh}
        ends = {tp: max(logs.ends[tp], offset) for tp, offset in starts.items()}
        if bounded and self._must_wait(available(starts, ends)):
            return start
        if maximum is not None:
            ends = prorate(maximum, starts, ends)
        ids = {topic: logs.ids[topic] for topic in dict.fromkeys(tp.topic for tp in ends)}
        if ends == start.offsets and ids == start.ids and not fresh and not comparison.moved:
            return start
        return StreamOffsets(ids, ends, {**comparison.moved, **fresh})

    def plan_ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[RangePartition]:
        """Return the ranges to read for the batch from `start` to `end`."""
        if start.offsets == end.offsets and start.ids == end.ids:
            # The source had no new records, and `end.starts` belongs to an earlier batch.
            return []
        starts = self._find_starts(start, end)
        wrong = beyond(starts, end.offsets, "the batch ends at")
        if wrong:
            raise DataLossError(wrong, hint="Restart the query with a new checkpoint.")
        starts = {tp: offset for tp, offset in starts.items() if offset < end.offsets[tp]}
        if not starts:
            return []
        logs, starts, losses = self._find_present(starts, end)
        self._report_losses(losses)
        earliest = self._cluster.fetch_first_offsets(starts)
        self._report_losses(trimmed(starts, earliest))
        found = []
        for tp in sorted(starts):
            first = max(starts[tp], earliest.get(tp, 0))
            last = min(end.offsets[tp], logs.ends[tp])
            if first < last:
                topic_id = logs.ids[tp.topic]
                found.append(RangePartition(tp.topic, topic_id, tp.partition, first, last))
        self._reached = end.offsets
        self._planned += bool(found)
        return found

    def _compute_lags(self) -> list[int]:
        ends = self._seen.ends if self._seen is not None else {}
        return [max(0, ends[tp] - at) for tp, at in self._reached.items() if tp in ends]

    def _plan_first_end(self, logs: Logs, maximum: int | None) -> StreamOffsets:
        starts = self._cluster.fetch_starts(logs.ends)
        wrong: list[str] = []
        for _ in self._pace_attempts():
            now = self._cluster.fetch_logs(0)
            # If a log has grown since `logs` was read, "latest" is above its end there. If it has
            # not, the end in `logs` was too low.
            if any(logs.ends[tp] < offset for tp, offset in starts.items()):
                logs = self._correct_ends(logs, now, starts)
            wrong = beyond(starts, self._raise_ends(now, starts).ends, "its log ends at")
            if not wrong:
                break
        if wrong:
            raise ConfigError(
                f"{self._options.starting.option} is beyond the end of a log. {' '.join(wrong)} "
                "Set it to offsets that the logs have."
            )
        ends = {tp: max(logs.ends[tp], offset) for tp, offset in starts.items()}
        self._must_wait(available(starts, ends))
        if maximum is not None:
            ends = prorate(maximum, starts, ends)
        ids = {topic: logs.ids[topic] for topic in dict.fromkeys(tp.topic for tp in ends)}
        return StreamOffsets(ids, ends, starts)

    def _must_wait(self, count: int) -> bool:
        """Return whether a batch with `count` offsets must wait for more records.

        It does not wait if the end of the query is fixed, because later records are not read.
        """
        if self._delay is None or self._target is not None:
            return False
        return self._delay.has_to_wait(count, self._clock())

    def _find_starts(self, start: StreamOffsets, end: StreamOffsets) -> dict[TopicPartition, int]:
        """Return the offset at which each partition of a batch starts."""
        starts, unknown = {}, []
        for tp in end.offsets:
            known = not differ(start.ids.get(tp.topic), end.ids[tp.topic])
            if tp in end.starts:
                starts[tp] = end.starts[tp]
            elif known and tp in start.offsets:
                starts[tp] = start.offsets[tp]
            else:
                unknown.append(tp)
        if unknown and start.initial:
            names = ", ".join(map(str, unknown))
            raise ConfigError(
                f"The checkpoint does not have the starting offsets of its first batch for "
                f"{names}. Restart the query with a new checkpoint."
            )
        # A checkpoint of another source that was converted lacks the starts of added partitions.
        earliest = self._cluster.fetch_first_offsets(unknown) if unknown else {}
        return {**starts, **{tp: earliest.get(tp, 0) for tp in unknown}}

    def _find_present(
        self, starts: Positions, end: StreamOffsets
    ) -> tuple[Logs, dict[TopicPartition, int], list[str]]:
        """Return the logs, the starts of the partitions that are still the same, and the losses.

        If there are losses, the logs are requested repeatedly for a limited time.
        """
        wanted = {tp: end.offsets[tp] for tp in starts}
        logs, kept, losses = Logs({}, {}), dict[TopicPartition, int](), list[str]()
        for _ in self._pace_attempts():
            logs = self._raise_ends(self._cluster.fetch_logs(0), wanted)
            kept, losses = _unchanged(starts, end, logs)
            if not losses:
                break
        return logs, kept, losses

    def _raise_ends(self, logs: Logs, wanted: Positions) -> Logs:
        """Return the logs. Ends that an open transaction limits are raised up to `wanted`.

        With read_committed, a log ends at its first open transaction. A start that the program
        gives, or an offset that was reached with read_uncommitted, can be after this end.
        """
        below = [tp for tp, offset in wanted.items() if logs.ends.get(tp, offset) < offset]
        if not below or self._options.isolation_level != "read_committed":
            return logs
        written = self._cluster.fetch_log_ends(below)
        return Logs(
            logs.ids,
            {**logs.ends, **{tp: max(logs.ends[tp], min(written[tp], wanted[tp])) for tp in below}},
        )

    def _confirm_losses(self, start: StreamOffsets) -> tuple[Logs, Comparison]:
        """Repeat the comparison until there are no losses, or until they are certain."""
        logs, comparison = Logs({}, {}), Comparison()
        for _ in self._pace_attempts():
            now = self._cluster.fetch_logs(0)
            logs = self._raise_ends(now, start.offsets)
            if self._target is not None:
                if not compare(start, now).losses:
                    # The target was requested from a broker that lagged.
                    self._target = _latest(self._target, now)
                    return self._target, compare(start, self._target)
                logs = _raised(self._target, logs, start.offsets)
            comparison = compare(start, logs)
            if not comparison.losses:
                break
        return logs, comparison

    def _correct_ends(self, logs: Logs, now: Logs, starts: Positions) -> Logs:
        """Return `logs` with higher ends, if they were below the starts and now are not."""
        if any(now.ends.get(tp, 0) < offset for tp, offset in starts.items()):
            return logs
        logs = _latest(logs, now)
        if self._target is not None:
            self._target = logs
        return logs

    def _wait_for_topics(self, start: StreamOffsets) -> Logs:
        """Return the logs once they have all topics and partitions that the options name.

        Raises ConfigError if they do not have them after a limited time.
        """
        text: str | None = None
        for _ in self._pace_attempts():
            logs = self._cluster.fetch_logs(0)
            text = self._describe_missing(start, logs)
            if text is None:
                if self._target is not None:
                    self._target = logs = _latest(self._target, logs)
                return logs
        raise ConfigError(str(text))

    def _pace_attempts(self) -> Iterable[int]:
        pause = self._options.fetch_offset_retry_interval_ms / 1000
        deadline = self._clock() + max(CONFIRM_S, pause * self._options.fetch_offset_num_retries)
        attempt = 0
        wait = 0.01
        while self._clock() < deadline:
            yield attempt
            attempt += 1
            self._sleep(max(pause, wait))
            wait = min(2 * wait, PAUSE_S)

    def _describe_missing(self, start: StreamOffsets, logs: Logs) -> str | None:
        """Return the text about a topic or partition that does not exist, or None."""
        named = {*self._options.topics, *(tp.topic for tp in self._options.partitions)}
        missing = sorted(named - set(logs.ids) - set(start.ids))
        for tp in self._options.partitions:
            if tp.topic in logs.ids and tp not in logs.ends and tp not in start.offsets:
                return (
                    f"assign: the partition {tp} does not exist. Name only partitions that exist."
                )
        if missing:
            return (
                f"The topic {missing[0]}, which the query names, does not exist, or the user may "
                "not read it. Create it before the query starts."
            )
        return None

    def _report_losses(self, losses: Sequence[str]) -> None:
        if not losses:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError(losses)
        if list(losses) != self._logged:  # Otherwise, an idle query logs them at every trigger.
            self._logged = list(losses)
            for loss in losses:
                log.warning("%s The query continues, as failOnDataLoss is false.", loss)


def _unchanged(
    starts: Positions, end: StreamOffsets, logs: Logs
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the starts of the partitions whose topics have the ids in the plan, and the losses."""
    kept: dict[TopicPartition, int] = {}
    replaced: dict[str, dict[TopicPartition, int]] = {}
    losses = []
    for tp, offset in starts.items():
        if tp not in logs.ends:
            losses.append(gone(tp, offset))
        elif differ(end.ids[tp.topic], logs.ids[tp.topic]):
            replaced.setdefault(tp.topic, {})[tp] = offset
        else:
            kept[tp] = offset
            if logs.ends[tp] < end.offsets[tp]:
                losses.append(truncated(tp, end.offsets[tp], logs.ends[tp]))
    for topic, reached in replaced.items():
        losses.append(recreated(topic, end.ids[topic], logs.ids[topic], reached, logs.ends))
    return kept, losses


def _latest(old: Logs, new: Logs) -> Logs:
    """Return the topics of `new`, with the higher of both ends for each partition."""
    ends = {
        tp: end
        if differ(old.ids.get(tp.topic), new.ids[tp.topic])
        else max(end, old.ends.get(tp, 0))
        for tp, end in new.ends.items()
    }
    return Logs(new.ids, ends)


def _raised(target: Logs, now: Logs, offsets: Positions) -> Logs:
    """Return `target` with ends that are not below the query's `offsets`.

    An end is raised at most to the present end of its log in `now`.
    """
    ends = {
        tp: max(end, min(now.ends.get(tp, 0), offsets.get(tp, 0)))
        for tp, end in target.ends.items()
    }
    return Logs(target.ids, ends)

"""The health of a worker, as the program and its probes see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aiokclient.types import State, TopicPartition, public_in
from aiokclient.worker.stacks import format_task

if TYPE_CHECKING:
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.worker.lanes import Run
    from aiokclient.worker.run import WorkerRun
    from aiokclient.worker.share_run import ShareRun
    from aiokclient.worker.transactions import TransactionalRun


@public_in("aiokclient.worker")
@dataclass(frozen=True, slots=True)
class OldestRecord:
    """The lowest record that is not done, of the partition that has waited longest."""

    topic_partition: TopicPartition
    offset: int
    age_s: float
    """Seconds since the record was taken from the consumer."""
    stack: str
    """The stack of its handler as text; empty if its handler does not run."""


@public_in("aiokclient.worker")
@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """The health of a worker at one moment."""

    name: str
    live: bool
    """Whether the worker runs, or may still run: False after it has failed or a handler is stuck.
    """
    ready: bool
    """Whether the worker handles records: it runs, has no reason against it, and is not draining.
    """
    reasons: tuple[str, ...]
    """Why the worker is not ready, as texts."""
    lag: Mapping[TopicPartition, int]
    """The number of offsets after the lowest record not done, as of the last fetch."""
    oldest: OldestRecord | None
    """The oldest record that is not done, or None if all are."""
    lanes_busy: int
    """Lanes whose handler runs."""
    lanes_waiting: int
    """Lanes with a record that could be handled, and no free place in `concurrency`."""
    retries_waiting: int
    """Records that wait for their next run."""
    last_commit_ms: int | None
    """The time of the last commit, in ms since the epoch, or None if there was none."""


def describe_health(run: WorkerRun, name: str) -> WorkerHealth:
    """Return the health of a run of a worker."""
    reasons = tuple(list_reasons(run))
    intake, lanes = run.intake, run.lanes
    return WorkerHealth(
        name=name,
        live=not run.calls.stuck and run.error is None,
        ready=not reasons,
        reasons=reasons,
        lag=intake.count_lag(),
        oldest=find_oldest(run),
        lanes_busy=len(run.calls) + len(run.writing),
        lanes_waiting=lanes.count_waiting(),
        retries_waiting=lanes.held,
        last_commit_ms=intake.committed_at_ms,
    )


def describe_transactional_health(run: TransactionalRun, name: str) -> WorkerHealth:
    """Return the health of a run in transactions."""
    health = describe_health(run, name)
    reasons = [
        *health.reasons,
        *(
            f"{tp} offset {offset} is retried: {pending.error!r}"
            for tp, offset, pending in run.plan.list_pending()
            if pending.outages
        ),
    ]
    return replace(
        health,
        ready=not reasons,
        reasons=tuple(reasons),
        retries_waiting=len(run.plan),
        last_commit_ms=run.committed_at_ms,
    )


def describe_share_health(run: ShareRun, name: str) -> WorkerHealth:
    """Return the health of a run over a share consumer, which has no offsets and no lag."""
    reasons = [*list_common_reasons(run), *run.outbox.list_troubles()]
    now = run.get_time()
    oldest: OldestRecord | None = None
    for each in run.held:
        if each.outages:
            assert each.failing_since is not None
            failed_s = now - each.failing_since
            error = each.find_error(each.record)
            reasons.append(f"{each.place} has failed for {failed_s:.0f} s: {error!r}")
        if oldest is None:  # They are in the order of their delivery.
            tp = TopicPartition(each.record.topic, each.record.partition)
            stack = format_task(each.task, each.thread_id) if each in run.calls.began else ""
            oldest = OldestRecord(tp, each.record.offset, now - each.taken_at, stack)
    return WorkerHealth(
        name=name,
        live=not run.calls.stuck and run.error is None,
        ready=not reasons,
        reasons=tuple(reasons),
        lag={},
        oldest=oldest,
        lanes_busy=len(run.calls) + len(run.writing),
        lanes_waiting=run.ready_waiting,
        retries_waiting=run.retries_waiting,
        last_commit_ms=None,
    )


def list_common_reasons(run: WorkerRun | ShareRun) -> list[str]:
    """Return why a run over any consumer is not ready, as texts."""
    found = [text.partition("\n")[0] for text in run.calls.stuck.values()]
    if run.is_draining:
        found.append("the worker is draining")
    state = run.consumer.state
    if state is not State.RUNNING:
        reasons = "; ".join(run.consumer.health().reasons)
        found.append(f"the consumer is {state.value}{f': {reasons}' if reasons else ''}")
    return found


def list_reasons(run: WorkerRun) -> list[str]:
    """Return why a run is not ready, as texts."""
    found = list_common_reasons(run)
    if run.consumer.state is State.RUNNING and not run.intake.knows_its_partitions():
        found.append("the partitions to read are not known yet")
    found += run.outbox.list_troubles()
    now = run.get_time()
    found += list_failing(run, now)
    for each, began in run.calls.began.items():
        if now - began >= run.interval_s and each not in run.calls.stuck:
            found.append(
                f"the handler of {each.place} has run for {now - began:.0f} s, longer than "
                "max_poll_interval_ms"
            )
    return found


def list_failing(run: WorkerRun, now: float) -> list[str]:
    """Return what makes records fail for long or without limit: one text for each partition."""
    longest: dict[PartitionState, Run] = {}
    counts: Counter[PartitionState] = Counter()
    for each, partitions in run.failing.runs.items():
        if each.outages or any(partition in run.paused for partition in partitions):
            longest.setdefault(each.partition, each)
            counts[each.partition] += 1
    texts = []
    for partition, each in longest.items():
        assert each.failing_since is not None
        others = counts[partition] - 1
        more = f", as {others} others of {partition.tp} do" if others else ""
        failed_s = now - each.failing_since
        texts.append(
            f"{each.place} has failed for {failed_s:.0f} s{more}: {each.find_error(each.record)!r}"
        )
    return texts


def find_oldest(run: WorkerRun) -> OldestRecord | None:
    """Return the record that has waited longest among the lowest ones not done."""
    lowest: tuple[float, PartitionState, Any] | None = None
    for partition in run.intake.list_partitions():
        entry = partition.find_lowest_record()
        if entry is not None and (lowest is None or entry[1] < lowest[0]):
            lowest = (entry[1], partition, entry[0])
    if lowest is None:
        return None
    taken_at, partition, record = lowest
    stack = ""
    for each in run.calls.began:
        if any(found is record for _, found in each.list_entries()):
            stack = format_task(each.task, each.thread_id)
            break
    return OldestRecord(partition.tp, record.offset, run.get_time() - taken_at, stack)

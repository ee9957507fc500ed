"""The admin calls that carry out plans for moving replicas.

Carrying out a plan takes several requests, in this order: the throttle, the reassignments, the
progress until all are complete, the election of the preferred leaders, and the end of the throttle.
Whatever ends this early also undoes it, as far as the brokers answer: the partitions that are still
being moved get their former replicas, and the throttle is removed. To leave the moves to a cluster
without their throttle would be worse than either.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from aiokclient.admin.arguments import as_kind, require_integer
from aiokclient.admin.log_dirs import (
    TopicPartitionReplica,
    alter_replica_log_dirs,
    describe_log_dirs,
    describe_replica_log_dirs,
)
from aiokclient.admin.replicas.partitions import (
    ElectionType,
    PartitionReassignment,
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from aiokclient.admin.replicas.plan import (
    PlannedMove,
    ReassignmentPlan,
    ReassignmentProgress,
)
from aiokclient.admin.replicas.planner import PlanTargets
from aiokclient.admin.replicas.planning import (
    count_partitions,
    describe_partitions,
    make_plan,
    read_cluster,
)
from aiokclient.admin.replicas.throttle import (
    Copying,
    find_copying,
    find_running,
    remove_throttle,
    require_rate,
    set_throttle,
)
from aiokclient.admin.requests import AdminRequests, compute_check_s
from aiokclient.admin.results import Results
from aiokclient.errors import (
    ApiTimeoutError,
    ElectionNotNeededError,
    IllegalStateError,
    KafkaError,
    NoReassignmentInProgressError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.log.client_log import ClientLog
from aiokclient.scopes import new_scope
from aiokclient.types import TopicPartition

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
UNDO_S: Final = 15.0
"""Seconds for undoing a plan after an error or a cancellation."""

OnProgress: TypeAlias = Callable[[ReassignmentProgress], object]


async def drain_broker(
    requests: AdminRequests,
    broker_id: int,
    throttle: int | None,
    dry_run: bool,
    on_progress: OnProgress | None,
    timeout: float | None,
) -> ReassignmentPlan:
    """See `Admin.drain_broker`."""
    require_integer(broker_id, "the id of a broker")
    require_rate(throttle)
    _require_callable(on_progress)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    state = await read_cluster(requests, None, deadline)
    holders = state.list_holders()
    state.require_broker(broker_id)
    state.refuse_moving(tp for tp, each in state.placed.items() if broker_id in each.replicas)
    targets = [each for each in state.find_targets() if each != broker_id]
    staying = [each for each in holders if each != broker_id]
    plan = await make_plan(requests, state, PlanTargets(targets, staying, False), deadline)
    if plan and not dry_run:
        await apply_plan(requests, plan, throttle, True, on_progress, timeout)
    return plan


async def apply_plan(
    requests: AdminRequests,
    plan: ReassignmentPlan,
    throttle: int | None,
    wait: bool,
    on_progress: OnProgress | None,
    timeout: float | None,
) -> ReassignmentProgress:
    """See `Admin.apply_plan`."""
    as_kind(plan, ReassignmentPlan)
    require_rate(throttle)
    _require_callable(on_progress)
    requests.require_open()
    patience_s = requests.compute_remaining_s(requests.compute_deadline(timeout))
    deadline = requests.compute_deadline(patience_s)
    unfinished, unstarted = await _find_unfinished(requests, plan, deadline)
    # A file of Kafka's tool does not name the former replicas, which the cluster still has.
    plan = replace(plan, moves={**plan.moves, **unfinished.moves})
    copies = _list_copies(unfinished)
    log = requests.cluster.make_log("admin")  # A closed client gives none.
    try:
        if throttle is not None:
            limited = await set_throttle(requests, copies, throttle, deadline)
            limited.raise_for_errors()
        # A plan may move replicas between the directories of their brokers, and nothing else.
        await _place_replicas(requests, plan, deadline)
        await _start(requests, unstarted, deadline)
        if wait:
            progress = await _follow(requests, plan, on_progress, patience_s)
            await _elect(requests, plan, patience_s)
            if throttle is not None:
                deadline = requests.compute_deadline(patience_s)
                (await remove_throttle(requests, copies, deadline)).raise_for_errors()
            return progress
    except BaseException as error:
        await _undo(requests, unfinished, throttle is not None, error, log)
        raise
    return await describe_plan_progress(requests, plan, patience_s)


async def _find_unfinished(
    requests: AdminRequests, plan: ReassignmentPlan, deadline: float
) -> tuple[ReassignmentPlan, ReassignmentPlan]:
    """Return the part of a plan that is not complete, and of that the part that is not in progress.

    Raises IllegalStateError if the cluster is not the one for which the plan was made.
    """
    moving = await list_partition_reassignments(
        requests, plan.moves, requests.compute_remaining_s(deadline)
    )
    topics = dict.fromkeys(tp.topic for tp in plan.moves)
    partitions, absent = await describe_partitions(requests, topics, deadline)
    running = await find_running(requests, deadline)
    unfinished: dict[TopicPartition, PlannedMove] = {}
    for tp, move in plan.moves.items():
        if tp not in partitions:
            raise absent.get(tp.topic) or UnknownTopicOrPartitionError(topic_partition=tp)
        now = partitions[tp].replicas
        if tp in moving:
            if moving[tp].target != move.after:
                raise IllegalStateError(
                    f"{tp} is being moved to {_name_replicas(moving[tp].target)}, and the plan "
                    f"moves it to {_name_replicas(move.after)}. Cancel that reassignment first."
                )
            former = tuple(each for each in moving[tp].replicas if each not in moving[tp].adding)
            unfinished[tp] = replace(move, before=move.before or former)
        elif now != move.after:
            if move.before not in (None, now):
                raise IllegalStateError(
                    f"{tp} is on {_name_replicas(now)}, and the plan moves it from "
                    f"{_name_replicas(move.before or ())}. Make a new plan."
                )
            unfinished[tp] = replace(move, before=now)
    unstarted = {tp: move for tp, move in unfinished.items() if tp not in moving}
    for tp, move in unstarted.items():
        stopped = [each for each in move.adding if each not in running]
        if stopped:
            raise IllegalStateError(
                f"Broker {stopped[0]} does not run, and the plan moves {tp} to it. Start the "
                "broker, or make a new plan."
            )
    return ReassignmentPlan(unfinished), ReassignmentPlan(unstarted)


async def _place_replicas(requests: AdminRequests, plan: ReassignmentPlan, deadline: float) -> None:
    """Tell the brokers the directories that a plan names for their replicas."""
    paths = {
        TopicPartitionReplica(*tp, broker): path
        for tp, move in plan.moves.items()
        for broker, path in move.directories.items()
    }
    placed = await alter_replica_log_dirs(
        requests, paths, False, requests.compute_remaining_s(deadline)
    )
    for error in placed.errors.values():
        # A broker that has no replica yet keeps the directory in mind for it.
        if error.code != ReplicaNotAvailableError.code:
            raise error


async def _start(requests: AdminRequests, plan: ReassignmentPlan, deadline: float) -> None:
    """Start the reassignments of a plan."""
    begun = await alter_partition_reassignments(
        requests,
        {tp: move.after for tp, move in plan.moves.items()},
        True,
        requests.compute_remaining_s(deadline),
    )
    begun.raise_for_errors()


async def _follow(
    requests: AdminRequests,
    plan: ReassignmentPlan,
    on_progress: OnProgress | None,
    patience_s: float,
) -> ReassignmentProgress:
    """Wait until the plan is complete.

    Raises ApiTimeoutError after `patience_s` seconds without any progress.
    """
    clock, pause_s = requests.cluster.clock, FIRST_PAUSE_S
    last: tuple[int, int, int] | None = None
    changed_at = clock.monotonic()
    while True:
        progress, lacking = await _measure_progress(requests, plan, patience_s)
        if on_progress is not None:
            on_progress(progress)
        if progress.is_complete:
            return progress
        mark = len(progress.complete), progress.copied_bytes, lacking
        if mark != last:
            last, changed_at = mark, clock.monotonic()
        elif clock.monotonic() - changed_at >= patience_s:
            raise ApiTimeoutError(_describe_stall(progress, patience_s))
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _describe_stall(progress: ReassignmentProgress, patience_s: float) -> str:
    text = f"No replica has made progress for {patience_s:g} s."
    if progress.moving:
        tp, now = next(iter(progress.moving.items()))
        text += (
            f" {count_partitions(list(progress.moving))} being moved; {tp} waits for "
            f"{_name_replicas(now.adding or now.replicas)}."
        )
    if progress.stopped:
        text += (
            f" {count_partitions(progress.stopped)} not being moved any more: the reassignment "
            "was cancelled or replaced."
        )
    return text


async def _elect(requests: AdminRequests, plan: ReassignmentPlan, timeout: float) -> None:
    """Make the first replica of each partition its leader."""
    elected = await elect_leaders(requests, ElectionType.PREFERRED, plan.moves, timeout)
    # A partition that was deleted meanwhile needs no leader.
    settled = (ElectionNotNeededError.code, UnknownTopicOrPartitionError.code)
    for error in elected.errors.values():
        if error.code not in settled:
            raise error


async def _undo(
    requests: AdminRequests,
    started: ReassignmentPlan,
    throttled: bool,
    error: BaseException,
    log: ClientLog,
) -> None:
    """Move back what is being moved, and remove the throttle, after an error or a cancellation."""
    failure: KafkaError | None = None
    with new_scope(shield=True):
        try:
            cancelled = await _cancel(requests, started, throttled, UNDO_S)
            for each in cancelled.errors.values():
                # A partition that has been moved meanwhile stays there.
                if each.code != NoReassignmentInProgressError.code:
                    raise each
        except KafkaError as refused:
            failure = refused
    if failure is not None:
        text = "Reassignments that were begun may still be in progress"
        text += ", and their throttle in effect" if throttled else ""
        error.add_note(f"{text}: {failure}")
        log.warning(
            "%s: %s",
            text,
            failure,
            extra={"event": "reassignment_not_undone", "error": str(failure)},
        )


async def describe_plan_progress(
    requests: AdminRequests, plan: ReassignmentPlan, timeout: float | None
) -> ReassignmentProgress:
    """See `Admin.describe_plan_progress`."""
    as_kind(plan, ReassignmentPlan)
    requests.require_open()
    progress, _ = await _measure_progress(requests, plan, timeout)
    return progress


async def _measure_progress(
    requests: AdminRequests, plan: ReassignmentPlan, timeout: float | None
) -> tuple[ReassignmentProgress, int]:
    """Return the progress, and how many records the copies in other directories of brokers lack."""
    deadline = requests.compute_deadline(timeout)
    listed = await list_partition_reassignments(
        requests, plan.moves, requests.compute_remaining_s(deadline)
    )
    topics = dict.fromkeys(tp.topic for tp in plan.moves)
    partitions, _ = await describe_partitions(requests, topics, deadline)
    moving = {tp: now for tp, now in listed.items() if now.target == plan.moves[tp].after}
    moved = {
        tp: move
        for tp, move in plan.moves.items()
        if tp not in listed and (tp not in partitions or partitions[tp].replicas == move.after)
    }
    named = {tp: move.directories for tp, move in moved.items() if tp in partitions}
    between, misplaced = await _find_between(requests, named, deadline)
    copied = sum(move.bytes_to_copy for move in moved.values())
    copied += await _count_copied(requests, moving, deadline)
    complete = tuple(tp for tp in moved if tp not in between and tp not in misplaced)
    moving.update((tp, PartitionReassignment(moved[tp].after, (), ())) for tp in between)
    progress = ReassignmentProgress(
        complete,
        moving,
        tuple(tp for tp in plan.moves if tp not in moving and tp not in complete),
        copied,
        plan.bytes_to_copy,
    )
    return progress, sum(between.values())


async def _find_between(
    requests: AdminRequests, named: Mapping[TopicPartition, Mapping[int, str]], deadline: float
) -> tuple[Counter[TopicPartition], set[TopicPartition]]:
    """Return the partitions that brokers copy to these directories, and those that they do not.

    Of the former, the number of records that the new copies lack. A broker that does not answer
    counts as one that copies.
    """
    paths = {
        TopicPartitionReplica(*tp, broker): path.rstrip("/")
        for tp, directories in named.items()
        for broker, path in directories.items()
    }
    between: Counter[TopicPartition] = Counter()
    misplaced: set[TopicPartition] = set()
    if not paths:
        return between, misplaced
    timeout = compute_check_s(requests.compute_remaining_s(deadline))
    found = await describe_replica_log_dirs(requests, paths, timeout)
    for replica, path in paths.items():
        tp, now = TopicPartition(replica.topic, replica.partition), found[replica]
        if isinstance(now, KafkaError):
            between[tp] += 0
        elif now.future_path == path:
            between[tp] += now.future_offset_lag or 0
        elif now.path != path:
            misplaced.add(tp)
    return between, misplaced


async def _count_copied(
    requests: AdminRequests,
    moving: Mapping[TopicPartition, PartitionReassignment],
    deadline: float,
) -> int:
    """Return the bytes that the new replicas of these partitions have."""
    wanted = {(broker, tp) for tp, now in moving.items() for broker in now.adding}
    if not wanted:
        return 0
    brokers = sorted({broker for broker, _ in wanted})
    topics = dict.fromkeys(tp.topic for tp in moving)
    timeout = compute_check_s(requests.compute_remaining_s(deadline))
    try:
        described = await describe_log_dirs(requests, brokers, topics, timeout)
    except KafkaError as error:
        if error.code != UnknownTopicOrPartitionError.code:
            raise
        return 0  # A topic was deleted in this moment. The next count is without it.
    return sum(
        log.size
        for broker, directories in described.items()
        if not isinstance(directories, KafkaError)  # The others are counted without this broker.
        for directory in directories
        for tp, log in directory.replicas.items()
        if (broker, tp) in wanted
    )


async def cancel_plan(
    requests: AdminRequests, plan: ReassignmentPlan, timeout: float | None
) -> Results[TopicPartition, None]:
    """See `Admin.cancel_plan`."""
    as_kind(plan, ReassignmentPlan)
    return await _cancel(requests, plan, True, timeout)


async def _cancel(
    requests: AdminRequests, plan: ReassignmentPlan, throttled: bool, timeout: float | None
) -> Results[TopicPartition, None]:
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    listed = await list_partition_reassignments(
        requests, plan.moves, requests.compute_remaining_s(deadline)
    )
    ours = [tp for tp, now in listed.items() if now.target == plan.moves[tp].after]
    cancelled = await alter_partition_reassignments(
        requests, dict.fromkeys(ours), True, requests.compute_remaining_s(deadline)
    )
    # A cancellation does not restore the order of the replicas. Another reassignment to the same
    # brokers does, and copies nothing.
    former = {
        tp: before for tp in cancelled.succeeded if (before := plan.moves[tp].before) is not None
    }
    restored = await alter_partition_reassignments(
        requests, former, True, requests.compute_remaining_s(deadline)
    )
    if throttled:
        # A file of Kafka's tool does not name the brokers that are copied from.
        found = {tp: find_copying(listed[tp]) for tp in listed if plan.moves[tp].before is None}
        removed = await remove_throttle(requests, _list_copies(plan) | found, deadline)
        removed.raise_for_errors()
    return requests.join_results(ours, cancelled, {**cancelled.errors, **restored.errors})


def _list_copies(plan: ReassignmentPlan) -> dict[TopicPartition, Copying]:
    """Return from which brokers the records of each partition are copied, and to which."""
    return {
        tp: Copying(move.before or (), move.adding)
        for tp, move in plan.moves.items()
        if move.adding
    }


def _require_callable(on_progress: Any) -> None:
    if on_progress is not None and not callable(on_progress):
        raise ArgumentTypeError(f"{on_progress!r} is not a function. Pass one, or None.")


def _name_replicas(replicas: Collection[int]) -> str:
    noun = "broker" if len(replicas) == 1 else "brokers"
    return f"{noun} {', '.join(map(str, replicas))}"

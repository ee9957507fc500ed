"""The lookup of positions, and their validation after a change of leader.

A background task finds partitions in the phases RESETTING and VALIDATING and sends requests to
their leaders. Each leader has a task of its own, so that a broker that does not respond delays no
other. While the position of a partition is looked up, `retry.at` of the partition is infinity, so
that no second lookup begins. A jump of the position or a new leader resets `retry.at`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.background import Wakeup
from aiokclient.cluster.requests.per_item import ItemResults, group_by_leader
from aiokclient.consumer.fetching.list_offsets import (
    EpochEnd,
    FoundOffset,
    LookupResult,
)
from aiokclient.consumer.state.offset_reset import EARLIEST, LATEST, LATEST_TIMESTAMP
from aiokclient.consumer.state.partition import PartitionState, Phase
from aiokclient.errors import KafkaError, LeaderNotAvailableError
from aiokclient.policy import Decision, Scope

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine

NOWHERE = -1


class PositionResolver:
    """A task that finds positions."""

    def __init__(self, engine: ConsumerEngine) -> None:
        config = engine.config
        self._cluster = engine.cluster
        self._subscription = engine.subscription
        self._offsets = engine.offsets
        self._responses = engine.fetchers.responses
        self._reports = engine.reports
        self._supervisor = engine.supervisor
        self._timeout_s = config.request_timeout_ms / 1000
        self._fresh = EARLIEST if config.new_partitions == "earliest" else LATEST
        self._backoff = self._responses.backoff
        self._wake = Wakeup()
        engine.subscription.add_change_listener(self._wake.set)

    async def run(self) -> None:
        """Look up and validate positions that are due. Run until the task is cancelled."""
        while True:
            now = self._cluster.clock.monotonic()
            self._send_due_requests(Phase.RESETTING, now)
            self._send_due_requests(Phase.VALIDATING, now)
            await self._wake.wait(self._find_next_time())

    def _find_unresolved(self) -> list[PartitionState]:
        states = self._subscription.partitions.values()
        return [s for s in states if s.phase in (Phase.RESETTING, Phase.VALIDATING)]

    def _find_next_time(self) -> float:
        return min((state.retry.at for state in self._find_unresolved()), default=math.inf)

    def _send_due_requests(self, phase: Phase, now: float) -> None:
        due = [s for s in self._find_unresolved() if s.phase is phase and s.retry.at <= now]
        for state in due:
            state.retry.begin_lookup()
        leaders = group_by_leader(self._cluster.metadata, {state.tp: state for state in due})
        ask = self._look_up_positions if phase is Phase.RESETTING else self._validate_positions
        for leader, found in leaders.items():
            states = list(found.values())
            generations = [state.generation for state in states]
            name = f"{phase.name.lower()} positions at broker {leader}"
            self._supervisor.spawn(ask, states, generations, name=name)

    async def _look_up_positions(
        self, states: Sequence[PartitionState], generations: Sequence[int]
    ) -> None:
        await self._check_leaderless(states)
        now_ms = self._cluster.clock.time_ms()
        wanted = {s.tp: s.reset.find_timestamp(now_ms) for s in states if s.reset is not None}
        # If no record is recent enough, reading starts at the end. The end is looked up first:
        # records written between the two responses are recent enough and must not be lost.
        timed = {tp: LATEST_TIMESTAMP for tp, time in wanted.items() if time >= 0}
        ends: LookupResult[FoundOffset] = ItemResults()
        if timed:
            ends = await self._offsets.ask_by_time(timed)
        outcome = await self._offsets.ask_by_time(
            {tp: time for tp, time in wanted.items() if tp not in ends.errors}
        )
        for tp, error in ends.errors.items():
            outcome.fail_item(tp, error)
        for state, generation in zip(states, generations, strict=True):
            if state.generation == generation:
                self._on_offset(state, outcome, ends.found_values.get(state.tp))
        self._subscription.report_change()

    async def _check_leaderless(self, states: Sequence[PartitionState]) -> None:
        """Check whether partitions without a leader exist.

        If a partition does not exist yet, "latest" means its first offset, so that none of its
        records is missed later.
        """
        lost = [state for state in states if self._cluster.metadata.find_leader(*state.tp) < 0]
        if not lost:
            return
        topics = dict.fromkeys(state.tp.topic for state in lost)
        try:
            metadata = await self._cluster.updater.refresh(topics, timeout=self._timeout_s)
        except KafkaError:
            return  # The lookup that follows fails with the same error, and handles it.
        for state in lost:
            if state.reset == LATEST and metadata.lacks_partition(*state.tp):
                state.replace_reset(self._fresh)

    def _on_offset(
        self,
        state: PartitionState,
        outcome: LookupResult[FoundOffset],
        end: FoundOffset | None,
    ) -> None:
        found = outcome.found_values.get(state.tp)
        if found is not None and found.offset == NOWHERE and end is not None:
            found = end
        if found is None:
            self._on_request_failed(state, outcome.errors[state.tp], Scope.LIST_OFFSETS)
        elif found.offset == NOWHERE:
            self._on_request_failed(state, _unusable(state), Scope.LIST_OFFSETS)
        else:
            state.set_located_offset(found.offset, found.leader_epoch)

    async def _validate_positions(
        self, states: Sequence[PartitionState], generations: Sequence[int]
    ) -> None:
        wanted = {state.tp: state.position_epoch for state in states}
        outcome = await self._offsets.ask_by_epoch(wanted)
        for state, generation in zip(states, generations, strict=True):
            if state.generation == generation:
                self._on_epoch_end(state, outcome)
        self._subscription.report_change()

    def _on_epoch_end(self, state: PartitionState, outcome: LookupResult[EpochEnd]) -> None:
        end = outcome.found_values.get(state.tp)
        if end is None:
            self._on_request_failed(state, outcome.errors[state.tp], Scope.OFFSET_FOR_LEADER_EPOCH)
        # The broker has no epoch at or below the asked one, so that the offset of the truncation is
        # unknown (KIP-320).
        elif NOWHERE in (end.end_offset, end.leader_epoch):
            self._responses.on_divergence(state, NOWHERE, NOWHERE)
        # The log of this epoch ends before the position: an unclean election has removed records
        # that were read (KIP-320).
        elif end.end_offset < state.position:
            self._responses.on_divergence(state, end.leader_epoch, end.end_offset)
        else:
            state.confirm_position()

    def _on_request_failed(self, state: PartitionState, error: KafkaError, scope: Scope) -> None:
        decision = self._backoff.on_request_failure(state, error, scope)
        if decision is Decision.REFRESH_AND_RETRY:
            self._cluster.updater.request_update([state.tp.topic])
        elif decision is not Decision.RETRY and self._subscription.must_raise_error(error):
            self._reports.add_error(error)


def _unusable(state: PartitionState) -> KafkaError:
    return LeaderNotAvailableError(
        "The response has no offset.", api="ListOffsets", topic_partition=state.tp
    )

"""The offsets at which a member of a group begins to read the partitions assigned to it.

    committed offset?  ──yes──▶ there
          │ no
    appeared later?    ──yes──▶ at the first record (unless `new_partitions="reset"`)
          │ no
    auto_offset_reset  ───────▶ there

After an aborted transaction, partitions return to their committed offsets. A partition without a
committed offset continues at the offset in `PartitionState.group.fallback`, whatever
`auto_offset_reset` is.

A partition appeared later if it did not exist when this consumer subscribed, or if the group has
committed offsets for other partitions of its topic: then the group was reading the topic before the
partition existed. A position that a reset gave is committed before the first record is delivered,
so that members that join later find it. With `enable_auto_commit=False` it is not committed.

When members start at the same time, the first commit of one must not make the other partitions of
the topic look as if they had appeared later: some members would then read from the first record,
and others from the end. So the metadata of such a commit contains the topic's partition count at
that time. Only a partition whose index is at least this count then appeared later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokclient.background import Wakeup
from aiokclient.consumer.membership.rewind.requests import OWN, note_in
from aiokclient.consumer.state.offset_reset import EARLIEST, NONE
from aiokclient.consumer.state.partition import PartitionState, Phase, Withheld
from aiokclient.consumer.state.subscription import PartitionBackoff
from aiokclient.policy import Decision, Scope
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.errors import KafkaError

FIRST: Final = f"{OWN}first of "
"""The prefix of the metadata of a first commit; the topic's partition count follows."""


class InitialOffsets:
    """A task that finds the initial offsets of partitions that have none."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        cluster, config = coordinator.cluster, coordinator.config
        subscription = coordinator.subscription
        self._cluster = cluster
        self._subscription = subscription
        self._commits = coordinator.commits
        self._topics = coordinator.topics
        self._commits_first = config.enable_auto_commit
        self._follows = config.new_partitions == "earliest"
        self._reports = coordinator.reports
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._backoff = PartitionBackoff(cluster.clock, config, subscription)
        self._wake = Wakeup()
        subscription.add_change_listener(self._wake.set)

    async def run(self) -> None:
        """Find initial offsets when they are needed, and commit them. Run until cancelled."""
        while True:
            now = self._cluster.clock.monotonic()
            waiting = [state for state in self._find_without_position() if state.retry.at <= now]
            if waiting:
                await self._find_positions(waiting)
            first = [state for state in self._find_uncommitted() if state.retry.at <= now]
            if first:
                await self._commit_positions(first)
            if not (waiting or first):
                await self._wake.wait(self._find_next_time())

    def _find_without_position(self) -> list[PartitionState]:
        if not self._topics.read:
            return []  # Wait until it is known which partitions appeared after the subscription.
        states = self._subscription.partitions.values()
        return [state for state in states if state.phase is Phase.AWAITING]

    def _find_uncommitted(self) -> list[PartitionState]:
        states = self._subscription.partitions.values()
        return [
            state
            for state in states
            if state.withheld & Withheld.INITIAL_OFFSET and state.is_located
        ]

    def _find_next_time(self) -> float:
        states = [*self._find_without_position(), *self._find_uncommitted()]
        return min((state.retry.at for state in states), default=math.inf)

    # -- finding initial offsets

    async def _find_positions(self, states: Sequence[PartitionState]) -> None:
        generations = {state: state.generation for state in states}
        results = await self._commits.request_committed([state.tp for state in states])
        found = results.found_values
        nothing = [
            state
            for state in states
            if state.tp in found and found[state.tp] is None and state.group.fallback < 0
        ]
        siblings, unclear = await self._ask_for_siblings(
            list(filter(self._needs_siblings, nothing))
        )
        for state in states:
            stored = found.get(state.tp)
            if state.generation != generations[state]:
                continue  # The position was discarded meanwhile, perhaps by a change of cluster.
            if stored is not None and not state.group.note:
                state.group.set_note(note_in(stored.metadata))
            if state.phase is not Phase.AWAITING or state.tp not in self._subscription:
                continue  # The application has sought, or another member owns it by now.
            error = results.errors.get(state.tp) or unclear.get(state.tp.topic)
            if error is not None:
                self._handle_error(state, error, Scope.OFFSET_FETCH)
            elif stored is not None:
                epoch = -1 if stored.leader_epoch is None else stored.leader_epoch
                state.start_at_committed(stored.offset, epoch)
            elif state.group.fallback >= 0:
                state.seek(state.group.fallback)
            else:
                self._reset_position(state, siblings)
        self._subscription.report_change()

    def _needs_siblings(self, state: PartitionState) -> bool:
        """Return whether commits of other partitions affect the initial offset of this one."""
        if not self._follows or self._subscription.find_reset(state.tp) == EARLIEST:
            return False  # The initial offset is the same either way, so no lookup is needed.
        return not self._topics.has_appeared(state.tp, self._cluster.metadata)

    async def _ask_for_siblings(
        self, states: Sequence[PartitionState]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[str, KafkaError]]:
        """Return committed offsets of other partitions of the same topics, and errors by topic."""
        metadata = self._cluster.metadata
        asked = dict.fromkeys(state.tp for state in states)
        others = [
            tp
            for topic in dict.fromkeys(tp.topic for tp in asked)
            if (info := metadata.find_topic(topic)) is not None
            for tp in (TopicPartition(topic, index) for index in range(len(info.partitions)))
            if tp not in asked
        ]
        results = await self._commits.request_committed(others)
        stored = {tp: offset for tp, offset in results.found_values.items() if offset is not None}
        return stored, {tp.topic: error for tp, error in results.errors.items()}

    def _reset_position(
        self, state: PartitionState, siblings: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        reset = self._subscription.find_reset(state.tp)
        if self._follows and self._has_appeared(state.tp, siblings):
            reset = EARLIEST
        # Only partitions that the group assigned are committed: later members may get them.
        if self._commits_first and reset != NONE and self._subscription.is_shared(state.tp):
            state.withhold(Withheld.INITIAL_OFFSET, True)
        self._subscription.look_up([state], reset)

    def _has_appeared(
        self, tp: TopicPartition, siblings: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> bool:
        if not self._subscription.is_shared(tp):
            return False
        if self._topics.has_appeared(tp, self._cluster.metadata):
            return True
        return any(
            other.topic == tp.topic and speaks_for(tp.partition, stored)
            for other, stored in siblings.items()
        )

    # -- committing initial offsets

    async def _commit_positions(self, states: Sequence[PartitionState]) -> None:
        metadata = self._cluster.metadata
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for state in states:
            info = metadata.find_topic(state.tp.topic)
            count = len(info.partitions) if info is not None else state.tp.partition + 1
            offsets[state.tp] = first_commit(state.make_commit(state.position), count)
        refused = await self._commits.store_offsets(offsets, math.inf, attempts=1)
        for state in states:
            error = refused.get(state.tp)
            if error is None:
                state.retry.on_success()
                self._subscription.withhold([state], Withheld.INITIAL_OFFSET, False)
            else:
                self._handle_error(state, error, Scope.OFFSET_COMMIT)
        self._subscription.report_change()

    def _handle_error(self, state: PartitionState, error: KafkaError, scope: Scope) -> None:
        if self._backoff.on_request_failure(state, error, scope) is Decision.FAIL:
            self._reports.add_error(error)


def first_commit(to: OffsetAndMetadata, partitions: int) -> OffsetAndMetadata:
    """Return the commit of a position that a reset gave, with the topic's partition count."""
    return to._replace(metadata=f"{FIRST}{partitions}")


def speaks_for(partition: int, stored: OffsetAndMetadata) -> bool:
    """Return whether a commit of another partition shows that `partition` appeared later."""
    count = stored.metadata.removeprefix(FIRST)
    if count == stored.metadata or not count.isdecimal():
        return True
    return partition >= int(count)

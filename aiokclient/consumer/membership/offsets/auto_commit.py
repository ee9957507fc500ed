"""Automatic commits of processed records, at an interval and when partitions are released.

They never include records that are being processed. A committed offset is never replaced by a lower
one, except after a seek, which forgets the earlier commits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokclient.consumer.state.partition import PartitionState, Withheld
from aiokclient.errors import KafkaError
from aiokclient.log.limited_log import LimitedLog
from aiokclient.policy import Decision, Scope, classify
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator

SHORTEST_S = 0.01


class AutoCommit:
    """The automatic commits of one consumer.

    If `enabled` is false, nothing is committed at intervals. Partitions that are released are then
    committed only while a worker reads, because the program commits nothing itself.
    """

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        config, subscription = coordinator.config, coordinator.subscription
        self._log = LimitedLog(subscription.client_log, coordinator.cluster.clock)
        self.enabled = config.enable_auto_commit
        self._commits_released = self.enabled
        self.committed_at_ms: int | None = None
        """The time of the last commit that was not refused, in ms since the epoch."""
        self._clock = coordinator.cluster.clock
        self._subscription = subscription
        self._commits = coordinator.commits
        self._interval_s = max(config.auto_commit_interval_ms / 1000, SHORTEST_S)

    def commit_released(self, on: bool) -> None:
        """Commit the partitions that are released, even without commits at intervals."""
        self._commits_released = on or self.enabled

    async def run(self) -> None:
        """Commit at each interval. Run until the task is cancelled."""
        while self.enabled:
            await asyncio.sleep(self._interval_s)
            states = self._subscription.partitions.values()
            try:
                # If this fails, the next commit includes the same records.
                refused = await self.commit_processed(states, self._interval_s, attempts=1)
            except KafkaError as failure:
                text, extra = "An automatic commit failed: %s", {"event": "automatic_commit_failed"}
                self._log.write(logging.INFO, "automatic commit", text, failure, extra=extra)
            else:
                for tp, error in list(refused.items())[:1]:
                    text = "An automatic commit of %s failed: %s"
                    extra = {"event": "automatic_commit_failed", "topic": tp.topic}
                    key = (tp, type(error))
                    self._log.write(_gravity(error), key, text, tp, error, extra=extra)

    async def commit_processed(
        self, states: Iterable[PartitionState], timeout: float, *, attempts: float = math.inf
    ) -> dict[TopicPartition, KafkaError]:
        """Commit the processed records of these partitions; return the errors of refused ones.

        `timeout` is in seconds; ApiTimeoutError is raised after it. If automatic commits are off,
        and no worker reads, it does nothing.
        """
        offsets = self._collect_offsets(states)
        if not offsets or timeout <= 0:
            return {}
        refused = await self._commits.store_offsets(
            offsets, timeout, attempts=attempts, rising=True
        )
        if len(refused) < len(offsets):
            self.committed_at_ms = self._clock.time_ms()
        return refused

    def _collect_offsets(
        self, states: Iterable[PartitionState]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if not self._commits_released:
            return {}
        self._subscription.update_positions()
        return {
            state.tp: state.make_commit(state.processed)
            for state in states
            if state.is_located
            and state.processed > state.group.committed
            and not state.withheld & Withheld.INITIAL_OFFSET
        }


def _gravity(error: KafkaError) -> int:
    """Return the level at which a commit's error is logged.

    A rebalance during a commit is normal: the offsets are committed when the partition is revoked,
    or at the next interval. An error that no further attempt resolves is a warning.
    """
    fails = classify(error, Scope.OFFSET_COMMIT) is Decision.FAIL
    return logging.WARNING if fails else logging.INFO

"""The part of a partition's state that concerns fetching: the broker and the next offset."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

__all__ = ["FetchState", "LogDistances"]

REPLICA_IDLE_S: Final = 10.0
"""Seconds without records after which the leader is used again, because the replica may lag."""
REPLICA_REST_S: Final = 30.0
"""Seconds for which a partition is fetched from its leader after a preferred replica has failed."""


class LogDistances(NamedTuple):
    """Distances of fetched offsets to the high watermark (lags), and from the log's start (leads).

    The log's start may be unknown, so that there are fewer leads. The longest lag and the shortest
    lead are those of the present time span; see `aiokclient.measures.Spread.take`.
    """

    lags: int = 0
    lags_total: int = 0
    longest_lag: float = -math.inf
    leads: int = 0
    leads_total: int = 0
    shortest_lead: float = math.inf


UNMEASURED: Final = LogDistances()


class _Distances:
    """A measurement of the distances from a position to both ends of its log."""

    __slots__ = (
        "_lags",
        "_lags_total",
        "_leads",
        "_leads_total",
        "_longest",
        "_shortest",
        "_taken",
    )

    def __init__(self) -> None:
        self._lags = self._lags_total = self._leads = self._leads_total = 0
        self._longest, self._shortest = -math.inf, math.inf
        self._taken = UNMEASURED

    def observe(self, lag: int, lead: int) -> None:
        self._lags += 1
        self._lags_total += lag
        if lag > self._longest:
            self._longest = lag
        if lead >= 0:
            self._leads += 1
            self._leads_total += lead
            if lead < self._shortest:
                self._shortest = lead

    def take(self, again: bool | None) -> LogDistances:
        longest, shortest = self._longest, self._shortest
        if again:
            longest = max(longest, self._taken.longest_lag)
            shortest = min(shortest, self._taken.shortest_lead)
        taken = LogDistances(
            self._lags, self._lags_total, longest, self._leads, self._leads_total, shortest
        )
        if again is not None:
            self._taken = taken
            self._longest, self._shortest = -math.inf, math.inf
        return taken


class FetchState:
    """The fetch part of a `PartitionState`. All times are on the monotonic clock."""

    __slots__ = (
        "_distances",
        "_idle_at",
        "_preferred_until",
        "_rests_until",
        "damaged_at",
        "examined",
        "high_watermark",
        "last_stable",
        "leader",
        "log_start",
        "offset",
        "preferred",
        "want",
    )

    def __init__(self) -> None:
        self.offset = -1
        """The next offset to fetch, which is after all buffered records."""
        self.leader = -1
        """The broker that leads the partition, -1 if none is known."""
        self.high_watermark = -1
        """The high watermark at the last fetch, with any isolation level; -1 if unknown."""
        self.last_stable = -1
        """The last stable offset at the last fetch, with any isolation level; -1 if unknown."""
        self.log_start = -1
        """The first offset of the log at the last fetch, -1 if unknown."""
        self._distances: _Distances | None = None
        self.want: Any = None
        """The last entry for a fetch request. It stays the same object until its values change."""
        self.examined = -1
        """The generation in which damage is buffered. No more is fetched until the reader has
        handled the damage."""
        self.damaged_at = -1
        """The offset of a damaged batch that is fetched for the second time, -1 for none."""
        self.preferred = -1
        """The replica to fetch from instead of the leader (KIP-392), -1 for none."""
        self._preferred_until = 0.0
        self._idle_at = 0.0
        self._rests_until = 0.0

    def led_by(self, leader: int) -> None:
        """Store the leader; -1 for none."""
        self.leader = leader

    def restart(self, offset: int) -> None:
        """Fetch from this offset next, regardless of buffered records."""
        self.offset = offset

    def wants(self, want: Any) -> None:
        """Store the entry for fetch requests."""
        self.want = want

    def fetched(self, high_watermark: int, log_start: int = -1, last_stable: int = -1) -> None:
        """Handle a response without an error."""
        self.high_watermark = high_watermark
        self.log_start = log_start
        self.last_stable = last_stable

    def measure(self, lag: int, lead: int) -> None:
        """Record the distances of a fetched offset to the high watermark and from the log's start.

        `lead` is negative if it is not known.
        """
        if self._distances is None:
            self._distances = _Distances()
        self._distances.observe(lag, lead)

    def take_distances(self, *, again: bool | None) -> LogDistances:
        """Return the recorded distances; see `aiokclient.measures.Spread.take`."""
        return UNMEASURED if self._distances is None else self._distances.take(again)

    def forget_log(self) -> None:
        """Forget the end of the log, because the log was replaced."""
        self.high_watermark = self.log_start = self.last_stable = -1

    def buffered(self, next_offset: int) -> None:
        """Fetch the offset after the buffered batches next."""
        self.offset = next_offset

    def damaged(self, generation: int) -> None:
        """Fetch nothing more in this generation: the buffered batches are damaged."""
        self.examined = generation

    def refetch(self, damaged_at: int) -> None:
        """Record that the damaged batch at this offset is fetched for the second time."""
        self.damaged_at = damaged_at

    def undamaged(self) -> None:
        """Forget a damaged batch, because the position has jumped."""
        self.damaged_at = -1

    # -- preferred replicas

    def prefer(self, replica: int, now: float, seconds: float) -> None:
        """Fetch from a replica, for at most `seconds`, as long as it returns records."""
        self.preferred, self._preferred_until = replica, now + seconds
        self._idle_at = now + REPLICA_IDLE_S

    def replica_delivers(self, now: float) -> None:
        """Record that the preferred replica, if there is one, has returned records."""
        if self.preferred >= 0:
            self._idle_at = now + REPLICA_IDLE_S

    def prefers(self, now: float) -> bool:
        """Return whether to fetch from the preferred replica."""
        return now < self._preferred_until and now < self._idle_at

    def use_leader(self) -> None:
        """Fetch from the leader, which may name a preferred replica again."""
        self.preferred = -1

    def rest_replica(self, now: float) -> None:
        """Fetch from the leader, and ignore its preferred replica for REPLICA_REST_S."""
        self.preferred = -1
        self._rests_until = now + REPLICA_REST_S

    def rests(self, now: float) -> bool:
        """Return whether the leader's preferred replica is ignored at present."""
        return self._rests_until > now

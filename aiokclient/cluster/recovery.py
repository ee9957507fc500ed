"""The recovery of a client that has lost its cluster, as a table of states (KIP-899, KIP-1102).

A client knows the brokers of the last metadata response, and no others. If all of them were
replaced, only the bootstrap servers lead to the cluster. So the client *rebootstraps*: it closes
all connections, resolves the names of the bootstrap servers again, and asks them for the brokers
until one responds. Something must trigger that:

- UNAVAILABLE: no known broker is available. Each has refused a connection, no connection is open,
  and none is being opened. A broker whose connection attempt timed out does not count as
  unavailable, because the cause may be a lost packet. Only TIMEOUT covers this case.
- TIMEOUT: the trigger time has passed since the first attempt to request metadata, without a
  response that lists a broker. With a trigger time of 0, the first attempt that fails suffices.
- REQUIRED: a broker asks for it (REBOOTSTRAP_REQUIRED), or a connection reached another cluster.

                                ┌──────────── ANSWERED ────────────┐
                                ▼                                  │
    FOLLOWING ── UNAVAILABLE, TIMEOUT, REQUIRED ──▶ DUE ──BEGUN──▶ SEARCHING
        ▲                                            │
        └── ANSWERED (not after REQUIRED) ───────────┘

A response with a broker (ANSWERED) ends the search and clears the timer. Brokers in that response
may be as dead as the ones before. So a backoff delays the next rebootstrap. A response from one of
these brokers resets the backoff (PROVEN). Until the backoff ends, the client continues to try the
brokers that it knows, and may find one that responds.

With the strategy "none", triggers have no effect. `missed` stores them until a response comes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from enum import Enum
from typing import Final

from aiokclient.policy import Backoff


class Trigger(Enum):
    """The reason for a rebootstrap. The values complete the sentence "..., because"."""

    UNAVAILABLE = "no known broker is available"
    TIMEOUT = "no broker has returned metadata within metadata_recovery_rebootstrap_trigger_ms"
    REQUIRED = "a broker requires it"


class RecoveryState(Enum):
    """The state of the search for the cluster."""

    FOLLOWING = "following the metadata"
    DUE = "about to rebootstrap"
    SEARCHING = "asking the bootstrap servers"


class RecoveryEvent(Enum):
    """An event that concerns the search for the cluster."""

    UNAVAILABLE = "each known broker has refused a connection"
    TIMEOUT = "the trigger time has passed"
    REQUIRED = "a broker requires a rebootstrap"
    BEGUN = "all connections are closed"
    ANSWERED = "a metadata response lists a broker"


_S, _E = RecoveryState, RecoveryEvent

TABLE: Final[Mapping[tuple[RecoveryState, RecoveryEvent], RecoveryState]] = {
    (_S.FOLLOWING, _E.UNAVAILABLE): _S.DUE,
    (_S.FOLLOWING, _E.TIMEOUT): _S.DUE,
    (_S.FOLLOWING, _E.REQUIRED): _S.DUE,
    (_S.DUE, _E.REQUIRED): _S.DUE,
    (_S.DUE, _E.ANSWERED): _S.FOLLOWING,
    (_S.DUE, _E.BEGUN): _S.SEARCHING,
    (_S.SEARCHING, _E.ANSWERED): _S.FOLLOWING,
}
"""The next state for each state and event. An event without a row changes nothing."""

TRIGGERS: Final[Mapping[RecoveryEvent, Trigger]] = {
    _E.UNAVAILABLE: Trigger.UNAVAILABLE,
    _E.TIMEOUT: Trigger.TIMEOUT,
    _E.REQUIRED: Trigger.REQUIRED,
}


class Recovery:
    """The decision when to rebootstrap. Times are on the monotonic clock, in seconds.

    With `enabled=False` (the strategy "none") no rebootstrap is ever due. `trigger_s` is the
    trigger time.
    """

    def __init__(
        self, *, enabled: bool, trigger_s: float, backoff: Backoff, rng: random.Random
    ) -> None:
        self.state = RecoveryState.FOLLOWING
        self.trigger: Trigger | None = None
        """The reason for the present or the last rebootstrap."""
        self.missed: dict[Trigger, None] = {}
        """The triggers that had no effect because of the strategy "none"."""
        self._enabled = enabled
        self._trigger_s = trigger_s
        self._backoff = backoff
        self._rng = rng
        self._since: float | None = None
        """The time of the first attempt to request metadata since the last response."""
        self._failed = False
        """Whether an attempt to request metadata has failed since `_since`."""
        self._count = 0
        """The number of rebootstraps since a broker in the metadata responded."""
        self._not_before = -math.inf

    @property
    def due_at(self) -> float:
        """The time at which to rebootstrap, or infinity if nothing has triggered it."""
        if self.state is RecoveryState.DUE:
            return self._not_before
        if self.state is RecoveryState.SEARCHING or not self._enabled:
            return math.inf
        return max(self._timeout_at(), self._not_before)

    def is_due(self, now: float) -> bool:
        """Return whether to rebootstrap now."""
        self._check_timeout(now)
        return self.state is RecoveryState.DUE and now >= self._not_before

    def list_missed_triggers(self, now: float) -> list[Trigger]:
        """Return the triggers without effect, in order. Safe in any thread.

        TIMEOUT is included as soon as the trigger time has passed, even if an attempt is in
        progress.
        """
        found = dict(self.missed)
        if not self._enabled and now >= self._timeout_at():
            found[Trigger.TIMEOUT] = None
        return list(found)

    def on_attempt(self, now: float) -> None:
        """Record that metadata is being requested."""
        if self._since is None:
            self._since, self._failed = now, False

    def on_failed_attempt(self, now: float) -> None:
        """Record that an attempt to request metadata has ended without a usable response."""
        self._failed = True
        self._check_timeout(now)

    def on_brokers_unavailable(self) -> None:
        """Record that no known broker is available."""
        self._apply_event(_E.UNAVAILABLE)

    def on_rebootstrap_required(self) -> None:
        """Record that a broker requires a rebootstrap, or is in another cluster."""
        self._apply_event(_E.REQUIRED)

    def begin_rebootstrap(self, now: float) -> Trigger:
        """Record that a rebootstrap begins. Return its reason."""
        assert self.state is RecoveryState.DUE
        assert self.trigger is not None
        self._apply_event(_E.BEGUN)
        # A DNS name may still lead to the old brokers. Without a delay, each rebootstrap would end
        # in the next one.
        delay_s = self._backoff.compute_delay_s(self._count, self._rng)
        self._count += 1
        self._not_before = now + delay_s
        return self.trigger

    def on_answer(self, *, proven: bool) -> None:
        """Record a metadata response that lists a broker.

        `proven` means that one of the brokers in the metadata sent it, not a bootstrap server.
        """
        self._since = None
        self.missed.clear()
        if proven:
            self._count, self._not_before = 0, -math.inf
        if self.state is not RecoveryState.DUE or self.trigger is not Trigger.REQUIRED:
            self._apply_event(_E.ANSWERED)

    def _timeout_at(self) -> float:
        if self._since is None or (not self._trigger_s and not self._failed):
            return math.inf
        return self._since + self._trigger_s

    def _check_timeout(self, now: float) -> None:
        if now >= self._timeout_at():
            self._apply_event(_E.TIMEOUT)

    def _apply_event(self, event: RecoveryEvent) -> None:
        state = TABLE.get((self.state, event))
        if state is None:
            return
        trigger = TRIGGERS.get(event)
        if trigger is not None and not self._enabled:
            self.missed[trigger] = None
            return
        self.state = state
        self.trigger = trigger or self.trigger

"""When the same question may be asked again. Pure."""

from __future__ import annotations

import random
from collections.abc import Hashable

from aiokclient.policy import Backoff

__all__ = ["Pacing"]


class Pacing:
    """A subject whose last answers brought nothing new waits longer each time.

    Times are seconds on the monotonic clock.
    """

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._rng = rng
        self._next: dict[Hashable, tuple[float, int]] = {}

    def earliest(self, subject: Hashable) -> float:
        """From when on it may be asked for."""
        known = self._next.get(subject)
        return 0.0 if known is None else known[0]

    def asked(self, subject: Hashable, now: float, *, settled: bool) -> None:
        """It was asked for; `settled`: the answer was new and good."""
        earliest, streak = self._next.pop(subject, (0.0, 0))
        if settled:
            return
        if now > earliest + self._backoff.maximum_s:
            streak = 0
        self._next[subject] = (now + self._backoff.delay(streak, self._rng), streak + 1)
        self._sweep(now)

    def forget(self, subject: Hashable) -> None:
        """It may be asked for at once."""
        self._next.pop(subject, None)

    def _sweep(self, now: float) -> None:
        # Old entries are equal to none at all; looked at only once in a while.
        if len(self._next) > 1000:
            horizon = now - self._backoff.maximum_s
            self._next = {key: known for key, known in self._next.items() if known[0] > horizon}

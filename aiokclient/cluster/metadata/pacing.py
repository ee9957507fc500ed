"""The pacing of repeated requests for the same metadata. Sans-IO."""

from __future__ import annotations

import random
from collections.abc import Hashable

from aiokclient.policy import Backoff

__all__ = ["Pacing"]


class Pacing:
    """The earliest time of the next request for each subject, such as a topic.

    The delay grows while the responses bring nothing new. Times are seconds on the monotonic clock.
    """

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._rng = rng
        self._next: dict[Hashable, tuple[float, int]] = {}

    def earliest(self, subject: Hashable) -> float:
        """Return the earliest time at which the subject may be requested."""
        known = self._next.get(subject)
        return 0.0 if known is None else known[0]

    def asked(self, subject: Hashable, now: float, *, settled: bool) -> None:
        """Record a request. `settled` means that the response was new and had no error."""
        earliest, streak = self._next.pop(subject, (0.0, 0))
        if settled:
            return
        if now > earliest + self._backoff.maximum_s:
            streak = 0
        self._next[subject] = (now + self._backoff.delay(streak, self._rng), streak + 1)
        self._sweep(now)

    def forget(self, subject: Hashable) -> None:
        """Allow a request for the subject immediately."""
        self._next.pop(subject, None)

    def _sweep(self, now: float) -> None:
        # Expired entries have no effect. They are removed only from time to time.
        if len(self._next) > 1000:
            horizon = now - self._backoff.maximum_s
            self._next = {key: known for key, known in self._next.items() if known[0] > horizon}

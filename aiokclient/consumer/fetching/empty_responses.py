"""The pause after early and empty responses, from a broker that does not wait for records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from aiokclient.clock import Clock
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.session import Wanted
from aiokclient.policy import Backoff
from aiokclient.types import TopicPartition

__all__ = ["EmptyResponses"]

IDLE_S: Final = 0.01
"""Seconds of the first pause."""


class EmptyResponses:
    """The consecutive early and empty responses of one broker.

    A response is early if it arrives before half of `fetch_max_wait_ms`.
    """

    def __init__(self, clock: Clock, config: ConsumerConfig) -> None:
        self.until = -math.inf
        """The end of the pause, on the monotonic clock."""
        self._clock = clock
        self._max_wait_ms = config.fetch_max_wait_ms
        self._backoff = Backoff(IDLE_S, max(Backoff.of(config).initial_s, IDLE_S))
        self._count = 0

    def pauses(
        self, known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
    ) -> bool:
        """Return whether to pause before the request `wanted`, after early empty responses.

        There is no pause if `wanted` contains anything that the last request, `known`, did not.
        """
        if self.until <= self._clock.monotonic():
            return False
        return all(known.get(tp) is want for tp, want in wanted.items())

    def received(self, *, useful: bool, seconds: float) -> None:
        """Record a response that has arrived `seconds` after its request."""
        waited = 1000 * seconds >= self._max_wait_ms / 2
        if useful or (waited and self._max_wait_ms):
            self._count = 0
            return
        self._count += 1
        if self._count > 1:
            delay_s = self._backoff.delay(self._count - 2, self._clock.rng)
            self.until = self._clock.monotonic() + delay_s

"""The delays of requests after errors of single partitions.

A consumer requests positions, initial offsets, and records for as long as it runs. Its partitions
fail and recover independently of each other. So each partition counts its own failures, in
`PartitionState.retry`, and the policy only classifies the errors.
"""

from __future__ import annotations

from aiokclient.clock import Clock
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.state.partition import PartitionState
from aiokclient.consumer.state.subscription import SubscriptionState
from aiokclient.errors import KafkaError
from aiokclient.policy import Backoff, Decision, Scope, classify

__all__ = ["PartitionBackoff"]


class PartitionBackoff:
    """The delays of the requests for the partitions of one consumer."""

    def __init__(
        self, clock: Clock, config: ConsumerConfig, subscription: SubscriptionState
    ) -> None:
        self._clock = clock
        self._subscription = subscription
        self.backoff = Backoff.of(config)
        self.longest_s = self.backoff.maximum_s
        """Seconds until the next attempt after an error that is probably not temporary."""

    def failed(self, state: PartitionState, error: KafkaError, scope: Scope) -> Decision:
        """Delay the next request for a partition after an error; return the decision about it."""
        decision = classify(error, scope)
        delay_s = self._delay_s(state) if decision.again else 0.0
        self._rest(state, error, delay_s or self.longest_s)
        return decision

    def unusable(self, state: PartitionState, error: KafkaError) -> None:
        """Delay the next request after an error that is expected to last."""
        self._rest(state, error, self.longest_s)

    def obstructed(self, state: PartitionState, error: KafkaError) -> None:
        """Delay the next request for a batch that is too large; every request raises the error."""
        state.retry.back_off(self._clock.monotonic() + self.longest_s, error)

    def repeat(self, state: PartitionState) -> None:
        """Repeat a request after the usual delay, although its response had no error."""
        state.retry.back_off(self._clock.monotonic() + self._delay_s(state))

    def lost(self, state: PartitionState) -> None:
        """Record that a position was lost; delay requests if that happens repeatedly."""
        state.retry.lost(self._clock.monotonic(), self.backoff, self._clock.rng)

    def _rest(self, state: PartitionState, error: KafkaError, seconds: float) -> None:
        self._subscription.back_off(state, self._clock.monotonic() + seconds, error)

    def _delay_s(self, state: PartitionState) -> float:
        return self.backoff.delay(state.retry.attempts, self._clock.rng)

"""Awaiting what deserializers need before they can read records, such as a schema.

A deserializer may have `is_prepared(data, headers)` and `async prepare(topic, items)`. A consumer
asks `is_prepared` about each record. If the answer is no, it begins a `Preparation`, which awaits
`prepare`. What follows depends on the outcome of an attempt:

    prepared     The record can be deserialized.
    refused      The record is at fault, for example because its schema does not exist. Its
                 RecordError is raised, or `on_record_error` decides.
    unavailable  The error is retriable. Attempts are repeated with a backoff. After
                 `default_api_timeout_ms`, a request raises SchemaRegistryUnavailableError, and the
                 time begins anew.
    failed       Any other error, such as one about credentials. Attempts are repeated as well, but
                 each error is raised by one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.decoding.deserialize import Deserializers, RawRecord, Unprepared
from aiokclient.errors import (
    KafkaError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from aiokclient.policy import Backoff, Scope, classify
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.clock import Clock

TOGETHER: Final = 500
"""The largest number of records that are prepared together."""


class Outcome(Enum):
    """The outcome of an attempt; see the module's docstring."""

    PREPARED = auto()
    REFUSED = auto()
    UNAVAILABLE = auto()
    FAILED = auto()


ENDING: Final = frozenset({Outcome.PREPARED, Outcome.REFUSED})
"""The outcomes after which there is no further attempt."""


def judge_failure(error: BaseException) -> Outcome:
    """Return the outcome of an attempt that failed with this error."""
    if isinstance(error, asyncio.CancelledError) or classify(error, Scope.CLIENT).again:
        # A future that the application has cancelled says nothing about the record.
        return Outcome.UNAVAILABLE
    if isinstance(error, SchemaNotFoundError | SerializationError):
        return Outcome.REFUSED
    return Outcome.FAILED if isinstance(error, KafkaError) else Outcome.REFUSED


class PreparationPace:
    """The times of the attempts of all preparations of one client."""

    def __init__(self, backoff: Backoff, clock: Clock) -> None:
        self._backoff = backoff
        self._clock = clock
        self._next_attempt = 0.0

    def get_time(self) -> float:
        """Return the time in seconds."""
        return self._clock.monotonic()

    def compute_pause_s(self, failures: int) -> float:
        """Return the seconds to wait after failure number `failures`, counted from 0.

        Preparations that wait during the same outage continue at the same time, so that their
        requests for one schema can be one.
        """
        delay_s = self._backoff.compute_delay_s(failures, self._clock.rng)
        now = self.get_time()
        if not delay_s / 2 <= self._next_attempt - now <= 2 * delay_s:
            self._next_attempt = now + delay_s
        return self._next_attempt - now


class Preparation:
    """The preparation of records, all of one partition, of which the first is needed.

    After a failure that concerns a record, only the first one is prepared, so that no other record
    is refused for its sake.
    """

    def __init__(
        self,
        pace: PreparationPace,
        records: Sequence[RawRecord],
        patience_s: float,
        deserializers: Anchor[Deserializers],
    ) -> None:
        self._pace = pace
        self.deserializers = deserializers
        """The application's deserializers, which only the consumer or an iteration keeps alive."""
        self._records = records
        self._patience_s = patience_s
        self._deadline = pace.get_time() + patience_s
        self._failures = 0
        self.first = records[0]
        self.topic_partition = TopicPartition(self.first.topic, self.first.partition)
        self.failure: Unprepared | None = None
        """The failure of the last attempt."""
        self.has_ended = False
        """Whether there will be no further attempt."""

    @property
    def refusal(self) -> Unprepared | None:
        """The failure for which the first record is to be refused, or None."""
        return self.failure if self.has_ended else None

    async def attempt_once(self) -> Outcome:
        """Await `prepare` once, and return the outcome. A cancellation changes nothing."""
        # If they no longer exist, nothing waits for the records, and there is nothing to prepare.
        deserializers = self.deserializers.get() or Deserializers()
        left_s = self._deadline - self._pace.get_time()
        limit_s = left_s if left_s > 0 else self._patience_s
        failure = await deserializers.prepare_records(self._records, limit_s)
        outcome = Outcome.PREPARED
        if failure is not None:
            assert failure.error is not None
            outcome = judge_failure(failure.error)
            if outcome in (Outcome.REFUSED, Outcome.FAILED) and len(self._records) > 1:
                self._records = self._records[:1]
                return await self.attempt_once()
        self.failure = failure
        self.has_ended = outcome in ENDING
        return outcome

    def take_pause_s(self) -> float:
        """Return the seconds until the next attempt."""
        self._failures += 1
        return self._pace.compute_pause_s(self._failures - 1)

    def find_error(self, outcome: Outcome) -> KafkaError | None:
        """Return the error to raise after this outcome, or None while there is time left.

        If it is the one of a registry that is unavailable, the time begins anew.
        """
        now = self._pace.get_time()
        if outcome is not Outcome.UNAVAILABLE:
            return self.make_error(outcome)
        if now < self._deadline:
            return None
        self._deadline = now + self._patience_s
        return self.make_error(outcome, f" within {self._patience_s:.1f} s")

    def make_error(self, outcome: Outcome, within: str = "") -> KafkaError:
        """Return the error of the last attempt, which was not the last one possible.

        `within` is a text that says how long the attempts have taken.
        """
        assert self.failure is not None
        cause = self.failure.error
        if outcome is Outcome.FAILED:
            assert isinstance(cause, KafkaError)
            return cause.with_traceback(None)
        error = SchemaRegistryUnavailableError(
            f"The deserializer of the {self.failure.part} could not be prepared for offset "
            f"{self.first.offset}{within}.",
            attempts=getattr(cause, "attempts", ()),
        )
        error.topic_partition = self.topic_partition
        error.__cause__ = cause
        return error

    def describe_trouble(self) -> str | None:
        """Return why the records cannot be delivered, after a failed attempt."""
        if self.failure is None or self.has_ended:
            return None
        part, error = self.failure
        return (
            f"{self.topic_partition} cannot be read: the deserializer of the {part} is not "
            f"prepared for offset {self.first.offset}: {error!r}"
        )

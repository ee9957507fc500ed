"""The asynchronous preparation of deserializers for records, such as the request for a schema.

A deserializer may have `is_prepared(data, headers)` and `async prepare(topic, items)`. The unpacker
asks `is_prepared` about each record. At the first record for which the answer is no, it stops, and
begins a `Preparation`: a background task that awaits `prepare`. Because no request for records
awaits it, its time does not count as that of a request, and a cancelled request loses nothing.

Meanwhile everything that is prepared is delivered: the records before that one, and those of other
partitions. When the records before it were delivered, the partition is withheld, so that its
responses take no room from others. Its buffered records are set aside.

What follows depends on the outcome of an attempt:

    prepared     The partition is delivered again, from the record on.
    refused      The record is at fault, for example because its schema does not exist. Its
                 RecordError is raised, or `on_record_error` decides.
    unavailable  The error is retriable. Attempts are repeated with a backoff. After
                 `default_api_timeout_ms`, a request raises SchemaRegistryUnavailableError, and the
                 time begins anew.
    failed       Any other error, such as one about credentials. Attempts are repeated as well, but
                 each error is raised by one request.

In the last two cases the record does not count as delivered, and the client is DEGRADED until an
attempt succeeds, or the application seeks, or the partition is taken away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.consumer.delivery.deserialize import Deserializers, RawRecord, Unprepared
from aiokclient.consumer.state.partition import PartitionState, Withheld
from aiokclient.errors import (
    KafkaError,
    SchemaNotFoundError,
    SchemaRegistryUnavailableError,
    SerializationError,
)
from aiokclient.policy import Backoff, Scope, classify
from aiokclient.scopes import new_scope
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.scopes import CancelScope


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


class Preparation:
    """The preparation of records, all of one partition, of which the first is needed.

    After a failure that concerns a record, only the first one is prepared, so that no other record
    is refused for its sake.
    """

    def __init__(
        self,
        owner: Preparations,
        records: Sequence[RawRecord],
        patience_s: float,
        deserializers: Anchor[Deserializers],
    ) -> None:
        self._owner = owner
        self.deserializers = deserializers
        """The application's deserializers, which only the consumer or an iteration keeps alive."""
        self._records = records
        self._patience_s = patience_s
        self._deadline = owner.get_time() + patience_s
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
        left_s = self._deadline - self._owner.get_time()
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
        return self._owner.compute_pause_s(self._failures - 1)

    def find_error(self, outcome: Outcome) -> KafkaError | None:
        """Return the error to raise after this outcome, or None while there is time left.

        If it is the one of a registry that is unavailable, the time begins anew.
        """
        now = self._owner.get_time()
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


class WithheldRecords(Preparation):
    """A preparation in the background, and the partition that may be withheld for it."""

    def __init__(
        self,
        owner: Preparations,
        records: Sequence[RawRecord],
        patience_s: float,
        deserializers: Anchor[Deserializers],
        state: PartitionState,
    ) -> None:
        super().__init__(owner, records, patience_s, deserializers)
        self.state = state
        self.error: KafkaError | None = None
        """The error that the next request raises."""
        self._jumps = state.jumps
        self._scope: CancelScope | None = None

    @property
    def is_needed(self) -> bool:
        """Whether the position is still before the records, and the partition still assigned."""
        return self._jumps == self.state.jumps and self._owner.is_assigned(self.state)

    async def run(self) -> None:
        """Attempt until the records are prepared or refused, or until `end_attempts`."""
        with new_scope() as self._scope:
            while True:
                outcome = await self.attempt_once()
                if outcome in ENDING:
                    self._owner.on_ended(self)
                    return
                error = self.find_error(outcome)
                if error is not None:
                    self._owner.report_error(self, error)
                await asyncio.sleep(self.take_pause_s())

    def end_attempts(self) -> None:
        """Stop the attempts, because the records are not needed. Synchronous."""
        self.has_ended = True
        if self._scope is not None:
            self._scope.cancel()


class Preparations:
    """The preparations of one consumer."""

    def __init__(self, engine: ConsumerEngine, deserializers: Anchor[Deserializers]) -> None:
        self._engine = engine
        self._subscription = engine.subscription
        self._clock = engine.cluster.clock
        self.deserializers = deserializers
        self._patience_s = engine.config.default_api_timeout_ms / 1000
        self._backoff = Backoff.of(engine.config)
        self._next_attempt = 0.0
        self._by_partition: dict[TopicPartition, WithheldRecords] = {}
        self._failed_by_hand: Preparation | None = None
        """The last one of `prepare_record`, if it has failed."""
        self._listens = False

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

    def is_assigned(self, state: PartitionState) -> bool:
        """Return whether a partition is still assigned to this consumer."""
        return self._subscription.partitions.get(state.tp) is state

    def list_troubles(self) -> list[str]:
        """Return why records cannot be delivered, as texts. Synchronous."""
        made: list[Preparation] = [*self._by_partition.values()]
        if self._failed_by_hand is not None:
            made.append(self._failed_by_hand)
        found = (each.describe_trouble() for each in made)
        return [trouble for trouble in found if trouble is not None]

    # -- for the unpacker and the reader

    def take_ended(
        self, record: RawRecord, deserializers: Anchor[Deserializers]
    ) -> WithheldRecords | None:
        """Remove and return the preparation that has ended with this record as its first."""
        found = self._find_preparation(record, deserializers)
        if found is None or not found.has_ended:
            return None
        return self._by_partition.pop(found.state.tp)

    def begin_preparation(
        self,
        state: PartitionState,
        records: Sequence[RawRecord],
        deserializers: Anchor[Deserializers],
    ) -> WithheldRecords:
        """Prepare these records in the background, unless that has begun with the same first one.

        Records of the same partition that were to be prepared before are forgotten.
        """
        found = self._find_preparation(records[0], deserializers)
        if found is not None and not found.has_ended:
            return found
        if not self._listens:
            self._listens = True
            self._subscription.add_change_listener(self._on_change)
        if (former := self._by_partition.get(state.tp)) is not None:
            self._end_preparation(former)
        made = WithheldRecords(self, records, self._patience_s, deserializers, state)
        self._engine.supervisor.spawn(made.run, name=f"preparation for {state.tp}")
        self._by_partition[state.tp] = made
        return made

    def withhold_partition(self, preparation: WithheldRecords) -> None:
        """Withhold the partition until the preparation has ended, as its next record waits."""
        if not preparation.has_ended:
            self._subscription.withhold([preparation.state], Withheld.PREPARATION, True)

    def end_all(self) -> None:
        """Stop all preparations, because the application reads without deserializers now."""
        for each in list(self._by_partition.values()):
            self._end_preparation(each)

    def _find_preparation(
        self, record: RawRecord, deserializers: Anchor[Deserializers]
    ) -> WithheldRecords | None:
        tp: Any = (record.topic, record.partition)
        found = self._by_partition.get(tp)
        if found is None or found.first.offset != record.offset or found.first != record:
            return None
        return found if found.is_needed and found.deserializers is deserializers else None

    def _on_change(self) -> None:
        for each in list(self._by_partition.values()):
            if not each.is_needed:
                self._end_preparation(each)

    def _end_preparation(self, preparation: WithheldRecords) -> None:
        del self._by_partition[preparation.state.tp]
        preparation.end_attempts()
        self._release_partition(preparation)

    def _release_partition(self, preparation: WithheldRecords) -> None:
        if preparation.error is not None:
            self._engine.reports.withdraw_error(preparation.error)
            preparation.error = None
        self._subscription.withhold([preparation.state], Withheld.PREPARATION, False)
        self._engine.arrived.set()

    # -- for preparations

    def on_ended(self, preparation: WithheldRecords) -> None:
        """Deliver the partition again: its records are prepared, or the first one is refused."""
        self._release_partition(preparation)

    def report_error(self, preparation: WithheldRecords, error: KafkaError) -> None:
        """Make the next request raise an error. The preparation goes on."""
        if preparation.error is not None:
            self._engine.reports.withdraw_error(preparation.error)
        preparation.error = error
        self._engine.reports.add_error(error)

    # -- for records that a worker got as bytes

    async def prepare_record(self, record: RawRecord, timeout: float) -> Unprepared | None:
        """Prepare one record in the current task, once. Return the failure if it is to be refused.

        `timeout` is in seconds. Raises the error of any other failure, and lists it as a trouble
        until another record could be prepared. A cancellation changes nothing.
        """
        made = Preparation(self, [record], timeout, self.deserializers)
        outcome = await made.attempt_once()
        if outcome in ENDING:
            self._failed_by_hand = None
            return made.failure
        self._failed_by_hand = made
        raise made.make_error(outcome)

    def forget_failure(self) -> None:
        """List the failure of `prepare_record` no longer, because the worker has ended."""
        self._failed_by_hand = None

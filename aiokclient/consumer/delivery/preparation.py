"""The asynchronous preparation of deserializers for records, such as the request for a schema.

A deserializer may have `is_prepared(data, headers)` and `async prepare(topic, items)`. The unpacker
asks `is_prepared` about each record. At the first record for which the answer is no, it stops, and
begins a `Preparation`: a background task that awaits `prepare`. Because no request for records
awaits it, its time does not count as that of a request, and a cancelled request loses nothing.

Meanwhile everything that is prepared is delivered: the records before that one, and those of other
partitions. When the records before it were delivered, the partition is withheld, so that its
responses take no room from others. Its buffered records are set aside.

What follows depends on the outcome of an attempt, see `aiokclient.decoding.preparation`. When the
records are prepared or refused, the partition is delivered again, from the record on. Until then
the record does not count as delivered, and the client is DEGRADED after a failed attempt until one
succeeds, or the application seeks, or the partition is taken away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.consumer.state.partition import PartitionState, Withheld
from aiokclient.decoding.deserialize import Deserializers, RawRecord, Unprepared
from aiokclient.decoding.preparation import ENDING, Preparation, PreparationPace
from aiokclient.errors import KafkaError
from aiokclient.policy import Backoff
from aiokclient.scopes import new_scope
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.engine import ConsumerEngine
    from aiokclient.scopes import CancelScope


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
        super().__init__(owner.pace, records, patience_s, deserializers)
        self._owner = owner
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
        self.deserializers = deserializers
        self.pace = PreparationPace(Backoff.of(engine.config), engine.cluster.clock)
        self._patience_s = engine.config.default_api_timeout_ms / 1000
        self._by_partition: dict[TopicPartition, WithheldRecords] = {}
        self._failed_by_hand: Preparation | None = None
        """The last one of `prepare_record`, if it has failed."""
        self._listens = False

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
        made = Preparation(self.pace, [record], timeout, self.deserializers)
        outcome = await made.attempt_once()
        if outcome in ENDING:
            self._failed_by_hand = None
            return made.failure
        self._failed_by_hand = made
        raise made.make_error(outcome)

    def forget_failure(self) -> None:
        """List the failure of `prepare_record` no longer, because the worker has ended."""
        self._failed_by_hand = None

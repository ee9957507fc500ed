"""The partitions of one leader: what is acquired there, and what the leader's answers mean for it.

An answer of the leader has a code for each partition: of its fetch, of its acknowledgements, or of
its renewals. `session` says what the code means, and this module does it: locks are confirmed,
prolonged, lost, or refused, and what may succeed later is sent again after a delay.

Metadata tells, too. Each change of the leader begins an epoch, so if two have begun since an
acquisition, the leader was another one meanwhile, which has ended the lock. The epoch at an
acquisition is known once metadata that was requested afterwards has arrived. What was known when
the records were requested may have been older. If two epochs have begun since that, nobody knows
whether they did before the acquisition or after it: then the leader is asked by a renewal.

A topic that metadata lacks was deleted, or the broker that was asked does not know it yet. So the
leader is asked by a fetch that acquires nothing, whose answer has an error if the topic is gone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.cluster.metadata.snapshot import ABSENT, BrokerInfo
from aiokclient.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    error_for,
)
from aiokclient.policy import Backoff
from aiokclient.share.locks import Acquisition, LockEvent, LockState, Reason, Run
from aiokclient.share.partition import SharePartition, split_by_deadline, split_by_sent
from aiokclient.share.session import (
    PartitionOutcome,
    choose_reason,
    judge_partition,
    read_acknowledged,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
    from aiokclient.protocol.messages.share_fetch import PartitionData, ShareFetchResponse
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.leader import ShareLeader
    from aiokclient.types import TopicPartition

Carried: TypeAlias = "Mapping[SharePartition, list[Run]]"
"""The acknowledgements, or renewals, in a request, by partition."""

LEADER_CODES: Final = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)
"""The codes with which an answer names the leader of a partition."""


class LeaderPartitions:
    """The partitions that one leader serves to one share consumer."""

    def __init__(self, leader: ShareLeader, engine: ShareEngine) -> None:
        self._leader = leader
        self._engine = engine
        self._updater = engine.cluster.updater
        self._clock = engine.cluster.clock
        self._backoff = Backoff.of(engine.config)
        self._partitions: dict[TopicPartition, SharePartition] = {}
        self._in_flight: Carried = {}
        """The acknowledgements in the request in flight."""

    # -- what there is

    @property
    def known(self) -> Collection[SharePartition]:
        """The partitions that are fetched here, or of which anything is acquired."""
        return self._partitions.values()

    def list_acquisitions(self) -> Iterator[Acquisition]:
        """Yield what is acquired here and not final."""
        for partition in self._list_all():
            yield from partition.acquisitions

    def _list_all(self) -> Iterable[SharePartition]:
        """Return the partitions, and those that were replaced while a request is in flight."""
        if not self._in_flight:
            return self._partitions.values()
        return dict.fromkeys([*self._partitions.values(), *self._in_flight])

    def list_wanted(self, now: float) -> list[SharePartition]:
        """Return the partitions that are to be fetched now."""
        return [each for each in self.known if each.is_assigned and each.retry_at <= now]

    def list_settled(self) -> list[SharePartition]:
        """Return the partitions of which there may be settlements that are not sent."""
        return [each for each in self.known if each.has_settled]

    def list_doubted(self) -> list[SharePartition]:
        """Return the partitions whose topics may be gone."""
        return [each for each in self.known if each.is_doubted]

    def take_doubted(self) -> list[SharePartition]:
        """Return the partitions whose topics may be gone. The leader is asked about them now."""
        doubted = self.list_doubted()
        for each in doubted:
            each.is_doubted = False
        return doubted

    def find_next_time(self, now: float) -> float:
        """Return the time at which a partition can be fetched, settled, or renewed again."""
        times = [each.settle_at for each in self.list_settled()]
        times += [each.retry_at for each in self.known if each.is_assigned and each.retry_at > now]
        times += [each.renew_at for each in self.known if each.renew_at > now]
        return min(times, default=math.inf)

    # -- partitions

    def add_partition(self, tp: TopicPartition, topic_id: UUID, leader_epoch: int) -> None:
        """Fetch a partition from this leader, as of a leader epoch by metadata."""
        found = self._partitions.get(tp)
        if found is not None and found.topic_id != topic_id:
            self._lose_partition(found, "moved")
            found = None
        if found is None:
            found = self._partitions[tp] = SharePartition(tp, topic_id, self._clock)
        self.note_epoch(found, leader_epoch)
        found.is_assigned = True
        self._leader.wake.set()

    def remove_partition(self, tp: TopicPartition, *, moved: bool = False) -> None:
        """Fetch a partition from this leader no longer. If it has `moved`, its locks are lost."""
        found = self._partitions.get(tp)
        if found is not None:
            found.is_assigned = False
            if moved:
                self._lose_partition(found, "moved")
            self._leader.wake.set()

    def lose_unassigned(self, doubted: Iterable[SharePartition]) -> None:
        """Lose the locks of those partitions that neither metadata nor the coordinator has."""
        for partition in doubted:
            if not partition.is_assigned:
                self._lose_partition(partition, "moved")

    def forget_finished(self) -> None:
        """Forget what is neither fetched nor acquired here, nor known to the broker."""
        for tp, partition in list(self._partitions.items()):
            partition.remove_finished()
            # A partition that is still in the session is forgotten by the next fetch.
            if not (
                partition.is_assigned or partition.has_open() or self._leader.serves(partition)
            ):
                del self._partitions[tp]

    def note_epoch(self, partition: SharePartition, leader_epoch: int) -> None:
        """Lose the locks of a partition that other brokers have led since their acquisition."""
        partition.leader_epoch = max(partition.leader_epoch, leader_epoch)
        for acquisition in list(partition.acquisitions):
            if not 0 <= acquisition.leader_epoch < leader_epoch - 1:
                continue
            if acquisition.is_epoch_exact:
                self._lose_runs(partition, acquisition.find_open_runs(), "moved")
            else:
                # If the renewal succeeds, the locks are those of this epoch or of a later one.
                acquisition.is_doubted, acquisition.leader_epoch = True, leader_epoch
                self._leader.wake.set()

    def apply_metadata(
        self, metadata: ClusterMetadata, topics: Collection[str], former: Collection[Acquisition]
    ) -> None:
        """Look what new metadata says of topics. `former` was acquired before it was requested."""
        for partition in self.known:
            if partition.tp.topic not in topics or not partition.has_open():
                continue
            info = metadata.find_topic(partition.tp.topic)
            if info is None or info.error in ABSENT or info.topic_id != partition.topic_id:
                partition.is_doubted = True
                self._leader.wake.set()
                continue
            epoch = metadata.find_leader_epoch(*partition.tp)
            self.note_epoch(partition, epoch)
            for acquisition in partition.acquisitions:
                if acquisition in former and not acquisition.is_epoch_exact:
                    acquisition.leader_epoch, acquisition.is_epoch_exact = epoch, epoch >= 0

    # -- requests

    def on_fetch(self, fetched: Iterable[SharePartition]) -> None:
        """Record that these partitions are requested now."""
        for partition in fetched:
            partition.requested_epoch = partition.leader_epoch

    def take_settled(self, now: float) -> Carried:
        """Return what is settled and to be sent now. What has expired is lost."""
        self._engine.settle_passed()
        found: dict[SharePartition, list[Run]] = {}
        for partition in self.list_settled():
            if partition.settle_at > now:
                continue
            due, expired = partition.take_settled(now)
            for run in expired:
                self._lose_run(run, "expired")
            if due:
                found[partition] = due
        return found

    def find_to_renew(self, now: float) -> Carried:
        """Return the locks that are to be renewed now."""
        found: dict[SharePartition, list[Run]] = {}
        for partition in self.known:
            if partition.renew_at <= now and (runs := self._engine.find_to_renew(partition, now)):
                found[partition] = runs
        return found

    def mark_sent(self, carried: Carried) -> None:
        """Record that a request with these acknowledgements is in flight."""
        for runs in carried.values():
            for run in runs:
                run.apply_event(LockEvent.SEND)
        self._in_flight = carried

    def end_flight(self) -> None:
        """Record that no request is in flight."""
        self._in_flight = {}

    def return_runs(self, carried: Carried, *, is_certain: bool = True) -> None:
        """Send acknowledgements again, because they were not applied, or possibly not."""
        for partition, runs in carried.items():
            partition.return_runs(runs, is_certain=is_certain)

    def refuse_request(self, carried: Carried, renewed: Carried, error: KafkaError) -> None:
        """Record that a broker refuses a whole request with acknowledgements or renewals."""
        for runs in carried.values():
            self._refuse_runs(runs, error)
        for partition, runs in renewed.items():
            self._on_renewal_refused(partition, runs, error)

    # -- answers to fetches

    def apply_fetch(
        self,
        found: Iterable[tuple[SharePartition, PartitionData]],
        answer: ShareFetchResponse,
        deadline: float,
        lock_s: float,
    ) -> None:
        """Apply what the answer to a fetch has of each partition."""
        for partition, data in found:
            error = error_for(
                data.error_code,
                data.error_message,
                api="ShareFetch",
                broker=self._leader.node_id,
                topic_partition=partition.tp,
            )
            if error is not None:
                self._on_partition_error(partition, error, data, answer)
                continue
            partition.failures = 0
            if data.acquired_records:
                self._lose_ended(partition, data)
                self._engine.reader.add_part(partition, data, deadline, lock_s)

    def _lose_ended(self, partition: SharePartition, data: PartitionData) -> None:
        """Lose the locks of records that were acquired again."""
        now = self._clock.monotonic()
        for acquired in data.acquired_records:
            first, last = acquired.first_offset, acquired.last_offset
            for run, reason in partition.find_ended(first, last, now):
                self._lose_run(run, reason)
                if reason == "moved":
                    self._updater.request_update([partition.tp.topic])

    def _on_partition_error(
        self, partition: SharePartition, error: KafkaError, data: PartitionData, answer: Any
    ) -> None:
        """Fetch the partition again later, from the same leader or from another one."""
        outcome = judge_partition(error)
        if outcome is PartitionOutcome.FATAL:
            self._leader.fail(error)
        if outcome is PartitionOutcome.MOVED:
            self._on_moved(partition, error, data, answer)
        partition.retry_at = self._clock.monotonic() + self._compute_delay_s(partition.failures)
        partition.failures += 1
        self._engine.log_partition_error(partition.tp, error)

    def _on_moved(
        self, partition: SharePartition, error: KafkaError, data: Any, answer: Any
    ) -> None:
        """Lose the locks of a partition that this broker does not lead, and find its leader."""
        reason = choose_reason(error, data, self._leader.node_id)
        self._lose_partition(partition, reason, error)
        self._apply_hint(partition, error, data, answer)
        self._updater.request_update([partition.tp.topic])

    def _apply_hint(
        self, partition: SharePartition, error: KafkaError, data: Any, answer: Any
    ) -> None:
        """Apply the new leader that an answer names (KIP-951)."""
        leader = data.current_leader
        # With other codes, brokers leave 0 in both fields.
        if error.code in LEADER_CODES and leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = answer.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._updater.apply_hint(
                *partition.tp, leader.leader_id, leader.leader_epoch, endpoints
            )

    # -- answers to acknowledgements and renewals

    def apply_acknowledged(self, answer: Any, carried: Carried, now: float) -> None:
        """Apply the outcomes of acknowledgements, in the order in which they were sent."""
        outcomes = read_acknowledged(answer, carried, self._leader.node_id)
        for partition, (data, error) in outcomes.items():
            self._apply_partition(partition, carried[partition], error, data, answer, now)

    def _apply_partition(
        self,
        partition: SharePartition,
        runs: list[Run],
        error: KafkaError | None,
        data: Any,
        answer: Any,
        now: float,
    ) -> None:
        """Apply the answer to the acknowledgements of one partition."""
        outcome = judge_partition(error)
        if error is None:
            partition.settle_failures = 0
            for run in runs:
                for part in split_by_deadline(run, now):
                    self._confirm_run(part, now)
        elif outcome is PartitionOutcome.INVALID:
            if sum(run.length for run in runs) > 1:
                partition.split_runs(runs)
            else:
                for run in runs:
                    self._lose_run(run, "refused", error, confirmed=False)
        elif outcome is PartitionOutcome.MOVED:
            self._on_moved(partition, error, data, answer)
        elif outcome is PartitionOutcome.AGAIN:
            partition.return_runs(runs, is_certain=False)
            partition.settle_at = now + self._compute_delay_s(partition.settle_failures)
            partition.settle_failures += 1
            self._leader.note_error(error)
        else:
            self._refuse_runs(runs, error)
            if outcome is PartitionOutcome.FATAL:
                self._leader.fail(error)

    def apply_renewal(
        self, answer: ShareAcknowledgeResponse, carried: Carried, sent_at: float
    ) -> None:
        """Apply the outcomes of renewals."""
        lock_s = answer.acquisition_lock_timeout_ms / 1000
        outcomes = read_acknowledged(answer, carried, self._leader.node_id)
        is_allowed = any(error is None for _, error in outcomes.values())
        renewals = self._engine.renewals
        for partition, (data, error) in outcomes.items():
            runs, outcome = carried[partition], judge_partition(error)
            if error is None:
                partition.renew_failures = 0
                renewals.on_renewed(partition, runs, sent_at, lock_s)
            elif outcome is PartitionOutcome.MOVED:
                self._on_moved(partition, error, data, answer)
            elif outcome is PartitionOutcome.FATAL:
                self._leader.fail(error)
            elif outcome is PartitionOutcome.INVALID:
                # All locks of the partition may have ended, because its leader was away.
                self._updater.request_update([partition.tp.topic])
                # A group that refused renewals before refuses those of its own locks, too.
                if renewals.are_refused or not self._lose_doubted(partition, error):
                    renewals.on_invalid(partition, runs, error, is_allowed=is_allowed)
            elif outcome is PartitionOutcome.AGAIN:
                self._renew_later(partition, error)
            else:
                self._on_renewal_refused(partition, runs, error)

    def _on_renewal_refused(
        self, partition: SharePartition, runs: Iterable[Run], error: KafkaError
    ) -> None:
        self._engine.renewals.on_refused(runs, error)
        self._renew_later(partition, error)

    def _renew_later(self, partition: SharePartition, error: KafkaError) -> None:
        delay_s = self._compute_delay_s(partition.renew_failures)
        partition.renew_at = self._clock.monotonic() + delay_s
        partition.renew_failures += 1
        self._leader.note_error(error)

    def _compute_delay_s(self, failures: int) -> float:
        return self._backoff.compute_delay_s(failures, self._clock.rng)

    # -- what becomes of locks

    def _confirm_run(self, run: Run, now: float) -> None:
        acquisition = run.acquisition
        if acquisition.find_deadline(acquisition.first + run.start) > now:
            self._engine.settlements.confirm_run(run)
        else:
            self._lose_run(run, "expired", confirmed=True)

    def _lose_run(
        self,
        run: Run,
        reason: Reason,
        cause: KafkaError | None = None,
        *,
        confirmed: bool | None = False,
    ) -> None:
        self._engine.settlements.lose_run(run, reason, confirmed, cause)

    def _refuse_runs(self, runs: Iterable[Run], error: KafkaError) -> None:
        for run in runs:
            self._engine.settlements.refuse_run(run, error)

    def _lose_doubted(self, partition: SharePartition, error: KafkaError) -> bool:
        """Lose the locks that an earlier leader may have given. Return whether there were any."""
        doubted = [each for each in partition.acquisitions if each.is_doubted]
        for acquisition in doubted:
            acquisition.is_doubted = False
            self._lose_runs(partition, acquisition.find_open_runs(), "moved", error)
        return bool(doubted)

    def _lose_partition(
        self, partition: SharePartition, reason: Reason, cause: KafkaError | None = None
    ) -> None:
        """Lose all locks of a partition. What is in flight is left to an answer that may come."""
        self._lose_runs(partition, partition.find_open_runs(), reason, cause)
        partition.remove_finished()

    def _lose_runs(
        self,
        partition: SharePartition,
        runs: Iterable[Run],
        reason: Reason,
        cause: KafkaError | None = None,
    ) -> None:
        awaited = self._in_flight.get(partition) if self._leader.is_connected() else None
        for run in list(runs):
            for part in split_by_sent(run):
                if not part.acquisition.states[part.start] & LockState.SENT:
                    self._lose_run(part, reason, cause)
                elif awaited is None:
                    unknown = reason == "disconnected"
                    self._lose_run(part, reason, cause, confirmed=None if unknown else False)

    def lose_all(self, reason: Reason, cause: KafkaError | None = None) -> None:
        """Lose all locks at this leader."""
        for partition in list(self._list_all()):
            self._lose_partition(partition, reason, cause)

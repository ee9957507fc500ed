"""The requests to one leader: one at a time, in one session, on a connection of its own.

A broker ties a session to the connection that opened it, and answers the requests of a connection
in order. So this consumer shares its connection to a leader with nothing else, and while a fetch
waits at the broker for records, nothing can be sent. A fetch waits at most `fetch_max_wait_ms`, and
less if a lock has to be renewed, or ends, before that.

Each turn sends the first of these that there is:

1. renewals of locks,
2. acknowledgements with a fetch, or alone if no record is wanted,
3. a fetch that acquires nothing, to open a session for acknowledgements, or to make the broker
   forget partitions that are no longer fetched here.

`session` has the meaning of each answer, and `locks` the life of a record. After an error, the
request is repeated later: that of a partition alone, or, if the error concerns the session or the
connection, every one but renewals, which go on as long as there is a session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from aiokclient.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from aiokclient.share.locks import (
    Acquisition,
    LockEvent,
    LockState,
    Reason,
    Run,
)
from aiokclient.share.partition import SharePartition, split_by_deadline, split_by_sent
from aiokclient.share.session import (
    NOTHING,
    REOPENING,
    UNCOUNTED,
    FetchSize,
    PartitionOutcome,
    SessionOutcome,
    ShareSession,
    choose_reason,
    judge_partition,
    judge_session,
    read_acknowledged,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.network.connection import BrokerConnection
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.renewals import Renewals
    from aiokclient.types import TopicPartition

Carried: TypeAlias = "Mapping[SharePartition, list[Run]]"
"""The acknowledgements, or renewals, in a request, by partition."""

RENEWS_FROM: Final = 2
"""The first version of the requests with renewals and with a limit of records."""

NO_RENEWALS: Final = "The broker does not renew locks (KIP-1222), as Kafka 4.2 does."

SHORTEST_WAIT_MS: Final = 1

LEADER_CODES: Final = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)
"""The codes with which an answer names the leader of a partition."""


class ShareLeader:
    """The requests of one share consumer to one leader.

    Others set `wake` after changes that may affect the next request.
    """

    def __init__(self, node_id: int, engine: ShareEngine) -> None:
        self.node_id = node_id
        self._engine = engine
        self._renewals: Renewals = engine.renewals
        self._cluster = engine.cluster
        self._clock = engine.cluster.clock
        self._config = config = engine.config
        self.wake = engine.new_wakeup()
        self._session = ShareSession(engine.group_id, engine.member_id)
        self._partitions: dict[TopicPartition, SharePartition] = {}
        self._connection: BrokerConnection | None = None
        self._in_flight: Carried = {}
        """The acknowledgements in the request in flight."""
        self._attempts = Attempts(math.inf, Backoff.of(config), self._clock)
        self._retry_at = -math.inf
        """The time before which nothing is sent after an error, except renewals."""
        self._throttled_until = -math.inf
        """The time before which the broker reads nothing."""
        self._fatal: KafkaError | None = None
        """The error with which the consumer fails."""
        self.asked = 0
        """The largest number of records that the fetch in flight can acquire."""
        self._asked_at = -math.inf
        """The time of the last fetch of records."""
        self._is_busy = False
        """Whether a request is in flight, or a connection is opened for one."""
        self._answered_by = math.inf
        """The time by which the fetch in flight is answered, infinity if there is none."""
        self.is_closing = False
        self.ended = engine.new_wakeup()
        """A flag that is set when the session has ended after `close`."""
        self.trouble: KafkaError | None = None
        """The error of the last request, if it has failed."""
        self._timeout_s = (config.request_timeout_ms + config.fetch_max_wait_ms) / 1000

    @property
    def partitions(self) -> Mapping[TopicPartition, SharePartition]:
        return self._partitions

    @property
    def fetches(self) -> bool:
        """Whether any partition is to be fetched from this leader."""
        return any(each.is_assigned for each in self._partitions.values())

    def list_acquisitions(self) -> Iterator[Acquisition]:
        """Yield what is acquired here and not final."""
        for partition in self._list_partitions():
            yield from partition.acquisitions

    def _list_partitions(self) -> Iterable[SharePartition]:
        """Return the partitions, and those that were replaced while a request is in flight."""
        if not self._in_flight:
            return self._partitions.values()
        return dict.fromkeys([*self._partitions.values(), *self._in_flight])

    def count_waiting(self) -> int:
        """Return the number of offsets that are acquired here and not delivered."""
        return self.count_state(LockState.WAITING)

    def count_state(self, state: LockState) -> int:
        """Return the number of offsets in this state, which has no type."""
        return sum([each.count_state(state) for each in self.list_acquisitions()])

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
        self.wake.set()

    def note_epoch(self, partition: SharePartition, leader_epoch: int) -> None:
        """Lose the locks of a partition that other brokers have led since their acquisition.

        Each change of the leader begins an epoch, so two have begun when the leader is back.
        """
        for acquisition in list(partition.acquisitions):
            if 0 <= acquisition.leader_epoch < leader_epoch - 1:
                self._lose_runs(partition, acquisition.find_open_runs(), "moved")

    def find_answer_time(self, partition: SharePartition) -> float:
        """Return the time by which a fetch of the partition is answered, infinity without one."""
        return self._answered_by if self._session.has_partition(partition) else math.inf

    def remove_partition(self, tp: TopicPartition, *, moved: bool = False) -> None:
        """Fetch a partition from this leader no longer. If it has `moved`, its locks are lost."""
        found = self._partitions.get(tp)
        if found is not None:
            found.is_assigned = False
            if moved:
                self._lose_partition(found, "moved")
            self.wake.set()

    def close(self) -> None:
        """Send what is settled, end the session, and send nothing more. Synchronous."""
        self.is_closing = True
        self.wake.set()

    # -- turns

    async def run(self) -> None:
        """Send requests until there is nothing to fetch or to acknowledge at this leader."""
        while await self._take_turn():
            pass
        await self.end_session(self._timeout_s)

    async def _take_turn(self) -> bool:
        self._forget_finished()
        if self.is_closing or not self._partitions:
            return False
        now = self._clock.monotonic()
        if self._throttled_until > now:
            await self.wake.wait(self._throttled_until)
            return True
        resume_at = self._find_retry_time(now)
        if resume_at > now:
            await self.wake.wait(min(resume_at, max(self._find_renewal_time(), now)))
            return True
        if not self._has_work(now):
            await self.wake.wait(self._find_next_time(now))
            return True
        self._is_busy = True
        try:
            connection = await self._connect()
            if not self.is_closing:
                await self._send_next(connection)
        except KafkaError as error:
            if error is self._fatal:
                raise
            self._on_request_error(error)
        finally:
            self._is_busy = False
        return True

    def precedes(self, other: ShareLeader) -> bool:
        """Return whether this leader can be asked for records now, and was not asked for longer."""
        now = self._clock.monotonic()
        if self._is_busy or self.is_closing or self._asked_at >= other._asked_at:
            return False
        if self.count_waiting() or max(self._throttled_until, self._retry_at) > now:
            return False
        return bool(self._list_wanted(now))

    def _find_retry_time(self, now: float) -> float:
        """Return the time before which nothing is sent after an error. Renewals do not wait."""
        if self._retry_at > now and self._has_session() and any(self._find_to_renew(now).values()):
            return -math.inf
        return self._retry_at

    def _find_renewal_time(self) -> float:
        """Return the time at which a renewal is due in the present session."""
        return self._engine.find_renewal_time(self) if self._has_session() else math.inf

    def _has_session(self) -> bool:
        return self._is_connected() and self._session.is_open

    def _forget_finished(self) -> None:
        for tp, partition in list(self._partitions.items()):
            partition.remove_finished()
            # A partition that is still in the session is forgotten by the next fetch.
            is_known = self._is_connected() and self._session.has_partition(partition)
            if not (partition.is_assigned or partition.has_open() or is_known):
                del self._partitions[tp]

    def _is_connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def _has_work(self, now: float) -> bool:
        if any(each.has_settled and each.settle_at <= now for each in self._partitions.values()):
            return True
        if self._is_to_forget() or any(self._find_to_renew(now).values()):
            return True
        return bool(self._list_wanted(now)) and self._engine.compute_fetch_size(self) is not None

    def _is_to_forget(self) -> bool:
        """Return whether the broker has partitions in the session that are not to be fetched."""
        has = self._session.has_partition
        return any(not each.is_assigned and has(each) for each in self._partitions.values())

    def _list_wanted(self, now: float) -> list[SharePartition]:
        return [
            each for each in self._partitions.values() if each.is_assigned and each.retry_at <= now
        ]

    def _find_next_time(self, now: float) -> float:
        """Return the time at which there may be something to send without a change."""
        retries = [
            each.retry_at
            for each in self._partitions.values()
            if each.is_assigned and each.retry_at > now
        ]
        retries += [each.settle_at for each in self._partitions.values() if each.has_settled]
        retries += [each.renew_at for each in self._partitions.values() if each.renew_at > now]
        return min([*retries, self._engine.find_renewal_time(self)])

    def _find_to_renew(self, now: float) -> Carried:
        found: dict[SharePartition, list[Run]] = {}
        for partition in self._partitions.values():
            if partition.renew_at > now:
                continue
            runs = self._engine.find_to_renew(partition, now)
            if runs:
                found[partition] = runs
        return found

    async def _connect(self) -> BrokerConnection:
        connection = self._connection
        if connection is None or connection.closed:
            connection = await self._cluster.connect(self.node_id, Purpose.FETCH, self._engine)
            self._connection = connection
            self._session.reset()
            callbacks = self._engine.supervisor.callbacks
            connection.on_close(callbacks.guard_function(self._on_connection_closed))
        return connection

    async def _send_next(self, connection: BrokerConnection) -> None:
        now = self._clock.monotonic()
        version = connection.broker.version_of(ShareFetchRequest)
        wanted = self._list_wanted(now)
        if not self._session.is_open:
            opening = wanted or [each for each in self._partitions.values() if each.has_settled]
            size = self._choose_size(wanted, version, now)
            await self._send_fetch(connection, opening, {}, size)
            return
        renewals = self._find_to_renew(now)
        if renewals and version >= RENEWS_FROM:
            await self._send_renewal(connection, renewals)
            return
        for runs in renewals.values():
            error = UnsupportedVersionError(
                NO_RENEWALS, api="ShareAcknowledge", broker=self.node_id
            )
            self._renewals.on_forbidden(runs, error)
        size = self._choose_size(wanted, version, now)
        settled = self._take_settled(now)
        # A fetch adds the partitions whose acknowledgements it carries to the session, for good.
        # And the parts of a refused acknowledgement must not wait for records, one after another.
        carried = {
            each: runs for each, runs in settled.items() if each in wanted and not each.is_split
        }
        if (size is NOTHING and settled) or len(carried) < len(settled):
            await self._send_acknowledgement(connection, settled)
        elif size is not NOTHING or self._is_to_forget():
            await self._send_fetch(connection, wanted, carried, size)

    def _choose_size(self, wanted: Sequence[SharePartition], version: int, now: float) -> FetchSize:
        size = self._engine.compute_fetch_size(self) if wanted else None
        if size is None:
            return NOTHING
        due_s = min(self._engine.find_renewal_time(self), self._engine.find_expiry_time()) - now
        if due_s < size.max_wait_ms / 1000:
            size = size._replace(max_wait_ms=max(int(due_s * 1000), SHORTEST_WAIT_MS))
        return size if version >= RENEWS_FROM else size._replace(mode=0)

    def _take_settled(self, now: float) -> Carried:
        self._engine.settle_passed()
        found: dict[SharePartition, list[Run]] = {}
        for partition in self._partitions.values():
            if not partition.has_settled or partition.settle_at > now:
                continue
            due, expired = partition.take_settled(now)
            for run in expired:
                self._lose_run(run, "expired")
            if due:
                found[partition] = due
        return found

    # -- requests

    async def _send_fetch(
        self,
        connection: BrokerConnection,
        wanted: Sequence[SharePartition],
        carried: Carried,
        size: FetchSize,
    ) -> None:
        request = self._session.make_fetch(wanted, carried, size)
        sent_at = self._clock.monotonic()
        if size is not NOTHING:
            self._asked_at, self.asked = sent_at, size.max_records
            self._answered_by = sent_at + size.max_wait_ms / 1000
        try:
            answer = await self._send(connection, request, carried, LockEvent.SEND)
        finally:
            self.asked, self._answered_by = 0, math.inf
            self._engine.on_fetch_end()
        if self._apply_session_code(answer, "ShareFetch", carried):
            self._apply_fetch(answer, carried, sent_at)

    async def _send_acknowledgement(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_acknowledgement(carried)
        answer = await self._send(connection, request, carried, LockEvent.SEND)
        if self._apply_session_code(answer, "ShareAcknowledge", carried):
            self._apply_acknowledged(answer, carried, self._clock.monotonic())

    async def _send_renewal(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_renewal(carried)
        sent_at = self._clock.monotonic()
        answer = await self._send(connection, request, carried, None)
        if self._apply_session_code(answer, "ShareAcknowledge", {}, carried):
            self._apply_renewal(answer, carried, sent_at)

    async def _send(
        self, connection: BrokerConnection, request: Any, carried: Carried, event: LockEvent | None
    ) -> Any:
        """Send a request, and return the answer. Raises the error of the connection."""
        if event is not None:
            for runs in carried.values():
                for run in runs:
                    run.apply_event(event)
            self._in_flight = carried
        try:
            answer = await connection.send(request, timeout_s=self._timeout_s)
        except KafkaError:
            if not connection.closed:  # Then the request was never written.
                for partition, runs in carried.items():
                    partition.return_runs(runs)
            raise
        finally:
            self._in_flight = {}
        # The connection would hold requests, and write them though locks have ended meanwhile.
        if answer.throttle_time_ms > 0:
            self._throttled_until = self._clock.monotonic() + answer.throttle_time_ms / 1000
        return answer

    async def end_session(self, timeout: float) -> None:
        """Send what is settled, release the rest, and end the session, within `timeout` seconds.

        A failure is only logged: the broker releases everything when the connection is closed.
        """
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            async with asyncio.timeout(timeout):
                while self._has_settled() and not connection.closed:
                    await self._send_settled(connection)
                if self._session.is_open:
                    request = self._session.make_last({})
                    self._session.reset()
                    await connection.send(request, timeout_s=timeout)
        except (KafkaError, TimeoutError) as error:
            text, extra = (
                "Could not end the share session at broker %d: %r",
                {"event": "share_session_end_failed"},
            )
            self._engine.log.info(text, self.node_id, error, extra=extra)

    def _has_settled(self) -> bool:
        return any(each.has_settled for each in self._partitions.values())

    async def _send_settled(self, connection: BrokerConnection) -> None:
        """Send what is settled when it is time, in a new session if there is none."""
        now = self._clock.monotonic()
        held_until = [each.settle_at for each in self._partitions.values() if each.has_settled]
        resume_at = max(self._retry_at, self._throttled_until, min(held_until))
        if resume_at > now:
            await asyncio.sleep(resume_at - now)
        elif not self._session.is_open:
            opening = [each for each in self._partitions.values() if each.has_settled]
            await self._send_fetch(connection, opening, {}, NOTHING)
        elif settled := self._take_settled(now):
            await self._send_acknowledgement(connection, settled)

    # -- answers

    def _apply_session_code(
        self, answer: Any, api: str, carried: Carried, renewed: Carried = MappingProxyType({})
    ) -> bool:
        """Apply the code at the top level of an answer. Return whether there is more to apply."""
        error = error_for(answer.error_code, answer.error_message, api=api, broker=self.node_id)
        outcome = judge_session(error)
        was_open = self._session.is_open
        if outcome not in UNCOUNTED:
            self._session.count_request()
        if error is None:
            if was_open:  # Opening a session alone does not show that it lasts.
                self._attempts.start_over()
            self.trouble = None
            return True
        if outcome is SessionOutcome.FATAL:
            self._fail(error)
        if outcome in REOPENING:
            self._session.reset()
            self._engine.on_session_reset(self.node_id, error)
        if outcome is SessionOutcome.ENDED:
            self._lose_all("session")
        elif outcome in (SessionOutcome.REFUSED, SessionOutcome.UNCLEAR):
            for runs in carried.values():
                self._refuse_runs(runs, error)
            for partition, runs in renewed.items():
                self._on_renewal_refused(partition, runs, error)
        else:
            is_certain = outcome is SessionOutcome.LIMITED  # It was refused before anything else.
            for partition, runs in carried.items():
                partition.return_runs(runs, is_certain=is_certain)
        if outcome not in (SessionOutcome.ENDED, SessionOutcome.REOPENED) or self._attempts.attempt:
            self._back_off(error)
        else:
            self._attempts.next_attempt()
        return False

    def _apply_fetch(self, answer: ShareFetchResponse, carried: Carried, sent_at: float) -> None:
        now = self._clock.monotonic()
        self._engine.on_fetched(answer, sent_at, now)
        lock_s = (answer.acquisition_lock_timeout_ms or self._engine.lock_timeout_ms or 0) / 1000
        found: list[tuple[SharePartition, PartitionData]] = []
        for topic in answer.responses:
            for data in topic.partitions:
                partition = self._session.find_partition(topic.topic_id, data.partition_index)
                if partition is not None:
                    found.append((partition, data))
        self._apply_acknowledged(answer, carried, now)
        for partition, data in found:
            self._apply_data(partition, data, sent_at + lock_s, lock_s, answer)
        if answer.throttle_time_ms and not any(data.acquired_records for _, data in found):
            self._engine.on_throttled(answer.throttle_time_ms)

    def _apply_data(
        self,
        partition: SharePartition,
        data: PartitionData,
        deadline: float,
        lock_s: float,
        answer: ShareFetchResponse,
    ) -> None:
        error = error_for(
            data.error_code,
            data.error_message,
            api="ShareFetch",
            broker=self.node_id,
            topic_partition=partition.tp,
        )
        if error is not None:
            self._on_partition_error(partition, error, data, answer)
            return
        partition.failures = 0
        if not data.acquired_records:
            return
        now = self._clock.monotonic()
        for acquired in data.acquired_records:
            first, last = acquired.first_offset, acquired.last_offset
            for run, reason in partition.find_ended(first, last, now):
                self._lose_run(run, reason)
                if reason == "moved":
                    self._cluster.updater.request_update([partition.tp.topic])
        self._engine.reader.add_part(partition, data, deadline, lock_s)

    def _on_partition_error(
        self, partition: SharePartition, error: KafkaError, data: PartitionData, answer: Any
    ) -> None:
        """Fetch the partition again later, from the same leader or from another one."""
        outcome = judge_partition(error)
        if outcome is PartitionOutcome.FATAL:
            self._fail(error)
        if outcome is PartitionOutcome.MOVED:
            self._on_moved(partition, error, data, answer)
        delay_s = self._attempts.backoff.compute_delay_s(partition.failures, self._clock.rng)
        partition.failures += 1
        partition.retry_at = self._clock.monotonic() + delay_s
        self._engine.log_partition_error(partition.tp, error)

    def _on_moved(
        self, partition: SharePartition, error: KafkaError, data: Any, answer: Any
    ) -> None:
        """Lose the locks of a partition that this broker does not lead, and find its leader."""
        self._lose_partition(partition, choose_reason(error, data, self.node_id), error)
        self._apply_hint(partition, error, data, answer)
        self._cluster.updater.request_update([partition.tp.topic])

    def _apply_hint(
        self, partition: SharePartition, error: KafkaError, data: Any, answer: Any
    ) -> None:
        """Apply the new leader that an answer names (KIP-951)."""
        leader = data.current_leader
        # With other codes, brokers leave 0 in both fields.
        if error.code in LEADER_CODES and leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = answer.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._cluster.updater.apply_hint(
                *partition.tp, leader.leader_id, leader.leader_epoch, endpoints
            )

    def _apply_acknowledged(self, answer: Any, carried: Carried, now: float) -> None:
        """Apply the outcomes of acknowledgements, in the order in which they were sent."""
        outcomes = read_acknowledged(answer, carried, self.node_id)
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
            self._note_error(error)
        else:
            self._refuse_runs(runs, error)
            if outcome is PartitionOutcome.FATAL:
                self._fail(error)

    def _compute_delay_s(self, failures: int) -> float:
        return self._attempts.backoff.compute_delay_s(failures, self._clock.rng)

    def _apply_renewal(
        self, answer: ShareAcknowledgeResponse, carried: Carried, sent_at: float
    ) -> None:
        lock_s = answer.acquisition_lock_timeout_ms / 1000
        outcomes = read_acknowledged(answer, carried, self.node_id)
        is_allowed = any(error is None for _, error in outcomes.values())
        for partition, (data, error) in outcomes.items():
            runs, outcome = carried[partition], judge_partition(error)
            if error is None:
                partition.renew_failures = 0
                self._renewals.on_renewed(partition, runs, sent_at, lock_s)
            elif outcome is PartitionOutcome.MOVED:
                self._on_moved(partition, error, data, answer)
            elif outcome is PartitionOutcome.FATAL:
                self._fail(error)
            elif outcome is PartitionOutcome.INVALID:
                # All locks of the partition may have ended, because its leader was away.
                self._cluster.updater.request_update([partition.tp.topic])
                self._renewals.on_invalid(partition, runs, error, is_allowed=is_allowed)
            elif outcome is PartitionOutcome.AGAIN:
                self._renew_later(partition, error)
            else:
                self._on_renewal_refused(partition, runs, error)

    def _on_renewal_refused(
        self, partition: SharePartition, runs: Iterable[Run], error: KafkaError
    ) -> None:
        self._renewals.on_refused(runs, error)
        self._renew_later(partition, error)

    def _renew_later(self, partition: SharePartition, error: KafkaError) -> None:
        delay_s = self._compute_delay_s(partition.renew_failures)
        partition.renew_at = self._clock.monotonic() + delay_s
        partition.renew_failures += 1
        self._note_error(error)

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
        awaited = self._in_flight.get(partition) if self._is_connected() else None
        for run in list(runs):
            for part in split_by_sent(run):
                if not part.acquisition.states[part.start] & LockState.SENT:
                    self._lose_run(part, reason, cause)
                elif awaited is None:
                    unknown = reason == "disconnected"
                    self._lose_run(part, reason, cause, confirmed=None if unknown else False)

    def _lose_all(self, reason: Reason, cause: KafkaError | None = None) -> None:
        for partition in list(self._list_partitions()):
            self._lose_partition(partition, reason, cause)

    # -- errors

    def _on_connection_closed(
        self, connection: BrokerConnection, reason: KafkaError | None
    ) -> None:
        if connection is not self._connection:
            return
        self._session.reset()
        had_open = any(each.has_open() for each in self._partitions.values())
        self._lose_all("disconnected", reason)
        if had_open and not self.is_closing:
            self._engine.on_session_reset(self.node_id, None)
        self.wake.set()

    def _on_request_error(self, error: KafkaError) -> None:
        if error.code == UnsupportedVersionError.code:
            self._fail(error)
        if classify(error, Scope.FETCH) is Decision.REFRESH_AND_RETRY:
            self._cluster.updater.request_update(
                list(dict.fromkeys(tp.topic for tp in self._partitions))
            )
        self._back_off(error)

    def _fail(self, error: KafkaError) -> NoReturn:
        """Fail the consumer with this error."""
        self._fatal = error
        raise error

    def _back_off(self, error: KafkaError) -> None:
        delay_s = self._attempts.take_pause_after_s(error, Scope.FETCH)
        self._retry_at = self._clock.monotonic() + delay_s
        self._note_error(error)

    def _note_error(self, error: KafkaError) -> None:
        self.trouble = error
        text, extra = "A request to broker %d failed: %s", {"event": "share_request_failed"}
        self._engine.limited_log.write(
            logging.INFO,
            ("share", self.node_id, error.code),
            text,
            self.node_id,
            error,
            extra=extra,
        )

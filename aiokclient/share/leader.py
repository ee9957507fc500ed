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

`outcomes` has the meaning of each answer, and `locks` the life of a record.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.errors import KafkaError, UnsupportedVersionError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.share_acknowledge import (
    ShareAcknowledgeResponse,
)
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
from aiokclient.share.outcomes import (
    UNCOUNTED,
    PartitionOutcome,
    SessionOutcome,
    judge_partition,
    judge_session,
)
from aiokclient.share.partition import SharePartition, split_by_deadline
from aiokclient.share.session import NOTHING, FetchSize, ShareSession

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.network.connection import BrokerConnection
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.renewals import Renewals
    from aiokclient.types import TopicPartition

Carried: TypeAlias = "dict[SharePartition, list[Run]]"
"""The acknowledgements, or renewals, in a request, by partition."""

RENEWS_FROM: Final = 2
"""The first version of the requests with renewals and with a limit of records."""

SHORTEST_WAIT_MS: Final = 1


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
        """What the request in flight acknowledges."""
        self._attempts = Attempts(math.inf, Backoff.of(config), self._clock)
        self._retry_at = -math.inf
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
        for partition in self._partitions.values():
            yield from partition.acquisitions

    def count_waiting(self) -> int:
        """Return the number of offsets that are acquired here and not delivered."""
        return sum(each.count_state(LockState.WAITING) for each in self.list_acquisitions())

    # -- partitions

    def add_partition(self, tp: TopicPartition, topic_id: UUID) -> None:
        """Fetch a partition from this leader."""
        found = self._partitions.get(tp)
        if found is not None and found.topic_id != topic_id:
            self._lose_partition(found, "moved")
            found = None
        if found is None:
            found = self._partitions[tp] = SharePartition(tp, topic_id, self._clock)
        found.is_assigned = True
        self.wake.set()

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
        if self._retry_at > now:
            await self.wake.wait(self._retry_at)
            return True
        if not self._has_work(now):
            await self.wake.wait(self._find_next_time(now))
            return True
        try:
            connection = await self._connect()
            if not self.is_closing:
                await self._send_next(connection)
        except KafkaError as error:
            self._on_request_error(error)
        return True

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
        if any(partition.has_settled for partition in self._partitions.values()):
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
        return min([*retries, self._engine.find_renewal_time(self)])

    def _find_to_renew(self, now: float) -> Carried:
        found: Carried = {}
        for partition in self._partitions.values():
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
            await self._send_fetch(connection, wanted, {}, self._choose_size(wanted, version, now))
            return
        if version >= RENEWS_FROM and (renewals := self._find_to_renew(now)):
            await self._send_renewal(connection, renewals)
            return
        size = self._choose_size(wanted, version, now)
        settled = self._take_settled(now)
        # A fetch adds the partitions whose acknowledgements it carries to the session.
        carried = {each: runs for each, runs in settled.items() if each.is_assigned}
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
        found: Carried = {}
        for partition in self._partitions.values():
            if not partition.has_settled:
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
        self._engine.meters.on_fetch_sent()
        answer = await self._send(connection, request, carried, LockEvent.SEND)
        if self._apply_session_code(answer, carried, "ShareFetch"):
            self._apply_fetch(answer, carried, sent_at)

    async def _send_acknowledgement(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_acknowledgement(carried)
        answer = await self._send(connection, request, carried, LockEvent.SEND)
        if self._apply_session_code(answer, carried, "ShareAcknowledge"):
            self._apply_acknowledgement(answer, carried)

    async def _send_renewal(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_renewal(carried)
        sent_at = self._clock.monotonic()
        answer = await self._send(connection, request, carried, None)
        if self._apply_session_code(answer, {}, "ShareAcknowledge"):
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
            return await connection.send(request, timeout_s=self._timeout_s)
        finally:
            self._in_flight = {}

    async def end_session(self, timeout: float) -> None:
        """Send what is settled, release the rest, and end the session, within `timeout` seconds.

        A failure is only logged: the broker releases everything when the connection is closed.
        """
        connection = self._connection
        if connection is None or connection.closed or not self._session.is_open:
            return
        try:
            async with asyncio.timeout(timeout):
                now = self._clock.monotonic()
                while settled := self._take_settled(now):
                    await self._send_acknowledgement(connection, settled)
                request = self._session.make_last({})
                self._session.reset()
                await connection.send(request, timeout_s=timeout)
        except (KafkaError, TimeoutError) as error:
            text, extra = (
                "Could not end the share session at broker %d: %r",
                {"event": "share_session_end_failed"},
            )
            self._engine.log.info(text, self.node_id, error, extra=extra)

    # -- answers

    def _apply_session_code(self, answer: Any, carried: Carried, api: str) -> bool:
        """Apply the code at the top level of an answer. Return whether there is more to apply."""
        error = error_for(answer.error_code, answer.error_message, api=api, broker=self.node_id)
        outcome = judge_session(error)
        if outcome not in UNCOUNTED:
            self._session.count_request()
        if outcome is SessionOutcome.OPEN:
            self._attempts.start_over()
            self.trouble = None
            return True
        assert error is not None
        if outcome is SessionOutcome.FATAL:
            self._engine.on_fatal(error)
        if outcome is SessionOutcome.REFUSED:
            for runs in carried.values():
                self._refuse_runs(runs, error)
        elif outcome is SessionOutcome.ENDED:
            self._session.reset()
            self._lose_all("session")
            self._engine.on_session_reset(self.node_id, outcome)
        else:
            if outcome is not SessionOutcome.AGAIN:
                self._session.reset()
                self._engine.on_session_reset(self.node_id, outcome)
            for partition, runs in carried.items():
                partition.return_runs(runs)
        if outcome is not SessionOutcome.ENDED or self._attempts.attempt:
            self._back_off(error)
        else:
            self._attempts.next_attempt()
        return False

    def _apply_fetch(self, answer: ShareFetchResponse, carried: Carried, sent_at: float) -> None:
        now = self._clock.monotonic()
        lock_s = answer.acquisition_lock_timeout_ms / 1000
        self._engine.on_fetched(answer, sent_at, now)
        left = dict(carried)
        for topic in answer.responses:
            for data in topic.partitions:
                partition = self._session.find_partition(topic.topic_id, data.partition_index)
                if partition is None:
                    continue
                runs = left.pop(partition, None)
                if runs is None and data.acknowledge_error_code and partition in carried:
                    runs = carried[partition]
                if runs is not None:
                    error = error_for(
                        data.acknowledge_error_code,
                        data.acknowledge_error_message,
                        api="ShareFetch",
                        broker=self.node_id,
                        topic_partition=partition.tp,
                    )
                    self._apply_partition(partition, runs, error, data, now)
                self._apply_data(partition, data, sent_at + lock_s, lock_s, answer)
        self._refuse_unanswered(left, "ShareFetch")
        if answer.throttle_time_ms and not any(
            data.acquired_records for topic in answer.responses for data in topic.partitions
        ):
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
        if data.acquired_records:
            self._engine.reader.add_part(partition, data, deadline, lock_s)

    def _on_partition_error(
        self,
        partition: SharePartition,
        error: KafkaError,
        data: PartitionData,
        answer: ShareFetchResponse,
    ) -> None:
        """Fetch the partition again later, from the same leader or from another one."""
        outcome = judge_partition(error)
        if outcome is PartitionOutcome.FATAL:
            self._engine.on_fatal(error)
        if outcome is PartitionOutcome.MOVED:
            self._lose_partition(partition, self._choose_reason(error, data))
            self._apply_hint(partition, data, answer)
            self._cluster.updater.request_update([partition.tp.topic])
        delay_s = self._attempts.backoff.compute_delay_s(partition.failures, self._clock.rng)
        partition.failures += 1
        partition.retry_at = self._clock.monotonic() + delay_s
        self._engine.log_partition_error(partition.tp, error)

    def _apply_hint(self, partition: SharePartition, data: Any, answer: Any) -> None:
        """Apply the new leader that an answer names (KIP-951)."""
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = answer.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._cluster.updater.apply_hint(
                *partition.tp, leader.leader_id, leader.leader_epoch, endpoints
            )

    def _apply_acknowledgement(self, answer: ShareAcknowledgeResponse, carried: Carried) -> None:
        now = self._clock.monotonic()
        left = dict(carried)
        for partition, data, error in self._list_answers(answer, carried):
            runs = left.pop(partition, None)
            if runs is not None:
                self._apply_partition(partition, runs, error, data, now)
                if judge_partition(error) is PartitionOutcome.MOVED:
                    self._apply_hint(partition, data, answer)
                    self._cluster.updater.request_update([partition.tp.topic])
        self._refuse_unanswered(left, "ShareAcknowledge")

    def _list_answers(
        self, answer: ShareAcknowledgeResponse, carried: Carried
    ) -> Iterator[tuple[SharePartition, Any, KafkaError | None]]:
        known = {(each.topic_id, each.tp.partition): each for each in carried}
        for topic in answer.responses:
            for data in topic.partitions:
                partition = known.get((topic.topic_id, data.partition_index))
                if partition is not None:
                    yield (
                        partition,
                        data,
                        error_for(
                            data.error_code,
                            data.error_message,
                            api="ShareAcknowledge",
                            broker=self.node_id,
                            topic_partition=partition.tp,
                        ),
                    )

    def _refuse_unanswered(self, left: Carried, api: str) -> None:
        for partition, runs in left.items():
            error = error_for(
                -1,
                "The answer does not contain the partition.",
                api=api,
                broker=self.node_id,
                topic_partition=partition.tp,
            )
            assert error is not None
            self._refuse_runs(runs, error)

    def _apply_partition(
        self,
        partition: SharePartition,
        runs: list[Run],
        error: KafkaError | None,
        data: Any,
        now: float,
    ) -> None:
        """Apply the answer to the acknowledgements of one partition."""
        outcome = judge_partition(error)
        if outcome is PartitionOutcome.APPLIED:
            for run in runs:
                for part in split_by_deadline(run, now):
                    self._confirm_run(part, now)
            return
        assert error is not None
        if outcome is PartitionOutcome.INVALID:
            if sum(run.length for run in runs) > 1:
                partition.split_runs(runs)
            else:
                for run in runs:
                    self._lose_run(run, "refused", error, confirmed=False)
        elif outcome is PartitionOutcome.MOVED:
            self._lose_partition(partition, self._choose_reason(error, data), error)
        elif outcome is PartitionOutcome.AGAIN:
            partition.return_runs(runs)
            self._back_off(error)
        else:
            self._refuse_runs(runs, error)
            if outcome is PartitionOutcome.FATAL:
                self._engine.on_fatal(error)

    def _choose_reason(self, error: KafkaError, data: Any) -> Reason:
        """Return why the locks of a partition are lost.

        The leader names itself if an operator has altered the offsets of the group, or deleted it.
        """
        fenced = error.code == 6 and data.current_leader.leader_id == self.node_id
        return "fenced" if fenced else "moved"

    def _apply_renewal(
        self, answer: ShareAcknowledgeResponse, carried: Carried, sent_at: float
    ) -> None:
        lock_s = answer.acquisition_lock_timeout_ms / 1000
        for partition, data, error in self._list_answers(answer, carried):
            runs = carried[partition]
            outcome = judge_partition(error)
            if outcome is PartitionOutcome.APPLIED:
                self._renewals.on_renewed(runs, sent_at, lock_s)
            elif outcome is PartitionOutcome.MOVED:
                assert error is not None
                self._lose_partition(partition, self._choose_reason(error, data), error)
            elif outcome is PartitionOutcome.FATAL:
                assert error is not None
                self._engine.on_fatal(error)
            elif outcome is PartitionOutcome.AGAIN:
                assert error is not None
                self._back_off(error)
            else:
                assert error is not None
                self._renewals.on_refused(runs, error)

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
        awaited = self._in_flight.get(partition) if self._is_connected() else None
        for run in list(partition.find_open_runs()):
            for part in _split_by_sent(run):
                if not part.acquisition.states[part.start] & LockState.SENT:
                    self._lose_run(part, reason, cause)
                elif awaited is None:
                    unknown = reason == "disconnected"
                    self._lose_run(part, reason, cause, confirmed=None if unknown else False)
        partition.remove_finished()

    def _lose_all(self, reason: Reason, cause: KafkaError | None = None) -> None:
        for partition in self._partitions.values():
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
        if isinstance(error, UnsupportedVersionError):
            self._engine.on_fatal(error)
        if classify(error, Scope.FETCH) is Decision.REFRESH_AND_RETRY:
            self._cluster.updater.request_update(
                list(dict.fromkeys(tp.topic for tp in self._partitions))
            )
        self._back_off(error)

    def _back_off(self, error: KafkaError) -> None:
        self.trouble = error
        delay_s = self._attempts.take_pause_after_s(error, Scope.FETCH)
        self._retry_at = self._clock.monotonic() + delay_s
        text, extra = "A request to broker %d failed: %s", {"event": "share_request_failed"}
        self._engine.limited_log.write(
            logging.INFO,
            ("share", self.node_id, error.code),
            text,
            self.node_id,
            error,
            extra=extra,
        )


def _split_by_sent(run: Run) -> Iterator[Run]:
    """Yield the parts of a run of open records, each of them in flight or not as a whole."""
    states = run.acquisition.states
    start = run.start
    for index in range(run.start + 1, run.stop + 1):
        if index == run.stop or (states[index] ^ states[start]) & LockState.SENT:
            yield run._replace(start=start, stop=index)
            start = index

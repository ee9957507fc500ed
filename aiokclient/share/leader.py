"""The requests to one leader: one at a time, in one session, on a connection of its own.

A broker ties a session to the connection that opened it, and answers the requests of a connection
in order. So this consumer shares its connection to a leader with nothing else, and while a fetch
waits at the broker for records, nothing can be sent. A fetch waits at most `fetch_max_wait_ms`, and
less if a lock has to be renewed, or ends, before that.

Each turn sends the first of these that there is:

1. renewals of locks,
2. a fetch that acquires nothing, to ask if a topic is gone,
3. acknowledgements with a fetch, or alone if no record is wanted,
4. a fetch that acquires nothing, to open a session for acknowledgements, or to make the broker
   forget partitions that are no longer fetched here.

`session` has the meaning of each answer, `leader_partitions` does what follows from it for the
partitions and their locks, and `locks` has the life of a record. After an error, the
request is repeated later: that of a partition alone, or, if the error concerns the session or the
connection, every one but renewals, which go on as long as there is a session.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aiokclient.errors import KafkaError, UnsupportedVersionError, error_for
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.share_fetch import (
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from aiokclient.share.leader_partitions import Carried, LeaderPartitions
from aiokclient.share.locks import Acquisition, LockState
from aiokclient.share.partition import SharePartition
from aiokclient.share.session import (
    NOTHING,
    REOPENING,
    UNCOUNTED,
    FetchSize,
    SessionOutcome,
    ShareSession,
    judge_session,
)

if TYPE_CHECKING:
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.share.engine import ShareEngine
    from aiokclient.share.renewals import Renewals

RENEWS_FROM: Final = 2
"""The first version of the requests with renewals and with a limit of records."""

NO_RENEWALS: Final = "The broker does not renew locks (KIP-1222), as Kafka 4.2 does."

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
        self.partitions = LeaderPartitions(self, engine)
        self._connection: BrokerConnection | None = None
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
    def fetches(self) -> bool:
        """Whether any partition is to be fetched from this leader."""
        return any(each.is_assigned for each in self.partitions.known)

    def list_acquisitions(self) -> Iterator[Acquisition]:
        """Yield what is acquired here and not final."""
        return self.partitions.list_acquisitions()

    def count_waiting(self) -> int:
        """Return the number of offsets that are acquired here and not delivered."""
        return self.count_state(LockState.WAITING)

    def count_state(self, state: LockState) -> int:
        """Return the number of offsets in this state, which has no type."""
        return sum([each.count_state(state) for each in self.list_acquisitions()])

    def find_answer_time(self, partition: SharePartition) -> float:
        """Return the time by which a fetch of the partition is answered, infinity without one."""
        return self._answered_by if self._session.has_partition(partition) else math.inf

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
        self.partitions.forget_finished()
        if self.is_closing or not self.partitions.known:
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
        return bool(self.partitions.list_wanted(now))

    def _find_retry_time(self, now: float) -> float:
        """Return the time before which nothing is sent after an error. Renewals do not wait."""
        if self._retry_at > now and self._has_session() and self.partitions.find_to_renew(now):
            return -math.inf
        return self._retry_at

    def _find_renewal_time(self) -> float:
        """Return the time at which a renewal is due in the present session."""
        if not self._has_session():
            return math.inf
        return self._engine.find_renewal_time(self.partitions)

    def _has_session(self) -> bool:
        return self.is_connected() and self._session.is_open

    def serves(self, partition: SharePartition) -> bool:
        """Return whether the broker has the partition in the present session."""
        return self.is_connected() and self._session.has_partition(partition)

    def is_connected(self) -> bool:
        """Return whether the connection of the session is open."""
        return self._connection is not None and not self._connection.closed

    def _has_work(self, now: float) -> bool:
        partitions = self.partitions
        if any(each.settle_at <= now for each in partitions.list_settled()):
            return True
        if self._is_to_forget() or partitions.list_doubted() or partitions.find_to_renew(now):
            return True
        return (
            bool(partitions.list_wanted(now)) and self._engine.compute_fetch_size(self) is not None
        )

    def _is_to_forget(self) -> bool:
        """Return whether the broker has partitions in the session that are not to be fetched."""
        has = self._session.has_partition
        return any(not each.is_assigned and has(each) for each in self.partitions.known)

    def _find_next_time(self, now: float) -> float:
        """Return the time at which there may be something to send without a change."""
        renewal_at = self._engine.find_renewal_time(self.partitions)
        return min(self.partitions.find_next_time(now), renewal_at)

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
        wanted = self.partitions.list_wanted(now)
        if not self._session.is_open:
            opening = wanted or self.partitions.list_settled()
            size = self._choose_size(wanted, version, now)
            await self._send_fetch(connection, opening, {}, size)
            return
        renewals = self.partitions.find_to_renew(now)
        if renewals and version >= RENEWS_FROM:
            await self._send_renewal(connection, renewals)
            return
        for runs in renewals.values():
            error = UnsupportedVersionError(
                NO_RENEWALS, api="ShareAcknowledge", broker=self.node_id
            )
            self._renewals.on_forbidden(runs, error)
        doubted = self.partitions.take_doubted()
        if doubted and version >= RENEWS_FROM:
            asked = list(dict.fromkeys([*wanted, *doubted]))
            await self._send_fetch(connection, asked, {}, NOTHING)
            return
        # Kafka 4.1 answers a session with a topic that is gone by UNKNOWN_SERVER_ERROR.
        self.partitions.lose_unassigned(doubted)
        size = self._choose_size(wanted, version, now)
        settled = self.partitions.take_settled(now)
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
        renewal_at = self._engine.find_renewal_time(self.partitions)
        due_s = min(renewal_at, self._engine.find_expiry_time()) - now
        if due_s < size.max_wait_ms / 1000:
            size = size._replace(max_wait_ms=max(int(due_s * 1000), SHORTEST_WAIT_MS))
        return size if version >= RENEWS_FROM else size._replace(mode=0)

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
        self.partitions.on_fetch(wanted)
        if size is not NOTHING:
            self._asked_at, self.asked = sent_at, size.max_records
            self._answered_by = sent_at + size.max_wait_ms / 1000
        try:
            answer = await self._send(connection, request, carried)
        finally:
            self.asked, self._answered_by = 0, math.inf
            self._engine.on_fetch_end()
        if self._apply_session_code(answer, "ShareFetch", carried):
            self._apply_fetch(answer, carried, sent_at)

    async def _send_acknowledgement(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_acknowledgement(carried)
        answer = await self._send(connection, request, carried)
        if self._apply_session_code(answer, "ShareAcknowledge", carried):
            self.partitions.apply_acknowledged(answer, carried, self._clock.monotonic())

    async def _send_renewal(self, connection: BrokerConnection, carried: Carried) -> None:
        request = self._session.make_renewal(carried)
        sent_at = self._clock.monotonic()
        answer = await self._send(connection, request, {})
        if self._apply_session_code(answer, "ShareAcknowledge", {}, carried):
            self.partitions.apply_renewal(answer, carried, sent_at)

    async def _send(self, connection: BrokerConnection, request: Any, carried: Carried) -> Any:
        """Send a request with acknowledgements, and return the answer.

        Raises the error of the connection.
        """
        self.partitions.mark_sent(carried)
        try:
            answer = await connection.send(request, timeout_s=self._timeout_s)
        except KafkaError:
            if not connection.closed:  # Then the request was never written.
                self.partitions.return_runs(carried)
            raise
        finally:
            self.partitions.end_flight()
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
                while self.partitions.list_settled() and not connection.closed:
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

    async def _send_settled(self, connection: BrokerConnection) -> None:
        """Send what is settled when it is time, in a new session if there is none."""
        now = self._clock.monotonic()
        opening = self.partitions.list_settled()
        held_until = [each.settle_at for each in opening]
        resume_at = max(self._retry_at, self._throttled_until, min(held_until))
        if resume_at > now:
            await asyncio.sleep(resume_at - now)
        elif not self._session.is_open:
            await self._send_fetch(connection, opening, {}, NOTHING)
        elif settled := self.partitions.take_settled(now):
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
            self.fail(error)
        if outcome in REOPENING:
            self._session.reset()
            self._engine.on_session_reset(self.node_id, error)
        if outcome is SessionOutcome.ENDED:
            self.partitions.lose_all("session")
        elif outcome in (SessionOutcome.REFUSED, SessionOutcome.UNCLEAR):
            self.partitions.refuse_request(carried, renewed, error)
        else:
            is_certain = outcome is SessionOutcome.LIMITED  # It was refused before anything else.
            self.partitions.return_runs(carried, is_certain=is_certain)
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
        self.partitions.apply_acknowledged(answer, carried, now)
        self.partitions.apply_fetch(found, answer, sent_at + lock_s, lock_s)
        if answer.throttle_time_ms and not any(data.acquired_records for _, data in found):
            self._engine.on_throttled(answer.throttle_time_ms)

    # -- errors

    def _on_connection_closed(
        self, connection: BrokerConnection, reason: KafkaError | None
    ) -> None:
        if connection is not self._connection:
            return
        self._session.reset()
        had_open = any(each.has_open() for each in self.partitions.known)
        self.partitions.lose_all("disconnected", reason)
        if had_open and not self.is_closing:
            self._engine.on_session_reset(self.node_id, None)
        self.wake.set()

    def _on_request_error(self, error: KafkaError) -> None:
        if error.code == UnsupportedVersionError.code:
            self.fail(error)
        if classify(error, Scope.FETCH) is Decision.REFRESH_AND_RETRY:
            topics = dict.fromkeys(each.tp.topic for each in self.partitions.known)
            self._cluster.updater.request_update(list(topics))
        self._back_off(error)

    def fail(self, error: KafkaError) -> NoReturn:
        """Fail the consumer with this error. Raises it."""
        self._fatal = error
        raise error

    def _back_off(self, error: KafkaError) -> None:
        delay_s = self._attempts.take_pause_after_s(error, Scope.FETCH)
        self._retry_at = self._clock.monotonic() + delay_s
        self.note_error(error)

    def note_error(self, error: KafkaError) -> None:
        """Log the error of a request, and keep it as the trouble of this leader."""
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

"""The background parts of one started share consumer.

The engine follows the assignment and the metadata, and gives each partition to the `ShareLeader` of
its leader. `LockWatch` acts when the time of a lock has come. `Demand` decides how many records are
to be acquired: as many as can be delivered within a quarter of a lock.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.background import Wakeup
from aiokclient.cluster.lifecycle.ownership import Anchor, for_background
from aiokclient.cluster.targets import Coordinator
from aiokclient.errors import KafkaError, error_for
from aiokclient.log.limited_log import LimitedLog
from aiokclient.metrics import Labels
from aiokclient.policy import Scope
from aiokclient.protocol.messages import describe_share_group_offsets as describing
from aiokclient.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from aiokclient.scopes import new_group
from aiokclient.share.delivery.reader import ShareReader
from aiokclient.share.leader import ShareLeader
from aiokclient.share.locks import DELIVERED_WITHIN, Acquisition, LockState, Run
from aiokclient.share.membership import ShareMembership
from aiokclient.share.meters import ShareMeters
from aiokclient.share.renewals import Renewals
from aiokclient.share.session import BATCHES, RECORD_LIMIT, FetchSize
from aiokclient.share.settlements import Settlements
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.config.share import ShareConsumerConfig
    from aiokclient.decoding.deserialize import Deserializers
    from aiokclient.network.event_hub import EventSource
    from aiokclient.protocol.messages.share_fetch import ShareFetchResponse
    from aiokclient.share.leader_partitions import LeaderPartitions
    from aiokclient.share.partition import SharePartition
    from aiokclient.share.share_consumer import ShareConsumer

LEADERS_S: Final = 0.5
"""The seconds between two updates of the metadata of a topic of which records are held."""

SELDOM_S: Final = 5.0
"""The seconds between two updates where fetches follow each other, and tell of most moves."""

LOOK_S: Final = 0.25
"""The seconds between two looks at the topics whose metadata is to be updated."""

START_S: Final = 3.0
"""The longest time, in seconds, that a start waits for the first assignment."""


class Demand:
    """The number of records that the application wants, by how fast it has taken the last ones."""

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self._taken = 0.0
        """The number of records that the application has taken lately."""
        self._taken_s = 0.0
        """The time that it has spent on them, in seconds."""
        self._delivered_at = -math.inf
        self._delivered = 0
        self.awaited = 0
        """The number of records that a waiting request wants."""
        self._places: int | None = None
        """The number of records that handlers may hold at a time, None if there is no limit."""
        self._full_at = math.inf
        """The time since when all places are taken, infinity if one is free."""
        self._room_s = math.inf
        """The time after which a place has become free lately, in seconds."""

    def on_delivery(self, count: int, now: float) -> None:
        """Record that this number of records is passed to the application."""
        self._delivered_at = now
        self._delivered = count

    def on_full(self) -> None:
        """Record that the application waits until a place is free."""
        self._full_at = min(self._full_at, self._clock.monotonic())

    def on_request(self, wanted: int, places: int | None) -> None:
        """Record that the application requests up to this number of records.

        `places` is the number of records that its handlers may hold at a time.
        """
        self._places = places
        if self._full_at < math.inf:
            waited_s, room_s = self._clock.monotonic() - self._full_at, self._room_s
            self._room_s = waited_s if room_s == math.inf else room_s * 0.7 + waited_s * 0.3
            self._full_at = math.inf
        if self._delivered:
            # Records and seconds of about the last time for which records may wait. A mean of the
            # times of single records would take a few that are released at once for a new pace.
            taken_s = self._clock.monotonic() - self._delivered_at
            kept = max(1.0 - taken_s / self._engine.find_waiting_time(), 0.0)
            self._taken = self._taken * kept + self._delivered
            self._taken_s = self._taken_s * kept + taken_s
            self._delivered = 0
        self.awaited = wanted

    def on_request_end(self) -> None:
        """Record that no request waits."""
        self.awaited = 0

    def compute_limit(self) -> int:
        """Return the number of records that may wait in the consumer now."""
        most = self._engine.config.max_poll_records
        within_s = self._engine.find_waiting_time()
        if self._places is not None:
            return min(most, self._count_places(self._places, within_s))
        rate = within_s * self._taken / max(self._taken_s, 1e-6)
        if not self.awaited and self._clock.monotonic() - self._delivered_at > within_s:
            rate = 0.0  # The application may have stopped to request records.
        return min(most, max(self.awaited, int(min(rate, most))))

    def _count_places(self, places: int, within_s: float) -> int:
        """Return the number of places that are free, or become so within this time.

        Handlers are started at once, so how fast they take records says nothing. More records would
        wait, be released, and come again until their delivery counts are exhausted.
        """
        now = self._clock.monotonic()
        if self.awaited:
            free = places - self._engine.settlements.count_held()
        elif self._full_at == math.inf and now - self._delivered_at > within_s:
            return 0  # The application may have stopped to request records.
        else:
            free = 0
        taken_s = max(self._room_s, now - self._full_at, 1e-6)
        return max(free, 0) + int(within_s / taken_s)


class LockWatch:
    """The task that acts when the time of a lock has come.

    It loses locks that have ended, releases records that have waited too long, and has locks
    renewed. Whatever brings an earlier time forward sets `changed`. What happens to most records
    does not: waking this task for each list of them would take as long as their delivery.
    """

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self.changed = engine.new_wakeup()
        self._checks_at = math.inf
        """The time of the next check."""

    def expect(self, at: float) -> None:
        """Check the locks at this time at the latest. Synchronous."""
        if at < self._checks_at:
            self.changed.set()

    async def run(self) -> None:
        """Check the locks when it is time, until the task is cancelled."""
        while True:
            self._engine.settle_passed()  # The record in work of an iteration is held.
            self._checks_at = self.check_locks()
            await self.changed.wait(self._checks_at)

    def check_locks(self) -> float:
        """Act on all locks; return the time of the next check. Synchronous."""
        now = self._clock.monotonic()
        following = math.inf
        for leader in self._engine.list_leaders():
            for acquisition in list(leader.list_acquisitions()):
                following = min(following, self._check_acquisition(leader, acquisition, now))
        return following

    def _check_acquisition(
        self, leader: ShareLeader, acquisition: Acquisition, now: float
    ) -> float:
        following = math.inf
        if acquisition.has_state(LockState.WAITING):
            release_at = acquisition.find_release_time()
            if release_at > now:
                following = release_at
            else:
                self._engine.reader.release_waiting(acquisition)
                leader.wake.set()
        if acquisition.has_state(LockState.HELD):
            following = min(following, self._engine.renewals.check_held(leader, acquisition, now))
        if acquisition.has_state(LockState.SETTLED):
            # The leader may not come to send it, for example while a request is in flight.
            lose = self._engine.settlements.lose_expired
            following = min(following, lose(acquisition, LockState.SETTLED, now))
        return following


class LeaderWatch:
    """The task that finds out in time that the leader of held records has moved.

    A move ends all locks of the partition at once, and no broker says so by itself. Only answers
    do, with the new leader (KIP-951): that to a settlement or a renewal, and that to a fetch which
    is sent after the move. One that waits at the broker meanwhile is answered without an error when
    its time is over. So nothing has to be asked as long as fetches follow each other and none waits
    for longer than LEADERS_S.

    But usually, a member with held records fetches nothing: its handlers are all at work, or a loop
    over it is. Then its next request is a renewal, half a lock later (15 s). A fetch of no records
    does not help, because brokers answer it without looking at the partitions. So the metadata of
    these topics, and of no others, is updated meanwhile: two small requests a second, to any
    broker, for each such member.

    The metadata also shows a topic that was deleted, and a leader that has moved away and back; see
    `leader_partitions`. Fetches do not show two moves during one of them, unless this member is the
    one that acquires the records again. So the metadata is updated while they go on, too, but
    seldom.
    """

    def __init__(self, engine: ShareEngine) -> None:
        self._engine = engine
        self._clock = engine.cluster.clock
        self.delivered = engine.new_wakeup()
        """A flag that is set when records were delivered, or will be."""
        self._updated_at: dict[str, float] = {}

    async def run(self) -> None:
        """Update the metadata when it is time, until the task is cancelled."""
        while True:
            self._engine.settle_passed()  # The record in work of an iteration is held.
            held = self._engine.list_held()
            if topics := self._choose_topics(held):
                await self._update_topics(topics)
            if not held:
                await self.delivered.wait()
            # What is settled soon needs no look.
            await asyncio.sleep(LOOK_S)

    def _choose_topics(self, held: Mapping[Acquisition, ShareLeader]) -> list[str]:
        """Return the topics whose metadata is to be updated now."""
        now = self._clock.monotonic()
        found: dict[str, None] = {}
        for acquisition, leader in held.items():
            topic = acquisition.partition.tp.topic
            due_at = self._updated_at.get(topic, -math.inf) + LEADERS_S
            # An answer may be on its way.
            is_told = (
                now - LOOK_S < leader.find_answer_time(acquisition.partition) <= now + LEADERS_S
            )
            if now >= due_at + (SELDOM_S if is_told else 0.0):
                found[topic] = None
        return list(found)

    async def _update_topics(self, topics: Sequence[str]) -> None:
        now, timeout_s = self._clock.monotonic(), self._engine.config.request_timeout_ms / 1000
        self._updated_at.update(dict.fromkeys(topics, now))
        leaders = self._engine.list_leaders()
        former = {each for leader in leaders for each in leader.list_acquisitions()}
        try:
            # The backoff of topics that do not change would make it too late.
            metadata = await self._engine.cluster.updater.refresh(
                topics, timeout=timeout_s, at_once=True
            )
        except KafkaError:
            return  # The brokers cannot be reached now. The locks end at their deadlines.
        for leader in leaders:
            leader.partitions.apply_metadata(metadata, topics, former)


class ShareEngine:
    """The parts of a share consumer that exist from its start to its end."""

    def __init__(
        self,
        cluster: ClusterClient,
        config: ShareConsumerConfig,
        deserializers: Deserializers,
        topics: frozenset[str],
        supervisor: Supervisor,
        owner: Anchor[ShareConsumer[Any, Any]],
        events: EventSource,
    ) -> None:
        self._owner = owner
        self.on_acknowledge_error = Anchor(config.on_acknowledge_error)
        self.config = config = for_background(config)
        self.cluster = cluster
        self.group_id = config.group_id
        rng = cluster.clock.rng
        self.member_id = _make_member_id(rng)
        self.topics = topics
        self.supervisor = supervisor
        self.events = events
        self.log = cluster.make_log("share", config.group_id)
        self.limited_log = LimitedLog(self.log, cluster.clock)
        self.meters = ShareMeters(self)
        self._loop = asyncio.get_running_loop()
        self._leaders: dict[int, ShareLeader] = {}
        self._assignment: Mapping[TopicPartition, UUID] = {}
        self.settlements = Settlements(self)
        self.renewals = Renewals(self)
        self.demand = Demand(self)
        self.membership = ShareMembership(self)
        self.reader = ShareReader(self, deserializers)
        self.watch = LockWatch(self)
        self.leader_watch = LeaderWatch(self)
        self.lock_timeout_ms: int | None = None
        """The duration of locks by the last answer, in ms."""
        self._is_turn_awaited = False
        """Whether a leader waits until another one has answered, because few records are wanted."""
        self._batch_records = 0.0
        """The usual number of records in a batch, by the last answers."""
        self._unsubscribe: Any = None

    # -- start and end

    async def start(self, wait: bool) -> None:
        """Start the background tasks, and wait for the first assignment, at most START_S."""
        callbacks = self.supervisor.callbacks
        self._unsubscribe = self.cluster.updater.add_listener(
            callbacks.guard_function(self._on_metadata)
        )
        self._want_topics()
        self.supervisor.spawn(self.membership.run, name="share group")
        self.supervisor.spawn(self.watch.run, name="locks")
        self.supervisor.spawn(self.leader_watch.run, name="leaders of held records")
        if wait and self.topics:
            await self.membership.wait_until_assigned(START_S)
            refusal = self.membership.find_refusal()
            if refusal is not None:
                raise refusal

    async def stop(self, timeout: float, *, graceful: bool) -> None:
        """Release what is held, end the sessions, and leave the group, within `timeout` seconds."""
        self.reader.stop()
        if graceful and timeout > 0:
            self.reader.release_all()
            # Not `asyncio.gather`: a limit that cancels it and its children at once would leave it
            # as the cancellation of a child, which the scope of the limit does not know.
            async with new_group() as ends:
                for leader in self.list_leaders():
                    ends.start_soon(self._end_leader, leader, timeout)
                ends.start_soon(self.membership.leave, timeout)
        self.release_resources()

    async def _end_leader(self, leader: ShareLeader, timeout: float) -> None:
        leader.close()
        await leader.ended.wait(self.cluster.clock.monotonic() + timeout)

    def release_resources(self) -> None:
        """Give back connections, metrics, and interests in topics. Synchronous."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self.cluster.updater.unwant_topics(self)
        self.cluster.release_owner(self)
        self.meters.end()

    def wake_all(self) -> None:
        """Wake all waiting calls, because the consumer has failed. Synchronous."""
        self.reader.arrived.set()
        self.reader.room.set()
        self.settlements.wake_waiting()

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function in the event loop. Safe in any thread, and in finalizers."""
        try:
            self._loop.call_soon_threadsafe(self.supervisor.callbacks.call_now, function, *args)
        except RuntimeError:
            pass  # The event loop is closed, and with it the sessions.

    async def find_lag(self, timeout: float) -> dict[TopicPartition, int | None]:
        """Return the number of records that the group has not finished, by assigned partition."""
        topics: dict[str, list[int]] = {}
        for tp in self._assignment:
            topics.setdefault(tp.topic, []).append(tp.partition)
        group = describing.DescribeShareGroupOffsetsRequestGroup(
            group_id=self.group_id,
            topics=[
                describing.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
                for name, found in topics.items()
            ],
        )
        answer = await self.cluster.request(
            DescribeShareGroupOffsetsRequest(groups=[group]),
            Coordinator("group", self.group_id),
            timeout=timeout,
            scope=Scope.SHARE,
            check=_find_group_error,
        )
        found_lags: dict[TopicPartition, int | None] = dict.fromkeys(self._assignment)
        for each in answer.groups:
            for topic in each.topics:
                for partition in topic.partitions:
                    tp = TopicPartition(topic.topic_name, partition.partition_index)
                    if tp in found_lags and not partition.error_code and partition.lag >= 0:
                        found_lags[tp] = partition.lag
        return found_lags

    def get_failure(self, *, raised: bool = False) -> BaseException | None:
        """Return the error with which the consumer has failed, or None.

        `raised` means that the caller raises this error to the application.
        """
        consumer = self._owner.get()
        return None if consumer is None else consumer._get_failure(raised)

    @property
    def metric_attributes(self) -> Labels:
        """The attributes by which an operator recognizes this consumer."""
        found = {
            "client_rack": self.config.client_rack,
            "group_id": self.group_id,
            "group_member_id": self.member_id,
        }
        return tuple((name, value) for name, value in found.items() if value)

    def new_wakeup(self) -> Wakeup:
        """Return a flag by which tasks wake each other."""
        return Wakeup()

    # -- topics, partitions, and leaders

    def set_topics(self, topics: frozenset[str]) -> None:
        """Subscribe to these topics instead of earlier ones."""
        self.topics = topics
        self._want_topics()
        self.membership.on_subscription_changed()

    def _want_topics(self) -> None:
        self.cluster.updater.unwant_topics(self)
        for topic in sorted({*self.topics, *(tp.topic for tp in self._assignment)}):
            self.cluster.updater.want_topic(topic, self)

    @property
    def assignment(self) -> Mapping[TopicPartition, UUID]:
        return self._assignment

    def on_assignment(self, assignment: Mapping[TopicPartition, UUID]) -> None:
        """Fetch these partitions from now on, and no others."""
        self._assignment = dict(assignment)
        self._want_topics()
        self._place_partitions()

    def _on_metadata(self, old: ClusterMetadata, new: ClusterMetadata) -> None:
        self._place_partitions()

    def _place_partitions(self) -> None:
        """Give each assigned partition to its leader, and take it from others."""
        metadata = self.cluster.metadata
        unplaced: dict[str, None] = {}
        for tp, topic_id in self._assignment.items():
            node_id = metadata.find_leader(*tp)
            if node_id not in metadata.brokers:
                unplaced[tp.topic] = None
                continue
            for leader in self.list_leaders():
                if leader.node_id != node_id:
                    leader.partitions.remove_partition(tp, moved=True)
            epoch = metadata.find_leader_epoch(*tp)
            self._get_leader(node_id).partitions.add_partition(tp, topic_id, epoch)
        if unplaced:
            # The coordinator assigns partitions that were added before the metadata is due again.
            self.cluster.updater.request_update(unplaced)
        for leader in self.list_leaders():
            for partition in list(leader.partitions.known):
                if (tp := partition.tp) in self._assignment:
                    continue
                node_id = metadata.find_leader(*tp)
                moved = node_id in metadata.brokers and node_id != leader.node_id
                if node_id == leader.node_id:
                    leader.partitions.note_epoch(partition, metadata.find_leader_epoch(*tp))
                if partition.is_assigned or moved:
                    leader.partitions.remove_partition(tp, moved=moved)

    def list_leaders(self) -> list[ShareLeader]:
        """Return the leaders with which there is a session, or something to fetch."""
        return list(self._leaders.values())

    def _get_leader(self, node_id: int) -> ShareLeader:
        found = self._leaders.get(node_id)
        if found is None:
            found = self._leaders[node_id] = ShareLeader(node_id, self)
            self.supervisor.spawn(
                self._run_leader, found, name=f"share session with broker {node_id}"
            )
        return found

    async def _run_leader(self, leader: ShareLeader) -> None:
        while True:
            await leader.run()
            # A partition may have come back while the session was being ended.
            if leader.is_closing or not leader.partitions.known:
                break
        if self._leaders.get(leader.node_id) is leader:
            del self._leaders[leader.node_id]
        leader.ended.set()

    def wake_leaders(self) -> None:
        """Let all leaders look for something to send. Synchronous."""
        for leader in self._leaders.values():
            if not leader.wake.is_set:
                leader.wake.set()

    # -- how much to acquire

    def compute_fetch_size(self, leader: ShareLeader) -> FetchSize | None:
        """Return the limits of the next fetch from a leader, None if nothing is to be acquired."""
        if self.reader.stopped:
            return None
        limit = self.demand.compute_limit()
        if not limit:
            return None
        fetching = [each for each in self._leaders.values() if each.fetches]
        share = max(limit // max(len(fetching), 1), 1)
        waiting = leader.count_waiting()
        if waiting and waiting * 2 > share:
            return None
        config = self.config
        max_wait_ms = config.fetch_max_wait_ms
        rest = limit - sum(each.count_waiting() + each.asked for each in self._leaders.values())
        if limit < len(fetching):
            # More would wait, be released, and come again until they are archived. So the leaders
            # take turns, of which each is shorter, so that all of them are asked as often.
            max_wait_ms = max_wait_ms * limit // len(fetching)
            before = [each for each in fetching if each.precedes(leader)]
            rest -= len(before)
        wanted = min(share - waiting, rest)
        if wanted <= 0:
            self._is_turn_awaited = True
            return None
        return FetchSize(
            wanted,
            max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            self._choose_mode(wanted),
        )

    def _choose_mode(self, wanted: int) -> int:
        mode = self.config.share_acquire_mode
        if mode == "auto":
            return RECORD_LIMIT if wanted < max(self._batch_records, 2.0) else BATCHES
        return RECORD_LIMIT if mode == "record_limit" else BATCHES

    def find_waiting_time(self) -> float:
        """Return the time for which acquired records may wait in the consumer, in seconds."""
        return (self.lock_timeout_ms or 30_000) / 1000 * DELIVERED_WITHIN

    def note_batch(self, count: int) -> None:
        """Record the number of records in a batch that was fetched."""
        self._batch_records = max(count, self._batch_records * 0.95 + count * 0.05)

    # -- locks

    def settle_passed(self) -> None:
        """Settle what the application has passed by requesting more. Synchronous."""
        self.reader.settle_passed()

    def find_to_renew(self, partition: SharePartition, now: float) -> list[Run]:
        """Return the records of a partition whose locks are to be renewed now."""
        return self.renewals.find_due(partition, now)

    def find_renewal_time(self, partitions: LeaderPartitions) -> float:
        """Return the time at which locks at a leader have to be renewed."""
        return self.renewals.find_next_time(partitions)

    def find_expiry_time(self) -> float:
        """Return the time at which the next lock of a held record ends."""
        return min(
            (
                acquisition.find_first_deadline(LockState.HELD)
                for leader in self.list_leaders()
                for acquisition in leader.list_acquisitions()
            ),
            default=math.inf,
        )

    def list_held(self) -> dict[Acquisition, ShareLeader]:
        """Return the acquisitions of which any record is delivered and not settled."""
        return {
            acquisition: leader
            for leader in self.list_leaders()
            for acquisition in leader.list_acquisitions()
            if acquisition.has_state(LockState.HELD)
        }

    def has_unsent(self) -> bool:
        """Return whether any settlement is not confirmed yet."""
        return any(
            acquisition.has_state(LockState.SETTLED) or acquisition.has_state(LockState.SENT)
            for leader in self.list_leaders()
            for acquisition in leader.list_acquisitions()
        )

    # -- what leaders report

    def on_fetched(self, answer: ShareFetchResponse, sent_at: float, now: float) -> None:
        """Record an answer to a fetch."""
        self.lock_timeout_ms = answer.acquisition_lock_timeout_ms or self.lock_timeout_ms
        self.meters.on_fetched(answer, now - sent_at)

    def on_fetch_end(self) -> None:
        """Let leaders that were not asked have their turn, after a fetch from another one."""
        if self._is_turn_awaited:
            self._is_turn_awaited = False
            self.wake_leaders()

    def on_throttled(self, throttle_ms: int) -> None:
        """Record an empty answer that was throttled: records were acquired, and are lost."""
        self.meters.on_throttled()

    def on_session_reset(self, node_id: int, error: KafkaError | None) -> None:
        """Report that the session with a broker begins anew; None is a lost connection."""
        self.meters.on_session_reset(node_id, error)

    def on_member_failed(self, error: KafkaError) -> None:
        """Wake all that waits, because the group refuses this consumer for good. Synchronous."""
        self.wake_all()

    def log_partition_error(self, tp: TopicPartition, error: KafkaError) -> None:
        """Log the error of a fetch of one partition."""
        text, extra = "%s cannot be fetched: %s", {"event": "share_fetch_refused"}
        self.limited_log.write(
            logging.INFO, ("partition", tp, error.code), text, tp, error, extra=extra
        )

    def list_troubles(self) -> list[str]:
        """Return why no records can be read, as texts. Synchronous."""
        found = self.membership.list_troubles()
        for leader in self.list_leaders():
            if leader.trouble is not None:
                found.append(f"broker {leader.node_id}: {leader.trouble}")
        found += self.reader.list_troubles()
        return [*found, *self.renewals.list_troubles(), *self.meters.list_troubles()]


def _make_member_id(rng: Random) -> str:
    """Return a new member id in the form of Kafka's UUIDs, because Kafka 4.1 decodes it as one."""
    while True:
        encoded = base64.urlsafe_b64encode(rng.getrandbits(128).to_bytes(16, "big"))
        member_id = encoded.decode().rstrip("=")
        if not member_id.startswith("-"):  # Kafka's tools would take it for an option.
            return member_id


def _find_group_error(answer: DescribeShareGroupOffsetsResponse) -> KafkaError | None:
    errors = [error_for(group.error_code, group.error_message) for group in answer.groups]
    return next((error for error in errors if error is not None), None)

"""The updates of the metadata snapshot. Only calls of `refresh` wait for them.

One task requests metadata when the snapshot has reached its maximum age, when an update was
requested (`request_update`, `refresh`), or when a wanted topic is unknown or has an error. Requests
during an update are combined into the next one. A topic that still has an error is requested again
only after a growing backoff, so that errors do not cause many requests. The same applies to a topic
that has not changed, except if a call waited for the response, because a program may open many
consumers one after the other (`Pacing`).
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokclient import threads
from aiokclient.clock import Clock
from aiokclient.cluster.metadata.snapshot import (
    BrokerInfo,
    ClusterMetadata,
    PartitionInfo,
    TopicInfo,
    hinted,
    learned,
    lists_broker,
    merged,
)
from aiokclient.cluster.metadata.topic_ids import TopicIds
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    InvalidMetadataError,
    KafkaError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.errors.local import TopicValueError
from aiokclient.log.kept_errors import bare
from aiokclient.memory import free_slowly
from aiokclient.policy import Attempts, Backoff, Scope, classify
from aiokclient.types import shortened, text_problem

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.cluster.metadata.requests import MetadataRequests
    from aiokclient.protocol.messages.metadata import MetadataResponse


class Pacing:
    """The earliest time of the next request for each subject, such as a topic.

    The delay grows while the responses bring nothing new. Times are seconds on the monotonic clock.
    """

    def __init__(self, backoff: Backoff, rng: random.Random) -> None:
        self._backoff = backoff
        self._rng = rng
        self._next: dict[Hashable, tuple[float, int]] = {}

    def find_earliest(self, subject: Hashable) -> float:
        """Return the earliest time at which the subject may be requested."""
        known = self._next.get(subject)
        return 0.0 if known is None else known[0]

    def record_request(
        self, subject: Hashable, now: float, *, settled: bool, error: KafkaError | None = None
    ) -> None:
        """Record a request, with the error of the subject in the response.

        `settled` means that the response was new and had no error.
        """
        earliest, streak = self._next.pop(subject, (0.0, 0))
        if settled:
            return
        if now > earliest + self._backoff.maximum_s:
            streak = 0
        delay_s = self._backoff.compute_delay_after_s(error, Scope.METADATA, streak, self._rng)
        self._next[subject] = (now + delay_s, streak + 1)
        self._remove_expired(now)

    def allow_request(self, subject: Hashable) -> None:
        """Allow a request for the subject immediately."""
        self._next.pop(subject, None)

    def _remove_expired(self, now: float) -> None:
        # Expired entries have no effect. They are removed only from time to time.
        if len(self._next) > 1000:
            horizon = now - self._backoff.maximum_s
            self._next = {key: known for key, known in self._next.items() if known[0] > horizon}


Listener = Callable[[ClusterMetadata, ClusterMetadata], None]
Wants = Callable[[str], bool]
Change = Callable[[ClusterMetadata], ClusterMetadata]

LARGE = 5_000
"""A response with this many brokers, topics, or partitions is merged in a thread."""
TRIES = 3
"""The number of merges in a thread that may fail because the snapshot has changed meanwhile.

During the merge after these, changes of the snapshot are deferred.
"""


class _Waiter:
    """A call that waits for each topic in `remaining`, or for a full update if it is None.

    Topics have individual backoffs, so several updates may be necessary.
    """

    __slots__ = ("future", "remaining")

    def __init__(self, topics: Iterable[str] | None) -> None:
        self.remaining = None if topics is None else dict.fromkeys(topics)
        self.future: asyncio.Future[ClusterMetadata] = asyncio.get_running_loop().create_future()


class MetadataUpdater:
    """The owner of the current `snapshot`, of the wanted topics, and of the times of updates.

    `errors` has the last error of each wanted topic that has one. `last_error` is the error of the
    last update, or None if it succeeded.
    """

    def __init__(self, config: ClientConfig, clock: Clock, requests: MetadataRequests) -> None:
        self.snapshot = ClusterMetadata()
        self.topic_ids = TopicIds()
        self.errors: dict[str, KafkaError] = {}
        self.last_error: KafkaError | None = None
        self._clock = clock
        self._requests = requests
        backoff = Backoff.of(config)
        self._retry = Attempts(math.inf, backoff, clock)
        self._max_age_s = config.metadata_max_age_ms / 1000
        self._pacing = Pacing(backoff, clock.rng)
        self._interest: dict[Hashable, dict[str, bool]] = {}
        self._everything: dict[Hashable, Wants | None] = {}
        self.topic_filter: Wants | None = None
        """The function that selects the topics to keep of a full response. None keeps all."""
        self._requested_topics: dict[str, None] = {}
        self._ask_all = False
        self._hurried = False
        """Whether a full update must begin without delay."""
        self._waiters: list[_Waiter] = []
        self._updating: list[_Waiter] = []
        """The waiters that the update in progress serves."""
        self._over: BaseException | None = None
        """The error that has ended all updates, or None if they have not ended."""
        self._listeners: list[Listener] = []
        self._deferred: list[Change] | None = None
        self._wake = asyncio.Event()
        self._next_full = 0.0
        self._read_at = clock.monotonic()
        self._retry_at = 0.0

    # -- the wanted topics ------------------------------------------------------------------

    def want_topic(self, topic: str, owner: Hashable, *, auto_create: bool = False) -> None:
        """Keep a topic in the snapshot for an owner. Synchronous.

        `auto_create` lets the brokers create it, if they are configured to do that.
        """
        self._interest.setdefault(owner, {})[topic] = auto_create
        known = self.snapshot.find_topic(topic)
        if known is None or known.error:
            self.request_update((topic,))

    def want_all(self, owner: Hashable, wants: Wants | None = None) -> None:
        """Keep all topics of the cluster in the snapshot for an owner. Synchronous.

        With `wants`, keep only the topics for which `wants(name)` returns true. It is called in a
        thread.
        """
        self._everything[owner] = wants
        self.request_update()

    def unwant_topics(self, owner: Hashable) -> None:
        """Remove all wanted topics of an owner. Synchronous."""
        self._interest.pop(owner, None)
        self._everything.pop(owner, None)
        wanted = self._list_wanted()
        for topic in [topic for topic in self.errors if topic not in wanted]:
            self._forget_topic(topic)

    def _list_wanted(self) -> dict[str, bool]:
        wanted: dict[str, bool] = {}
        for topics in self._interest.values():
            for topic, auto_create in topics.items():
                wanted[topic] = auto_create or wanted.get(topic, False)
        return wanted

    # -- requesting updates -----------------------------------------------------------------

    def request_update(self, topics: Iterable[str] | None = None) -> None:
        """Request an update of these topics, or of all wanted ones, soon. Synchronous.

        Requests are combined and delayed by the backoff, so frequent calls cost little.
        """
        if topics is None:
            self._ask_all = True
        else:
            self._requested_topics.update(dict.fromkeys(topics))
        self._wake.set()

    def request_full_update(self) -> None:
        """Request an update of all wanted topics without any backoff. Synchronous."""
        self._hurried = True
        self._wake.set()

    def note_error(self, error: KafkaError) -> None:
        """Store the error of an update that is still in progress. Synchronous."""
        self.last_error = bare(error)

    async def refresh(
        self, topics: Iterable[str] | None = None, *, timeout: float, at_once: bool = False
    ) -> ClusterMetadata:
        """Return the snapshot after an update that began after this call.

        `timeout` is in seconds. `at_once` skips the backoff of the first update. Use it only for a
        call of the application, once in each call. Raises ApiTimeoutError (its cause is the error
        of the last update), ClosedError, errors that a retry cannot correct, and the failure of the
        client. A cancellation has no side effects. No error is raised for a topic that does not
        exist: see `errors`, and the `error` of the topic.
        """
        if self._over is not None:
            # Each call raises this object, and each raise would extend its traceback.
            raise self._over.with_traceback(None)
        waiter = _Waiter(topics)
        _require_names(waiter.remaining or ())
        self._waiters.append(waiter)
        if at_once:
            for subject in (None,) if waiter.remaining is None else waiter.remaining:
                self._pacing.allow_request(subject)
        if waiter.remaining is None:
            self.request_update()
        self._wake.set()
        try:
            async with asyncio.timeout(timeout) as patience:
                return await waiter.future
        except TimeoutError:
            if not patience.expired():
                raise
            raise ApiTimeoutError(
                f"There was no new metadata within {timeout:.1f} s.", api="Metadata"
            ) from self.last_error
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def find_partitions(self, topic: str, timeout: float) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic after an update, or raise the error of the topic."""
        metadata = await self.refresh((topic,), timeout=timeout, at_once=True)
        info = metadata.find_topic(topic)
        if info is None:
            raise UnknownTopicOrPartitionError(api="Metadata", resource=topic)
        error = error_for(info.error, api="Metadata", resource=topic)
        if error is not None:
            raise error
        return info.partitions

    def apply_hint(
        self,
        topic: str,
        partition: int,
        leader_id: int,
        leader_epoch: int,
        endpoints: Iterable[BrokerInfo] = (),
    ) -> bool:
        """Apply a leader from a produce or fetch response to the snapshot (KIP-951). Synchronous.

        Returns False if the leader is not newer than the known one, or its address is unknown.
        """
        endpoints = tuple(endpoints)
        return self._change_snapshot(
            lambda old: hinted(old, topic, partition, leader_id, leader_epoch, endpoints)
        )

    def doubt_topic_id(self, topic_id: UUID) -> None:
        """Record that a leader does not know this topic id. Synchronous."""
        self.topic_ids.doubt_topic_id(topic_id)

    def learn_broker(self, broker: BrokerInfo) -> None:
        """Add a broker's address from another response, such as FindCoordinator. Synchronous."""
        self._change_snapshot(lambda old: learned(old, broker))

    def add_listener(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(old, new)` for each new snapshot. Synchronous.

        Returns a function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def _change_snapshot(self, change: Change) -> bool:
        """Change the snapshot now, or after a merge in progress that must not start again."""
        new = change(self.snapshot)
        if self._deferred is None:
            return self._install_snapshot(new)
        self._deferred.append(change)
        return new is not self.snapshot

    def _install_snapshot(self, new: ClusterMetadata) -> bool:
        old = self.snapshot
        if new is old:
            return False
        self.snapshot = new
        for listener in list(self._listeners):
            listener(old, new)
        return True

    # -- the task ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Update the snapshot forever. The supervisor runs this task."""
        while True:
            await self._wait_until_due()
            await self._update_snapshot()

    def close(self) -> None:
        """Make `refresh` raise ClosedError from now on. Synchronous."""
        self.fail_calls(
            ClosedError("The client was closed before the response arrived.", api="Metadata")
        )

    def fail_calls(self, error: BaseException) -> None:
        """Make `refresh` raise this error, because `run` has ended or will end. Synchronous.

        Waiting calls end immediately. Only the first error counts.
        """
        if self._over is None:
            self._over = error
        for waiter in [*self._waiters, *self._updating]:
            if not waiter.future.done():
                waiter.future.set_exception(self._over)

    async def install_first(self, answer: MetadataResponse) -> None:
        """Make the first snapshot from the metadata response of the bootstrap."""
        self._install_snapshot(await self._merge_answer(answer, complete=not self.snapshot.topics))
        self._on_success(full=not self._interest and not self._everything)

    async def _wait_until_due(self) -> None:
        while True:
            self._wake.clear()
            if self._hurried:
                return
            due = max(self._find_due_time(), self._retry_at)
            delay = due - self._clock.monotonic()
            if delay <= 0:
                return
            try:
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _find_due_time(self) -> float:
        due = self._next_full
        if self._ask_all:
            due = min(due, self._pacing.find_earliest(None))
        return min([due, *(self._pacing.find_earliest(topic) for topic in self._list_requested())])

    def _list_requested(self) -> dict[str, None]:
        """Return the topics of which an update was requested, or for which a call waits.

        The topics of a call are requested only as long as it waits.
        """
        requested = dict(self._requested_topics)
        for waiter in self._waiters:
            requested.update(dict.fromkeys(waiter.remaining or ()))
        return requested

    async def _update_snapshot(self) -> None:
        now = self._clock.monotonic()
        hurried, self._hurried = self._hurried, False
        full = hurried or now >= self._next_full
        full = full or (self._ask_all and now >= self._pacing.find_earliest(None))
        wanted = self._list_wanted()
        asked = [
            topic for topic in self._list_requested() if now >= self._pacing.find_earliest(topic)
        ]
        topics = list(dict.fromkeys([*wanted, *asked])) if full else asked
        everything = full and bool(self._everything)
        self._updating = waiters = self._take_waiters(topics, full, everything)
        self.topic_filter = self._select_topics(topics, waiters) if everything else None
        auto_create = any(wanted.get(topic, False) for topic in topics)
        # Requests that arrive after this need another update.
        self._ask_all = self._ask_all and not full
        again = [topic for topic in asked if topic in self._requested_topics]
        for topic in again:
            del self._requested_topics[topic]
        try:
            answer = await self._requests.fetch_metadata(
                None if everything else topics, auto_create
            )
            if not lists_broker(answer):
                raise InvalidMetadataError("The response lists no broker.", api="Metadata")
            new = await self._merge_answer(answer, full)
        except KafkaError as error:
            self._ask_all = self._ask_all or full
            self._requested_topics.update(dict.fromkeys(again))
            self._on_update_failure(error, waiters)
            return
        useful = _awaited(waiters)
        if full:
            self._pacing.record_request(
                None, now, settled=new is not self.snapshot or None in useful
            )
        self._note_topics(self.snapshot, new, topics, wanted, useful)
        self._install_snapshot(new)
        if answer.topics and len(answer.topics) >= LARGE:
            threads.run(partial(free_slowly, answer.topics))
        self._on_success(full)
        for waiter in waiters:
            self._serve_waiter(waiter, None if everything else topics)

    async def _merge_answer(self, answer: MetadataResponse, complete: bool) -> ClusterMetadata:
        """Return the next snapshot. A large response is merged in a thread."""
        ids = self.topic_ids
        merge = partial(merged, complete=complete, anew=ids.take_anew(), lower=ids.take_accepted())
        if not _is_large(answer):
            return merge(self.snapshot, answer)
        for _ in range(TRIES):
            old = self.snapshot
            new = await threads.run(partial(merge, old, answer))
            if old is self.snapshot:
                return new
        deferred: list[Change] = []
        self._deferred = deferred
        try:
            new = await threads.run(partial(merge, self.snapshot, answer))
        finally:
            self._deferred = None
        for change in deferred:
            new = change(new)
        return new

    def _select_topics(self, topics: Iterable[str], waiters: Iterable[_Waiter]) -> Wants | None:
        """Return the function that selects the topics to keep of a full response; None for all."""
        patterns = list(self._everything.values())
        if None in patterns:
            return None
        names = {
            *topics,
            *self._requested_topics,
            *(topic for w in waiters for topic in w.remaining or ()),
        }
        matches = [pattern for pattern in patterns if pattern is not None]
        return lambda name: name in names or any(wants(name) for wants in matches)

    def _take_waiters(self, topics: list[str], full: bool, everything: bool) -> list[_Waiter]:
        """Remove and return the waiters that an update of these topics can serve."""
        covered = dict.fromkeys(topics)
        taken = [
            waiter
            for waiter in self._waiters
            if (
                full
                if waiter.remaining is None
                else everything
                or not waiter.remaining
                or not waiter.remaining.keys().isdisjoint(covered)
            )
        ]
        self._waiters = [waiter for waiter in self._waiters if waiter not in taken]
        return taken

    def _serve_waiter(self, waiter: _Waiter, topics: list[str] | None) -> None:
        """Serve a waiter, unless it waits for more than these topics. None means all topics."""
        if waiter.remaining is not None and topics is not None:
            for topic in topics:
                waiter.remaining.pop(topic, None)
        if waiter.future.done():
            return
        if waiter.remaining and topics is not None:
            self._waiters.append(waiter)
        else:
            waiter.future.set_result(self.snapshot)

    def _on_update_failure(self, error: KafkaError, waiters: list[_Waiter]) -> None:
        # The error's traceback would keep the connection alive, even if it is closed.
        self.last_error = bare(error)
        action = self._retry.count_failure(error, Scope.METADATA)
        delay = action.delay_s if action.again else self._retry.backoff.maximum_s
        self._retry_at = self._clock.monotonic() + delay
        for waiter in waiters:
            if waiter.future.done():
                continue
            if action.again:
                self._waiters.append(waiter)
            else:
                waiter.future.set_exception(error)

    @property
    def age(self) -> float:
        """Seconds since metadata was received."""
        return self._clock.monotonic() - self._read_at

    def _on_success(self, full: bool) -> None:
        self._requests.on_metadata_applied()
        self.last_error = None
        self._retry.start_over()
        self._read_at = self._clock.monotonic()
        if full:
            self._next_full = self._read_at + self._max_age_s

    def _note_topics(
        self,
        old: ClusterMetadata,
        new: ClusterMetadata,
        topics: list[str],
        wanted: Mapping[str, bool],
        useful: Collection[str | None],
    ) -> None:
        """Record which topics to request again, and when.

        A response for which a call waited is useful even if it changes nothing.
        """
        now = self._clock.monotonic()
        for topic in topics:
            info = new.find_topic(topic)
            error = _trouble(topic, info, new.brokers)
            settled = error is None and (info != old.find_topic(topic) or topic in useful)
            self._pacing.record_request(topic, now, settled=settled, error=error)
            if topic not in wanted or error is None:
                self._forget_topic(topic)
                continue
            self.errors[topic] = error
            if classify(error, Scope.METADATA).again:
                self._requested_topics[topic] = None
        # If a leader of other wanted topics is missing in this response, request them, too.
        asked_of = dict.fromkeys(topics)
        for topic in wanted:
            if topic not in asked_of and _trouble(topic, new.find_topic(topic), new.brokers):
                self._requested_topics[topic] = None

    def _forget_topic(self, topic: str) -> None:
        self.errors.pop(topic, None)


def _is_large(answer: MetadataResponse) -> bool:
    topics = answer.topics or ()
    if len(answer.brokers) >= LARGE or len(topics) >= LARGE:
        return True
    return sum(len(topic.partitions) for topic in topics) >= LARGE


def _require_names(topics: Iterable[str]) -> None:
    """Raise TopicValueError for a name that no request could contain.

    One such name would make every request fail that asks for topics.
    """
    for topic in topics:
        if problem := text_problem(topic):
            raise TopicValueError(f"{shortened(topic)} cannot be a topic. {problem}")


def _awaited(waiters: Iterable[_Waiter]) -> set[str | None]:
    """Return the topics for which the waiters wait. None stands for a full update."""
    subjects: set[str | None] = set()
    for waiter in waiters:
        subjects.update((None,) if waiter.remaining is None else waiter.remaining)
    return subjects


def _trouble(
    topic: str, info: TopicInfo | None, brokers: Mapping[int, BrokerInfo]
) -> KafkaError | None:
    if info is None:
        return InvalidMetadataError("The response does not contain the topic.", resource=topic)
    if info.error:
        return error_for(info.error, api="Metadata", resource=topic)
    for partition in info.partitions:
        # A response may name a leader that has just died and is not among its brokers.
        if partition.leader not in brokers:
            return InvalidMetadataError(
                f"Partition {partition.index} has no leader.", api="Metadata", resource=topic
            )
    return None

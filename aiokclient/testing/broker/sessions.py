"""Fetch sessions (KIP-227): between two requests, a broker remembers what a client fetches.

A session begins with a full fetch (session id 0, epoch 0) that names every partition. The response
has the session's id. Each later fetch has the next epoch and names only partitions that are new,
changed, or forgotten. Its response has only the partitions with news: records, an error, a
different high watermark or log start offset, a diverging epoch, or a preferred replica. Partitions
that returned records move to the end, so that all of them are read in turn.

A broker stores a limited number of sessions. When it has that many, a new session replaces the
least recently used one if that was unused for over two minutes. If not, it replaces the smallest
one if that has fewer partitions. Otherwise the new client gets id 0, which means no session.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from aiokclient.memory import MANY, untrack
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.disposal import discard_items

if TYPE_CHECKING:
    from aiokclient.protocol.messages import FetchRequest
    from aiokclient.protocol.messages.fetch import PartitionData
    from aiokclient.testing.broker.configs import Configs

T = TypeVar("T")

NO_SESSION = 0
FIRST_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1
_EVICTABLE_AFTER_S = 120.0
_MOST_PARTITIONS = 200_000
"""The maximum number of partitions in all sessions of a broker, which bounds their memory."""

TopicKey = str | UUID
"""A topic's name up to version 12 of Fetch, or its id from version 13 on."""


class PartitionKey(NamedTuple):
    topic: TopicKey
    partition: int


class FetchedPartition:
    """A partition in a session: what the client fetches, and the state that it received last."""

    __slots__ = (
        "high_watermark",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
    )

    def __init__(self, key: PartitionKey) -> None:
        self.key = key
        self.offset = -1
        self.leader_epoch = -1
        self.last_fetched_epoch = -1
        self.max_bytes = 0
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_news(self, answer: PartitionData) -> bool:
        """Return whether a response has news for the client. Store the state that it contains."""
        same_marks = (self.high_watermark, self.log_start_offset) == (
            answer.high_watermark,
            answer.log_start_offset,
        )
        self.high_watermark = answer.high_watermark if not answer.error_code else -1
        self.log_start_offset = answer.log_start_offset
        return (
            bool(answer.records)
            or not same_marks
            or answer.error_code != Code.NONE
            or answer.preferred_read_replica != -1
            or answer.diverging_epoch.end_offset != -1
        )


class FetchCall(Protocol):
    """A Fetch request with the means to iterate over its parts."""

    request: Any
    version: int

    def iterate_items(self, items: Iterable[T]) -> AsyncIterator[T]: ...


class BrokerFetchSession:
    """The partitions of one client on one broker. A session with id 0 lasts for one request."""

    __slots__ = ("by_id", "epoch", "id", "partitions", "used_at")

    def __init__(self, session_id: int, by_id: bool, now: float) -> None:
        self.id = session_id
        self.epoch = FIRST_EPOCH
        self.by_id = by_id
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self.used_at = now

    async def apply_request(self, call: FetchCall) -> None:
        """Add, change, and remove partitions according to a request."""
        request: FetchRequest = call.request
        async for topic in call.iterate_items(request.topics):
            name: TopicKey = topic.topic_id if self.by_id else topic.topic
            many = len(topic.partitions) >= MANY
            async for wanted in call.iterate_items(topic.partitions):
                key = PartitionKey(name, wanted.partition)
                partition = self.partitions.get(key)
                if partition is None:
                    partition = self.partitions[key] = FetchedPartition(key)
                    if many:
                        untrack(key)
                        untrack(partition)
                partition.offset = wanted.fetch_offset
                partition.leader_epoch = wanted.current_leader_epoch
                partition.last_fetched_epoch = wanted.last_fetched_epoch
                partition.max_bytes = wanted.partition_max_bytes
        async for forgotten in call.iterate_items(request.forgotten_topics_data):
            gone: TopicKey = forgotten.topic_id if self.by_id else forgotten.topic
            async for index in call.iterate_items(forgotten.partitions):
                self.partitions.pop(PartitionKey(gone, index), None)

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Move partitions to the end, so that others come first next time."""
        for key in keys:
            if key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)


class FetchContext(NamedTuple):
    """The way to answer one fetch. If `code` is not NONE, the whole request is refused with it."""

    session: BrokerFetchSession
    incremental: bool
    code: Code = Code.NONE


class FetchSessions:
    """The fetch sessions of one broker."""

    def __init__(self, configs: Configs, rng: random.Random, time: Callable[[], float]) -> None:
        self._configs = configs
        self._rng = rng
        self._time = time
        self._sessions: dict[int, BrokerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def evict_all(self) -> None:
        """Remove all sessions, as if new sessions had replaced them."""
        self._sessions.clear()

    def remove_session(self, session: BrokerFetchSession) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)

    async def find_context(self, call: FetchCall) -> FetchContext:
        """Return how to answer a request: its session, updated by the request, or a refusal."""
        request: FetchRequest = call.request
        now = self._time()
        by_id = call.version >= 13
        if request.session_epoch in (FIRST_EPOCH, FINAL_EPOCH):
            # A client that starts again, or fetches without a session, closes its old session.
            self._sessions.pop(request.session_id, None)
            session = BrokerFetchSession(NO_SESSION, by_id, now)
            try:
                await session.apply_request(call)
            except GeneratorExit:
                discard_items(session.partitions)
                raise
            if request.session_epoch == FIRST_EPOCH:
                session.id = self._admit_session(session)
            return FetchContext(session, incremental=False)
        kept = self._sessions.get(request.session_id)
        if kept is None:
            return _make_refusal(now, Code.FETCH_SESSION_ID_NOT_FOUND)
        if kept.epoch != request.session_epoch:
            return _make_refusal(now, Code.INVALID_FETCH_SESSION_EPOCH)
        if kept.by_id != by_id:
            return _make_refusal(now, Code.FETCH_SESSION_TOPIC_ID_ERROR)
        kept.used_at = now
        await kept.apply_request(call)
        if not kept.partitions:
            self._sessions.pop(kept.id, None)
            return FetchContext(BrokerFetchSession(NO_SESSION, by_id, now), incremental=False)
        kept.epoch = 1 if kept.epoch == _LAST_EPOCH else kept.epoch + 1
        return FetchContext(kept, incremental=True)

    def _admit_session(self, session: BrokerFetchSession) -> int:
        slots = self._configs.read_number("max.incremental.fetch.session.cache.slots")
        partitions = sum(len(each.partitions) for each in self._sessions.values())
        if partitions + len(session.partitions) > _MOST_PARTITIONS:
            return NO_SESSION
        if len(self._sessions) >= slots and not self._make_room(session):
            return NO_SESSION
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session.epoch = 1
        self._sessions[session_id] = session
        return session_id

    def _make_room(self, session: BrokerFetchSession) -> bool:
        if not self._sessions:
            return False
        oldest = min(self._sessions.values(), key=lambda each: each.used_at)
        if session.used_at - oldest.used_at > _EVICTABLE_AFTER_S:
            del self._sessions[oldest.id]
            return True
        smallest = min(self._sessions.values(), key=lambda each: len(each.partitions))
        if len(smallest.partitions) < len(session.partitions):
            del self._sessions[smallest.id]
            return True
        return False


def _make_refusal(now: float, code: Code) -> FetchContext:
    return FetchContext(BrokerFetchSession(NO_SESSION, True, now), incremental=True, code=code)

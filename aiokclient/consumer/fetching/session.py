"""A fetch session with one broker, as a pure state machine (KIP-227).

Listing a thousand partitions in every request would cost more than most responses. So the broker
stores the list. The first request of a session (epoch 0) lists all partitions. Each later one has
the next epoch, and lists only the partitions that have changed and those to remove. A response
contains the partitions with records, errors, or other changes. Whenever the lists of client and
broker may differ, the next request has epoch 0 again and the id of the old session, which the
broker then ends.

    state            request                            after a good response
    NONE             id 0, epoch 0, all partitions      OPEN with the broker's id, NONE for id 0
    OPEN             id, epoch, changes only            OPEN with the next epoch, NONE for id 0
    BROKEN           id, epoch 0, all partitions        as NONE

A lost response, a refused request and a response with a partition that was not requested lead to
BROKEN; a session that the broker does not know leads to NONE. A session names topics either by name
or by id. To change from one to the other, the client begins a new session.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final
from uuid import UUID

from aiokclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = 2**31 - 1
NO_TOPIC_ID: Final = UUID(int=0)
BY_ID: Final = 13
"""The first version of Fetch that names topics by id."""


class Wanted(NamedTuple):
    """The values of one partition in a fetch request."""

    topic_id: UUID
    offset: int
    leader_epoch: int
    generation: int = 0
    """The `generation` of the `PartitionState` at the time of the request. It is not sent.

    A response of an older generation is ignored.
    """


class Answer(NamedTuple):
    """The response for one partition, with the values of the partition in the request."""

    tp: TopicPartition
    wanted: Wanted
    data: PartitionData


class FetchOptions(NamedTuple):
    """The options of a fetch request."""

    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 500
    partition_max_bytes: int = 1024 * 1024
    read_committed: bool = False
    rack_id: str = ""


class SessionState(Enum):
    NONE = auto()
    OPEN = auto()
    BROKEN = auto()


REFUSALS = MappingProxyType(
    # FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, and FETCH_SESSION_TOPIC_ID_ERROR
    # (KIP-227, KIP-516). With 71 and 106, the broker still has the session, which the next request
    # replaces.
    {70: SessionState.NONE, 71: SessionState.BROKEN, 106: SessionState.BROKEN}
)
"""The next states for those error codes of a whole response that concern the session."""


class FetchSession:
    """The state of one fetch session, which builds requests and reads responses in turn."""

    def __init__(self, options: FetchOptions) -> None:
        self.options = options
        self.state = SessionState.NONE
        self.session_id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self._by_id = False
        self._partitions: dict[TopicPartition, Wanted] = {}
        self._names: dict[int, str] = {}
        """The topics by the integers of their ids. Comparing ids would be calls in Python."""

    def choose_version(self, wanted: Mapping[TopicPartition, Wanted], highest: int) -> int:
        """Return the version to use: topics can be named by id only if all of them have one."""
        if highest >= BY_ID:
            for want in wanted.values():
                # From version 13 on, a request has no names of topics (KIP-516). Brokers older than
                # 2.8 give no ids.
                if not want.topic_id.int:
                    return BY_ID - 1
        return highest

    def make_request(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        version: int,
        *,
        rack_id: str | None = None,
        once: bool = False,
    ) -> FetchRequest:
        """Return the next request, which makes the broker fetch exactly these partitions.

        Call it after the response to the previous request. With `once`, the request makes no
        session, and the broker answers it at once, even if it has no records.
        """
        by_id = version >= BY_ID
        # A session names its topics either by name or by id. The broker refuses a change with
        # FETCH_SESSION_TOPIC_ID_ERROR.
        if self.state is SessionState.OPEN and by_id != self._by_id:
            self.state = SessionState.BROKEN
        self._by_id = by_id
        known = self._partitions
        if self.state is SessionState.OPEN:
            epoch = self.epoch
            # Usually most of the partitions have not changed. The check of these must be fast.
            named = {
                tp: want
                for tp, want in wanted.items()
                if (was := known.get(tp)) is not want and (was is None or was[:3] != want[:3])
            }
            if self._has_other_partitions(known, wanted, named):
                forgotten = _forgotten(known, wanted, by_id)
                self._store_topic_names(wanted)
            else:
                forgotten = []
        else:
            # In a session, the broker begins with the partitions that it has not read for the
            # longest time. Without one, it begins with the first ones named.
            named = wanted = _in_order(known, wanted)
            epoch, forgotten = FIRST_EPOCH, []
            self._store_topic_names(wanted)
        self._partitions = dict(wanted)
        request = self._make_empty(epoch, rack_id)
        request.topics = _topics(named, self.options.partition_max_bytes)
        request.forgotten_topics_data = forgotten
        if once:
            request.max_wait_ms = 0
            # Epoch -1 without a session id is a full fetch that makes no session (KIP-227).
            request.session_id, request.session_epoch = NO_SESSION, FINAL_EPOCH
        return request

    @staticmethod
    def _has_other_partitions(
        known: Mapping[TopicPartition, Wanted],
        wanted: Mapping[TopicPartition, Wanted],
        named: Mapping[TopicPartition, Wanted],
    ) -> bool:
        """Return whether partitions were added or removed, or a topic was created again."""
        if known.keys() != wanted.keys():
            return True
        again = [tp for tp, want in named.items() if known[tp].topic_id.int != want.topic_id.int]
        return bool(again)

    def _store_topic_names(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        self._names = {}
        if self._by_id:
            self._names = {want.topic_id.int: tp.topic for tp, want in wanted.items()}

    def read_answers(self, response: FetchResponse) -> list[Answer]:
        """Return the requested partitions of a successful response; call it once for each response.

        Partitions that were not requested are omitted and break the session. A partition that
        occurs twice is returned twice; the caller ignores the second one because of its offset.
        """
        answers: list[Answer] = []
        strange = False
        for topic in response.responses:
            name = self._names.get(topic.topic_id.int) if self._by_id else topic.topic
            for data in topic.partitions:
                tp = TopicPartition(name or "", data.partition_index)
                want = self._partitions.get(tp)
                if want is None:
                    strange = True
                else:
                    answers.append(Answer(tp, want, data))
        missing = self.state is not SessionState.OPEN and not (
            self._partitions.keys() <= {answer.tp for answer in answers}
        )
        if self.state is not SessionState.OPEN:
            for tp in [answer.tp for answer in answers if answer.data.records]:
                self._partitions[tp] = self._partitions.pop(tp)
        self._advance_epoch(response.session_id, broken=strange or missing)
        return answers

    def limit_size(self, max_bytes: int) -> None:
        """Request at most this many bytes of records in a response from now on."""
        self.options = self.options._replace(max_bytes=max_bytes)

    def on_refusal(self, code: int) -> bool:
        """Handle an error of the whole response. Return whether it concerns the session."""
        self.state = REFUSALS.get(code, SessionState.BROKEN)
        if self.state is SessionState.NONE:
            self.session_id = NO_SESSION
        return code in REFUSALS

    def on_loss(self) -> None:
        """Handle a lost response, after which the state of the session at the broker is unknown."""
        if self.state is SessionState.OPEN:
            self.state = SessionState.BROKEN

    def make_final_request(self) -> FetchRequest | None:
        """Return a request that ends the session and fetches nothing; None without a session."""
        if self.session_id == NO_SESSION:
            return None
        request = self._make_empty(FINAL_EPOCH, None)
        request.max_wait_ms = request.min_bytes = 0
        self.state, self.session_id = SessionState.NONE, NO_SESSION
        return request

    def _advance_epoch(self, session_id: int, *, broken: bool) -> None:
        was_open = self.state is SessionState.OPEN and session_id == self.session_id
        # After the largest epoch comes 1, because 0 begins a session (KIP-227).
        self.epoch = self.epoch + 1 if was_open and self.epoch < MAX_EPOCH else 1
        self.session_id = session_id
        if session_id == NO_SESSION:
            self.state = SessionState.NONE
        else:
            self.state = SessionState.BROKEN if broken else SessionState.OPEN

    def _make_empty(self, epoch: int, rack_id: str | None) -> FetchRequest:
        options = self.options
        return FetchRequest(
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.max_bytes,
            isolation_level=int(options.read_committed),
            session_id=self.session_id,
            session_epoch=epoch,
            rack_id=options.rack_id if rack_id is None else rack_id,
        )


def _in_order(
    known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted]
) -> dict[TopicPartition, Wanted]:
    """Return the wanted partitions: first the new ones, then the others in the order of `known`."""
    ordered = {tp: want for tp, want in wanted.items() if tp not in known}
    ordered.update((tp, wanted[tp]) for tp in known if tp in wanted)
    return ordered


def _forgotten(
    known: Mapping[TopicPartition, Wanted], wanted: Mapping[TopicPartition, Wanted], by_id: bool
) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for tp, was in known.items():
        now = wanted.get(tp)
        # If a topic was created again, the old topic must be removed from the broker's session.
        if now is None or (by_id and now.topic_id != was.topic_id):
            topic = topics.setdefault(
                (tp.topic, was.topic_id), ForgottenTopic(topic=tp.topic, topic_id=was.topic_id)
            )
            topic.partitions.append(tp.partition)
    return list(topics.values())


def _topics(named: Mapping[TopicPartition, Wanted], max_bytes: int) -> list[FetchTopic]:
    topics: dict[tuple[str, int], FetchTopic] = {}
    for tp, want in named.items():
        key = tp.topic, want.topic_id.int
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=tp.topic, topic_id=want.topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                partition_max_bytes=max_bytes,
            )
        )
    return list(topics.values())

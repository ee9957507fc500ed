"""Tests that the broker's fetch session has the wanted partitions after each request (KIP-227)."""

import random
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.consumer.fetching.session import FetchOptions, FetchSession, SessionState, Wanted
from aiokclient.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

ID, OTHER_ID, NO_ID = UUID(int=1), UUID(int=2), UUID(int=0)
T0, T1, T2 = (TopicPartition("t", i) for i in range(3))
BY_NAME, BY_ID = 12, 18


def wanted(
    *tps: TopicPartition, offset: int = 0, topic_id: UUID = ID
) -> dict[TopicPartition, Wanted]:
    return {tp: Wanted(topic_id, offset, 0) for tp in tps}


def named(request: FetchRequest) -> list[tuple[int, int]]:
    return [(p.partition, p.fetch_offset) for t in request.topics for p in t.partitions]


def forgotten(request: FetchRequest) -> list[tuple[UUID, int]]:
    return [(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions]


def answer(*partitions: int, session_id: int = 7, topic_id: UUID = ID) -> FetchResponse:
    topic = FetchableTopicResponse(topic="t", topic_id=topic_id)
    topic.partitions = [PartitionData(partition_index=index) for index in partitions]
    return FetchResponse(session_id=session_id, responses=[topic] if partitions else [])


@pytest.fixture
def session() -> FetchSession:
    return FetchSession(FetchOptions(rack_id="here"))


def open_session(session: FetchSession, version: int = BY_ID) -> None:
    session.make_request(wanted(T0, T1), version)
    session.read_answers(answer(0, 1))
    assert session.state is SessionState.OPEN


def test_the_first_request_has_all_partitions(session: FetchSession) -> None:
    request = session.make_request(wanted(T0, T1), BY_ID)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(0, 0), (1, 0)]
    assert request.rack_id == "here"


def test_later_requests_have_only_changes(session: FetchSession) -> None:
    open_session(session)
    request = session.make_request({**wanted(T0), **wanted(T1, T2, offset=5)}, BY_ID)
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert named(request) == [(1, 5), (2, 5)]
    session.read_answers(answer())
    request = session.make_request(wanted(T2, offset=5), BY_ID)
    assert request.session_epoch == 2
    assert named(request) == []
    assert forgotten(request) == [(ID, 0), (ID, 1)]


def test_a_topic_created_again_is_forgotten_and_named(session: FetchSession) -> None:
    open_session(session)
    request = session.make_request(wanted(T0, T1, topic_id=OTHER_ID), BY_ID)
    assert forgotten(request) == [(ID, 0), (ID, 1)]
    assert named(request) == [(0, 0), (1, 0)]
    assert request.topics[0].topic_id == OTHER_ID


def test_a_generation_never_reaches_the_broker(session: FetchSession) -> None:
    open_session(session)
    again = {tp: want._replace(generation=9) for tp, want in wanted(T0, T1).items()}
    assert named(session.make_request(again, BY_ID)) == []
    assert [a.wanted.generation for a in session.read_answers(answer(0))] == [9]


def test_without_a_session_every_request_has_all_partitions(session: FetchSession) -> None:
    session.make_request(wanted(T0), BY_ID)
    session.read_answers(answer(0, session_id=0))
    request = session.make_request(wanted(T0), BY_ID)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert named(request) == [(0, 0)]
    assert session.make_final_request() is None


@pytest.mark.parametrize(("code", "session_id"), [(70, 0), (71, 7), (106, 7), (-1, 7)])
def test_a_refused_request_begins_a_new_session(
    session: FetchSession, code: int, session_id: int
) -> None:
    open_session(session)
    session.make_request(wanted(T0, T1), BY_ID)
    assert session.on_refusal(code) is (code > 0)
    request = session.make_request(wanted(T0, T1), BY_ID)
    assert (request.session_id, request.session_epoch) == (session_id, 0)
    assert len(named(request)) == 2


def test_a_lost_response_begins_a_new_session(session: FetchSession) -> None:
    open_session(session)
    session.make_request(wanted(T0), BY_ID)
    session.on_loss()
    request = session.make_request(wanted(T0), BY_ID)
    assert (request.session_id, request.session_epoch) == (7, 0)


@pytest.mark.fault(20)
def test_an_unrequested_partition_breaks_the_session(session: FetchSession) -> None:
    open_session(session)
    session.make_request(wanted(T0, T1), BY_ID)
    assert [a.tp for a in session.read_answers(answer(0, 9))] == [T0]
    assert session.state is SessionState.BROKEN
    session.make_request(wanted(T0), BY_ID)
    assert session.read_answers(answer(0, topic_id=OTHER_ID)) == []


@pytest.mark.fault(20)
def test_a_partition_that_is_missing_or_there_twice(session: FetchSession) -> None:
    session.make_request(wanted(T0, T1), BY_ID)
    assert [a.tp for a in session.read_answers(answer(0, 0))] == [T0, T0]
    assert session.state is SessionState.BROKEN


def test_topics_without_an_id_are_named(session: FetchSession) -> None:
    assert session.choose_version(wanted(T0), BY_ID) == BY_ID
    assert session.choose_version(wanted(T0, topic_id=NO_ID), BY_ID) == BY_NAME
    open_session(session)
    request = session.make_request(wanted(T0, T1, topic_id=NO_ID), BY_NAME)
    assert request.session_epoch == 0
    assert len(named(request)) == 2
    assert [a.tp for a in session.read_answers(answer(0, 1))] == [T0, T1]


def test_the_last_request_ends_the_session(session: FetchSession) -> None:
    open_session(session)
    request = session.make_final_request()
    assert request is not None
    assert (request.session_id, request.session_epoch) == (7, -1)
    assert request.max_wait_ms == 0
    assert session.make_final_request() is None


def test_session_epochs_wrap_around(session: FetchSession) -> None:
    open_session(session)
    session.epoch = 2**31 - 1
    session.make_request(wanted(T0, T1), BY_ID)
    session.read_answers(answer())
    assert session.epoch == 1


@dataclass
class BrokerSide:
    """The state that a broker keeps for a fetch session."""

    session_id: int = 0
    epoch: int = 0
    partitions: dict[tuple[UUID, int], int] = field(default_factory=dict)

    def take(self, request: FetchRequest) -> int:
        """Return the error code of the broker's response."""
        if request.session_epoch == 0:
            self.session_id, self.epoch, self.partitions = self.session_id + 1, 1, {}
        elif request.session_id != self.session_id or not self.partitions:
            return 70
        elif request.session_epoch != self.epoch:
            return 71
        else:
            self.epoch += 1
        for forget in request.forgotten_topics_data:
            for index in forget.partitions:
                del self.partitions[forget.topic_id, index]
        for topic in request.topics:
            for partition in topic.partitions:
                self.partitions[topic.topic_id, partition.partition] = partition.fetch_offset
        return 0


Offsets = st.dictionaries(
    st.tuples(st.sampled_from([ID, OTHER_ID]), st.integers(0, 5)), st.integers(0, 3), max_size=6
)
Mishaps = st.sampled_from(["", "", "", "lost before", "lost after", "evicted"])


@given(st.lists(st.tuples(Offsets, Mishaps), max_size=20), st.randoms(use_true_random=False))
def test_the_broker_always_knows_what_is_wanted(
    steps: list[tuple[dict[tuple[UUID, int], int], str]], rng: random.Random
) -> None:
    """Requests and responses may be lost.

    After each request that succeeds, the broker has exactly the wanted partitions.
    """
    session, broker = FetchSession(FetchOptions()), BrokerSide()
    for offsets, mishap in steps:
        # A partition has only one topic id at a time.
        by_index = {index: (topic_id, offset) for (topic_id, index), offset in offsets.items()}
        want = {
            TopicPartition("t", index): Wanted(topic_id, offset, 0)
            for index, (topic_id, offset) in by_index.items()
        }
        request = session.make_request(want, BY_ID)
        if mishap == "evicted":
            broker.partitions.clear()
        if mishap == "lost before":
            session.on_loss()
            continue
        code = broker.take(request)
        if mishap == "lost after":
            session.on_loss()
            continue
        if code:
            session.on_refusal(code)
            continue
        assert broker.partitions == {(w.topic_id, tp.partition): w.offset for tp, w in want.items()}
        told = list(want) if request.session_epoch == 0 else rng.sample(list(want), len(want) // 2)
        response = FetchResponse(session_id=broker.session_id)
        response.responses = [
            FetchableTopicResponse(
                topic_id=want[tp].topic_id,
                partitions=[PartitionData(partition_index=tp.partition)],
            )
            for tp in told
        ]
        assert [a.tp for a in session.read_answers(response)] == told

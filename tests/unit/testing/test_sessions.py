"""Tests of fetch sessions (KIP-227)."""

import pytest

from aiokclient import errors
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
def session(cluster, wire):
    """Return a fetch session for three partitions of a topic, all of which broker 1 leads."""
    for partition in range(3):
        cluster.move_leader("orders", partition, to=1)
    return Session(cluster, wire)


class Session:
    def __init__(self, cluster, wire):
        self.wire = wire
        self.topic = cluster.topic_id("orders")
        self.connection = wire.to(1)
        response = self.request(self.topic, partitions=[0, 1, 2], session=(0, 0))
        assert response.session_id != 0
        assert len(response.responses[0].partitions) == 3
        self.id, self.epoch = response.session_id, 1

    def request(self, topic, **options):
        return self.connection.request(self.wire.fetch_request(topic, **options))

    def next(self, topic=None, **options):
        """Return the values of the next incremental fetch, by partition."""
        response = self.request(topic, session=(self.id, self.epoch), **options)
        assert (response.error_code, response.session_id) == (0, self.id)
        self.epoch += 1
        partitions = response.responses[0].partitions if response.responses else []
        return {each.partition_index: self.wire.values(each) for each in partitions}


def test_a_session_omits_partitions_without_news(session):
    assert session.next() == {}
    assert session.next() == {}


def test_a_session_returns_only_new_records(cluster, session):
    cluster.produce("orders", [b"v"], 1)
    assert session.next() == {1: [b"v"]}
    # The fetch offset is unchanged, so the same records are returned.
    assert session.next() == {1: [b"v"]}
    assert session.next(session.topic, offset=1, partitions=[1]) == {}
    cluster.produce("orders", [b"w"], 1)
    assert session.next() == {1: [b"w"]}


def test_a_changed_log_start_offset_is_returned(cluster, session):
    cluster.produce("orders", [b"v"], 1)
    session.next(session.topic, offset=1, partitions=[1])
    assert session.next() == {}
    cluster.delete_records("orders", 1, before=1)
    assert session.next() == {1: []}
    assert session.next() == {}


def test_errors_are_returned_each_time(cluster, session):
    cluster.delete_topic("orders")
    for _ in range(2):
        response = session.request(None, session=(session.id, session.epoch))
        session.epoch += 1
        codes = [each.error_code for each in response.responses[0].partitions]
        assert codes == [errors.UnknownTopicIdError.code] * 3


def test_partitions_are_read_in_turn(cluster, session):
    for partition in range(3):
        cluster.produce("orders", [bytes(1000)], partition)
    turns = [list(session.next(max_bytes=1)) for _ in range(3)]
    first = [each[0] for each in turns]
    assert sorted(first) == [0, 1, 2]


def test_removed_partitions_are_not_read(cluster, session):
    assert session.next(forget=(session.topic, [1, 2])) == {}
    for partition in range(3):
        cluster.produce("orders", [b"v"], partition)
    assert session.next() == {0: [b"v"]}
    assert session.next(session.topic, partitions=[2]) == {0: [b"v"], 2: [b"v"]}


def test_a_session_without_partitions_ends(session):
    response = session.request(
        None, session=(session.id, session.epoch), forget=(session.topic, [0, 1, 2])
    )
    assert (response.error_code, response.session_id) == (0, 0)
    response = session.request(None, session=(session.id, session.epoch + 1))
    assert response.error_code == errors.FetchSessionIdNotFoundError.code


def test_wrong_epochs_and_ids_are_refused(session):
    for wrong, error in (
        ((session.id, 5), errors.InvalidFetchSessionEpochError),
        ((12345, 1), errors.FetchSessionIdNotFoundError),
    ):
        response = session.request(None, session=wrong)
        assert (response.error_code, response.responses) == (error.code, [])
    assert session.next() == {}


def test_a_session_with_topic_ids_refuses_names(cluster, session):
    request = session.wire.fetch_request("orders", session=(session.id, 1))
    response = session.connection.request(request, 12)
    assert response.error_code == errors.FetchSessionTopicIdError.code


def test_a_client_can_end_its_session(session):
    response = session.request(session.topic, session=(session.id, -1))
    assert (response.error_code, response.session_id) == (0, 0)
    response = session.request(None, session=(session.id, 1))
    assert response.error_code == errors.FetchSessionIdNotFoundError.code


def test_a_new_session_replaces_the_old_one(session):
    response = session.request(session.topic, session=(session.id, 0))
    assert response.session_id not in (0, session.id)
    response = session.request(None, session=(session.id, 1))
    assert response.error_code == errors.FetchSessionIdNotFoundError.code


def test_old_sessions_are_evicted(cluster, session):
    cluster.evict_sessions()
    response = session.request(None, session=(session.id, session.epoch))
    assert response.error_code == errors.FetchSessionIdNotFoundError.code


def test_a_restart_ends_the_session(cluster, session):
    cluster.stop(1)
    cluster.start(1)
    session.connection = session.wire.to(1)
    response = session.request(None, session=(session.id, session.epoch))
    assert response.error_code == errors.FetchSessionIdNotFoundError.code


def test_a_fetch_in_a_session_waits_for_news(cluster, session):
    request = session.wire.fetch_request(None, session=(session.id, 1), wait_ms=60_000)
    session.connection.send(request)
    cluster.wait_for(lambda: len(cluster.requests) == 2)
    assert session.connection.silent()
    cluster.produce("orders", [b"v"], 2)
    (topic,) = session.connection.receive().responses
    assert [each.partition_index for each in topic.partitions] == [2]


def test_a_full_cache_gives_no_session(wire_to):
    slots = {"max.incremental.fetch.session.cache.slots": 1}
    with EmbeddedCluster(1, {"orders": 3}, configs=slots) as cluster:
        wire = wire_to(cluster)
        connection, topic = wire.to(1), cluster.topic_id("orders")

        def begin(*partitions):
            request = wire.fetch_request(topic, partitions=partitions, session=(0, 0))
            return connection.request(request).session_id

        small = begin(0)
        assert small != 0
        assert begin(1) == 0
        large = begin(0, 1)
        assert large not in (0, small)
        request = wire.fetch_request(None, session=(small, 1))
        gone = connection.request(request).error_code
        assert gone == errors.FetchSessionIdNotFoundError.code

"""Tests of the snapshot that follows from each metadata response."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.cluster.metadata.snapshot import (
    BrokerInfo,
    ClusterMetadata,
    MovedLeader,
    differ,
    hinted,
    learned,
    lists_broker,
    merged,
    moved_leaders,
)
from aiokclient.errors import ProtocolError
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
BROKERS = (1, 2, 3)


def topic(
    name: str = "orders",
    partitions: Sequence[tuple[int, int, int]] = ((0, 1, 5),),
    topic_id: uuid.UUID = ONE,
    error: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        topic_id=topic_id,
        error_code=error,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=epoch)
            for index, leader, epoch in partitions
        ],
    )


def answer(
    *topics: MetadataResponseTopic, brokers: Sequence[int] = BROKERS, controller: int = 1
) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c",
        controller_id=controller,
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=f"b{node_id}", port=9092)
            for node_id in brokers
        ],
        topics=list(topics),
    )


def known(*topics: MetadataResponseTopic) -> ClusterMetadata:
    return merged(ClusterMetadata(), answer(*topics), complete=True)


def test_the_first_response_makes_a_snapshot() -> None:
    snapshot = known(topic(partitions=[(1, 2, 7), (0, 1, 5)]))
    assert snapshot.cluster_id == "c"
    assert snapshot.brokers[2] == BrokerInfo(2, "b2", 9092)
    assert [info.index for info in snapshot.topics["orders"].partitions] == [0, 1]
    assert snapshot.find_leader("orders", 1) == 2
    assert snapshot.find_leader_epoch("orders", 1) == 7
    assert snapshot.names == {ONE: "orders"}
    assert snapshot.version == 1


def test_missing_topics_and_partitions_have_no_leader() -> None:
    snapshot = known(topic())
    assert snapshot.find_topic("other") is None
    assert snapshot.find_leader("orders", 1) == -1
    assert snapshot.find_leader("orders", -1) == -1
    assert snapshot.find_leader("other", 0) == -1
    assert snapshot.find_leader_epoch("other", 0) == -1


def test_an_equal_response_returns_the_same_snapshot() -> None:
    snapshot = known(topic())
    assert merged(snapshot, answer(topic()), complete=True) is snapshot
    assert merged(snapshot, answer(topic()), complete=False) is snapshot


@pytest.mark.fault(27)
def test_a_response_without_brokers_changes_nothing() -> None:
    snapshot = known(topic())
    assert merged(snapshot, answer(brokers=()), complete=True) is snapshot


@pytest.mark.fault(4)
def test_an_older_epoch_does_not_replace_a_newer_one() -> None:
    snapshot = known(topic(partitions=[(0, 1, 5), (1, 1, 5)]))
    after = merged(snapshot, answer(topic(partitions=[(0, 2, 4), (1, 2, 6)])), complete=False)
    assert (after.find_leader("orders", 0), after.find_leader_epoch("orders", 0)) == (1, 5)
    assert (after.find_leader("orders", 1), after.find_leader_epoch("orders", 1)) == (2, 6)


def test_the_last_response_counts_without_epochs() -> None:
    snapshot = known(topic(partitions=[(0, 1, -1)]))
    after = merged(snapshot, answer(topic(partitions=[(0, 2, -1)])), complete=False)
    assert after.find_leader("orders", 0) == 2


@pytest.mark.fault(24)
def test_a_different_topic_id_is_a_different_topic() -> None:
    snapshot = known(topic(partitions=[(0, 1, 5), (1, 1, 5)]))
    again = topic(partitions=[(0, 2, 0)], topic_id=OTHER)
    after = merged(snapshot, answer(again), complete=False)
    assert after.find_leader_epoch("orders", 0) == 0
    assert len(after.topics["orders"].partitions) == 1
    assert after.names == {OTHER: "orders"}


@pytest.mark.fault(20)
def test_missing_and_repeated_partitions_are_tolerated() -> None:
    snapshot = known(topic(partitions=[(0, 1, 5), (1, 2, 5)]))
    after = merged(snapshot, answer(topic(partitions=[(1, 3, 6), (1, 1, 4)])), complete=False)
    assert after.find_leader("orders", 0) == 1
    assert after.find_leader("orders", 1) == 3


@pytest.mark.fault(20)
def test_a_missing_partition_has_no_leader() -> None:
    snapshot = known(topic(partitions=[(2, 1, 5)]))
    assert [info.leader for info in snapshot.topics["orders"].partitions] == [-1, -1, 1]


@pytest.mark.fault(31)
@pytest.mark.parametrize("index", [-1, 2**31 - 1])
def test_impossible_partition_numbers_are_ignored(index: int) -> None:
    with pytest.raises(ProtocolError):
        known(topic(partitions=[(index, 1, 1)]))


def test_an_error_keeps_the_known_partitions() -> None:
    snapshot = known(topic())
    failed = topic(partitions=(), error=3, topic_id=uuid.UUID(int=0))
    after = merged(snapshot, answer(failed), complete=False)
    assert after.topics["orders"].error == 3
    assert after.find_leader("orders", 0) == 1
    healed = merged(after, answer(topic()), complete=False)
    assert healed.topics == snapshot.topics


def test_an_unknown_topic_has_its_error() -> None:
    snapshot = known(topic(partitions=(), error=3, topic_id=uuid.UUID(int=0)))
    assert snapshot.topics["orders"].error == 3
    assert snapshot.topics["orders"].partitions == ()
    assert snapshot.names == {}


def test_only_partial_responses_keep_other_topics() -> None:
    snapshot = known(topic(), topic("audit", topic_id=OTHER))
    assert set(merged(snapshot, answer(topic()), complete=False).topics) == {"orders", "audit"}
    assert set(merged(snapshot, answer(topic()), complete=True).topics) == {"orders"}


def test_a_topic_may_be_requested_by_id_only() -> None:
    snapshot = known(topic())
    entry = topic(partitions=[(0, 3, 9)])
    entry.name = None
    assert merged(snapshot, answer(entry), complete=False).find_leader("orders", 0) == 3


def test_a_leader_hint_is_used_if_it_is_newer_and_has_an_address() -> None:
    snapshot = known(topic())
    after = hinted(snapshot, "orders", 0, 2, 6)
    assert (after.find_leader("orders", 0), after.find_leader_epoch("orders", 0)) == (2, 6)
    assert snapshot.find_leader("orders", 0) == 1
    assert hinted(snapshot, "orders", 0, 2, 5) is snapshot
    assert hinted(snapshot, "orders", 0, 2, -1) is snapshot
    assert hinted(snapshot, "orders", 1, 2, 6) is snapshot
    assert hinted(snapshot, "other", 0, 2, 6) is snapshot
    assert hinted(snapshot, "orders", 0, 9, 6) is snapshot
    endpoint = BrokerInfo(9, "b9", 9092, "r")
    assert hinted(snapshot, "orders", 0, 9, 6, [endpoint]).brokers[9] == endpoint


def test_addresses_from_other_apis_are_used() -> None:
    snapshot = known()
    assert learned(snapshot, BrokerInfo(2, "b2", 9092)) is snapshot
    assert learned(snapshot, BrokerInfo(4, "b4", 9092)).brokers[4].host == "b4"


epochs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 9)), max_size=6)


@given(answers=st.lists(epochs, max_size=8))
def test_epochs_never_go_back(answers: list[list[tuple[int, int, int]]]) -> None:
    snapshot = ClusterMetadata()
    for partitions in answers:
        before = snapshot
        snapshot = merged(snapshot, answer(topic(partitions=partitions)), complete=False)
        for index in range(4):
            assert snapshot.find_leader_epoch("orders", index) >= before.find_leader_epoch(
                "orders", index
            )


def test_rack_of_a_broker_is_kept_when_another_api_names_the_same_address() -> None:
    nodes = [MetadataResponseBroker(node_id=1, host="b1", port=9092, rack="east")]
    snapshot = merged(ClusterMetadata(), MetadataResponse(brokers=nodes), complete=True)
    assert learned(snapshot, BrokerInfo(1, "b1", 9092)) is snapshot
    assert learned(snapshot, BrokerInfo(1, "b1", 9093)).brokers[1] == BrokerInfo(1, "b1", 9093)
    assert learned(snapshot, BrokerInfo(1, "", -1)) is snapshot, "an unusable address"
    assert learned(snapshot, BrokerInfo(-1, "b2", 9092)) is snapshot, "a bootstrap server"
    assert learned(snapshot, BrokerInfo(2, "", -1)).brokers[2] == BrokerInfo(2, "", -1)


@pytest.mark.parametrize(
    ("port", "usable"), [(-1, False), (0, False), (1, True), (65535, True), (65536, False)]
)
def test_address_is_usable_when_it_has_a_host_and_a_valid_port(port: int, usable: bool) -> None:
    assert BrokerInfo(1, "b1", port).usable is usable
    assert not BrokerInfo(1, "", port).usable


def test_partition_lacks_only_when_its_topic_says_so() -> None:
    snapshot = known(
        topic(partitions=[(0, 1, 5), (1, 1, 5)]),
        topic("gone", partitions=(), error=3, topic_id=uuid.UUID(int=0)),
        topic("denied", partitions=(), error=29, topic_id=uuid.UUID(int=0)),
    )
    assert [snapshot.lacks_partition("orders", index) for index in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    assert snapshot.lacks_partition("gone", 0)
    assert not snapshot.lacks_partition("denied", 0), "it is not known how many partitions it has"
    assert not snapshot.lacks_partition("unknown", 0)
    names = ("orders", "gone", "denied", "unknown")
    assert [snapshot.has_topic(name) for name in names] == [True, False, True, False]
    assert snapshot.find_partition("orders", 2) is None
    assert snapshot.find_partition("orders", -1) is None
    found = snapshot.find_partition("orders", 1)
    assert found is not None
    assert (found.index, found.leader, found.leader_epoch) == (1, 1, 5)


def test_moved_leaders_are_those_of_partitions_in_both_snapshots() -> None:
    before = known(
        topic(partitions=[(0, 1, 5), (1, 2, 5), (2, -1, 5)]), topic("same", topic_id=OTHER)
    )
    after = known(
        topic(partitions=[(0, 3, 6), (1, -1, 6), (2, 2, 6), (3, 1, 0)]),
        topic("same", topic_id=OTHER),
        topic("new", topic_id=uuid.UUID(int=3)),
    )
    assert list(moved_leaders(before, after)) == [
        MovedLeader("orders", 0, 1, 3),
        MovedLeader("orders", 1, 2, None),
        MovedLeader("orders", 2, None, 2),
    ]
    assert list(moved_leaders(after, after)) == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("a", "b", True), ("a", "a", False), (None, "a", False), ("a", None, False)],
)
def test_cluster_ids_differ_only_when_both_are_known(
    one: str | None, other: str | None, expected: bool
) -> None:
    assert differ(one, other) is expected


def test_response_lists_a_broker_only_when_its_id_is_valid() -> None:
    assert lists_broker(answer(brokers=[0]))
    assert not lists_broker(answer(brokers=[-1]))
    assert not lists_broker(answer(brokers=[]))
    snapshot = merged(ClusterMetadata(), answer(brokers=[-1, 0]), complete=True)
    assert list(snapshot.brokers) == [0]


def test_cluster_id_is_kept_when_a_response_has_none() -> None:
    snapshot = known(topic())
    unnamed = answer(topic(partitions=[(0, 2, 6)]))
    unnamed.cluster_id = None
    after = merged(snapshot, unnamed, complete=True)
    assert after.cluster_id == "c"
    assert after.find_leader("orders", 0) == 2
    assert after.version == snapshot.version + 1


def test_former_topics_are_dropped_when_the_cluster_has_another_id() -> None:
    snapshot = known(topic(), topic("audit", topic_id=OTHER))
    elsewhere = answer(topic(partitions=[(0, 2, 1)]))
    elsewhere.cluster_id = "d"
    after = merged(snapshot, elsewhere, complete=False)
    assert after.cluster_id == "d"
    assert set(after.topics) == {"orders"}
    assert after.find_leader_epoch("orders", 0) == 1, "epochs of another cluster are not compared"

"""Tests of the topic id that is chosen for a topic name when brokers return different ids."""

import uuid

import pytest

from aiokclient.cluster.metadata.snapshot import ClusterMetadata, merged
from aiokclient.cluster.metadata.topic_ids import CONFIRMED, TopicIds
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_ID, ONE, OTHER, THIRD = (uuid.UUID(int=number) for number in range(4))


def response(
    topic_id: uuid.UUID, partitions: int = 1, *, error: int = 0, cluster: str | None = "c"
) -> MetadataResponse:
    parts = [
        MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=5)
        for index in range(partitions)
    ]
    topic = MetadataResponseTopic(
        name="orders", topic_id=topic_id, error_code=error, partitions=parts
    )
    broker = MetadataResponseBroker(node_id=1, host="b", port=9092)
    return MetadataResponse(cluster_id=cluster, brokers=[broker], topics=[topic])


def known(topic_id: uuid.UUID = ONE, partitions: int = 3) -> ClusterMetadata:
    return merged(ClusterMetadata(), response(topic_id, partitions), complete=True)


def settle(
    ids: TopicIds, snapshot: ClusterMetadata, answer: MetadataResponse, *, complete: bool = True
) -> tuple[ClusterMetadata, list[str]]:
    disputed = ids.replace_disputed(snapshot, answer)
    return merged(snapshot, answer, complete=complete), disputed


def test_settle_changes_nothing_when_one_response_names_another_topic() -> None:
    ids, snapshot = TopicIds(), known()
    assert settle(ids, snapshot, response(OTHER)) == (snapshot, ["orders"])
    assert settle(ids, snapshot, response(ONE, 3)) == (snapshot, [])
    assert settle(ids, snapshot, response(OTHER)) == (snapshot, ["orders"]), (
        "the count starts again"
    )


def test_settle_takes_another_topic_when_a_second_response_names_it() -> None:
    ids, snapshot = TopicIds(), known()
    settle(ids, snapshot, response(OTHER))
    assert settle(ids, snapshot, response(THIRD)) == (snapshot, ["orders"]), (
        "this is a third topic id"
    )
    snapshot, disputed = settle(ids, snapshot, response(THIRD))
    assert not disputed
    assert snapshot.topics["orders"].topic_id == THIRD
    assert len(snapshot.topics["orders"].partitions) == 1


@pytest.mark.parametrize("all_of_them", [False, True])
def test_settle_takes_another_topic_when_the_known_one_is_doubted(all_of_them: bool) -> None:
    ids, snapshot = TopicIds(), known()
    if all_of_them:
        ids.doubt_all(snapshot)
    else:
        ids.doubt_topic_id(ONE)
    snapshot, disputed = settle(ids, snapshot, response(OTHER))
    assert not disputed
    assert snapshot.topics["orders"].topic_id == OTHER
    assert settle(ids, snapshot, response(ONE, 3)) == (snapshot, ["orders"]), (
        "the change back must be confirmed, too"
    )


def test_settle_forgets_a_doubt_when_the_known_topic_is_named() -> None:
    ids, snapshot = TopicIds(), known()
    ids.doubt_topic_id(ONE)
    settle(ids, snapshot, response(ONE, 3))
    assert settle(ids, snapshot, response(OTHER))[1] == ["orders"]


def test_settle_takes_another_topic_when_the_known_one_was_missing() -> None:
    ids, snapshot = TopicIds(), known()
    snapshot, _ = settle(ids, snapshot, response(NO_ID, 0, error=3))
    snapshot, disputed = settle(ids, snapshot, response(OTHER))
    assert not disputed
    assert snapshot.topics["orders"].topic_id == OTHER


def test_settle_takes_all_when_the_cluster_has_another_id() -> None:
    ids, snapshot = TopicIds(), known()
    snapshot, disputed = settle(ids, snapshot, response(OTHER, cluster="d"))
    assert not disputed
    assert snapshot.topics["orders"].topic_id == OTHER


@pytest.mark.parametrize(("before", "after"), [(NO_ID, ONE), (ONE, NO_ID), (NO_ID, NO_ID)])
def test_settle_disputes_nothing_when_a_broker_has_no_topic_ids(
    before: uuid.UUID, after: uuid.UUID
) -> None:
    assert TopicIds().replace_disputed(known(before), response(after, 3)) == []


@pytest.mark.parametrize("sign", ["an older epoch", "fewer partitions"])
def test_a_topic_without_id_is_another_one_when_all_answers_describe_it_as_older(sign: str) -> None:
    def older() -> MetadataResponse:
        answer = response(NO_ID, 2 if sign == "fewer partitions" else 3)
        assert answer.topics is not None
        if sign == "an older epoch":
            answer.topics[0].partitions[1].leader_epoch = 0
        return answer

    def settled(answer: MetadataResponse) -> tuple[ClusterMetadata, list[str]]:
        disputed = ids.replace_disputed(snapshot, answer)
        return merged(snapshot, answer, complete=True, anew=ids.take_anew()), disputed

    ids, snapshot = TopicIds(), known(NO_ID)
    for _ in range(2):
        for _ in range(CONFIRMED - 1):
            assert settled(older()) == (snapshot, ["orders"]), "the broker's metadata may be older"
        assert settled(response(NO_ID, 3)) == (snapshot, []), "the broker's metadata was older"
    for _ in range(CONFIRMED - 1):
        settled(older())
    snapshot, disputed = settled(older())
    assert not disputed
    epochs = [part.leader_epoch for part in snapshot.topics["orders"].partitions]
    assert epochs == ([5, 0, 5] if sign == "an older epoch" else [5, 5])
    assert settled(older()) == (snapshot, [])


def test_merged_takes_older_epochs_when_the_cluster_has_another_id() -> None:
    snapshot = known()
    answer = response(ONE, 1, cluster="d")
    assert answer.topics is not None
    answer.topics[0].partitions[0].leader_epoch = 0
    snapshot = merged(snapshot, answer, complete=True)
    assert [part.leader_epoch for part in snapshot.topics["orders"].partitions] == [0]


def test_merged_takes_older_epochs_when_a_topic_without_id_was_gone() -> None:
    snapshot = known(NO_ID)
    older = response(NO_ID, 1)
    assert older.topics is not None
    older.topics[0].partitions[0].leader_epoch = 0
    assert merged(snapshot, older, complete=True) is snapshot
    snapshot = merged(snapshot, response(NO_ID, 0, error=3), complete=True)
    snapshot = merged(snapshot, older, complete=True)
    assert [part.leader_epoch for part in snapshot.topics["orders"].partitions] == [0]


def test_settle_counts_again_when_the_cluster_has_another_id() -> None:
    ids, snapshot = TopicIds(), known(NO_ID)
    for _ in range(CONFIRMED - 1):
        assert ids.replace_disputed(snapshot, response(NO_ID, 2)) == ["orders"]
    elsewhere = response(NO_ID, 3, cluster="d")
    assert ids.replace_disputed(snapshot, elsewhere) == []
    snapshot = merged(snapshot, elsewhere, complete=True)
    for _ in range(CONFIRMED - 1):
        assert ids.replace_disputed(snapshot, response(NO_ID, 2, cluster="d")) == ["orders"]
    assert ids.replace_disputed(snapshot, response(NO_ID, 2, cluster="d")) == []


def test_settle_disputes_again_when_the_cluster_has_another_id() -> None:
    ids, snapshot = TopicIds(), known()
    assert ids.replace_disputed(snapshot, response(OTHER)) == ["orders"]
    elsewhere = response(ONE, 3, cluster="d")
    assert ids.replace_disputed(snapshot, elsewhere) == []
    snapshot = merged(snapshot, elsewhere, complete=True)
    assert ids.replace_disputed(snapshot, response(OTHER, cluster="d")) == ["orders"]

"""Tests of the cluster description that assignors receive, and of the order of members."""

from uuid import UUID

from aiokclient import AssignmentCluster, MemberSubscription, TopicPartition
from aiokclient.cluster.metadata.snapshot import (
    BrokerInfo,
    ClusterMetadata,
    PartitionInfo,
    TopicInfo,
)
from aiokclient.consumer.assignors.assignor import in_order

ORDERS = TopicInfo(
    "orders",
    UUID(int=1),
    partitions=(PartitionInfo(0, 1, replicas=(1, 2)), PartitionInfo(1, replicas=(3, 9))),
)
METADATA = ClusterMetadata(
    brokers={
        1: BrokerInfo(1, "h", 1, "a"),
        2: BrokerInfo(2, "h", 2, "b"),
        3: BrokerInfo(3, "h", 3),
    },
    topics={"orders": ORDERS, "gone": TopicInfo("gone", error=3)},
)


def test_of_metadata_come_partitions_and_racks() -> None:
    cluster = AssignmentCluster.of(METADATA, ["orders", "gone", "unknown"])
    assert cluster.topics == ("orders",)
    assert cluster.partitions("orders") == [TopicPartition("orders", n) for n in range(2)]
    assert cluster.racks(TopicPartition("orders", 0)) == {"a", "b"}
    # Neither a broker without a rack nor an unknown broker adds a rack.
    assert cluster.racks(TopicPartition("orders", 1)) == frozenset()
    assert cluster == AssignmentCluster({"orders": [{"a", "b"}, ()]})
    assert cluster != AssignmentCluster({"orders": 2})
    assert cluster != {"orders": 2}
    assert "orders" in repr(cluster)


def test_a_cluster_has_topics_partitions_and_racks() -> None:
    cluster = AssignmentCluster({"orders": 2, "clicks": 0})
    assert (cluster.count("orders"), cluster.count("clicks"), cluster.count("absent")) == (2, 0, 0)
    assert cluster.partitions("absent") == []
    assert TopicPartition("orders", 1) in cluster
    for index in (-1, 2):
        assert TopicPartition("orders", index) not in cluster
    assert TopicPartition("absent", 0) not in cluster


def test_static_members_come_first_sorted_by_instance_id() -> None:
    members = {
        "a": MemberSubscription(()),
        "z": MemberSubscription((), instance_id="i-2"),
        "y": MemberSubscription((), instance_id="i-1"),
        "b": MemberSubscription(()),
    }
    assert in_order(members) == ["y", "z", "a", "b"]


def test_texts_are_compared_as_java_compares_them() -> None:
    high, highest = "\uffff", "\U00010000"
    assert high < highest
    assert in_order({high: MemberSubscription(()), highest: MemberSubscription(())}) == [
        highest,
        high,
    ]

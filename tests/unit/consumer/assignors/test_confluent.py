"""Tests that our assignors read librdkafka's subscriptions and compute the same assignments."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from aiokclient import (
    AssignmentCluster,
    MemberAssignment,
    MemberSubscription,
    TopicPartition,
)
from aiokclient.consumer.assignors.assignor import RebalanceProtocol
from aiokclient.consumer.assignors.holdings import read_generation, read_holding
from aiokclient.consumer.assignors.strategy import BUILT_IN
from aiokclient.consumer.assignors.validation import validate
from aiokclient.consumer.assignors.wire import decode_assignment, decode_members
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

confluent = pytest.importorskip("confluent_kafka")

TOPICS = {"clicks": 5, "orders": 7}
CLUSTER = AssignmentCluster(TOPICS)
PATIENCE_S = 60
PARTITIONS = [one for topic in TOPICS for one in CLUSTER.partitions(topic)]


@pytest.fixture
def embedded() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=TOPICS) as cluster:
        yield cluster


@contextmanager
def joined(cluster: EmbeddedCluster, **options: str) -> Iterator[Any]:
    """Join a librdkafka consumer to the group. It makes progress only while it is polled."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "group",
        "heartbeat.interval.ms": "100",
        **{name.replace("_", "."): value for name, value in options.items()},
    }
    consumer = confluent.Consumer(settings)
    consumer.subscribe(list(TOPICS))
    try:
        yield consumer
    finally:
        consumer.close()


def poll_until(consumers: list[Any], done: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < give_up, "the group did not become stable in time"
        for consumer in consumers:
            consumer.poll(0.02)


def held(consumer: Any) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in consumer.assignment()]


def all_assigned(consumers: list[Any]) -> bool:
    """Return whether every partition has exactly one owner, and every consumer has a partition."""
    each = [held(consumer) for consumer in consumers]
    return all(each) and sorted(one for some in each for one in some) == sorted(PARTITIONS)


class Rebalance:
    """The last rebalance that a librdkafka leader computed: its inputs and its assignment."""

    def __init__(self, cluster: EmbeddedCluster, strategy: str) -> None:
        told: dict[str | None, tuple[str | None, bytes]] = {}
        self.given: dict[str, MemberAssignment] = {}
        self.members: Mapping[str, MemberSubscription] = {}
        for request in cluster.requests:
            message = request.message
            if request.api is ApiKey.JOIN_GROUP:
                [offered] = [p for p in message.protocols if p.name == strategy]
                # The response gives a static member its id, which begins with the instance id.
                key = message.group_instance_id or message.member_id
                told[key] = message.group_instance_id, offered.metadata
            elif request.api is ApiKey.SYNC_GROUP and message.assignments:
                given = {a.member_id: decode_assignment(a.assignment) for a in message.assignments}
                self.given = given
                # Joins that follow this request belong to the next rebalance.
                self.members = decode_members(
                    (name, *(told.get(name) or told[name.partition("-")[0]])) for name in given
                )

    def is_held_by(self, consumers: list[Any]) -> bool:
        """Return whether the consumers hold exactly what the leader assigned.

        If they do not, another rebalance is in progress. Its assignment is recorded before the
        consumers receive it, because they handle it only while they are polled.
        """
        return sorted(in_order(self.given).values()) == sorted(sorted(held(c)) for c in consumers)


def settled(cluster: EmbeddedCluster, strategy: str, consumers: list[Any]) -> Rebalance:
    """Poll until every partition has its owner by the last rebalance. Return that rebalance."""
    last = Rebalance(cluster, strategy)

    def done() -> bool:
        nonlocal last
        last = Rebalance(cluster, strategy)
        return all_assigned(consumers) and last.is_held_by(consumers)

    poll_until(consumers, done)
    return last


def in_order(given: Mapping[str, MemberAssignment]) -> dict[str, list[TopicPartition]]:
    return {name: sorted(assignment.partitions) for name, assignment in given.items()}


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_assignments_equal_those_of_a_librdkafka_leader(
    embedded: EmbeddedCluster, strategy: str
) -> None:
    with ExitStack() as stack:
        consumers = []
        for number in range(3):
            options = {"partition_assignment_strategy": strategy, "client_rack": f"rack-{number}"}
            consumers.append(stack.enter_context(joined(embedded, **options)))
            last = settled(embedded, strategy, consumers)
    assert len(last.members) == 3
    assert {member.rack for member in last.members.values()} == {"rack-0", "rack-1", "rack-2"}
    for member in last.members.values():
        assert sorted(member.topics) == sorted(TOPICS)
        assert read_generation(member.user_data) in (member.generation_id, -1)
    protocol = RebalanceProtocol(strategy.startswith("cooperative"))
    assignor = BUILT_IN[strategy]()
    assert validate(assignor, last.given, CLUSTER, last.members, protocol) == last.given
    ours = assignor.assign(CLUSTER, last.members)
    assert in_order(ours) == in_order(last.given)


def test_static_members_keep_their_rank(embedded: EmbeddedCluster) -> None:
    with ExitStack() as stack:
        consumers = []
        for name in ("b", "a"):
            options = {"partition_assignment_strategy": "range", "group_instance_id": name}
            consumers.append(stack.enter_context(joined(embedded, **options)))
            last = settled(embedded, "range", consumers)
    assert {member.instance_id for member in last.members.values()} == {"a", "b"}
    assert in_order(BUILT_IN["range"]().assign(CLUSTER, last.members)) == in_order(last.given)


def test_a_member_sends_its_generation_and_its_owned_partitions(embedded: EmbeddedCluster) -> None:
    """When a second member joins, the first one sends its owned partitions and its generation."""
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    with joined(embedded, **strategy) as first:
        poll_until([first], lambda: all_assigned([first]))
        with joined(embedded, **strategy) as second:
            poll_until([first, second], lambda: all_assigned([first, second]))
            requests = [r for r in embedded.requests if r.api is ApiKey.JOIN_GROUP]
    told = [
        decode_members([("m", None, request.message.protocols[0].metadata)])["m"]
        for request in requests
    ]
    owning = [subscription for subscription in told if len(subscription.owned) == len(PARTITIONS)]
    assert owning, "the first member joined again and named all that it owned"
    assert all(sorted(one.owned) == sorted(PARTITIONS) for one in owning)
    for one in owning:
        assert read_generation(one.user_data) == one.generation_id > 0
        assert sorted(read_holding(one.user_data).partitions) == sorted(PARTITIONS)

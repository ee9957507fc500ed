"""Tests of the values of `partition_assignment_strategy` and the resulting protocols."""

from collections.abc import Mapping
from typing import Any

import pytest

from aiokclient import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    errors,
)
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.config.kinds import STRATEGIES
from aiokclient.consumer.assignors.assignor import RebalanceProtocol, rebalance_protocol
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.consumer.assignors.strategy import BUILT_IN, Range, RoundRobin, make_assignors

KAFKA = "org.apache.kafka.clients.consumer."


class Mine(Assignor):
    """An assignor that assigns all partitions to the first member."""

    name = "mine"

    def assign(
        self, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        every = tuple(one for topic in cluster.topics for one in cluster.partitions(topic))
        return {min(members): MemberAssignment(every)}


class Nameless(Mine):
    name = ""


class NamedWithASurrogate(Mine):
    name = "bad\udcff"


class NamedAtLength(Mine):
    name = "x" * 40_000


class NamedLate(Assignor):
    def __init__(self) -> None:
        self.name = "named-late"


def assignors(strategy: Any) -> tuple[Assignor, ...]:
    config = ConsumerConfig.build(
        {"bootstrap_servers": "h:1", "partition_assignment_strategy": strategy}
    )
    return make_assignors(config.partition_assignment_strategy)


def test_the_names_of_the_option_are_those_of_the_assignors() -> None:
    assert list(STRATEGIES.values()) == list(BUILT_IN)


def test_the_default_is_that_of_kafka() -> None:
    config = ConsumerConfig.build({"bootstrap_servers": "h:1"})
    found = make_assignors(config.partition_assignment_strategy)
    assert [assignor.name for assignor in found] == ["range", "cooperative-sticky"]
    assert rebalance_protocol(found) is RebalanceProtocol.EAGER


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        ("range", [Range]),
        ("roundrobin, sticky", [RoundRobin, Sticky]),
        (["cooperative-sticky", "range"], [CooperativeSticky, Range]),
        (f"{KAFKA}RangeAssignor,{KAFKA}CooperativeStickyAssignor", [Range, CooperativeSticky]),
        ([f"{KAFKA}RoundRobinAssignor", f"{KAFKA}StickyAssignor"], [RoundRobin, Sticky]),
        (Mine, [Mine]),
        (Mine(), [Mine]),
        (NamedLate, [NamedLate]),
        ([Redundant(3), Redundant(2), Redundant, "range"], None),
        ((Redundant(3), Redundant, CoPartitioned), [Redundant, Redundant, CoPartitioned]),
    ],
)
def test_a_strategy_may_be_a_name_a_class_or_an_object(
    strategy: Any, kinds: list[type] | None
) -> None:
    if kinds is None:
        with pytest.raises(errors.ConfigError, match="redundant-2"):
            assignors(strategy)
    else:
        assert [type(assignor) for assignor in assignors(strategy)] == kinds


def test_each_consumer_has_objects_of_its_own_but_for_those_it_was_given() -> None:
    given = Mine()
    first, second = assignors(["sticky", given]), assignors(["sticky", given])
    assert first[0] is not second[0]
    assert first[1] is second[1] is given


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("stickey", "'stickey' is not an assignor. It must be one of 'range', 'roundrobin'"),
        (["range", "org.example.Mine"], "'org.example.Mine' is not an assignor"),
        ([], "It must be one of"),
        ("", "'' is not an assignor"),
        (7, "7 is not an assignor"),
        (None, "None is not an assignor"),
        (["range", None], "aiokclient.Assignor"),
        (object(), "is not an assignor"),
        (["range", f"{KAFKA}RangeAssignor"], "'range' may occur only once"),
    ],
)
def test_invalid_strategies_are_refused(strategy: Any, reason: str) -> None:
    with pytest.raises(errors.ConfigError, match=r"^partition_assignment_strategy: ") as caught:
        assignors(strategy)
    assert reason in str(caught.value)


class NeedsMore(Mine):
    def __init__(self, number: int) -> None:
        self.number = number


class Resembling:
    """An object that passes the option's check but lacks what a consumer needs."""

    name = "resembling"

    def assign(self) -> None: ...


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (NeedsMore, "NeedsMore cannot be made without arguments.*[Gg]ive an instance of it"),
        (Nameless, "the name of Nameless is ''"),
        ([Mine, Mine()], "Mine has the name 'mine', as does another one in the list"),
        (Resembling, "Resembling is not an assignor.*derived from aiokclient.Assignor"),
        (NamedWithASurrogate, "NamedWithASurrogate has the name .* half of a surrogate pair"),
        (NamedAtLength, "NamedAtLength has the name 'xxx.* has 40,000 bytes"),
    ],
)
def test_what_is_found_when_the_assignors_are_made(strategy: Any, reason: str) -> None:
    with pytest.raises(errors.ConfigError, match=reason):
        assignors(strategy)


@pytest.mark.parametrize(
    ("strategy", "protocol"),
    [
        ("cooperative-sticky", RebalanceProtocol.COOPERATIVE),
        ([CoPartitioned(), "cooperative-sticky"], RebalanceProtocol.COOPERATIVE),
        ("cooperative-sticky, range", RebalanceProtocol.EAGER),
        ("sticky", RebalanceProtocol.EAGER),
        (CoPartitioned(by=Range()), RebalanceProtocol.EAGER),
        (Mine, RebalanceProtocol.EAGER),
    ],
)
def test_the_protocol_is_the_highest_that_all_support(
    strategy: Any, protocol: RebalanceProtocol
) -> None:
    assert rebalance_protocol(assignors(strategy)) is protocol


def test_the_protocol_is_eager_without_assignors() -> None:
    assert rebalance_protocol([]) is RebalanceProtocol.EAGER


def test_an_assignor_needs_only_name_and_assign() -> None:
    mine = Mine()
    assert (mine.overlapping, mine.cooperative, mine.version) == (False, False, 0)
    assert mine.user_data(["orders"]) is None
    with pytest.raises(NotImplementedError):
        Assignor.assign(mine, AssignmentCluster({}), {})

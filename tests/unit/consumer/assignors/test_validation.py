"""Tests of the errors for invalid assignments, which name the assignor and say what to do."""

import re
from typing import Any

import pytest

from aiokclient import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    TopicPartition,
    errors,
)
from aiokclient.consumer.assignors.assignor import RebalanceProtocol
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.validation import validate

CLUSTER = AssignmentCluster({"orders": 2, "clicks": 1})
MEMBERS = {
    "m-1": MemberSubscription(("orders",)),
    "m-2": MemberSubscription(("orders", "clicks", "absent")),
}
ORDERS_0, ORDERS_1 = CLUSTER.partitions("orders")


class Wrong(Assignor):
    name = "wrong"


class Overlapping(Wrong):
    overlapping = True


def check(given: Any, assignor: Assignor | None = None) -> dict[str, MemberAssignment]:
    return validate(assignor or Wrong(), given, CLUSTER, MEMBERS)


def to(member: str, *partitions: Any) -> Any:
    return {member: MemberAssignment(partitions)}


@pytest.mark.parametrize(
    ("given", "reason", "advice"),
    [
        (None, "returned None", "Return a mapping"),
        ([("m-1", ())], "returned a list", "Return a mapping"),
        (to("m-9", ORDERS_0), "'m-9', which is not a member", "members that assign"),
        ({"m-1": None}, "gave member 'm-1' None", "Give a MemberAssignment"),
        ({"m-1": (ORDERS_0,)}, "gave member 'm-1' a tuple", "Give a MemberAssignment"),
        ({"m-1": MemberAssignment((), "x")}, "user data that is a str", "bytes or None"),
        ({"m-1": MemberAssignment({})}, "partitions that are a dict", "a tuple of TopicPartition"),
        (to("m-1", ("orders", 0)), "('orders', 0) as a partition", "TopicPartition"),
        (to("m-1", TopicPartition("orders", None)), "partition=None) as a", "TopicPartition"),
        (to("m-1", 7), "7 as a partition", "TopicPartition"),
        (to("m-1", TopicPartition("orders", 2)), "'orders' has 2 partitions", "cluster.partitions"),
        (to("m-1", TopicPartition("orders", -1)), "'orders' has 2 partitions", "cluster."),
        (to("m-2", TopicPartition("absent", 0)), "there is no 'absent'", "cluster.partitions()"),
        (to("m-1", TopicPartition("clicks", 0)), "does not subscribe to it", "`topics`"),
        (
            {**to("m-1", ORDERS_0), **to("m-2", ORDERS_1, ORDERS_0)},
            "gave orders-0 to member 'm-2', and to 'm-1'",
            "set `overlapping = True`",
        ),
    ],
)
def test_invalid_assignments_are_refused(given: Any, reason: str, advice: str) -> None:
    with pytest.raises(errors.AssignmentFailedError, match=re.escape(reason)) as caught:
        check(given)
    assert "Assignor 'wrong' (Wrong)" in str(caught.value)
    assert advice in str(caught.value)


def test_the_error_names_the_partition() -> None:
    with pytest.raises(errors.AssignmentFailedError) as caught:
        check(to("m-1", TopicPartition("orders", 2)))
    assert caught.value.topic_partition == TopicPartition("orders", 2)


def test_valid_assignments_are_accepted() -> None:
    found = check({"m-2": MemberAssignment((ORDERS_0, ORDERS_1, ORDERS_0), b"data")})
    assert found == {
        "m-1": MemberAssignment(),
        "m-2": MemberAssignment((ORDERS_0, ORDERS_1), b"data"),
    }
    assert list(found) == list(MEMBERS)


@pytest.mark.parametrize("assignor", [Overlapping(), Redundant()])
def test_a_partition_may_go_to_two_members_where_that_is_said(assignor: Assignor) -> None:
    given = {**to("m-1", ORDERS_0), **to("m-2", ORDERS_0)}
    assert check(given, assignor) == given


def test_a_partition_that_another_member_still_owns() -> None:
    members = {**MEMBERS, "m-1": MEMBERS["m-1"]._replace(owned=(ORDERS_0,))}
    given = to("m-2", ORDERS_0, ORDERS_1)
    assert validate(Wrong(), given, CLUSTER, members)["m-2"] == given["m-2"]
    with pytest.raises(errors.AssignmentFailedError, match=r"while 'm-1' still owns it.*next"):
        validate(Wrong(), given, CLUSTER, members, RebalanceProtocol.COOPERATIVE)

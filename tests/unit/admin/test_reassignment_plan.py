"""The file of a plan: that of kafka-reassign-partitions, with more fields."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from aiokclient import TopicPartition
from aiokclient.admin import BrokerLoad, PlannedMove, ReassignmentPlan
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)
PLAN = ReassignmentPlan(
    {
        ORDERS: PlannedMove((2, 3), (1, 3), 700),
        BILLS: PlannedMove((3,), (1,), 50, ("/disk-2",)),
    },
    {1: BrokerLoad(2, 2, 750), 3: BrokerLoad(1, 0, 700)},
    {1: BrokerLoad(), 2: BrokerLoad(1, 1, 700), 3: BrokerLoad(2, 1, 750)},
)


def test_a_plan_is_read_as_it_was_written() -> None:
    assert ReassignmentPlan.from_json(PLAN.to_json()) == PLAN
    assert ReassignmentPlan.from_json(PLAN.to_json().encode()) == PLAN
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN


def test_the_file_has_what_kafkas_tool_reads() -> None:
    data = json.loads(PLAN.to_json())
    assert data["version"] == 1
    assert data["partitions"] == [
        {
            "topic": "bills",
            "partition": 3,
            "replicas": [3],
            "log_dirs": ["/disk-2"],
            "before": [1],
            "size": 50,
        },
        {"topic": "orders", "partition": 0, "replicas": [2, 3], "before": [1, 3], "size": 700},
    ]


def test_a_file_of_kafkas_tool_has_no_former_replicas() -> None:
    plan = ReassignmentPlan.from_json(
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,3],'
        '"log_dirs":["any","any"]}]}'
    )
    move = PlannedMove((2, 3), None, None, ("any", "any"))
    assert plan == ReassignmentPlan({ORDERS: move})
    assert (move.adding, move.removing, move.bytes_to_copy) == ((2, 3), (), 0)
    assert json.loads(plan.to_json())["partitions"] == [
        {"topic": "orders", "partition": 0, "replicas": [2, 3], "log_dirs": ["any", "any"]}
    ]


def test_a_plan_sums_what_its_moves_copy() -> None:
    assert PLAN.moves[ORDERS].adding == (2,)
    assert PLAN.moves[ORDERS].removing == (1,)
    assert PLAN.bytes_to_copy == 750
    assert len(PLAN) == 2
    assert not ReassignmentPlan({})


def written(**fields: Any) -> str:
    partition = {"topic": "orders", "partition": 0, "replicas": [1], **fields}
    return json.dumps({"version": 1, "partitions": [partition]})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (b"\xff", "is not JSON"),
        ("[]", "is not an object with version 1"),
        ('{"version": 2, "partitions": []}', "is not an object with version 1"),
        ('{"version": 1}', "has no 'partitions'"),
        ('{"version": 1, "partitions": {}}', "has {} as 'partitions'"),
        ('{"version": 1, "partitions": [3]}', "3 in the plan is not a partition"),
        ('{"version": 1, "partitions": [{}]}', "has no 'topic'"),
        (written(topic=3), "has 3 as 'topic'"),
        (written(partition=-1), "has -1 as 'partition'"),
        (written(partition=True), "has True as 'partition'"),
        (written(replicas=[]), "as 'replicas'"),
        (written(replicas=[1, 1]), "as 'replicas'"),
        (written(replicas=["1"]), "as 'replicas'"),
        (written(before="12"), "has '12' as 'before'"),
        (written(size=0.5), "has 0.5 as 'size'"),
        (written(log_dirs=["any", "any"]), "has 2 log_dirs for the 1 replicas of orders-0"),
        ('{"version": 1, "partitions": [], "brokers": []}', "as 'brokers'"),
        ('{"version": 1, "partitions": [], "brokers": {"after": {"x": {}}}}', "no load for"),
        ('{"version": 1, "partitions": [], "brokers": {"after": {"1": {}}}}', "'replica_count'"),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str | bytes, why: str) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        ReassignmentPlan.from_json(text)
    assert why in str(caught.value)


def test_a_partition_may_not_stand_in_a_plan_twice() -> None:
    data = json.loads(written())
    data["partitions"] *= 2
    with pytest.raises(ArgumentValueError, match="has partition orders-0 twice"):
        ReassignmentPlan.from_json(json.dumps(data))


def test_a_plan_is_read_from_a_text_only() -> None:
    with pytest.raises(ArgumentTypeError, match="is not the text of a plan"):
        ReassignmentPlan.from_json({})  # type: ignore[arg-type]

"""Arguments of admin calls of wrong types, and the forms of a resource."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient import Admin, ConfigResource, Producer
from aiokclient.admin import ElectionType, ResourceType, TopicPartitionReplica
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.telemetry.otel import instrument

WRONG: dict[str, Callable[[Admin], Any]] = {
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(topics=[[]]),  # type: ignore[list-item]
    "describe_log_dirs of brokers": lambda admin: admin.describe_log_dirs([{}]),  # type: ignore[list-item]
    "describe_producers": lambda admin: admin.describe_producers(None),  # type: ignore[arg-type]
    "describe_producers of one": lambda admin: admin.describe_producers("orders"),  # type: ignore[arg-type]
    "describe_producers of lists": lambda admin: admin.describe_producers([[]]),  # type: ignore[list-item]
    "list_offsets": lambda admin: admin.list_offsets([]),  # type: ignore[arg-type]
    "elect_leaders": lambda admin: admin.elect_leaders(ElectionType.PREFERRED, "orders"),  # type: ignore[arg-type]
    "elect_leaders of a kind": lambda admin: admin.elect_leaders(0),  # type: ignore[arg-type]
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments(
        {("orders", 0): 1}  # type: ignore[dict-item]
    ),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments("orders"),  # type: ignore[arg-type]
    "rebalance_plan": lambda admin: admin.rebalance_plan("orders"),
    "rebalance_plan of a broker": lambda admin: admin.rebalance_plan(brokers=1),  # type: ignore[arg-type]
    "rebalance_plan of names": lambda admin: admin.rebalance_plan(brokers=["1"]),  # type: ignore[list-item]
    "drain_broker": lambda admin: admin.drain_broker("1"),  # type: ignore[arg-type]
    "drain_broker with a throttle": lambda admin: admin.drain_broker(1, throttle="1"),  # type: ignore[arg-type]
    "drain_broker with a function": lambda admin: admin.drain_broker(1, on_progress=1),  # type: ignore[arg-type]
    "apply_plan": lambda admin: admin.apply_plan({}),  # type: ignore[arg-type]
    "describe_plan_progress": lambda admin: admin.describe_plan_progress({}),  # type: ignore[arg-type]
    "cancel_plan": lambda admin: admin.cancel_plan(None),  # type: ignore[arg-type]
    "throttle_reassignments": lambda admin: admin.throttle_reassignments(0.5),  # type: ignore[arg-type]
    "describe_replica_log_dirs": lambda admin: admin.describe_replica_log_dirs(
        [("orders", 0)]  # type: ignore[list-item]
    ),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs(
        {TopicPartitionReplica("orders", 0, 1): 1}  # type: ignore[dict-item]
    ),
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets("g"),
    "alter_share_group_offsets": lambda admin: admin.alter_share_group_offsets("g", []),  # type: ignore[arg-type]
    "delete_share_group_offsets": lambda admin: admin.delete_share_group_offsets("g", "orders"),
    "create_share_group": lambda admin: admin.create_share_group("g", "orders", "earliest"),
    "describe_streams_groups": lambda admin: admin.describe_streams_groups("g"),
    "update_features": lambda admin: admin.update_features([]),  # type: ignore[arg-type]
    "describe_features of a name": lambda admin: admin.describe_features(node_id="1"),  # type: ignore[arg-type]
    "group_lag": lambda admin: admin.group_lag("g"),
    "delete_acls of an empty text": lambda admin: admin.delete_acls(""),  # type: ignore[arg-type]
    "delete_consumer_group_offsets": lambda admin: admin.delete_consumer_group_offsets("g", None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_argument_that_is_no_collection_of_the_right_type_is_refused(
    admin: Admin, name: str
) -> None:
    with pytest.raises(ArgumentTypeError, match="is not"):
        await WRONG[name](admin)


@pytest.mark.parametrize("given", ["topic", "TOPIC", ResourceType.TOPIC])
async def test_the_type_of_a_resource_may_be_given_by_its_name(admin: Admin, given: Any) -> None:
    resource = ConfigResource(given, "orders")
    assert resource == ConfigResource.topic("orders")
    assert str(resource) == "topic orders"
    assert pickle.loads(pickle.dumps(resource)) == resource
    (await admin.alter_configs({resource: {"retention.ms": 5_000}})).raise_for_errors()
    described = (await admin.describe_configs([resource]))[resource]
    assert not isinstance(described, Exception)
    assert described["retention.ms"].value == "5000"


@pytest.mark.parametrize("given", ["client-metrics", "client_metrics", "client metrics"])
def test_the_type_of_a_resource_may_be_written_as_kafkas_tools_do(given: str) -> None:
    assert ConfigResource(given, "m") == ConfigResource.client_metrics("m")


def test_a_resource_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(ArgumentValueError, match="'topics' is not a type of resource"):
        ConfigResource("topics", "orders")
    with pytest.raises(ArgumentTypeError, match="is not a type of resource"):
        ConfigResource(None, "orders")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["one", "-1", "1.5", "\u0661"])
async def test_the_name_of_a_broker_as_a_resource_is_its_id(admin: Admin, name: str) -> None:
    with pytest.raises(ValueError, match="is not the id of a broker"):
        await admin.describe_configs([ConfigResource("broker", name)])


def test_a_class_cannot_be_instrumented() -> None:
    with pytest.raises(ArgumentTypeError, match="cannot be instrumented"):
        instrument(Producer)

"""Calls of an admin client, or of a client, that another task closes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import (
    Admin,
    AnyBroker,
    ConfigResource,
    Coordinator,
    Leader,
    NewTopic,
    TopicPartition,
)
from aiokclient.admin import (
    ElectionType,
    OffsetSpec,
    PlannedMove,
    ReassignmentPlan,
    TopicPartitionReplica,
)
from aiokclient.errors import ClosedError
from aiokclient.protocol.messages import ListGroupsRequest

T0 = TopicPartition("t", 0)
R0 = TopicPartitionReplica("t", 0, 1)
PLAN = ReassignmentPlan({T0: PlannedMove((2, 1))})
MOMENTS = 14


async def copy_offsets(admin: Admin) -> Any:
    (await admin.alter_consumer_group_offsets("g", {T0: 0}, check=False)).raise_for_errors()
    return await admin.copy_offsets("g", "h")


CALLS: Mapping[str, Callable[[Admin], Coroutine[Any, Any, Any]]] = {
    "create_topics": lambda a: a.create_topics([NewTopic("new", 1, 1)]),
    "delete_topics": lambda a: a.delete_topics(["t"]),
    "describe_topics": lambda a: a.describe_topics(["t"]),
    "list_topics": lambda a: a.list_topics(),
    "create_partitions": lambda a: a.create_partitions({"t": 2}),
    "delete_records": lambda a: a.delete_records({T0: 0}),
    "describe_cluster": lambda a: a.describe_cluster(),
    "describe_configs": lambda a: a.describe_configs(
        [ConfigResource.topic("t"), ConfigResource.broker(1)]
    ),
    "alter_configs": lambda a: a.alter_configs({ConfigResource.topic("t"): {"retention.ms": 1}}),
    "list_offsets": lambda a: a.list_offsets({T0: OffsetSpec.LATEST}),
    "elect_leaders": lambda a: a.elect_leaders(ElectionType.PREFERRED),
    "alter_partition_reassignments": lambda a: a.alter_partition_reassignments({T0: [2, 1]}),
    "list_partition_reassignments": lambda a: a.list_partition_reassignments(),
    "rebalance_plan": lambda a: a.rebalance_plan(["t"]),
    "apply_plan": lambda a: a.apply_plan(PLAN),
    "apply_plan with a throttle": lambda a: a.apply_plan(PLAN, throttle=1_000),
    "describe_plan_progress": lambda a: a.describe_plan_progress(PLAN),
    "cancel_plan": lambda a: a.cancel_plan(PLAN),
    "throttle_reassignments": lambda a: a.throttle_reassignments(None),
    "describe_replica_log_dirs": lambda a: a.describe_replica_log_dirs([R0]),
    "alter_replica_log_dirs": lambda a: a.alter_replica_log_dirs({R0: "/embedded/broker-1"}),
    "describe_metadata_quorum": lambda a: a.describe_metadata_quorum(),
    "list_config_resources": lambda a: a.list_config_resources(),
    "describe_features": lambda a: a.describe_features(),
    "update_features": lambda a: a.update_features({"transaction.version": 2}),
    "list_groups": lambda a: a.list_groups(),
    "describe_groups": lambda a: a.describe_groups(["g", "h"]),
    "delete_groups": lambda a: a.delete_groups(["g", "h"]),
    "remove_members": lambda a: a.remove_members("g", ["m"]),
    "list_consumer_group_offsets": lambda a: a.list_consumer_group_offsets(["g"]),
    "alter_consumer_group_offsets": lambda a: a.alter_consumer_group_offsets("g", {T0: 0}),
    "delete_consumer_group_offsets": lambda a: a.delete_consumer_group_offsets("g", [T0]),
    "group_lag": lambda a: a.group_lag(["g"]),
    "reset_offsets": lambda a: a.reset_offsets("g", "latest", topics=["t"]),
    "copy_offsets": copy_offsets,
    "ensure_topics": lambda a: a.ensure_topics([NewTopic("t", 1), NewTopic("new", 1, 1)]),
    "list_transactions": lambda a: a.list_transactions(),
    "describe_transactions": lambda a: a.describe_transactions(["x"]),
    "describe_log_dirs": lambda a: a.describe_log_dirs(topics=["t"]),
    "describe_producers": lambda a: a.describe_producers([T0]),
    "fence_producers": lambda a: a.fence_producers(["x"]),
    "find_hanging_transactions": lambda a: a.find_hanging_transactions(topic="t"),
    "describe_user_scram_credentials": lambda a: a.describe_user_scram_credentials(),
    "describe_client_quotas": lambda a: a.describe_client_quotas(),
    "list_client_metrics": lambda a: a.list_client_metrics(),
    "delete_client_metrics": lambda a: a.delete_client_metrics(["m"]),
}


def is_closed(error: Any) -> bool:
    """Return whether this is a ClosedError, or results whose only errors are ClosedErrors."""
    errors = getattr(error, "errors", None)
    if isinstance(errors, Mapping):
        return all(isinstance(each, ClosedError) for each in errors.values())
    return isinstance(error, ClosedError)


@pytest.mark.parametrize("shared", [False, True], ids=["own client", "shared client"])
@pytest.mark.parametrize("name", CALLS)
def test_an_admin_call_raises_closed_error_when_another_task_closes_the_client(
    name: str, shared: bool
) -> None:
    async def scenario(world: World) -> None:
        for moment in one_in(8, range(MOMENTS), 4 * shared):
            client = world.client()
            async with client:
                admin = Admin(client=client) if shared else Admin(**world.options())
                await admin.start()
                call = asyncio.create_task(CALLS[name](admin))
                await asyncio.sleep(0.0005 * 1.5**moment if moment else 0)
                await (client if shared else admin).close()
                await asyncio.wait([call])
                error = call.exception()
                assert error is None or is_closed(error), (moment, repr(error))

    simulate(scenario, brokers=2)


@pytest.mark.parametrize("to", [AnyBroker(), Leader("t", 0), Coordinator("group", "g")])
def test_a_request_raises_closed_error_when_another_task_closes_the_client(to: Any) -> None:
    async def scenario(world: World) -> None:
        for moment in range(MOMENTS):
            client = world.client()
            await client.start()
            call = asyncio.create_task(client.request(ListGroupsRequest(), to=to))
            await asyncio.sleep(0.0005 * 1.5**moment)
            await client.close()
            await asyncio.wait([call])
            assert call.exception() is None or is_closed(call.exception())

    simulate(scenario, brokers=2)

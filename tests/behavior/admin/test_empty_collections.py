"""Admin calls with an empty collection end at once, with an empty answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokclient import Admin
from aiokclient.admin import ElectionType, ReassignmentPlan

TIMEOUT_S = 20.0
CALLS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "create_topics": lambda admin: admin.create_topics([], timeout=TIMEOUT_S),
    "delete_topics": lambda admin: admin.delete_topics([], timeout=TIMEOUT_S),
    "describe_topics": lambda admin: admin.describe_topics([], timeout=TIMEOUT_S),
    "create_partitions": lambda admin: admin.create_partitions({}, timeout=TIMEOUT_S),
    "delete_records": lambda admin: admin.delete_records({}, timeout=TIMEOUT_S),
    "describe_configs": lambda admin: admin.describe_configs([], timeout=TIMEOUT_S),
    "describe_configs of a mapping": lambda admin: admin.describe_configs({}, timeout=TIMEOUT_S),
    "alter_configs": lambda admin: admin.alter_configs({}, timeout=TIMEOUT_S),
    "describe_groups": lambda admin: admin.describe_groups([], timeout=TIMEOUT_S),
    "delete_groups": lambda admin: admin.delete_groups([], timeout=TIMEOUT_S),
    "remove_members": lambda admin: admin.remove_members("g", [], timeout=TIMEOUT_S),
    "list_consumer_group_offsets": lambda admin: admin.list_consumer_group_offsets(
        [], timeout=TIMEOUT_S
    ),
    "alter_consumer_group_offsets": lambda admin: admin.alter_consumer_group_offsets(
        "g", {}, timeout=TIMEOUT_S
    ),
    "delete_consumer_group_offsets": lambda admin: admin.delete_consumer_group_offsets(
        "g", [], timeout=TIMEOUT_S
    ),
    "list_offsets": lambda admin: admin.list_offsets({}, timeout=TIMEOUT_S),
    "elect_leaders": lambda admin: admin.elect_leaders(ElectionType.UNCLEAN, [], timeout=TIMEOUT_S),
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments(
        {}, timeout=TIMEOUT_S
    ),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments(
        [], timeout=TIMEOUT_S
    ),
    "rebalance_plan": lambda admin: admin.rebalance_plan([], timeout=TIMEOUT_S),
    "cancel_plan": lambda admin: admin.cancel_plan(ReassignmentPlan({}), timeout=TIMEOUT_S),
    "describe_replica_log_dirs": lambda admin: admin.describe_replica_log_dirs(
        [], timeout=TIMEOUT_S
    ),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs({}, timeout=TIMEOUT_S),
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets({}, timeout=TIMEOUT_S),
    "alter_share_group_offsets": lambda admin: admin.alter_share_group_offsets(
        "g", {}, timeout=TIMEOUT_S
    ),
    "delete_share_group_offsets": lambda admin: admin.delete_share_group_offsets(
        "g", [], timeout=TIMEOUT_S
    ),
    "create_share_group": lambda admin: admin.create_share_group(
        "g", [], "latest", timeout=TIMEOUT_S
    ),
    "describe_streams_groups": lambda admin: admin.describe_streams_groups([], timeout=TIMEOUT_S),
    "list_config_resources": lambda admin: admin.list_config_resources([], timeout=TIMEOUT_S),
    "update_features": lambda admin: admin.update_features({}, timeout=TIMEOUT_S),
    "group_lag": lambda admin: admin.group_lag([], timeout=TIMEOUT_S),
    "reset_offsets": lambda admin: admin.reset_offsets("g", {}, timeout=TIMEOUT_S),
    "reset_offsets of no topics": lambda admin: admin.reset_offsets(
        "g", "latest", topics=[], timeout=TIMEOUT_S
    ),
    "ensure_topics": lambda admin: admin.ensure_topics([], timeout=TIMEOUT_S),
    "describe_transactions": lambda admin: admin.describe_transactions([], timeout=TIMEOUT_S),
    "describe_log_dirs of no brokers": lambda admin: admin.describe_log_dirs([], timeout=TIMEOUT_S),
    "describe_log_dirs of nothing": lambda admin: admin.describe_log_dirs(
        [], [], timeout=TIMEOUT_S
    ),
    "describe_producers": lambda admin: admin.describe_producers([], timeout=TIMEOUT_S),
    "fence_producers": lambda admin: admin.fence_producers([], timeout=TIMEOUT_S),
    "create_acls": lambda admin: admin.create_acls([], timeout=TIMEOUT_S),
    "delete_acls": lambda admin: admin.delete_acls([], timeout=TIMEOUT_S),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(
        [], timeout=TIMEOUT_S
    ),
    "alter_user_scram_credentials": lambda admin: admin.alter_user_scram_credentials(
        [], timeout=TIMEOUT_S
    ),
    "describe_delegation_token": lambda admin: admin.describe_delegation_token(
        [], timeout=TIMEOUT_S
    ),
    "alter_client_quotas": lambda admin: admin.alter_client_quotas({}, timeout=TIMEOUT_S),
    "delete_client_metrics": lambda admin: admin.delete_client_metrics([], timeout=TIMEOUT_S),
}


@pytest.mark.parametrize("call", CALLS)
async def test_an_empty_collection_has_an_empty_answer(cluster_servers: Any, call: str) -> None:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        answer = await CALLS[call](admin)
    assert not answer


async def test_log_directories_without_topics_are_those_of_all_brokers(
    cluster_servers: Any,
) -> None:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        described = await admin.describe_log_dirs(topics=[], timeout=TIMEOUT_S)
        cluster = await admin.describe_cluster()
    assert set(described) == {broker.node_id for broker in cluster.brokers}
    assert all(not each.replicas for dirs in described.values() for each in dirs)

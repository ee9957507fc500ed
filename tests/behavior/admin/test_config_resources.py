"""The resources with configurations, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokclient import Admin
from aiokclient.admin import ConfigResource, ResourceType
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError


async def test_resources_are_listed_by_type(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic(1)
    mark = uuid.uuid4().hex[:12]
    group, metrics = ConfigResource.group(mark), ConfigResource.client_metrics(mark)
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        changes: Any = {
            group: {"consumer.session.timeout.ms": 50_000},
            metrics: {"interval.ms": 60_000},
        }
        (await admin.alter_configs(changes)).raise_for_errors()
        found = await admin.list_config_resources()
        while not {group, metrics} <= set(found):  # The brokers learn of it a moment later.
            found = await admin.list_config_resources()
        brokers = [each.node_id for each in (await admin.describe_cluster()).brokers]
        assert found == sorted(found)
        assert ConfigResource.topic(topic) in found
        for kind in ResourceType:
            expected = [each for each in found if each.type is kind]
            assert [e for e in await admin.list_config_resources([kind]) if e in found] == expected
        of_brokers = await admin.list_config_resources(["broker", "broker-logger"])
        assert of_brokers == [
            ConfigResource(kind, str(node))
            for kind in ("broker", "broker-logger")
            for node in brokers
        ]
        assert await admin.list_config_resources([]) == []
        with pytest.raises(ArgumentValueError, match="'topics' is not a type of resource"):
            await admin.list_config_resources(["topics"])
        with pytest.raises(ArgumentTypeError, match="is not a collection"):
            await admin.list_config_resources("topic")
        (
            await admin.alter_configs({group: {"consumer.session.timeout.ms": None}})
        ).raise_for_errors()
        (await admin.delete_client_metrics([mark])).raise_for_errors()

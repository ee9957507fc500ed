"""Tests of subscriptions to the metrics of clients: list, describe, alter, and delete."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokclient.admin import Admin, ConfigResource, ConfigSource, ConfigType
from aiokclient.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    UnsupportedVersionError,
    UsageError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

PATIENCE_S = 60.0
OPTIONS = {
    "metrics": "org.apache.kafka.producer.,org.apache.kafka.consumer.",
    "interval.ms": 60_000,
    "match": "client_id=orders-.*,client_source_address=10\\..*",
}


def new_name() -> str:
    return f"metrics-{uuid.uuid4().hex[:8]}"


async def until(predicate: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the predicate is true.

    A broker learns of a change a moment after the controller does.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not await predicate():
        assert time.monotonic() < deadline


async def test_subscriptions_are_created_listed_described_and_deleted(
    cluster_servers: Any,
) -> None:
    name, other = new_name(), new_name()
    resource = ConfigResource.client_metrics(name)
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:

        async def listed(*names: str) -> bool:
            return [
                each for each in await admin.list_client_metrics() if each in (name, other)
            ] == (sorted(names))

        assert await listed()
        changes: dict[ConfigResource, Any] = {
            resource: OPTIONS,
            ConfigResource.client_metrics(other): {"metrics": "*"},
        }
        (await admin.alter_configs(changes)).raise_for_errors()
        await until(lambda: listed(name, other))
        described = (await admin.describe_configs([resource])).raise_for_errors()[resource]
        assert {each.name: each.value for each in described.values()} == {
            key: str(value) for key, value in OPTIONS.items()
        }
        assert {each.source for each in described.values()} == {ConfigSource.CLIENT_METRICS}
        assert described["metrics"].type is ConfigType.LIST
        (await admin.alter_configs({resource: {"match": None}})).raise_for_errors()

        async def default() -> bool:
            found = (await admin.describe_configs([resource])).raise_for_errors()[resource]
            return found["match"].is_default and not found["interval.ms"].is_default

        await until(default)
        deleted = await admin.delete_client_metrics([name, other, new_name()])
        assert deleted.ok
        assert len(deleted) == 3
        await until(lambda: listed())


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("interval.ms", 99, InvalidRequestError),
        ("interval.ms", 3_600_001, InvalidRequestError),
        ("interval.ms", "often", InvalidConfigurationError),
        ("match", "client=a", InvalidConfigurationError),
        ("match", "client_id=[", InvalidConfigurationError),
        ("unknown", "1", InvalidRequestError),
    ],
)
async def test_wrong_options_of_client_metrics_are_refused(
    cluster_servers: Any, option: str, value: object, expected: type[Exception]
) -> None:
    resource = ConfigResource.client_metrics(new_name())
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        changes: dict[ConfigResource, Any] = {resource: {option: value}}
        for validate_only in (True, False):
            (error,) = (
                await admin.alter_configs(changes, validate_only=validate_only)
            ).errors.values()
            assert isinstance(error, expected)
        assert resource.name not in await admin.list_client_metrics()


async def test_a_subscription_without_a_name_is_refused(cluster_servers: Any) -> None:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        result = await admin.delete_client_metrics([""])
        assert isinstance(result.errors[""], InvalidRequestError)


async def test_validating_creates_nothing(cluster_servers: Any) -> None:
    resource = ConfigResource.client_metrics(new_name())
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        (await admin.alter_configs({resource: OPTIONS}, validate_only=True)).raise_for_errors()
        assert resource.name not in await admin.list_client_metrics()


async def test_brokers_that_list_nothing_else_are_asked_in_their_version() -> None:
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        cluster.limit_versions({ApiKey.LIST_CONFIG_RESOURCES: (0, 0)})
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            resource = ConfigResource.client_metrics("all")
            (await admin.alter_configs({resource: {"metrics": "*"}})).raise_for_errors()
            assert await admin.list_client_metrics() == ["all"]


async def test_the_missing_request_is_named_with_older_brokers() -> None:
    async with EmbeddedCluster() as cluster:
        cluster.limit_versions({ApiKey.LIST_CONFIG_RESOURCES: None})
        async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            with pytest.raises(UnsupportedVersionError, match="ListConfigResources"):
                await admin.list_client_metrics()


async def test_a_single_name_is_refused(cluster_servers: Any) -> None:
    async with Admin(bootstrap_servers=cluster_servers.bootstrap) as admin:
        with pytest.raises(UsageError, match="Pass a list"):
            await admin.delete_client_metrics("all")


def test_resources_name_their_kind() -> None:
    assert str(ConfigResource.client_metrics("all")) == "client metrics all"

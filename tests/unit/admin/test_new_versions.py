"""Tests of calls about offsets and features with brokers that know only older versions."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient import Admin, TopicPartition
from aiokclient.admin import FeatureUpdate, ListedOffset, OffsetSpec, ResourceType, UpgradeType
from aiokclient.errors import ClusterAuthorizationError, UnsupportedVersionError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


@pytest.mark.parametrize(("version", "known"), [(1, 2), (6, 2), (7, 3), (8, 4), (9, 5), (11, 6)])
async def test_only_the_offsets_that_a_broker_does_not_know_fail(
    cluster: EmbeddedCluster, admin: Admin, version: int, known: int
) -> None:
    cluster.limit_versions({ApiKey.LIST_OFFSETS: (1, version)})
    partitions = [TopicPartition(name, index) for name in ("orders", "bills") for index in range(3)]
    results = await admin.list_offsets(dict(zip(partitions, OffsetSpec, strict=True)))
    assert list(results.succeeded) == partitions[:known]
    assert {type(error) for error in results.errors.values()} <= {UnsupportedVersionError}
    for tp, spec in list(zip(partitions, OffsetSpec, strict=True))[known:]:
        assert spec.name in str(results[tp])
    epoch = None if version < 4 else 0
    assert results[partitions[1]] == ListedOffset(0, None, epoch)


async def test_old_brokers_have_no_last_stable_offset(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    cluster.limit_versions({ApiKey.LIST_OFFSETS: (1, 1)})
    specs = {TopicPartition("orders", 0): OffsetSpec.LATEST}
    results = await admin.list_offsets(specs, isolation_level="read_committed")
    assert [type(error) for error in results.errors.values()] == [UnsupportedVersionError]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_level_changes_with_every_version_of_the_request(
    cluster: EmbeddedCluster, admin: Admin, version: int
) -> None:
    cluster.limit_versions({ApiKey.UPDATE_FEATURES: (0, version)})
    cluster.set_transaction_version(1)
    before = await admin.describe_features()
    (await admin.update_features({"transaction.version": 2})).raise_for_errors()
    after = await admin.describe_features()
    assert (before.finalized["transaction.version"], after.finalized["transaction.version"]) == (
        1,
        2,
    )
    assert before.epoch is not None
    assert after.epoch is not None
    assert after.epoch > before.epoch
    down = {"transaction.version": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)}
    results = await admin.update_features(down)
    assert results.ok is (version > 0)
    results = await admin.update_features({"transaction.version": 2}, validate_only=True)
    assert results.ok is (version > 0)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
async def test_features_are_those_that_the_version_can_name(
    cluster: EmbeddedCluster, admin: Admin, version: int
) -> None:
    cluster.limit_versions({ApiKey.API_VERSIONS: (0, version)})
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as other:
        features = await other.describe_features()
    assert ("transaction.version" in features.supported) is (version > 3)
    assert ("metadata.version" in features.supported) is (version > 2)
    assert (features.epoch is None) is (version < 3)


async def test_old_brokers_list_only_client_metrics(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.limit_versions({ApiKey.LIST_CONFIG_RESOURCES: (0, 0)})
    assert await admin.list_config_resources([ResourceType.CLIENT_METRICS]) == []
    with pytest.raises(UnsupportedVersionError):
        await admin.list_config_resources()


async def test_the_text_of_an_error_is_no_dump_of_a_request(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    def change(request: Any, response: Any) -> Any:
        response.error_code = ClusterAuthorizationError.code
        response.error_message = "Request Request(processor=0, connectionId=1) is not authorized."
        return response

    with cluster.alter(ApiKey.UPDATE_FEATURES, change):
        results = await admin.update_features({"transaction.version": 2})
    error = results["transaction.version"]
    assert isinstance(error, ClusterAuthorizationError)
    assert "processor" not in str(error)

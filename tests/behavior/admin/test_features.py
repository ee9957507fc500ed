"""The features of a cluster, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiokclient import Admin
from aiokclient.admin import FeatureUpdate, SupportedLevels, UpgradeType
from aiokclient.errors import InvalidUpdateVersionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError

TRANSACTIONS = "transaction.version"


async def test_features_have_supported_levels_and_a_finalized_one(admin: Admin) -> None:
    features = await admin.describe_features()
    assert features.supported[TRANSACTIONS] == SupportedLevels(0, 2)
    assert features.supported["group.version"] == SupportedLevels(0, 1)
    assert features.finalized[TRANSACTIONS] == 2
    assert set(features.finalized) <= set(features.supported)
    for name, level in features.finalized.items():
        lowest, highest = features.supported[name]
        assert lowest <= level <= highest
    assert features.epoch is not None


async def test_every_broker_describes_its_features(admin: Admin) -> None:
    expected = await admin.describe_features()
    for broker in (await admin.describe_cluster()).brokers:
        assert await admin.describe_features(node_id=broker.node_id) == expected


@pytest.mark.parametrize("validate_only", [True, False])
async def test_a_level_that_a_feature_has_already_is_accepted(
    admin: Admin, validate_only: bool
) -> None:
    before = await admin.describe_features()
    results = await admin.update_features({TRANSACTIONS: 2}, validate_only=validate_only)
    assert results.raise_for_errors() == {TRANSACTIONS: None}
    assert (await admin.describe_features()).finalized == before.finalized


@pytest.mark.parametrize(
    "updates",
    [
        {TRANSACTIONS: 1},
        {TRANSACTIONS: 3},
        {"no.such.feature": 1},
        {TRANSACTIONS: FeatureUpdate(2, UpgradeType.UPGRADE), "no.such.feature": 1},
    ],
    ids=["downgrade", "unsupported", "unknown", "one of two"],
)
async def test_a_level_that_is_refused_fails_all_features(
    admin: Admin, updates: Mapping[str, int | FeatureUpdate]
) -> None:
    results = await admin.update_features(updates)
    assert list(results) == list(updates)
    assert {type(each) for each in results.errors.values()} == {InvalidUpdateVersionError}
    assert len(results.errors) == len(updates)
    assert all(error.message for error in results.errors.values())


async def test_levels_that_do_not_exist_are_refused_or_sent_as_they_are(admin: Admin) -> None:
    for update in (-1, 1 << 15):
        with pytest.raises(ArgumentValueError, match="is not a level of feature"):
            await admin.update_features({TRANSACTIONS: update})
    with pytest.raises(ArgumentValueError, match="is no upgrade"):
        await admin.update_features({TRANSACTIONS: 0})
    for level in (-1, 0):
        results = await admin.update_features({TRANSACTIONS: level}, check=False)
        assert isinstance(results[TRANSACTIONS], InvalidUpdateVersionError)
    wrong: Any = {TRANSACTIONS: "2"}
    with pytest.raises(ArgumentTypeError, match="is not a level"):
        await admin.update_features(wrong)
    assert await admin.update_features({}) == {}

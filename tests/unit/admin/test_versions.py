"""Tests that requests to older brokers contain only what their API versions support."""

from __future__ import annotations

from typing import Any

import pytest
from world import World, simulate

from aiokclient.admin import Admin
from aiokclient.errors import IllegalStateError, UnsupportedVersionError
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


@pytest.mark.parametrize("version", [1, 5, 6])
async def test_topics_are_deleted_by_name(
    cluster: EmbeddedCluster, admin: Admin, version: int
) -> None:
    cluster.limit_versions({ApiKey.DELETE_TOPICS: (1, version)})
    results = await admin.delete_topics(["orders", "nope"])
    assert list(results.succeeded) == ["orders"]
    assert [error.name for error in results.errors.values()] == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert list(await admin.list_topics()) == ["bills"]


async def test_old_brokers_delete_no_topics_by_id(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.limit_versions({ApiKey.DELETE_TOPICS: (1, 5)})
    topic_id = (await admin.list_topics())["orders"].topic_id
    assert topic_id is not None
    results = await admin.delete_topics([topic_id, "bills"])
    assert [type(error) for error in results.errors.values()] == [UnsupportedVersionError] * 2
    assert len(await admin.list_topics()) == 2


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_remove_members_works_with_every_version_of_its_request(version: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.LEAVE_GROUP: (0, version)})
        async with (
            world.consumer("t", group_id="g") as one,
            world.consumer("t", group_id="g") as other,
            Admin(**world.options()) as admin,
        ):
            members = [each.group_metadata().member_id for each in (one, other)]
            results = await admin.remove_members("g", [*members, "nope"])
            assert list(results.succeeded) == members
            refused = [error.name for error in results.errors.values()]
            assert refused == ["UNKNOWN_MEMBER_ID"]

    simulate(scenario)


async def test_old_brokers_know_no_static_members(cluster: EmbeddedCluster, admin: Admin) -> None:
    cluster.limit_versions({ApiKey.LEAVE_GROUP: (0, 2)})
    results = await admin.remove_members("g", ["i"], static=True)
    assert [type(error) for error in results.errors.values()] == [UnsupportedVersionError]


@pytest.mark.parametrize("offered", [None, (0, 2)])
async def test_describe_groups_fails_when_the_broker_is_too_old(
    cluster: EmbeddedCluster, admin: Admin, offered: tuple[int, int] | None
) -> None:
    cluster.limit_versions({ApiKey.DESCRIBE_GROUPS: offered})
    results = await admin.describe_groups(["g"], include_authorized_operations=True)
    assert [type(error) for error in results.errors.values()] == [UnsupportedVersionError]


@pytest.mark.parametrize("option", ["states", "types"])
async def test_a_text_is_no_collection_of_states(admin: Admin, option: str) -> None:
    wrong: Any = {option: "Stable"}
    with pytest.raises(IllegalStateError, match="Pass a list"):
        await admin.list_groups(**wrong)

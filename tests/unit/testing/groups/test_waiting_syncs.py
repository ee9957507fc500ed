"""Followers that wait in SyncGroup for a leader that is silent."""

import asyncio

import pytest
from virtual_group import in_virtual_time

from aiokclient import AclOperation
from aiokclient.testing import EmbeddedCluster

REBALANCE_IN_PROGRESS = 27


@pytest.mark.parametrize("seed", range(6))
def test_followers_that_wait_in_sync_group_are_kept_when_the_leader_is_removed(seed: int) -> None:
    async def scenario(world):
        members = [await world.make(rebalance_timeout_ms=60_000) for _ in range(3)]
        leader, *followers = await world.settled(*members, sync=False)
        # The requests of the followers wait until the session of the leader ends, a little before
        # theirs would.
        await asyncio.sleep(0.1)
        assert await asyncio.gather(*(each.beat() for each in followers)) == [0, 0]
        answers = await asyncio.gather(*(each.sync() for each in followers))
        assert answers == [REBALANCE_IN_PROGRESS] * 2
        await asyncio.sleep(4)
        assert world.members == {each.member_id for each in followers}
        await world.settled(*followers)
        assert leader.member_id not in world.members

    in_virtual_time(scenario, seed=seed)


async def test_acls_take_the_operations_of_the_package() -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with EmbeddedCluster(configs={"authorizer.class.name": authorizer}) as cluster:
        cluster.allow("User:a", AclOperation.READ, topic="t")
        cluster.deny("User:a", AclOperation.WRITE, topic="t")
        with pytest.raises(ValueError, match="Use one of"):
            cluster.allow("User:a", AclOperation.ANY, topic="t")

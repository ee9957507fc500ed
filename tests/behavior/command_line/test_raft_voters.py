"""Voters of the quorum of real controllers, which are removed and added again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Admin
from aiokclient.admin import QuorumInfo, RaftVoterEndpoint

pytestmark = [pytest.mark.walk, pytest.mark.kafka]
LISTENER = "CONTROLLER"


@pytest.fixture(scope="module")
def cluster(java: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(KAFKA, brokers=1, controllers=3) as cluster:
        asyncio.run(make_dynamic(cluster))
        yield cluster


async def make_dynamic(cluster: KafkaCluster) -> None:
    """Let voters be added and removed (KIP-853)."""
    async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        (await admin.update_features({"kraft.version": 1})).raise_for_errors()
        await until(admin, lambda quorum: all(each.directory_id for each in quorum.voters))


async def until(admin: Admin, is_right: Callable[[QuorumInfo], bool]) -> QuorumInfo:
    async with asyncio.timeout(60):
        while not is_right(quorum := await admin.describe_metadata_quorum()):
            pass
        return quorum


def ask(cluster: KafkaCluster, call: Callable[[Admin], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            return await call(admin)

    return asyncio.run(main())


def list_ids(quorum: QuorumInfo) -> set[int]:
    return {each.replica_id for each in quorum.voters}


def list_observers(quorum: QuorumInfo) -> set[int]:
    return {each.replica_id for each in quorum.observers}


async def choose_follower(admin: Admin) -> int:
    quorum = await admin.describe_metadata_quorum()
    return max(list_ids(quorum) - {quorum.leader_id})


def find_address(cluster: KafkaCluster, node: int) -> tuple[str, int]:
    host, port = cluster.controllers.split(",")[node - 100].split(":")
    return host, int(port)


def test_a_voter_is_removed_and_added_again_by_calls(cluster: KafkaCluster) -> None:
    async def main(admin: Admin) -> None:
        node = await choose_follower(admin)
        quorum = await admin.describe_metadata_quorum()
        (directory_id,) = (v.directory_id for v in quorum.voters if v.replica_id == node)
        assert directory_id is not None
        await admin.remove_raft_voter(node, directory_id)
        quorum = await until(admin, lambda quorum: node not in list_ids(quorum))
        assert len(quorum.voters) == 2
        await until(admin, lambda quorum: node in list_observers(quorum))
        endpoint = RaftVoterEndpoint(LISTENER, *find_address(cluster, node))
        await admin.add_raft_voter(node, directory_id, [endpoint])
        quorum = await until(admin, lambda quorum: node in list_ids(quorum))
        assert quorum.endpoints[node] == (endpoint,)

    ask(cluster, main)


def test_a_voter_is_removed_and_added_again_by_commands(cluster: KafkaCluster, run_on: Any) -> None:
    run = run_on(cluster.bootstrap)
    node = ask(cluster, choose_follower)
    removed = run("quorum", "remove", str(node), "--yes")
    assert removed.code == 0, removed
    ask(cluster, lambda admin: until(admin, lambda quorum: node in list_observers(quorum)))
    host, port = find_address(cluster, node)
    added = run("quorum", "add", str(node), "--endpoint", f"{LISTENER}://{host}:{port}")
    assert added.code == 0, added
    described = json.loads(run("quorum", "describe", "--json").out)
    assert node in [each["replica_id"] for each in described["voters"]]

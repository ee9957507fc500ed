"""The metadata quorum and registrations, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiokclient import Admin
from aiokclient.admin import NewTopic, RaftVoterEndpoint
from aiokclient.errors import (
    BrokerIdNotRegisteredError,
    ControllerIdNotRegisteredError,
    IllegalStateError,
    InconsistentClusterIdError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from aiokclient.errors.local import ArgumentTypeError

ENDPOINTS = [RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 9)]


async def test_the_leader_of_the_quorum_is_a_voter(admin: Admin) -> None:
    quorum = await admin.describe_metadata_quorum()
    voters = {each.replica_id: each for each in quorum.voters}
    leader = voters[quorum.leader_id]
    assert quorum.leader_epoch > 0
    assert leader.directory_id is None
    assert leader.log_end_offset >= quorum.high_watermark >= 0
    assert leader.last_fetch_timestamp is not None
    assert leader.last_caught_up_timestamp is not None
    assert set(quorum.endpoints) == set(voters)
    assert {each.listener for each in quorum.endpoints[quorum.leader_id]} == {"CONTROLLER"}
    brokers = {each.node_id for each in (await admin.describe_cluster()).brokers}
    assert brokers <= {each.replica_id for each in (*quorum.voters, *quorum.observers)}


async def test_voters_that_an_option_lists_do_not_change(admin: Admin) -> None:
    cluster_id = (await admin.describe_cluster()).cluster_id
    some = uuid.uuid4()
    for right in (None, cluster_id):
        with pytest.raises(UnsupportedVersionError, match=r"kraft\.version feature is 0"):
            await admin.add_raft_voter(77, some, ENDPOINTS, cluster_id=right)
        with pytest.raises(UnsupportedVersionError, match=r"kraft\.version feature is 0"):
            await admin.remove_raft_voter(1, some, cluster_id=right)
    with pytest.raises(InconsistentClusterIdError):
        await admin.add_raft_voter(77, some, ENDPOINTS, cluster_id="another")
    with pytest.raises(InconsistentClusterIdError):
        await admin.remove_raft_voter(1, some, cluster_id="another")
    for wrong in ("localhost:9", [("CONTROLLER", "127.0.0.1", 9)]):
        with pytest.raises(ArgumentTypeError):
            await admin.add_raft_voter(77, some, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="is not a UUID"):
        await admin.remove_raft_voter(1, str(some))  # type: ignore[arg-type]


async def test_what_is_not_registered_cannot_be_unregistered(admin: Admin) -> None:
    for check in (True, False):
        with pytest.raises(BrokerIdNotRegisteredError, match="Broker ID 77 is not currently"):
            await admin.unregister_broker(77, check=check)
        with pytest.raises(ControllerIdNotRegisteredError, match="Controller ID 77 is not"):
            await admin.unregister_controller(77, check=check)


async def test_what_is_in_use_is_not_unregistered(admin: Admin) -> None:
    (broker, *_) = (await admin.describe_cluster()).brokers
    with pytest.raises(IllegalStateError, match=f"Broker {broker.node_id} is running"):
        await admin.unregister_broker(broker.node_id)
    leader = (await admin.describe_metadata_quorum()).leader_id
    with pytest.raises(IllegalStateError, match=f"Controller {leader} is a voter"):
        await admin.unregister_controller(leader)
    with pytest.raises(InvalidRequestError, match="cannot unregister itself while it is active"):
        await admin.unregister_controller(leader, check=False)
    with pytest.raises(ArgumentTypeError, match="is not the id of a broker"):
        await admin.unregister_broker("1")  # type: ignore[arg-type]


async def test_a_broker_that_does_not_run_is_unregistered_until_it_starts(brokers: Any) -> None:
    async with Admin(bootstrap_servers=brokers.servers) as admin:

        async def list_ids(fenced: bool) -> set[int]:
            cluster = await admin.describe_cluster(include_fenced_brokers=fenced)
            return {each.node_id for each in cluster.brokers}

        brokers.stop(3)
        try:
            async with asyncio.timeout(30):
                while 3 in await list_ids(fenced=False):
                    pass
            assert 3 in await list_ids(fenced=True)
            await admin.unregister_broker(3)
            async with asyncio.timeout(30):
                while 3 in await list_ids(fenced=True):
                    pass
            with pytest.raises(BrokerIdNotRegisteredError):
                await admin.unregister_broker(3)
            topic = NewTopic(f"few-{uuid.uuid4().hex[:12]}", 1, 3)
            created = await admin.create_topics([topic])
            assert isinstance(created[topic.name], InvalidReplicationFactorError)
        finally:
            brokers.start(3)
        async with asyncio.timeout(30):
            while 3 not in await list_ids(fenced=False):
                pass
        (await admin.create_topics([topic])).raise_for_errors()

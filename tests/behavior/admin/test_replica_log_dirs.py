"""The log directories of replicas, the same on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from aiokclient import Admin, TopicPartition
from aiokclient.admin import ReplicaLogDirs, TopicPartitionReplica
from aiokclient.errors import (
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from aiokclient.errors.local import ArgumentTypeError


async def find_replica(admin: Admin, topic: str) -> tuple[TopicPartitionReplica, str]:
    """Return the only replica of a topic with one partition, and its log directory."""
    for broker, directories in (await admin.describe_log_dirs(topics=[topic])).succeeded.items():
        for directory in directories:
            if TopicPartition(topic, 0) in directory.replicas:
                return TopicPartitionReplica(topic, 0, broker), directory.path
    raise AssertionError(f"{topic} is in no log directory")


async def test_a_replica_has_a_directory_on_its_broker(cluster_servers: Any, admin: Admin) -> None:
    replica, path = await find_replica(admin, await cluster_servers.new_topic(1))
    beyond = replica._replace(partition=7)
    absent = replica._replace(topic=f"absent-{uuid.uuid4().hex[:12]}")
    results = await admin.describe_replica_log_dirs([beyond, replica, absent])
    assert results.raise_for_errors() == {
        beyond: ReplicaLogDirs(),
        replica: ReplicaLogDirs(path, 0, None, None),
        absent: ReplicaLogDirs(None, None, None, None),
    }
    assert list(results) == [beyond, replica, absent]


@pytest.mark.parametrize("check", [True, False])
async def test_a_replica_moves_only_to_a_directory_of_its_broker(
    cluster_servers: Any, admin: Admin, check: bool
) -> None:
    replica, path = await find_replica(admin, await cluster_servers.new_topic(1))
    results = await admin.alter_replica_log_dirs({replica: path}, check=check)
    assert results.raise_for_errors() == {replica: None}
    results = await admin.alter_replica_log_dirs({replica: f"{path}/"}, check=check)
    assert isinstance(results[replica], LogDirNotFoundError)
    beyond = replica._replace(partition=7)
    results = await admin.alter_replica_log_dirs({beyond: path}, check=check)
    assert isinstance(results[beyond], UnknownTopicOrPartitionError)


async def test_a_topic_that_does_not_exist_is_not_sent(cluster_servers: Any, admin: Admin) -> None:
    replica, path = await find_replica(admin, await cluster_servers.new_topic(1))
    absent = replica._replace(topic=f"absent-{uuid.uuid4().hex[:12]}")
    results = await admin.alter_replica_log_dirs({absent: path, replica: path})
    assert isinstance(results[absent], UnknownTopicOrPartitionError)
    assert results[replica] is None
    for wrong in (replica, "orders", [("orders", 0)]):
        with pytest.raises(ArgumentTypeError, match="is not a"):
            await admin.describe_replica_log_dirs(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("check", [True, False])
async def test_a_broker_without_the_replica_refuses_to_move_it(
    embedded_servers: Any, check: bool
) -> None:
    topic = await embedded_servers.new_topic(1)
    async with Admin(bootstrap_servers=embedded_servers.bootstrap) as admin:
        replica, path = await find_replica(admin, topic)
        other = replica._replace(broker_id=replica.broker_id % 3 + 1)
        ((there,),) = (await admin.describe_log_dirs([other.broker_id])).succeeded.values()
        results = await admin.alter_replica_log_dirs(
            {other: there.path, replica: path}, check=check
        )
        assert isinstance(results[other], ReplicaNotAvailableError)
        assert results[replica] is None

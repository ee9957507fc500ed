"""Tests of the description of log directories: versions, and brokers that fail or lag."""

from typing import Any

import pytest
from world import World, simulate

from aiokclient import TopicPartition
from aiokclient.admin import Admin, LogDirDescription, ReplicaLog
from aiokclient.errors import ApiTimeoutError, ClusterAuthorizationError, KafkaStorageError
from aiokclient.protocol import ApiKey

TP = TopicPartition("t", 0)


def size(world: World) -> int:
    """Write one batch of values with 1,000 bytes each. Return the total bytes of the values."""
    world.cluster.produce("t", [b"v" * 1_000] * 20)
    return 20 * 1_000


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_every_version_has_the_sizes(version: int) -> None:
    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.DESCRIBE_LOG_DIRS: (1, version)})
        written = size(world)
        async with Admin(**world.options()) as admin:
            found = (await admin.describe_log_dirs()).raise_for_errors()
        ((directory,),) = found.values()
        assert isinstance(directory, LogDirDescription)
        log = directory.replicas[TP]
        assert written < log.size < written + 400
        assert (log.offset_lag, log.is_future) == (0, False)
        if version < 4:
            assert (directory.total_bytes, directory.usable_bytes) == (None, None)
        else:
            assert directory.total_bytes is not None
            assert directory.usable_bytes == directory.total_bytes - log.size

    simulate(scenario)


def test_replicas_that_lag_have_the_size_of_what_they_have() -> None:
    async def scenario(world: World) -> None:
        size(world)
        leader = world.cluster.leader("t")
        follower = next(each for each in world.cluster.replicas("t") if each != leader)
        async with Admin(**world.options()) as admin:
            before = (await admin.describe_log_dirs()).raise_for_errors()
            with world.cluster.hold_replication("t", 0, broker=follower, in_sync=False):
                size(world)
                found = (await admin.describe_log_dirs(topics=["t"])).raise_for_errors()
        old, new = before[leader][0].replicas[TP], found[leader][0].replicas[TP]
        assert new.size == 2 * old.size
        assert found[follower][0].replicas[TP] == ReplicaLog(old.size, 20, is_future=False)

    simulate(scenario, brokers=2)


def test_a_broker_that_fails_does_not_affect_the_others() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            code = ClusterAuthorizationError.code
            world.cluster.fail(ApiKey.DESCRIBE_LOG_DIRS, code, broker=1)
            world.cluster.pause(2)
            results = await admin.describe_log_dirs([3, 1, 2], timeout=5)
            world.cluster.resume(2)
            assert list(results) == [3, 1, 2]
            assert list(results.succeeded) == [3]
            assert isinstance(results[1], ClusterAuthorizationError)
            assert isinstance(results[2], ApiTimeoutError)

    simulate(scenario, brokers=3)


def test_a_directory_that_is_offline_has_an_error() -> None:
    def change(request: Any, response: Any) -> Any:
        response.results[0].error_code = KafkaStorageError.code
        response.results[0].topics = []
        return response

    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            with world.cluster.alter(ApiKey.DESCRIBE_LOG_DIRS, change):
                found = (await admin.describe_log_dirs()).raise_for_errors()
        ((directory,),) = found.values()
        assert isinstance(directory.error, KafkaStorageError)
        assert directory.path in str(directory.error)
        assert directory.replicas == {}

    simulate(scenario)

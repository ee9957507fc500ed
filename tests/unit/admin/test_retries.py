"""Tests that an admin call retries only the items that failed, and returns each result once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient.admin import Admin, ConfigResource, NewTopic
from aiokclient.client import Client
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    CoordinatorLoadInProgressError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster
from aiokclient.types import TopicPartition

PASSING = [NotControllerError, RequestTimedOutError, ThrottlingQuotaExceededError]


def asked(cluster: EmbeddedCluster, api: ApiKey) -> list[Any]:
    return [request.message for request in cluster.requests if request.api is api]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.__name__)
async def test_only_failed_items_are_requested_again(
    cluster: EmbeddedCluster, admin: Admin, error: type[KafkaError]
) -> None:
    with cluster.fail(ApiKey.CREATE_TOPICS, error, times=2, topic="b"):
        results = await admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)])
    assert list(results.raise_for_errors()) == ["a", "b"]
    names = [
        [topic.name for topic in request.topics] for request in asked(cluster, ApiKey.CREATE_TOPICS)
    ]
    assert names == [["a", "b"], ["b"], ["b"]]


async def test_an_authorization_error_is_returned_without_a_retry(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    with cluster.fail(ApiKey.DELETE_TOPICS, TopicAuthorizationError, topic="bills"):
        results = await admin.delete_topics(["orders", "bills"])
    assert list(results.succeeded) == ["orders"]
    assert [type(error) for error in results.errors.values()] == [TopicAuthorizationError]
    assert len(asked(cluster, ApiKey.DELETE_TOPICS)) == 1


def test_the_last_error_is_the_cause_when_an_admin_call_times_out() -> None:
    async def scenario(world: World) -> None:
        quota = world.cluster.fail(
            ApiKey.CREATE_PARTITIONS, ThrottlingQuotaExceededError, topic="bills"
        )
        async with Admin(**world.options()) as admin:
            began = world.now
            with quota:
                results = await admin.create_partitions({"orders": 4, "bills": 4}, timeout=5)
            assert world.now - began == pytest.approx(5)
        assert list(results.succeeded) == ["orders"]
        error = results.errors["bills"]
        assert isinstance(error, ApiTimeoutError)
        assert "CreatePartitions for topic bills" in str(error)
        assert "THROTTLING_QUOTA_EXCEEDED (89)" in str(error)
        assert isinstance(error.__cause__, ThrottlingQuotaExceededError)

    simulate(scenario, brokers=3, topics={"orders": 3, "bills": 3})


@pytest.mark.parametrize("retry", [True, False])
@pytest.mark.parametrize(
    ("api", "call"),
    [
        (
            ApiKey.CREATE_TOPICS,
            lambda admin, **o: admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)], **o),
        ),
        (ApiKey.DELETE_TOPICS, lambda admin, **o: admin.delete_topics(["orders", "bills"], **o)),
        (
            ApiKey.CREATE_PARTITIONS,
            lambda admin, **o: admin.create_partitions({"orders": 4, "bills": 4}, **o),
        ),
    ],
    ids=["create", "delete", "grow"],
)
async def test_what_a_quota_refuses_is_repeated_unless_the_call_says_otherwise(
    cluster: EmbeddedCluster, admin: Admin, api: ApiKey, call: Any, retry: bool
) -> None:
    topic = "b" if api is ApiKey.CREATE_TOPICS else "bills"
    with cluster.fail(api, ThrottlingQuotaExceededError, times=1, topic=topic):
        results = await call(admin, retry_on_quota_violation=retry)
    assert len(asked(cluster, api)) == 1 + retry
    errors = {each: type(error) for each, error in results.errors.items()}
    assert errors == ({} if retry else {topic: ThrottlingQuotaExceededError})
    assert len(results) == 2


async def test_a_lost_connection_is_made_again(cluster: EmbeddedCluster, admin: Admin) -> None:
    with cluster.drop(ApiKey.DESCRIBE_CONFIGS, times=2):
        results = await admin.describe_configs([ConfigResource.topic("orders")])
    assert results.ok


async def test_records_are_deleted_at_each_leader(cluster: EmbeddedCluster, admin: Admin) -> None:
    partitions = [TopicPartition("orders", index) for index in range(3)]
    for partition in partitions:
        cluster.produce("orders", [b"v"] * 5, partition=partition.partition)
    deleted = await admin.delete_records({partitions[0]: 2, partitions[1]: -1, partitions[2]: 0})
    assert deleted.raise_for_errors() == dict(zip(partitions, (2, 5, 0), strict=True))
    assert len(asked(cluster, ApiKey.DELETE_RECORDS)) == 3


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError, LeaderNotAvailableError])
async def test_a_leader_that_moved_is_found(
    cluster: EmbeddedCluster, admin: Admin, error: type[KafkaError]
) -> None:
    partition = TopicPartition("orders", 0)
    with cluster.fail(ApiKey.DELETE_RECORDS, error, times=2, topic="orders", partition=0):
        results = await admin.delete_records({partition: 0})
    assert results.raise_for_errors() == {partition: 0}


async def test_one_brokers_failure_is_that_of_its_items(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    with cluster.fail(ApiKey.DESCRIBE_CONFIGS, TopicAuthorizationError, broker=2):
        resources = [ConfigResource.broker(1), ConfigResource.broker(2)]
        results = await admin.describe_configs(resources)
    assert list(results.succeeded) == resources[:1]
    assert list(results.errors) == resources[1:]


def test_a_stopped_broker_is_waited_for_until_the_time_is_up() -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            world.cluster.stop(3)
            resources = [ConfigResource.broker(1), ConfigResource.broker(3)]
            began = world.now
            results = await admin.describe_configs(resources, timeout=5)
            assert world.now - began == pytest.approx(5)
        assert list(results.succeeded) == resources[:1]
        assert isinstance(results.errors[resources[1]], KafkaError)

    simulate(scenario, brokers=3)


async def test_brokers_too_old_for_describe_cluster(
    cluster: EmbeddedCluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_id = (await admin.describe_cluster()).cluster_id
    with cluster.fail(ApiKey.DESCRIBE_CLUSTER, UnsupportedVersionError):
        described = await admin.describe_cluster()
        with pytest.raises(UnsupportedVersionError):
            await admin.describe_cluster(include_fenced_brokers=True)
    assert described.cluster_id == cluster_id
    assert [broker.node_id for broker in described.brokers] == [1, 2, 3]


async def test_a_cancelled_call_leaves_the_client_usable(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    with cluster.delay(ApiKey.CREATE_TOPICS, 5, times=1):
        call = asyncio.create_task(admin.create_topics([NewTopic("a", 1)]))
        await cluster.until(lambda: asked(cluster, ApiKey.CREATE_TOPICS))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert "orders" in await admin.list_topics()


async def test_every_call_raises_after_the_admin_was_closed(cluster: EmbeddedCluster) -> None:
    admin = Admin.from_properties({"bootstrap.servers": cluster.bootstrap_servers})
    async with admin:
        assert sorted(await admin.list_topics()) == ["bills", "orders"]
    with pytest.raises(ClosedError):
        await admin.list_topics()
    with pytest.raises(ClosedError):
        await admin.create_topics([NewTopic("a")])


async def test_connections_are_shared_with_a_client(cluster: EmbeddedCluster) -> None:
    async with (
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
        Admin(client=client, default_api_timeout_ms=20_000) as admin,
    ):
        assert sorted(await admin.list_topics()) == ["bills", "orders"]


@pytest.mark.parametrize("version", [2, 5])
def test_member_counts_as_removed_when_the_response_to_its_removal_was_lost(version: int) -> None:
    """The retried request fails with an unknown member, which means that the member is removed."""
    static = version >= 3

    async def scenario(world: World) -> None:
        world.cluster.limit_versions({ApiKey.LEAVE_GROUP: (0, version)})
        options = {"group_instance_id": "i"} if static else {}
        async with Admin(**world.options()) as admin:
            consumer = world.consumer("t", group_id="g", heartbeat_interval_ms=10_000, **options)
            await consumer.start()
            name = "i" if static else consumer.group_metadata().member_id
            with world.cluster.drop(ApiKey.LEAVE_GROUP, when="after", times=1):
                results = await admin.remove_members("g", [name], static=static)
            assert len(asked(world.cluster, ApiKey.LEAVE_GROUP)) == 2
            assert list(results.raise_for_errors()) == [name]
            await consumer.close()

    simulate(scenario)


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("error", [CoordinatorLoadInProgressError, NotCoordinatorError])
def test_member_is_unknown_when_the_attempts_before_have_removed_nobody(
    error: type[KafkaError], static: bool
) -> None:
    async def scenario(world: World) -> None:
        async with Admin(**world.options()) as admin:
            with world.cluster.fail(ApiKey.LEAVE_GROUP, error, times=2):
                results = await admin.remove_members("g", ["nobody"], static=static)
            assert len(asked(world.cluster, ApiKey.LEAVE_GROUP)) == 3
            assert isinstance(results["nobody"], UnknownMemberIdError)

    simulate(scenario)

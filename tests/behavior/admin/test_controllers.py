"""An admin client with `bootstrap_controllers`, on the controllers of a real Kafka (KIP-919)."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Admin, Client, NewTopic, TopicPartition
from aiokclient.admin import ConfigResource
from aiokclient.errors import (
    BrokerIdNotRegisteredError,
    ConfigError,
    ConnectionSetupError,
    IllegalStateError,
    KafkaError,
    MismatchedEndpointTypeError,
    SecurityDisabledError,
    UnsupportedVersionError,
)

CALLS = {
    "add_raft_voter",
    "alter_configs",
    "alter_partition_reassignments",
    "check_cluster",
    "create_acls",
    "delete_acls",
    "describe_acls",
    "describe_cluster",
    "describe_configs",
    "describe_features",
    "describe_metadata_quorum",
    "list_partition_reassignments",
    "remove_raft_voter",
    "unregister_broker",
    "unregister_controller",
    "update_features",
}
"""The calls that Java's client with `bootstrap.controllers` makes."""


@pytest.fixture(scope="module")
def quorum(java: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(KAFKA, brokers=1, controllers=3) as cluster:
        yield cluster


@pytest.fixture
async def controllers(quorum: KafkaCluster) -> AsyncIterator[Admin]:
    quorum.heal()
    async with Admin(bootstrap_controllers=quorum.controllers) as admin:
        yield admin


def public_calls() -> set[str]:
    inherited = {"start", "close", "client_instance_id"}
    return {
        name
        for name, each in inspect.getmembers(Admin)
        if inspect.iscoroutinefunction(each) and not name.startswith("_") and name not in inherited
    }


async def test_calls_that_controllers_do_not_answer_say_so() -> None:
    admin = Admin(bootstrap_controllers="127.0.0.1:1")
    assert public_calls() > CALLS
    for name in public_calls() - CALLS:
        call = getattr(admin, name)
        needed = [
            each
            for each in inspect.signature(call).parameters.values()
            if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        with pytest.raises(UnsupportedVersionError, match=f"Controllers do not answer {name}"):
            await call(*[None for _ in needed])


async def test_options_that_name_no_servers_or_two_kinds_are_refused() -> None:
    for wrong in ({}, {"bootstrap_servers": "a:1", "bootstrap_controllers": "b:1"}):
        with pytest.raises(ConfigError, match="bootstrap_controllers"):
            Admin(**wrong)
    with pytest.raises(ConfigError, match="together with bootstrap_servers or client="):
        Admin(client=Client(bootstrap_servers="a:1"), bootstrap_controllers="b:1")
    with pytest.raises(ConfigError, match="of an Admin"):
        Client(bootstrap_controllers="a:1")  # type: ignore[call-arg]
    made = Admin.from_properties({"bootstrap.controllers": "a:1,b:2"})
    assert "a:1, b:2" in repr(made)


async def test_controllers_describe_the_cluster_and_its_quorum(
    quorum: KafkaCluster, controllers: Admin
) -> None:
    described = await controllers.describe_cluster()
    assert described.cluster_id == quorum.cluster_id
    assert [each.node_id for each in described.brokers] == [100, 101, 102]
    info = await controllers.describe_metadata_quorum()
    assert info.leader_id == described.controller_id
    assert {each.replica_id for each in info.voters} == {100, 101, 102}
    features = await controllers.describe_features()
    for node in (100, 101, 102):
        assert (await controllers.describe_features(node_id=node)).finalized == features.finalized
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        other = await admin.describe_features()
        assert other.finalized == features.finalized
        assert (await admin.describe_cluster()).cluster_id == described.cluster_id


async def test_controllers_change_configs_reassignments_and_registrations(
    quorum: KafkaCluster, controllers: Admin
) -> None:
    name = f"controlled-{uuid.uuid4().hex[:8]}"
    topic, tp = ConfigResource.topic(name), TopicPartition(name, 0)
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    (await controllers.alter_configs({topic: {"retention.ms": 12345}})).raise_for_errors()
    results = await controllers.describe_configs([topic, ConfigResource.broker(101)])
    described = results.raise_for_errors()
    assert described[topic]["retention.ms"].value == "12345"
    assert described[ConfigResource.broker(101)]["node.id"].value == "101"
    (await controllers.alter_partition_reassignments({tp: [1]})).raise_for_errors()
    assert await controllers.list_partition_reassignments() == {}
    level = (await controllers.describe_features()).finalized["metadata.version"]
    results_ = await controllers.update_features({"metadata.version": level}, validate_only=True)
    assert isinstance(results_["metadata.version"], KafkaError | None)
    with pytest.raises(IllegalStateError, match="Broker 1 is running"):
        await controllers.unregister_broker(1)
    with pytest.raises(BrokerIdNotRegisteredError):
        await controllers.unregister_broker(77)
    with pytest.raises(SecurityDisabledError):
        await controllers.describe_acls()


async def test_calls_continue_with_the_next_active_controller(
    quorum: KafkaCluster, controllers: Admin
) -> None:
    name = f"led-{uuid.uuid4().hex[:8]}"
    topic = ConfigResource.topic(name)
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    former = (await controllers.describe_metadata_quorum()).leader_id
    quorum.kill(former)
    try:
        (await controllers.alter_configs({topic: {"retention.ms": 1}})).raise_for_errors()
        info = await controllers.describe_metadata_quorum()
        assert info.leader_id != former
        report = await controllers.check_cluster(timeout=20)
        (stopped,) = [each for each in report if each.check == "tcp"]
        assert f"controller {former} (" in stopped.subject or "bootstrap" in stopped.subject
    finally:
        quorum.start(former)


async def test_a_check_of_controllers_names_what_it_leaves_out(
    quorum: KafkaCluster, controllers: Admin
) -> None:
    async with asyncio.timeout(60):
        while not (report := await controllers.check_cluster()).ok:
            pass
    assert {each.check for each in report.passed} >= {"names", "tcp", "protocol", "quorum", "clock"}
    (left_out,) = [each for each in report if each.check == "brokers"]
    assert left_out.severity == "info"
    assert "bootstrap_servers" in left_out.advice
    again = await Admin(bootstrap_controllers=quorum.controllers).check_cluster()
    assert again.ok


async def test_addresses_of_the_wrong_kind_are_named(quorum: KafkaCluster) -> None:
    with pytest.raises(MismatchedEndpointTypeError, match="bootstrap_controllers"):
        await Admin(bootstrap_controllers=quorum.bootstrap).start()
    with pytest.raises(ConnectionSetupError, match="is a controller, not a broker"):
        await Admin(bootstrap_servers=quorum.controllers).start()
    report = await Admin(bootstrap_servers=quorum.controllers).check_cluster()
    assert {each.check for each in report} == {"protocol"}
    assert "is a controller" in report.findings[0].text

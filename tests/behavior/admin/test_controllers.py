"""An admin client with `bootstrap_controllers`, on controllers of both kinds of clusters (KIP-919).

The brokers of the embedded cluster are its controllers. The real Kafka has a broker and three other
nodes as controllers.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

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
from aiokclient.testing import EmbeddedCluster

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


class Quorum(NamedTuple):
    """The addresses of a cluster, the ids of its controllers, and how to stop and start these."""

    bootstrap: str
    controllers: str
    ids: list[int]
    stop: Callable[[int], Any]
    start: Callable[[int], Any]


@pytest.fixture(scope="module")
def real_quorum(java: str) -> Iterator[Quorum]:
    with KafkaCluster(KAFKA, brokers=1, controllers=3) as kafka:
        ids = [100, 101, 102]
        yield Quorum(kafka.bootstrap, kafka.controllers, ids, kafka.kill, kafka.start)


@pytest.fixture(scope="module")
def embedded_quorum() -> Iterator[Quorum]:
    with EmbeddedCluster(3) as cluster:
        bootstrap, controllers = cluster.bootstrap_servers, cluster.bootstrap_controllers
        yield Quorum(bootstrap, controllers, cluster.brokers, cluster.stop, cluster.start)


@pytest.fixture(params=["embedded_quorum"])
def quorum(request: pytest.FixtureRequest) -> Quorum:
    quorum: Quorum = request.getfixturevalue(request.param)
    return quorum


ON_BOTH = pytest.mark.parametrize(
    "quorum",
    ["embedded_quorum", pytest.param("real_quorum", marks=pytest.mark.kafka)],
    indirect=True,
)


@pytest.fixture
async def controllers(quorum: Quorum) -> AsyncIterator[Admin]:
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


@ON_BOTH
async def test_controllers_describe_the_cluster_and_its_quorum(
    quorum: Quorum, controllers: Admin
) -> None:
    described = await controllers.describe_cluster()
    assert [each.node_id for each in described.brokers] == quorum.ids
    info = await controllers.describe_metadata_quorum()
    assert info.leader_id == described.controller_id
    assert [each.replica_id for each in info.voters] == quorum.ids
    addresses = {node: each[0][1:] for node, each in info.endpoints.items()}
    assert addresses == {each.node_id: (each.host, each.port) for each in described.brokers}
    features = await controllers.describe_features()
    for node in quorum.ids:
        assert (await controllers.describe_features(node_id=node)).finalized == features.finalized
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        other = await admin.describe_features()
        assert other.finalized == features.finalized
        assert (await admin.describe_cluster()).cluster_id == described.cluster_id


@ON_BOTH
async def test_controllers_change_configs_reassignments_and_registrations(
    quorum: Quorum, controllers: Admin
) -> None:
    name = f"controlled-{uuid.uuid4().hex[:8]}"
    topic, tp = ConfigResource.topic(name), TopicPartition(name, 0)
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    (await controllers.alter_configs({topic: {"retention.ms": 12345}})).raise_for_errors()
    node = ConfigResource.broker(quorum.ids[1])

    async def read_options() -> list[str | None]:
        described = (await controllers.describe_configs([topic, node])).raise_for_errors()
        return [described[topic]["retention.ms"].value, described[node]["num.io.threads"].value]

    # Controllers describe what they have read of the log, a moment after they have written it.
    async with asyncio.timeout(30):
        while await read_options() != ["12345", "8"]:
            pass
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


@ON_BOTH
async def test_calls_continue_with_the_next_active_controller(
    quorum: Quorum, controllers: Admin
) -> None:
    name = f"led-{uuid.uuid4().hex[:8]}"
    topic = ConfigResource.topic(name)
    async with Admin(bootstrap_servers=quorum.bootstrap) as admin:
        (await admin.create_topics([NewTopic(name, 1, 1)])).raise_for_errors()
    former = (await controllers.describe_metadata_quorum()).leader_id
    quorum.stop(former)
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
    quorum: Quorum, controllers: Admin
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


@ON_BOTH
async def test_addresses_of_the_wrong_kind_are_named(quorum: Quorum) -> None:
    with pytest.raises(MismatchedEndpointTypeError, match="bootstrap_controllers"):
        await Admin(bootstrap_controllers=quorum.bootstrap).start()
    with pytest.raises(ConnectionSetupError, match="is a controller, not a broker"):
        await Admin(bootstrap_servers=quorum.controllers).start()
    report = await Admin(bootstrap_servers=quorum.controllers).check_cluster()
    assert {each.check for each in report} == {"protocol"}
    assert "is a controller" in report.findings[0].text

"""Tests that the levels of features are changed as in Kafka, by requests and by Kafka's tool."""

from __future__ import annotations

import asyncio

import pytest
from kafka_harness import JavaTool
from parity import named
from txn_raw import Txn, set_level

from aiokclient import Producer, TransactionOutcome
from aiokclient.protocol import messages
from aiokclient.protocol.messages.update_features import FeatureUpdateKey
from aiokclient.testing import EmbeddedCluster

NAME = "transaction.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3
TOOL = "org.apache.kafka.tools.FeatureCommand"


def levels(broker):
    asked = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    answer = broker.request(asked, 4)
    return {each.name: each.max_version_level for each in answer.finalized_features}


def scenario(broker):
    """Return the results of updates that are accepted or refused, and the levels after them."""
    seen = []

    def update(*changes, version=2, dry=False):
        keys = [
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in changes
        ]
        if version == 0:
            for key in keys:
                key.allow_downgrade, key.upgrade_type = key.upgrade_type != UPGRADE, 1
        request = messages.UpdateFeaturesRequest(
            timeout_ms=10_000, feature_updates=keys, validate_only=dry
        )
        answer = broker.request(request, version)
        results = sorted((each.feature, named(each.error_code)) for each in answer.results)
        seen.append((named(answer.error_code), results))

    set_level(broker.request, 2)
    for version in (0, 1, 2):
        update((NAME, 2, UPGRADE), version=version)
        update((NAME, 0, UPGRADE), version=version)
        update((NAME, 3, UPGRADE), version=version)
        update((NAME, -1, UPGRADE), version=version)
        update(("no.such.feature", 1, UPGRADE), version=version)
        update(("metadata.version", 33, UPGRADE), version=version)
        update((NAME, 1, UPGRADE), ("no.such.feature", 1, UPGRADE), version=version)
        update(version=version)
    for version in (1, 2):
        update((NAME, 0, SAFE), version=version, dry=True)
        for kind in (0, 4):
            update((NAME, 1, kind), version=version)
    assert levels(broker)[NAME] == 2
    for version in (0, 1, 2):
        update((NAME, 0, SAFE), version=version)
        set_level(broker.request, 0)
        update((NAME, 1, SAFE if version else UNSAFE), version=version)
        update((NAME, 1, UPGRADE), version=version)
        set_level(broker.request, 1)
        update((NAME, 2, UPGRADE), version=version)
        set_level(broker.request, 2)
    update((NAME, 1, UNSAFE))
    set_level(broker.request, 1)
    seen.append(levels(broker)[NAME])
    set_level(broker.request, 2)
    return seen


def test_updates_are_answered_as_kafka_does(kafka_of_levels, wire_to, scenario_broker):
    host, port = kafka_of_levels.bootstrap.split(",")[0].split(":")
    with EmbeddedCluster() as cluster:
        ours = scenario(scenario_broker(wire_to(cluster), cluster.address(1)))
        theirs = scenario(scenario_broker(wire_to(cluster), (host, int(port))))
    pairs = enumerate(zip(ours, theirs, strict=True))
    different = [f"{at}: {mine} but {kafkas}" for at, (mine, kafkas) in pairs if mine != kafkas]
    assert not different, "\n".join(different)


def test_open_transactions_stay_open_after_an_update(wire_to, txn_on):
    with EmbeddedCluster(topics={"t": 1}) as cluster:
        txn = txn_on(cluster)
        txn.init()
        assert txn.produce("t")[0] == "ok"
        set_level(txn.request, 1)
        assert cluster.transaction_version == 1
        assert cluster.transactions[txn.id].state == "Ongoing"
        assert Txn.commit(txn)[0] == "ok"


@pytest.mark.java
@pytest.mark.usefixtures("kafka_tools_jars")
def test_kafkas_tool_changes_the_level_while_a_program_runs_transactions() -> None:
    def tool(*arguments: str) -> str:
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        return JavaTool(TOOL, *server, *arguments).run(timeout=120).decode()

    def row(name: str) -> list[str]:
        lines = [line.split() for line in tool("describe").splitlines()]
        return next(line for line in lines if name in line)

    async def program(changes: list[tuple[str, ...]]) -> int:
        committed = 0
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id="t-1"
        ) as producer:
            for change in changes:
                changing = asyncio.create_task(asyncio.to_thread(tool, *change))
                while not changing.done():
                    async with producer.transaction() as tx:
                        await tx.send("t", b"value")
                    assert tx.outcome is TransactionOutcome.COMMITTED
                    committed += 1
                await changing
        return committed

    with EmbeddedCluster(topics={"t": 1}, transaction_version=0) as cluster:
        assert row(NAME)[-4:-2] == ["FinalizedVersionLevel:", "0"]
        upgrades = [("upgrade", "--feature", f"{NAME}={level}") for level in (1, 2)]
        assert asyncio.run(program(upgrades)) > 0
        assert cluster.transaction_version == 2
        assert row(NAME)[-4:-2] == ["FinalizedVersionLevel:", "2"]
        tool("downgrade", "--feature", f"{NAME}=1")
        assert cluster.transaction_version == 1
        with pytest.raises(RuntimeError, match="1 out of 1 operation"):
            tool("upgrade", "--feature", f"{NAME}=3")
        assert cluster.transaction_version == 1

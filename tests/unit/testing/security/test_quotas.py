"""Tests of client quotas: which one applies, how long it throttles, and what Kafka does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import alter_client_quotas as altering
from aiokclient.protocol.messages.create_topics import CreatableTopic
from aiokclient.protocol.messages.describe_client_quotas import ComponentData
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.security.quotas import (
    MUTATIONS,
    PRODUCER,
    REQUESTS,
    ClientQuotas,
    QuotaEntity,
)

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(clock: Clock) -> ClientQuotas:
    return ClientQuotas(clock)


ENTITIES = [
    QuotaEntity("alice", "web"),
    QuotaEntity("alice", ""),
    QuotaEntity("alice"),
    QuotaEntity("", "web"),
    QuotaEntity("", ""),
    QuotaEntity(""),
    QuotaEntity(None, "web"),
    QuotaEntity(None, ""),
]


def test_the_most_specific_quota_applies(quotas: ClientQuotas) -> None:
    for number, entity in enumerate(ENTITIES):
        quotas.change_quota(entity, PRODUCER, 1000.0 * (number + 1))
    for number, entity in enumerate(ENTITIES):
        # The request uses the quota of 60 s. It is throttled for 50 s, because quotas are measured
        # over 10 s.
        excess_s = quotas.record_usage(PRODUCER, "alice", "web", 60_000.0 * (number + 1))
        assert excess_s == pytest.approx(50)
        quotas.change_quota(entity, PRODUCER, None)
    assert quotas.record_usage(PRODUCER, "alice", "web", 1e9) == 0
    assert not quotas.has_any


def test_a_rate_is_measured_over_the_last_seconds(quotas: ClientQuotas, clock: Clock) -> None:
    quotas.change_quota(QuotaEntity(None, "web"), PRODUCER, 1000.0)
    assert quotas.record_usage(PRODUCER, "alice", "web", 10_000) == 0
    assert quotas.record_usage(PRODUCER, "alice", "web", 5_000) == pytest.approx(5)
    clock.now += 5
    assert quotas.record_usage(PRODUCER, "alice", "web", 0) == pytest.approx(5)
    clock.now += 6
    assert quotas.record_usage(PRODUCER, "alice", "web", 0) == 0
    assert quotas.record_usage(PRODUCER, "alice", "other", 1e9) == 0


def test_each_client_of_a_default_quota_has_a_rate_of_its_own(quotas: ClientQuotas) -> None:
    quotas.change_quota(QuotaEntity(""), PRODUCER, 1000.0)
    assert quotas.record_usage(PRODUCER, "alice", "web", 20_000) > 0
    assert quotas.record_usage(PRODUCER, "alice", "other", 0) > 0
    assert quotas.record_usage(PRODUCER, "bob", "web", 0) == 0


@pytest.mark.parametrize("quota", [1e-300, 1e300, float("inf")])
def test_extreme_quotas_give_a_time_that_fits_into_a_response(
    quotas: ClientQuotas, quota: float
) -> None:
    for key in (PRODUCER, MUTATIONS):
        quotas.change_quota(QuotaEntity("alice"), key, quota)
    assert 0 <= quotas.record_usage(PRODUCER, "alice", "web", 1e9) * 1000 < 1 << 31
    assert 0 <= quotas.charge_mutations("alice", "web", 1 << 30, strict=True)[1] * 1000 < 1 << 31


def test_requests_throttle_for_a_second_at_most(quotas: ClientQuotas) -> None:
    quotas.change_quota(QuotaEntity("alice"), REQUESTS, 0.01)
    assert quotas.record_usage(REQUESTS, "alice", "web", 5.0) == 1


def test_mutations_are_accepted_while_there_are_tokens(quotas: ClientQuotas, clock: Clock) -> None:
    quotas.change_quota(QuotaEntity("alice"), MUTATIONS, 1.0)
    assert quotas.charge_mutations("alice", "", 12, strict=True) == (True, pytest.approx(1))
    assert quotas.charge_mutations("alice", "", 1, strict=True) == (False, pytest.approx(1))
    assert quotas.charge_mutations("alice", "", 1, strict=False) == (True, pytest.approx(2))
    clock.now += 2
    assert quotas.charge_mutations("alice", "", 1, strict=True)[0]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=["orders"]) as cluster:
        yield cluster


def set_quota(connection: Any, key: str, value: float, **entity: str) -> None:
    parts = [
        altering.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    entry = altering.EntryData(entity=parts, ops=[altering.OpData(key=key, value=value)])
    answer = connection.request(messages.AlterClientQuotasRequest(entries=[entry]))
    assert answer.entries[0].error_code == 0, answer


def test_a_throttled_producer_is_told_and_muted(cluster: EmbeddedCluster, wire_to: Any) -> None:
    wire = wire_to(cluster)
    set_quota(wire.to(1), "producer_byte_rate", 1000.0, client_id="raw")
    connection = wire.to(1)
    batch = wire.batch(b"x" * 9_000)
    data = messages.produce.PartitionProduceData(index=0, records=batch)
    topic = messages.produce.TopicProduceData(name="orders", partition_data=[data])
    request = messages.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    assert connection.request(request, 12).throttle_time_ms == 0
    throttled = connection.request(request, 12)
    assert 7_000 < throttled.throttle_time_ms < 9_000
    connection.send(messages.ListGroupsRequest())
    cluster.wait_for(lambda: len(cluster.records("orders", 0)) == 2)
    assert connection.silent()


def test_a_throttled_consumer_is_told(cluster: EmbeddedCluster, wire_to: Any) -> None:
    wire = wire_to(cluster)
    cluster.produce("orders", [b"x" * 20_000])
    set_quota(wire.to(1), "consumer_byte_rate", 1000.0, user="ANONYMOUS")
    answer = wire.to(1).request(wire.fetch_request("orders"), 12)
    assert 9_000 < answer.throttle_time_ms < 12_000


@scenario
def altered_quotas(connection: Any) -> list[object]:
    def alter(entity: list[tuple[str, str | None]], *ops: tuple[str, float]) -> tuple[str, object]:
        entry = altering.EntryData(
            entity=[
                altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
            ],
            ops=[altering.OpData(key=key, value=value) for key, value in ops],
        )
        answer = connection.request(messages.AlterClientQuotasRequest(entries=[entry]))
        return named(answer.entries[0].error_code), answer.entries[0].error_message

    good = ("producer_byte_rate", 1e9)
    return [
        alter([("user", "alice")], good),
        alter([("user", "alice"), ("client-id", None)], good, ("request_percentage", 500.0)),
        alter([("user", None)], good),
        alter([("client-id", "web")], ("controller_mutation_rate", 100.0)),
        alter([("ip", "10.0.0.1")], ("connection_creation_rate", 1000.0)),
        alter([], good),
        alter([("user", "")], good),
        alter([("team", "a")], good),
        alter([("user", "alice"), ("user", "bob")], good),
        alter([("user", "alice"), ("ip", "10.0.0.1")], good),
        alter([("user", "alice")], ("connection_creation_rate", 10.0)),
        alter([("user", "alice")], ("no_such_rate", 10.0)),
        alter([("user", "alice")], ("producer_byte_rate", 0.0)),
        alter([("user", "alice")], ("producer_byte_rate", -1.0)),
        alter([("user", "alice")], ("producer_byte_rate", 0.5)),
        alter([("user", "alice")], ("request_percentage", 0.5)),
        alter([("ip", "10.0.0.1")], ("connection_creation_rate", 0.5)),
        alter([("ip", "no address")], ("connection_creation_rate", 1.0)),
    ]


@scenario
def described_quotas(connection: Any) -> list[object]:
    altered_quotas(connection)

    def describe(*components: tuple[str, int, str | None], strict: bool = False) -> list[object]:
        asked = [
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ]
        request = messages.DescribeClientQuotasRequest(components=asked, strict=strict)
        answer = connection.request(request)
        return [
            named(answer.error_code),
            *sorted(
                (
                    sorted((each.entity_type, each.entity_name or "") for each in entry.entity),
                    sorted((each.key, each.value) for each in entry.values),
                )
                for entry in answer.entries or ()
            ),
        ]

    exact, default, each = 0, 1, 2
    while len(describe(("user", each, None))) < 4 or len(describe(("ip", each, None))) < 2:
        pass
    return [
        describe(),
        describe(("user", exact, "alice")),
        describe(("user", exact, "alice"), strict=True),
        describe(("user", default, None)),
        describe(("user", each, None), ("client-id", each, None)),
        describe(("client-id", default, None)),
        describe(("user", exact, "nobody")),
        describe(("user", exact, "alice"), ("ip", exact, "10.0.0.1")),
        describe(("team", each, None)),
        describe(("", each, None)),
        describe(("user", each, None), ("user", each, None)),
    ]


@pytest.mark.kafka
@pytest.mark.parametrize("name", SCENARIOS)
def test_results_of_quotas_are_those_of_kafka(name: str, secure_kafka: Any, wire_to: Any) -> None:
    with EmbeddedCluster() as cluster:
        wire = wire_to(cluster)
        ours = SCENARIOS[name](wire.to(1))
    host, port = secure_kafka.bootstrap.split(":")
    theirs = SCENARIOS[name](wire.at((host, int(port))))
    pairs = zip(ours, theirs, strict=True)
    different = [f"{own}\n  Kafka: {its}" for own, its in pairs if own != its]
    assert not different, "\n".join(different)


def test_the_second_mutation_over_the_quota_is_refused(
    cluster: EmbeddedCluster, wire_to: Any
) -> None:
    wire = wire_to(cluster)
    set_quota(wire.to(1), "controller_mutation_rate", 0.1, client_id="raw")

    def create(name: str, version: int = 7) -> tuple[str, bool]:
        topic = CreatableTopic(name=name, num_partitions=20, replication_factor=1)
        request = messages.CreateTopicsRequest(timeout_ms=9_000, topics=[topic])
        # Each request needs a new connection, because the broker mutes throttled connections.
        answer = wire.to(1).request(request, version)
        return named(answer.topics[0].error_code), answer.throttle_time_ms > 100_000

    assert create("first") == ("ok", True)
    assert create("second") == ("THROTTLING_QUOTA_EXCEEDED", True)
    assert create("third", version=5) == ("ok", True)
    assert sorted(cluster.topics) == ["first", "orders", "third"]

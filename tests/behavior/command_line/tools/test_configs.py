"""kafka-configs and kafka-client-metrics beside `configs`, `quotas`, `users`, `client-metrics`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
CONFIGS, METRICS = "kafka-configs", "kafka-client-metrics"


def theirs_of(sides: Sides, *words: str) -> dict[str, str]:
    """Return the configs that Kafka's tool describes."""
    text = sides.theirs(CONFIGS, "--describe", *words)
    pattern = r"^  (\S+?)=(.*?) sensitive=\w+ synonyms="
    return dict(re.findall(pattern, text, re.MULTILINE))


def ours_of(sides: Sides, resource: str, *words: str) -> dict[str, str]:
    rows = sides.ours("configs", "describe", resource, *words)
    return {row["name"]: row["value"] for row in rows if row["value"] is not None}


def own(configs: dict[str, str]) -> dict[str, str]:
    """Leave out what the controller sets for all brokers."""
    return {name: value for name, value in configs.items() if name != "min.insync.replicas"}


def test_configs_of_topics_are_changed_and_described_alike(
    sides: Sides, tool_kafka: KafkaCluster, tmp_path: Path
) -> None:
    first, second = tool_kafka.create_topic(), tool_kafka.create_topic()
    path = tmp_path / "topic.properties"
    path.write_text("retention.ms=3000\nsegment.ms=70000\n")
    alter = (CONFIGS, "--alter", "--topic", first)
    steps = [
        (
            ("--add-config", "retention.ms=1000,cleanup.policy=[compact,delete],segment.ms=60000"),
            ("set", "retention.ms=1000", "cleanup.policy=compact,delete", "segment.ms=60000"),
        ),
        (
            ("--delete-config", "segment.ms,cleanup.policy"),
            ("unset", "segment.ms", "cleanup.policy"),
        ),
        (("--add-config-file", str(path)), ("set", "--from-file", str(path))),
        (
            ("--add-config", "max.message.bytes=5000", "--delete-config", "retention.ms"),
            ("set", "max.message.bytes=5000"),
        ),
    ]
    for theirs, ours in steps:
        sides.theirs(*alter, *theirs)
        sides.ours("configs", ours[0], f"topic:{second}", *ours[1:])
        if "--delete-config" in theirs and ours[0] == "set":
            sides.ours("configs", "unset", f"topic:{second}", "retention.ms")
        expected = theirs_of(sides, "--topic", first)
        assert ours_of(sides, f"topic:{second}") == expected
        assert theirs_of(sides, "--topic", second) == expected
    assert expected == {"segment.ms": "70000", "max.message.bytes": "5000"}
    everything = theirs_of(sides, "--topic", second, "--all")
    assert ours_of(sides, f"topic:{second}", "--all") == everything
    assert len(everything) > 30
    by_type = theirs_of(sides, "--entity-type", "topics", "--entity-name", second)
    assert ours_of(sides, f"topic:{second}") == by_type == expected


def test_configs_of_each_kind_of_resource_are_changed_alike(sides: Sides) -> None:
    for setter in ("theirs", "ours"):
        change_each_kind(sides, setter)


def change_each_kind(sides: Sides, setter: str) -> None:
    """Set and remove a config of each kind of resource with one tool, and describe it with both."""
    cases = [
        ("broker:1", ("--broker", "1"), "log.retention.ms", "700000000"),
        ("broker:", ("--broker-defaults",), "log.cleaner.backoff.ms", "16000"),
        (
            "broker:",
            ("--entity-type", "brokers", "--entity-default"),
            "log.cleaner.backoff.ms",
            "17000",
        ),
        ("group:tool-g", ("--group", "tool-g"), "consumer.session.timeout.ms", "50000"),
        ("client-metrics:tool-m", ("--client-metrics", "tool-m"), "interval.ms", "4000"),
        ("logger:1", ("--broker-logger", "1"), "root", "WARN"),
    ]
    for resource, words, name, value in cases:
        before = theirs_of(sides, *words)
        if setter == "theirs":
            sides.theirs(CONFIGS, "--alter", *words, "--add-config", f"{name}={value}")
        else:
            sides.ours("configs", "set", resource, f"{name}={value}")
        wait_until(resource, lambda r=resource, n=name, v=value: ours_of(sides, r).get(n) == v, 30)
        described = theirs_of(sides, *words)
        assert described[name] == value
        assert ours_of(sides, resource) == described
        if resource.startswith("logger"):
            sides.ours("configs", "set", resource, f"{name}=ERROR")
        elif setter == "theirs":
            sides.theirs(CONFIGS, "--alter", *words, "--delete-config", name)
        else:
            sides.ours("configs", "unset", resource, name)
        wait_until(resource, lambda r=resource, b=before: ours_of(sides, r) == b, 30)
        assert theirs_of(sides, *words) == before


QUOTAS = [
    ("consumer_byte_rate", "--user {}", "--user {}"),
    ("consumer_byte_rate", "--client-id {}", "--client {}"),
    ("consumer_byte_rate", "--user-default", "--user-defaults"),
    ("producer_byte_rate", "--client-id-default", "--client-defaults"),
    (
        "request_percentage",
        "--user {} --client-id {}",
        "--entity-type users --entity-name {} --entity-type clients --entity-name {}",
    ),
    ("request_percentage", "--user {} --client-id-default", "--user {} --client-defaults"),
    ("connection_creation_rate", "--ip 10.9.8.7", "--ip 10.9.8.7"),
    ("connection_creation_rate", "--ip-default", "--ip-defaults"),
]


def test_quotas_are_set_and_removed_alike(sides: Sides) -> None:
    def theirs(words: list[str]) -> str:
        return sides.theirs(CONFIGS, "--describe", *words)

    # Other clients use the same cluster, so no quota is low.
    for number, (name, ours, options) in enumerate(QUOTAS, 1_000_000_000):
        our_words, their_words = (each.replace("{}", "quota-u").split() for each in (ours, options))
        for by_theirs in (True, False):
            value = number + by_theirs * 1000
            if by_theirs:
                sides.theirs(CONFIGS, "--alter", *their_words, "--add-config", f"{name}={value}")
            else:
                sides.ours("quotas", "set", *our_words, f"{name}={value}")

            def listed(words: list[str] = our_words) -> list[Any]:
                rows = sides.ours("quotas", "list", "--strict", *words)
                return [row["quotas"] for row in rows]

            wait_until(ours, lambda n=name, v=value: listed() == [{n: v}], 30)
            assert float(re.findall(rf"{name}=(\S+)", theirs(their_words))[-1]) == value
            if by_theirs:
                sides.theirs(CONFIGS, "--alter", *their_words, "--delete-config", name)
            else:
                sides.ours("quotas", "unset", *our_words, name)
            wait_until(ours, lambda: listed() == [], 30)
            assert name not in theirs(their_words)


def test_credentials_of_users_are_set_and_removed_alike(sides: Sides) -> None:
    def ours(user: str) -> dict[str, int]:
        ended = sides.run_ours("users", "list", user, "--jsonl")
        pattern = r'"mechanism": *"([^"]+)".*?"iterations": *(\d+)'
        return {name: int(count) for name, count in re.findall(pattern, ended.out)}

    def theirs(user: str) -> dict[str, int]:
        found = sides.theirs(CONFIGS, "--describe", "--user", user)
        pattern = r"(SCRAM-SHA-\d+)=iterations=(\d+)"
        return {name: int(count) for name, count in re.findall(pattern, found)}

    for added in ("SCRAM-SHA-256=[iterations=5000,password=p]", "SCRAM-SHA-512=[password=p]"):
        sides.theirs(CONFIGS, "--alter", "--user", "tool-u1", "--add-config", added)
    for mechanism, more in (("256", ("--iterations", "5000")), ("512", ())):
        words = ("--mechanism", f"SCRAM-SHA-{mechanism}", *more, "--password-file", "-")
        assert sides.run_ours("users", "set", "tool-u2", *words, typed="p").code == 0
    expected = {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 4096}
    for user in ("tool-u1", "tool-u2"):
        wait_until(user, lambda u=user: ours(u) == expected, 30)
        assert theirs(user) == expected
    words = ("--alter", "--user", "tool-u1", "--delete-config", "SCRAM-SHA-256")
    sides.theirs(CONFIGS, *words)
    sides.ours("users", "delete", "tool-u2", "--mechanism", "SCRAM-SHA-256", "--yes")
    for user in ("tool-u1", "tool-u2"):
        wait_until(user, lambda u=user: ours(u) == {"SCRAM-SHA-512": 4096}, 30)
        assert theirs(user) == {"SCRAM-SHA-512": 4096}


def test_client_metrics_are_kept_alike(sides: Sides) -> None:
    def names() -> set[str]:
        """Return the names that both tools list."""
        listed = {row["name"] for row in sides.ours("client-metrics", "list")}
        assert {*sides.theirs(METRICS, "--list").split()} == listed
        return listed

    def described(name: str) -> dict[str, str]:
        """Return the options that both tools describe."""
        text = sides.theirs(METRICS, "--describe", "--name", name)
        (row,) = sides.ours("client-metrics", "describe", name)
        pairs = (line.strip().partition("=") for line in text.splitlines() if line[:2] == "  ")
        assert {key: value for key, _, value in pairs} == row["configs"]
        return dict(row["configs"])

    others = names()
    options = ("--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=x")
    sides.theirs(METRICS, "--alter", "--name", "theirs", *options)
    sides.ours("client-metrics", "set", "ours", *options)
    wait_until("both", lambda: names() - others == {"ours", "theirs"}, 30)
    expected = {"interval.ms": "1000", "match": "client_id=x", "metrics": "a.,b."}
    assert described("ours") == described("theirs") == expected
    sides.theirs(METRICS, "--alter", "--name", "theirs", "--interval", "", "--match", "")
    sides.ours("client-metrics", "set", "ours", "--interval", "", "--match", "")
    assert described("ours") == described("theirs")
    assert described("ours")["interval.ms"] == "300000"
    said = sides.theirs(METRICS, "--alter", "--generate-name", "--metrics", "*")
    (row,) = sides.ours("client-metrics", "set", "--generate-name", "--metrics", "*")
    generated = {said.rstrip(".\n").rpartition(" ")[2], row["name"]}
    assert len(generated) == 2
    wait_until("all four", lambda: names() - others == {"ours", "theirs", *generated}, 30)
    for name in ("theirs", *generated):
        sides.theirs(METRICS, "--delete", "--name", name)
    sides.ours("client-metrics", "delete", "ours", "--yes")
    wait_until("none", lambda: names() == others, 30)

"""The tasks of `docs/operators-day.md`, as the page says them, on the embedded cluster."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hanging_transactions import hang_transaction, switch_verification

from aiokclient import Client, TopicPartition
from aiokclient.testing import BrokerListener, EmbeddedCluster

NEW_YEAR_MS = 1_767_225_600_000
NOON = "2026-01-01T12:00"
LISTENERS = {"SASL": BrokerListener(mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"))}
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    topics = {"orders": 2, "payments": 1, "dead": 1}
    with EmbeddedCluster(brokers=2, topics=topics, listeners=LISTENERS) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: EmbeddedCluster, run_on: Callable[[str], Run]) -> Run:
    return run_on(cluster.bootstrap_servers)


def test_the_group_that_lags_is_found_and_reset(run: Run) -> None:
    for group, offset in (("fast", 5), ("slow", 1)):
        run("produce", "payments", typed="a\nb\nc\nd\ne\n")
        words = ("groups", "reset", group, "payments", "--to", str(offset), "--yes")
        assert run(*words).code == 0
    listed = run("groups", "list", "--lag").out.splitlines()
    assert [line.split("\t")[0] for line in listed] == ["group_id", "slow", "fast"]
    described = run("groups", "describe", "slow", "--columns", "topic,partition,committed,lag").out
    assert described.splitlines()[1] == "payments\t0\t1\t9"
    reset = ("groups", "reset", "slow", "payments", "--to", "-1h", "--yes")
    assert run(*reset).out.splitlines()[1] == "slow\tpayments\t0\t1\t0"


def test_dead_letters_go_back_to_their_topic_with_their_headers(
    run: Run, cluster: EmbeddedCluster
) -> None:
    lines = [
        f'{{"key": "k{number}", "value": {value}, "timestamp": {NEW_YEAR_MS + number}, '
        f'"headers": [["original-topic", "{topic}"], ["raw", {{"base64": "/wA="}}]]}}'
        for number, (topic, value) in enumerate(
            [("orders", '"tea"'), ("payments", '"paid"'), ("orders", "null")]
        )
    ]
    assert run("produce", "dead", "--jsonl", typed="\n".join(lines)).code == 0
    read = ("consume", "dead", "-o", "start", "--until", NOON)
    ended = run(*read, "--grep", "h:original-topic=orders", "--jsonl")
    send = ("produce", "orders", "--jsonl", "--transactional-id", "replay-1")
    assert run(*send, typed=ended.out).code == 0
    found = [each for number in range(2) for each in cluster.records("orders", number)]
    assert sorted((each.key, each.value, each.timestamp) for each in found if each.key) == [
        (b"k0", b"tea", NEW_YEAR_MS),
        (b"k2", None, NEW_YEAR_MS + 2),
    ]
    headers = [("original-topic", b"orders"), ("raw", b"\xff\x00")]
    assert all(list(each.headers) == headers for each in found if each.key)
    trimmed = run("topics", "trim", "dead", "--before", NOON, "--yes").out
    assert trimmed.splitlines()[1:] == ["dead\t0\t0\t3"]


def test_a_hanging_transaction_is_ended_by_the_command_that_is_named(
    run: Run, cluster: EmbeddedCluster
) -> None:
    servers = cluster.bootstrap_servers

    async def hang() -> None:
        await switch_verification(servers, False)
        async with Client(bootstrap_servers=servers) as client:
            await hang_transaction(client, "settle-1", TopicPartition("payments", 0))

    asyncio.run(hang())
    (named,) = re.findall(r"'aiokclient (.*)' ends it", run("transactions", "find-hanging").err)
    assert run("transactions", "terminate", "settle-1").code == 0
    assert "settle-1" in run("transactions", "find-hanging").out
    assert run(*shlex.split(named)).code == 0
    ended = run("transactions", "find-hanging", "-q")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_a_password_is_rotated_while_the_old_one_is_valid(
    cluster: EmbeddedCluster, run: Run, run_on: Callable[[str], Run], monkeypatch: Any
) -> None:
    secured = run_on(cluster.bootstrap_servers_for("SASL"))

    def can_log_in(mechanism: str, password: str) -> bool:
        monkeypatch.setenv("AIOKCLIENT_SASL_PASSWORD", password)
        given = ("security.protocol=SASL_PLAINTEXT", "sasl.username=billing")
        options = [word for each in given for word in ("-X", each)]
        options += ["-X", f"sasl.mechanism={mechanism}"]
        code = secured("topics", "list", *options).code
        monkeypatch.delenv("AIOKCLIENT_SASL_PASSWORD")
        return bool(code == 0)

    password = ("users", "set", "billing", "--password-file", "-", "--mechanism")
    assert run(*password, "SCRAM-SHA-512", typed="old\n").code == 0
    assert run(*password, "SCRAM-SHA-256", typed="new\n").code == 0
    assert can_log_in("SCRAM-SHA-512", "old")
    assert can_log_in("SCRAM-SHA-256", "new")
    assert run("users", "delete", "billing", "--mechanism", "SCRAM-SHA-512", "--yes").code == 0
    assert not can_log_in("SCRAM-SHA-512", "old")
    assert can_log_in("SCRAM-SHA-256", "new")

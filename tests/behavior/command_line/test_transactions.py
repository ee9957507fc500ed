"""`aiokclient transactions`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hanging_transactions import hang_transaction, switch_verification
from raw_transactions import RawTransaction

from aiokclient import Client, TopicPartition

MINUTES_MS = 60_000


class Site:
    """A topic of two partitions, and transactional ids whose names begin with its name."""

    def __init__(self, servers: Any, run: Any) -> None:
        self.bootstrap, self.run = servers.bootstrap, run
        self.topic = servers.kafka.create_topic(None, 2, 1, None)

    def id(self, name: str) -> str:
        return f"{self.topic}-{name}"

    def open_transaction(self, name: str, **options: Any) -> RawTransaction:
        """Write a record in a transaction that stays open."""

        async def write() -> RawTransaction:
            async with Client(bootstrap_servers=self.bootstrap) as client:
                transaction = RawTransaction(client, self.id(name))
                await transaction.begin()
                await transaction.produce(TopicPartition(self.topic, 0), b"a", **options)
                return transaction

        return asyncio.run(write())

    def describe(self, name: str) -> Any:
        (row,) = json.loads(self.run("transactions", "describe", self.id(name), "--json").out)
        return row

    def wait_for_state(self, name: str, state: str) -> None:
        deadline = time.monotonic() + 30
        while self.describe(name)["state"] != state:
            assert time.monotonic() < deadline


@pytest.fixture
def site(cluster_servers: Any, run: Any) -> Site:
    return Site(cluster_servers, run)


def test_transactions_list_selects_by_state_producer_and_pattern(site: Site) -> None:
    transaction = site.open_transaction("open")
    pattern = ("--pattern", f"{site.topic}-.*")
    (row,) = json.loads(site.run("transactions", "list", *pattern, "--json").out)
    assert list(row) == [
        "transactional_id",
        "producer_id",
        "state",
        "coordinator",
        "coordinator_id",
    ]
    assert row["transactional_id"] == site.id("open")
    assert row["coordinator"]["node_id"] == row["coordinator_id"]
    line = f"{site.id('open')}\t{row['coordinator_id']}\t{transaction.producer_id}\tOngoing"
    for words in (
        ("--state", "ongoing,empty", *pattern),
        ("--producer-id", str(transaction.producer_id)),
        ("--state", "Ongoing", "--older-than", "0ms", *pattern),
    ):
        lines = site.run("transactions", "list", *words).out.splitlines()
        assert lines == ["transactional_id\tcoordinator_id\tproducer_id\tstate", line]
    for words in (("--state", "Empty", *pattern), ("--older-than", "1h", *pattern)):
        assert json.loads(site.run("transactions", "list", *words, "--json").out) == []


def test_transactions_describe_shows_the_open_transaction(site: Site) -> None:
    transaction = site.open_transaction("open")
    row = site.describe("open")
    assert row["state"] == "Ongoing"
    assert row["producer_id"] == transaction.producer_id
    assert row["partitions"] == [{"topic": site.topic, "partition": 0}]
    assert row["start_time_iso"].endswith("Z")
    assert row["duration_ms"] >= 0
    out = site.run("transactions", "describe", site.id("open")).out
    assert out.splitlines()[1].endswith(f"\t{site.topic}:0")


def test_transactions_describe_fails_for_unknown_ids(site: Site) -> None:
    site.open_transaction("open")
    code, out, err = site.run("transactions", "describe", site.id("open"), "nope", "-q")
    assert (code, out) == (3, f"{site.id('open')}\n")
    assert err.startswith("aiokclient: nope: ")
    code, out, _ = site.run("transactions", "describe", "-", "-q", typed=f"{site.id('open')}\n")
    assert (code, out) == (0, f"{site.id('open')}\n")
    assert site.run("transactions", "describe").code == 2


def test_transactions_producers_shows_where_a_transaction_began(site: Site) -> None:
    transaction = site.open_transaction("open")
    (row,) = json.loads(site.run("transactions", "producers", f"{site.topic}:0", "--json").out)
    assert row["topic"] == site.topic
    assert row["producer_id"] == transaction.producer_id
    assert row["transaction_start_offset"] == 0
    assert row["last_timestamp_iso"].endswith("Z")
    assert site.run("transactions", "producers", site.topic, "-q").out == f"{site.topic}\n"
    (topic,) = json.loads(site.run("topics", "describe", site.topic, "--json").out)
    leader = str(topic["partitions"][0]["leader"])
    words = ("transactions", "producers", f"{site.topic}:0", "--broker", leader, "--json")
    assert json.loads(site.run(*words).out) == [row]
    code, _, err = site.run("transactions", "producers", f"{site.topic}:0,7", "--json")
    assert code == 3
    assert f"{site.topic}-7" in err


def test_transactions_terminate_aborts_and_fences(site: Site) -> None:
    transaction = site.open_transaction("open")
    code, out, err = site.run("transactions", "terminate", site.id("open"), "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)[0]["state_before"] == "Ongoing"
    assert "dry run" in err
    assert site.describe("open")["state"] == "Ongoing"
    code, out, err = site.run("transactions", "terminate", site.id("open"), "--json")
    (row,) = json.loads(out)
    assert (code, err) == (0, "")
    assert row["transactional_id"] == site.id("open")
    assert row["state_before"] == "Ongoing"
    assert (row["producer_id"], row["producer_epoch"]) > (
        transaction.producer_id,
        transaction.producer_epoch,
    )
    assert site.describe("open")["partitions"] == []
    code, _, err = site.run("transactions", "terminate", site.id("open"))
    assert code == 0
    assert f"No transaction was open: {site.id('open')}. " in err
    assert "find-hanging" in err


def test_transactions_terminate_creates_no_unknown_id(site: Site) -> None:
    code, _, err = site.run("transactions", "terminate", site.id("nope"))
    assert code == 3
    assert site.id("nope") in err
    assert site.run("transactions", "describe", site.id("nope")).code == 3


def test_transactions_abort_refuses_a_transaction_that_its_coordinator_ends(site: Site) -> None:
    site.open_transaction("open")
    words = ("transactions", "abort", f"{site.topic}:0", "--start-offset")
    code, out, err = site.run(*words, "0")
    assert (code, out) == (2, "")
    assert "aiokclient transactions terminate" in err
    code, _, err = site.run(*words, "5")
    assert code == 3
    assert "begins at offset 5" in err
    assert site.describe("open")["state"] == "Ongoing"
    assert site.run("transactions", "find-hanging", site.topic, "-q").out == ""
    code, _, err = site.run("transactions", "find-hanging", "--broker", "77")
    assert code == 3
    assert "No broker 77 is running" in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("list", "--older-than", "soon"), "is no time span"),
        (("producers",), "TOPIC"),
        (("abort", "a"), "Give one partition of a, such as a:0."),
        (("abort", "a:0"), "Give --start-offset"),
        (("abort", "a:0", "--start-offset", "1", "--producer-id", "1"), "no other option"),
        (("terminate",), "ID"),
    ],
)
def test_transactions_refuses_wrong_use(run: Any, words: tuple[str, ...], text: str) -> None:
    code, out, err = run("transactions", *words)
    assert (code, out) == (2, "")
    assert text in err


@pytest.fixture
def hanging(cluster_servers: Any, run: Any) -> Iterator[Site]:
    """A topic on brokers that accept records which belong to no transaction of a coordinator."""
    asyncio.run(switch_verification(cluster_servers.bootstrap, False))
    yield Site(cluster_servers, run)
    asyncio.run(switch_verification(cluster_servers.bootstrap, True))


def test_transactions_find_hanging_finds_what_abort_ends(hanging: Site) -> None:
    async def hang() -> RawTransaction:
        async with Client(bootstrap_servers=hanging.bootstrap) as client:
            tp = TopicPartition(hanging.topic, 0)
            return await hang_transaction(client, hanging.id("hanging"), tp)

    transaction = asyncio.run(hang())
    search = ("transactions", "find-hanging")
    for words in ((hanging.topic,), (f"{hanging.topic}:0,1",), ()):
        found = json.loads(hanging.run(*search, *words, "--json").out)
        (row,) = [each for each in found if each["topic"] == hanging.topic]
        assert row["producer_id"] == transaction.producer_id
        assert row["start_offset"] == 0
        assert row["transactional_id"] == hanging.id("hanging")
    err = hanging.run(*search, hanging.topic).err
    assert f"'aiokclient transactions abort {hanging.topic}:0 --start-offset 0' ends it." in err
    later = (hanging.topic, "--max-transaction-timeout", "1h", "--json")
    assert json.loads(hanging.run(*search, *later).out) == []
    abort = ("transactions", "abort", f"{hanging.topic}:0", "--start-offset", "0")
    assert hanging.run(*abort, "--dry-run").code == 0
    assert json.loads(hanging.run(*search, hanging.topic, "--json").out) != []
    code, out, err = hanging.run(*abort, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)[0]["producer_id"] == transaction.producer_id
    assert json.loads(hanging.run(*search, hanging.topic, "--json").out) == []

"""kafka-transactions beside `transactions`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from raw_transactions import RawTransaction
from tool_sides import Sides

from aiokclient import Client, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TRANSACTIONS = "kafka-transactions"
MINUTE_MS = 60_000


class Site:
    """A topic of three partitions, and transactional ids whose names begin with its name."""

    def __init__(self, kafka: KafkaCluster, sides: Sides) -> None:
        self.bootstrap, self.sides = kafka.bootstrap, sides
        self.topic = kafka.create_topic(None, 3, 2)

    def id(self, name: str) -> str:
        return f"{self.topic}-{name}"

    def open(self, name: str, partition: int = 0, **options: Any) -> RawTransaction:
        """Write a record in a transaction that stays open."""

        async def write() -> RawTransaction:
            async with Client(bootstrap_servers=self.bootstrap) as client:
                transaction = RawTransaction(client, self.id(name))
                await transaction.begin()
                await transaction.produce(TopicPartition(self.topic, partition), b"a", **options)
                return transaction

        return asyncio.run(write())

    def hang(self, name: str, partition: int) -> RawTransaction:
        """Write an old record that belongs to no transaction of a coordinator."""
        old = int(time.time() * 1000) - 20 * MINUTE_MS
        return self.open(name, partition, timestamp=old, version=11)

    def theirs(self, *words: str) -> list[list[str]]:
        """Return the rows of the table that Kafka's tool prints, without those of other tests."""
        lines = self.sides.theirs(TRANSACTIONS, *words).splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        return sorted([cell.strip() for cell in row] for row in rows)

    def listed(self, *words: str) -> list[list[str]]:
        rows = self.sides.ours("transactions", "list", *words)
        names = ("transactional_id", "coordinator_id", "producer_id", "state")
        return sorted([str(row[name]) for name in names] for row in rows)

    def state(self, name: str) -> str:
        (row,) = self.sides.ours("transactions", "describe", self.id(name))
        return str(row["state"])


@pytest.fixture
def site(tool_kafka: KafkaCluster, sides: Sides) -> Site:
    return Site(tool_kafka, sides)


def without_empty(rows: list[list[str]]) -> list[list[str]]:
    return [[cell for cell in row if cell] for row in rows]


def test_transactions_are_listed_alike(site: Site) -> None:
    site.open("open")
    site.open("other", 1)
    for theirs, ours in (
        ((), ()),
        (("--duration-filter", "0"), ("--older-than", "0ms")),
        (("--duration-filter", "3600000"), ("--older-than", "1h")),
        (("--transactional-id-pattern", f"{site.topic}-o.*"), ("--pattern", f"{site.topic}-o.*")),
    ):
        assert without_empty(site.theirs("list", *theirs)) == site.listed(*ours)
    assert len(site.listed("--pattern", f"{site.topic}-o.*")) == 2


def test_transactions_and_producers_are_described_alike(site: Site) -> None:
    transaction = site.open("open")
    ((coordinator, name, producer_id, epoch, state, timeout, start, *_, partitions),) = (
        without_empty(site.theirs("describe", "--transactional-id", site.id("open")))
    )
    (row,) = site.sides.ours("transactions", "describe", site.id("open"))
    assert (coordinator, name) == (str(row["coordinator_id"]), row["transactional_id"])
    assert (producer_id, epoch) == (str(row["producer_id"]), str(row["producer_epoch"]))
    assert (state, timeout) == (row["state"], str(row["timeout_ms"]))
    assert start == str(row["start_time_ms"])
    assert partitions == f"{site.topic}-0"
    assert str(row["partitions"]).count(site.topic) == 1
    for theirs, ours in (((), ()), (("--broker-id", "2"), ("--broker", "2"))):
        words = ("describe-producers", "--topic", site.topic, "--partition", "0", *theirs)
        (shown,) = without_empty(site.theirs(*words))
        (row,) = site.sides.ours("transactions", "producers", f"{site.topic}:0", *ours)
        names = ("producer_id", "producer_epoch", "coordinator_epoch", "last_sequence")
        values = [row[each] for each in (*names, "last_timestamp", "transaction_start_offset")]
        expected = ["-1" if each is None else str(each) for each in values]
        assert shown == expected
    assert shown[0] == str(transaction.producer_id)


def test_hanging_transactions_are_found_and_aborted_alike(site: Site) -> None:
    first, second, third = (site.hang(f"hangs-{n}", n) for n in range(3))
    site.open("healthy", 0)

    def theirs(*words: str) -> list[list[str]]:
        rows = without_empty(site.theirs("find-hanging", *words))
        return [row[:4] + row[5:6] for row in rows if row[0] == site.topic]

    def ours(*words: str) -> list[list[str]]:
        rows = site.sides.ours("transactions", "find-hanging", *words)
        names = ("topic", "partition", "producer_id", "producer_epoch", "start_offset")
        return sorted(
            [str(row[name]) for name in names] for row in rows if row["topic"] == site.topic
        )

    assert [row[1] for row in theirs("--topic", site.topic)] == ["0", "1", "2"]
    for their_words, words in (
        (("--topic", site.topic), (site.topic,)),
        (("--topic", site.topic, "--partition", "1"), (f"{site.topic}:1",)),
        (("--broker-id", "1"), ("--broker", "1")),
        (
            ("--topic", site.topic, "--max-transaction-timeout", "60"),
            (site.topic, "--max-transaction-timeout", "60m"),
        ),
    ):
        assert theirs(*their_words) == ours(*words), words
    abort = ("abort", "--topic", site.topic, "--partition")
    site.sides.theirs(TRANSACTIONS, *abort, "0", "--start-offset", "0")
    site.sides.ours("transactions", "abort", f"{site.topic}:1", "--start-offset", "0", "--yes")
    assert [row[1] for row in theirs("--topic", site.topic)] == ["2"]
    of_producer = ("--producer-id", str(third.producer_id), "--producer-epoch", "0")
    of_producer += ("--coordinator-epoch", "0")
    site.sides.theirs(TRANSACTIONS, *abort, "2", *of_producer)
    assert theirs("--topic", site.topic) == ours(site.topic) == []
    fourth = site.hang("hangs-3", 1)
    assert [row[1] for row in ours(site.topic)] == ["1"]
    of_producer = ("--producer-id", str(fourth.producer_id), "--producer-epoch", "0")
    of_producer += ("--coordinator-epoch", "0", "--yes")
    site.sides.ours("transactions", "abort", f"{site.topic}:1", *of_producer)
    assert theirs("--topic", site.topic) == ours(site.topic) == []
    assert first.producer_id != second.producer_id


def test_open_transactions_are_terminated_alike(site: Site) -> None:
    site.open("first")
    site.open("second", 1)
    assert [site.state(name) for name in ("first", "second")] == ["Ongoing", "Ongoing"]
    words = ("forceTerminateTransaction", "--transactionalId", site.id("first"))
    site.sides.theirs(TRANSACTIONS, *words)
    site.sides.ours("transactions", "terminate", site.id("second"), "--yes")
    for name in ("first", "second"):
        wait_until(name, lambda n=name: site.state(n) in ("CompleteAbort", "Empty"), 30)
    assert site.state("first") == site.state("second")
    pattern = f"{site.topic}-.*"
    theirs = site.theirs("list", "--transactional-id-pattern", pattern)
    assert without_empty(theirs) == site.listed("--pattern", pattern)

"""Arguments of a wrong type raise TypeError in every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aiokclient import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
    TransactionOutcome,
    transform,
)
from aiokclient.errors import ConfigError
from aiokclient.testing import EmbeddedCluster

TP = TopicPartition("orders", 0)
NO_NAMES: list[Any] = [["orders"], {"orders"}, {}, b"orders", 5, None, True]
NO_NUMBERS: list[Any] = ["1", b"1", True, 1.5, [1]]
NO_SECONDS: list[Any] = ["1", b"1", True, [1], float("nan")]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster(brokers=1, topics={"orders": 2}) as cluster:
        yield cluster.bootstrap_servers


async def refused(calls: dict[str, Callable[[], Any]]) -> None:
    for name, call in calls.items():
        try:
            result = call()
            if hasattr(result, "__await__"):
                result = await result
        except TypeError:
            continue
        pytest.fail(f"{name} returned {result!r} and raised no TypeError")


@pytest.mark.parametrize("known", [False, True])
async def test_a_producer_raises_type_error_for_wrong_types(servers: str, known: bool) -> None:
    async with Producer(bootstrap_servers=servers) as p:
        if known:
            await p.prepare("orders")
        for topic in NO_NAMES:
            await refused(
                {
                    f"send {topic}": lambda topic=topic: p.send(topic, b"v"),
                    f"send_many {topic}": lambda topic=topic: p.send_many(topic, [b"v"]),
                    f"send_all {topic}": lambda topic=topic: p.send_all(topic, [b"v"]),
                    f"send_and_wait {topic}": lambda topic=topic: p.send_and_wait(topic, b"v"),
                    f"prepare {topic}": lambda topic=topic: p.prepare(topic),
                    f"partitions_for {topic}": lambda topic=topic: p.partitions_for(topic),
                }
            )
        for wrong in NO_NUMBERS:
            for field in ("partition", "timestamp"):
                record = ProducerRecord("orders", b"v", **{field: wrong})
                await refused(
                    {
                        f"{field} {wrong}": lambda record=record: p.send(*record),
                        f"many {field} {wrong}": lambda record=record: p.send_many(
                            "orders", [record]
                        ),
                    }
                )
        for wrong in ("text", 5, True, [b"x"], {}):
            await refused(
                {
                    f"value {wrong}": lambda wrong=wrong: p.send("orders", wrong),
                    f"key {wrong}": lambda wrong=wrong: p.send("orders", b"v", key=wrong),
                    f"values {wrong}": lambda wrong=wrong: p.send_many("orders", [wrong]),
                }
            )
        for wrong in (5, None, {"a": b"v"}, {"ab": b"v"}, ["ab"], [("a",)], [("a", b"v", b"w")]):
            record = ProducerRecord("orders", b"v", headers=wrong)
            await refused(
                {
                    f"headers {wrong}": lambda record=record: p.send(*record),
                    f"many headers {wrong}": lambda record=record: p.send_many("orders", [record]),
                }
            )
        for wrong in (5, None, True, {1: 2}):
            await refused({f"many {wrong}": lambda wrong=wrong: p.send_many("orders", wrong)})
        for wrong in (5, None, True, [5], ["x"]):
            await refused({f"gather {wrong}": lambda wrong=wrong: p.gather(wrong)})
        for wrong in NO_SECONDS:
            await refused(
                {
                    f"prepare for {wrong}": lambda wrong=wrong: p.prepare("orders", wrong),
                    f"close in {wrong}": lambda wrong=wrong: p.close(wrong),
                }
            )
        await p.send("orders", b"v")


async def test_a_consumer_raises_type_error_for_wrong_types(servers: str) -> None:
    async with Consumer("orders", bootstrap_servers=servers) as c:
        for wrong in NO_SECONDS:
            await refused(
                {
                    f"poll {wrong}": lambda wrong=wrong: c.poll(wrong),
                    f"get {wrong}": lambda wrong=wrong: c.get(wrong),
                    f"position {wrong}": lambda wrong=wrong: c.position(TP, wrong),
                    f"end_offsets {wrong}": lambda wrong=wrong: c.end_offsets([TP], wrong),
                    f"list_topics {wrong}": lambda wrong=wrong: c.list_topics(wrong),
                    f"close {wrong}": lambda wrong=wrong: c.close(wrong),
                }
            )
        for wrong in NO_NUMBERS:
            await refused(
                {
                    f"poll {wrong}": lambda wrong=wrong: c.poll(0, max_records=wrong),
                    f"batches {wrong}": lambda wrong=wrong: c.batches(
                        max_records=wrong
                    ).__anext__(),
                    f"tracked {wrong}": lambda wrong=wrong: c.tracked(
                        max_outstanding=wrong
                    ).__anext__(),
                    f"seek {wrong}": lambda wrong=wrong: c.seek(TP, wrong),
                    f"times {wrong}": lambda wrong=wrong: c.offsets_for_times({TP: wrong}),
                    f"position {wrong}": lambda wrong=wrong: c.position(
                        TopicPartition("orders", wrong)
                    ),
                    f"pause {wrong}": lambda wrong=wrong: c.pause(
                        [TopicPartition("orders", wrong)]
                    ),
                }
            )
        for wrong in NO_NAMES:
            await refused(
                {
                    f"subscribe {wrong}": lambda wrong=wrong: c.subscribe([wrong]),
                    f"partitions_for {wrong}": lambda wrong=wrong: c.partitions_for(wrong),
                    f"known {wrong}": lambda wrong=wrong: c.partitions_for_topic(wrong),
                    f"highwater {wrong}": lambda wrong=wrong: c.highwater(wrong),
                    f"assign {wrong}": lambda wrong=wrong: c.assign([wrong]),
                    f"end_offsets {wrong}": lambda wrong=wrong: c.end_offsets([wrong]),
                    f"seek {wrong}": lambda wrong=wrong: c.seek(wrong, 0),
                    f"Consumer {wrong}": lambda wrong=wrong: Consumer(
                        wrong, bootstrap_servers="localhost:9092"
                    ),
                }
            )


async def test_transactions_raise_type_error_for_wrong_types(servers: str) -> None:
    wrong: Any
    async with (
        Producer(bootstrap_servers=servers, transactional_id="types") as p,
        Consumer("orders", bootstrap_servers=servers, group_id="types") as c,
    ):
        for wrong in ("text", None, 5, p):
            await refused({f"transform from {wrong}": lambda wrong=wrong: transform(wrong, p)})
        for wrong in ("text", None, 5, c):
            await refused({f"transform to {wrong}": lambda wrong=wrong: transform(c, wrong)})
        for wrong in (*NO_NUMBERS, 0):
            await refused({f"records {wrong}": lambda wrong=wrong: transform(c, p, wrong)})
        for wrong in NO_SECONDS:
            await refused({f"wait {wrong}": lambda wrong=wrong: transform(c, p, 5, wrong)})
        async with p.transaction() as tx:
            for wrong in ("text", None, 5, p):
                await refused({f"add {wrong}": lambda wrong=wrong: tx.add(wrong)})
            for wrong in ("text", None, 5, c):
                await refused(
                    {f"group {wrong}": lambda wrong=wrong: tx.send_offsets({TP: 1}, wrong)}
                )
        assert tx.outcome is TransactionOutcome.COMMITTED


async def test_metrics_raise_type_error_for_wrong_types(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as p:
        for wrong in (5, "text", [("a", "b")]):
            await refused(
                {
                    f"labels {wrong}": lambda wrong=wrong: p.register_metric(
                        "mine", lambda: 1, labels=wrong
                    ),
                    f"name {wrong}": lambda wrong=wrong: p.register_metric((wrong,), lambda: 1),
                    f"source {wrong}": lambda wrong=wrong: p.register_metric("mine", wrong),
                }
            )
        for wrong in (5, None, b"mine"):
            await refused({f"name {wrong}": lambda wrong=wrong: p.unregister_metric(wrong)})


async def test_an_admin_raises_type_error_for_wrong_types(servers: str) -> None:
    async with Admin(bootstrap_servers=servers) as a:
        for wrong in NO_NAMES:
            await refused(
                {
                    f"delete_topics {wrong}": lambda wrong=wrong: a.delete_topics([wrong]),
                    f"describe_topics {wrong}": lambda wrong=wrong: a.describe_topics([wrong]),
                    f"create_topics {wrong}": lambda wrong=wrong: a.create_topics(
                        [NewTopic(wrong, 1, 1)]
                    ),
                    f"describe_groups {wrong}": lambda wrong=wrong: a.describe_groups([wrong]),
                    f"delete_groups {wrong}": lambda wrong=wrong: a.delete_groups([wrong]),
                    f"alter {wrong}": lambda wrong=wrong: a.alter_consumer_group_offsets(
                        wrong, {TP: 0}
                    ),
                }
            )
        for wrong in NO_NUMBERS:
            await refused(
                {
                    f"create {wrong}": lambda wrong=wrong: a.create_topics(
                        [NewTopic("new", wrong, 1)]
                    ),
                    f"replicas {wrong}": lambda wrong=wrong: a.create_topics(
                        [NewTopic("new", 1, wrong)]
                    ),
                    f"partitions {wrong}": lambda wrong=wrong: a.create_partitions(
                        {"orders": wrong}
                    ),
                    f"delete {wrong}": lambda wrong=wrong: a.delete_records({TP: wrong}),
                    f"alter {wrong}": lambda wrong=wrong: a.alter_consumer_group_offsets(
                        "g", {TP: wrong}
                    ),
                }
            )
        for wrong in NO_SECONDS:
            await refused({f"list {wrong}": lambda wrong=wrong: a.list_topics(timeout=wrong)})
        assert set(await a.list_topics()) == {"orders"}


def test_integer_options_accept_whole_floats_and_nothing_else() -> None:
    options: dict[str, Any] = {"bootstrap_servers": "localhost:9092", "linger_ms": 5.0}
    linger_ms = Producer(**options)._options.linger_ms
    assert (linger_ms, type(linger_ms)) == (5, int)
    for wrong in (5.5, True, "5", float("inf"), float("nan"), None):
        with pytest.raises(ConfigError, match="linger_ms"):
            Producer(**{**options, "linger_ms": wrong})


async def test_partitions_for_reads_a_topic_as_the_consumer_does(servers: str) -> None:
    async with Producer(bootstrap_servers=servers) as p:
        found = await p.partitions_for("orders")
        assert [partition.index for partition in found] == [0, 1]
        async with Consumer(bootstrap_servers=servers) as c:
            assert await c.partitions_for("orders") == found

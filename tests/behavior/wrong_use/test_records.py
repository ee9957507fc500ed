"""Invalid records and topics: `send` raises at once, and keeps nothing of the record."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from aiokclient import Admin, NewTopic, Producer
from aiokclient.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)


async def test_a_record_that_is_too_large_is_refused(producer: Producer) -> None:
    large = bytes(1_048_577)
    for send in (producer.send, lambda topic, value: producer.send_many(topic, [b"v", value])):
        with pytest.raises(
            RecordTooLargeError, match=r"max_request_size .* allow 1048576"
        ) as caught:
            send("orders", large)
        assert "orders" in str(caught.value)
        assert "max.message.bytes" in str(caught.value)


@pytest.mark.parametrize(
    "record",
    [
        {"value": "text"},
        {"value": {"a": 1}},
        {"value": b"v", "key": 7},
        {"value": b"v", "headers": [("name", "text")]},
        {"value": b"v", "headers": [(b"name", b"value")]},
        {"value": b"v", "headers": {"name": b"value"}},
        {"value": b"v", "headers": None},
    ],
)
async def test_keys_and_values_must_be_bytes(producer: Producer, record: dict[str, Any]) -> None:
    text = r"must be bytes or None, and header names str, as in headers=\[\('name', b'value'\)\]"
    with pytest.raises(SerializationError, match=text):
        producer.send("orders", **record)
    # The refused record leaves nothing in the buffer, so the next one arrives unchanged.
    assert (await producer.send("orders", b"v", key=b"k")).offset >= 0


NUMBERS = array("i", [1, 2, 3])


@pytest.mark.parametrize(
    "wrong", ["", {}, [], (), "text", 7, 1.5, object(), NUMBERS, memoryview(NUMBERS)]
)
@pytest.mark.parametrize("field", ["value", "key"])
async def test_keys_and_values_must_be_bytes_within_send_many(
    producer: Producer, field: str, wrong: Any
) -> None:
    for before in (0, 1, 2):
        good = [producer.send("orders", b"v", b"k", 0) for _ in range(before)]
        with pytest.raises(SerializationError, match="must be bytes or None"):
            producer.send("orders", **{"value": b"v", "partition": 0, field: wrong})
        good.append(producer.send("orders", b"v", b"k", 0))
        await producer.gather(good)


@pytest.mark.parametrize("where", [{"timestamp": 1.5}, {"timestamp": "now"}, {"partition": "0"}])
async def test_timestamps_and_partitions_must_be_integers(
    producer: Producer, where: dict[str, Any]
) -> None:
    with pytest.raises(SerializationError, match=r"timestamp \(in milliseconds\) must be int"):
        producer.send("orders", b"v", **where)


@pytest.mark.parametrize("values", [None, {b"v"}, {b"k": b"v"}, iter([b"v"])])
async def test_send_many_needs_a_sequence(producer: Producer, values: Any) -> None:
    with pytest.raises(IllegalStateError, match=r"a sequence such as a list.* send_all\(\)"):
        producer.send_many("orders", values)


async def test_a_partition_that_does_not_exist_is_refused(producer: Producer) -> None:
    for partition in (-1, 1 << 31):
        with pytest.raises(UnknownTopicOrPartitionError, match="The topic has 2 partitions"):
            producer.send("orders", b"v", partition=partition)


async def test_a_failing_serializer_is_reported(servers: str) -> None:
    def encode(value: str) -> bytes:
        raise ZeroDivisionError("no such order")

    async with Producer(bootstrap_servers=servers, value_serializer=encode) as producer:
        with pytest.raises(SerializationError, match=r"topic orders.*no such order") as caught:
            producer.send("orders", "v")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_a_topic_that_does_not_exist_is_reported(servers: str) -> None:
    async with Producer(bootstrap_servers=servers, max_block_ms=3_000) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="create the topic") as caught:
            await producer.send("nobody-made-this", b"v")
    assert "nobody-made-this" in str(caught.value)


@pytest.mark.parametrize("topics", ["orders", NewTopic("orders", 1, 1), None, [7]])
async def test_topics_must_be_a_collection(servers: str, topics: Any) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        for call in (admin.create_topics, admin.delete_topics, admin.describe_topics):
            with pytest.raises(IllegalStateError, match=r"is not a collection of .* Pass a list"):
                await call(topics)
        assert "orders" in await admin.list_topics()


async def test_a_new_topic_needs_a_valid_name(servers: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        results = await admin.create_topics([NewTopic("a b", 1, 1)])
    error = results["a b"]
    assert isinstance(error, InvalidTopicError)
    assert "a b" in str(error)
    with pytest.raises(KafkaError, match="a b"):
        results.raise_for_errors()

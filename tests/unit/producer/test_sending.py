"""Tests of what users of send, send_many, and send_all see, on a simulated cluster."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import pytest
from world import World, simulate

from aiokclient import ProducerRecord, RecordMetadata
from aiokclient.errors import (
    ApiTimeoutError,
    BufferExhaustedError,
    ClosedError,
    DeliveryErrors,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    NotEnoughReplicasError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey


def values(world: World, topic: str = "t") -> list[bytes | None]:
    """Return the values in the topic, partition by partition."""
    return [record.value for record in world.cluster.records(topic)]


def test_a_record_with_all_it_can_have() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            headers = [("h", b"1"), ("h", None)]
            delivery = producer.send("t", b"v", key=b"k", partition=0, timestamp=5, headers=headers)
            assert await delivery == RecordMetadata("t", 0, 0, 5)
            now = world.sim.clock.time_ms()
            assert await producer.send_and_wait("t") == RecordMetadata("t", 0, 1, now)
        full, empty = world.cluster.records("t")
        assert (full.key, full.value, full.timestamp) == (b"k", b"v", 5)
        assert list(full.headers) == headers
        assert (empty.key, empty.value) == (None, None)

    simulate(scenario)


@pytest.mark.parametrize("acks", ["all", 1, 0])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_acks_and_codecs(acks: Any, codec: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(acks=acks, compression_type=codec) as producer:
            deliveries = [producer.send("t", b"value-%05d" % i) for i in range(5000)]
            offsets = [metadata.offset for metadata in await producer.gather(deliveries)]
            await world.cluster.until(lambda: len(values(world)) == 5000, timeout=5)
        assert offsets == ([-1] * 5000 if acks == 0 else list(range(5000)))
        assert values(world) == [b"value-%05d" % i for i in range(5000)]

    simulate(scenario)


BAD = [
    (("t", "text"), SerializationError, "must be bytes"),
    (("t", 7), SerializationError, "must be bytes"),
    (("t", b"v", "key"), SerializationError, "must be bytes"),
    (("t", b"x" * 2_000_000), RecordTooLargeError, "max_request_size"),
    (("bad topic", b"v"), InvalidTopicError, "cannot be a topic"),
    (("..", b"v"), InvalidTopicError, "cannot be a topic"),
    (("", b"v"), InvalidTopicError, "cannot be a topic"),
    (("t" * 250, b"v"), InvalidTopicError, "cannot be a topic"),
    (("t", b"v", None, -1), UnknownTopicOrPartitionError, "-1"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD)
def test_what_send_refuses_at_once(arguments: Any, error: type[KafkaError], text: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.prepare("t")
            with pytest.raises(error, match=text):
                producer.send(*arguments)
            topic, value, key, partition = (*arguments, None, None)[:4]
            record = ProducerRecord(topic, value, key, partition)
            with pytest.raises(error):
                producer.send_many("t", [b"fine", record])
            assert (await producer.send("t", b"next")).offset == 0
        assert values(world) == [b"next"]

    simulate(scenario)


def test_headers_that_cannot_be_encoded() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            for headers in ([("h", "text")], [(b"h", b"v")], [("h",)], 5):
                with pytest.raises(SerializationError):
                    producer.send("t", b"v", headers=headers)
                with pytest.raises(SerializationError):
                    producer.send_many("t", [ProducerRecord("t", b"v", headers=headers)])
            await producer.send("t", b"next")
        assert values(world) == [b"next"]

    simulate(scenario)


def test_before_the_start_and_after_the_end() -> None:
    async def scenario(world: World) -> None:
        producer = world.producer()
        with pytest.raises(IllegalStateError, match="not started"):
            producer.send("t", b"v")
        async with producer:
            delivery = producer.send("t", b"v")
        for use in (
            lambda: producer.send("t", b"v"),
            lambda: producer.send_many("t", [b"v"]),
            lambda: producer.send_threadsafe("t", b"v"),
        ):
            with pytest.raises(ClosedError):
                use()
        for wait in (producer.flush(), producer.drain(), producer.send_all("t", [b"v"])):
            with pytest.raises(ClosedError):
                await wait
        assert (await delivery).offset == 0, "outcomes outlive the producer"
        assert (await producer.gather([delivery]))[0].offset == 0

    simulate(scenario)


MIXED: list[Any] = [
    b"plain",
    None,
    (b"key", b"value"),
    (None, None),
    ProducerRecord("t", b"record", partition=1, timestamp=9, headers=[("h", b"x")]),
    ProducerRecord("u", b"elsewhere"),
]


@pytest.mark.parametrize("prepared", [True, False])
def test_send_many_of_all_sorts(prepared: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            if prepared:
                await producer.prepare("t")
                await producer.prepare("u")
            deliveries = producer.send_many("t", MIXED)
            assert len(deliveries) == 6
            results = await producer.gather(deliveries)
        assert [result.topic for result in results] == ["t"] * 5 + ["u"]
        assert (results[4].partition, results[4].timestamp) == (1, 9)
        found = {
            (record.partition, record.offset): (record.key, record.value)
            for record in world.cluster.records("t")
        }
        pairs = [
            (None, b"plain"),
            (None, None),
            (b"key", b"value"),
            (None, None),
            (None, b"record"),
        ]
        assert [found[result.partition, result.offset] for result in results[:5]] == pairs

    simulate(scenario, topics={"t": 3, "u": 1})


@pytest.mark.parametrize("prepared", [True, False])
def test_send_many_of_plain_values(prepared: bool) -> None:
    async def scenario(world: World) -> None:
        sent = [b"%06d" % i * (1 + i % 5) for i in range(20_000)]
        async with world.producer(batch_size=4000) as producer:
            if prepared:
                await producer.prepare("t")
            await producer.gather(producer.send_many("t", sent[:1000]))
            deliveries = producer.send_many("t", sent[1000:])
            results = await producer.gather(deliveries)
            assert await deliveries[7] == results[7]
            assert producer.send_many("t", []) == []
        found = {(r.partition, r.offset): r.value for r in world.cluster.records("t")}
        assert [found[result.partition, result.offset] for result in results] == sent[1000:]
        assert len(found) == 20_000
        assert {result.partition for result in results} == {0, 1, 2}

    simulate(scenario, topics={"t": 3})


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
def test_send_many_is_all_or_nothing(prepared: bool, keyed: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(buffer_memory=100_000) as producer:
            if prepared:
                await producer.prepare("t")
            many: list[Any] = [(b"k", b"x" * 1000) if keyed else b"x" * 1000] * 300
            with pytest.raises(BufferExhaustedError, match="send_all"):
                producer.send_many("t", many)
            assert not producer.full
            await producer.gather(producer.send_many("t", many[:30]))
        assert len(values(world)) == 30

    simulate(scenario)


async def stream(count: int) -> AsyncIterator[bytes]:
    for i in range(count):
        if i % 100 == 0:
            await asyncio.sleep(0.001)
        yield b"%05d" % i


class Topics(StrEnum):
    ONE = "t"


def test_name_of_a_topic_may_be_a_subclass_of_str() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            assert (await producer.send(Topics.ONE, b"v")).topic == "t"
            await producer.gather(producer.send_many(Topics.ONE, [b"v"]))
        assert values(world) == [b"v", b"v"]

    simulate(scenario)


@pytest.mark.parametrize("kind", ["list", "generator", "async"])
def test_send_all(kind: str, memory_totals: list[int]) -> None:
    async def scenario(world: World) -> None:
        items: Any = [b"%05d" % i for i in range(3000)]
        items = {"list": items, "generator": iter(items), "async": stream(3000)}[kind]
        with world.cluster.delay(ApiKey.PRODUCE, 0.05):
            async with world.producer(buffer_memory=20_000, batch_size=2000) as producer:
                assert await producer.send_all("t", items) == 3000
                assert 0 < max(memory_totals) <= 40_000
        assert values(world) == [b"%05d" % i for i in range(3000)]

    simulate(scenario)


def test_send_all_stops_at_the_first_failure() -> None:
    async def scenario(world: World) -> None:
        taken = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                await asyncio.sleep(0.001)
                yield b"x"

        async with world.producer() as producer:
            await producer.send("t", b"first")
            world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
            with pytest.raises(TopicAuthorizationError):
                await producer.send_all("t", endless())
            assert taken < 100
            with pytest.raises(TypeError):
                await producer.send_all("t", 5)
            world.cluster.reset()

    simulate(scenario)


class Json:
    """A serializer that must load a schema before it is used."""

    def __init__(self) -> None:
        self.prepared: list[str] = []

    async def prepare(self, topic: str) -> None:
        if topic == "bad":
            raise LookupError("no schema")
        self.prepared.append(topic)

    def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
        if topic not in self.prepared:
            raise LookupError(f"the schema of {topic} is not there; await prepare")
        return repr(value).encode()


def test_serializers() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(key_serializer=str.encode, value_serializer=Json()) as producer:
            with pytest.raises(SerializationError, match="value serializer failed") as caught:
                producer.send("t", 5)
            assert isinstance(caught.value.__cause__, LookupError)
            await producer.prepare("t")
            await producer.send("t", {"a": 1}, key="k")
            await producer.send("t", None)
            await producer.gather(producer.send_many("t", [7, ("k", 8)]))
            with pytest.raises(SerializationError, match="key serializer failed"):
                producer.send("t", 1, key=5)
            with pytest.raises(SerializationError, match="could not be prepared"):
                await producer.prepare("bad")
        assert values(world) == [b"{'a': 1}", None, b"7", b"8"]
        async with world.producer(value_serializer=lambda value: 5) as producer:
            with pytest.raises(SerializationError, match="returned int"):
                producer.send("t", b"v")

    simulate(scenario, topics={"t": 1, "bad": 1})


def test_serialize_none_calls_the_serializers_with_none() -> None:
    class Text:
        def serialize(self, topic: str, value: Any, headers: Any) -> bytes | None:
            return None if value is None or value == "bad" else str(value).encode()

    options: dict[str, Any] = {
        "key_serializer": lambda key: b"null" if key is None else str(key).encode(),
        "value_serializer": Text(),
    }

    async def scenario(world: World) -> None:
        async with world.producer(serialize_none=True, **options) as producer:
            await producer.send("t")
            await producer.gather(producer.send_many("t", [(1, 2), (None, None), None]))
            await producer.send_all("t", [(None, 3)])
            with pytest.raises(SerializationError, match="returned NoneType"):
                producer.send("t", "bad")
        found = [(record.key, record.value) for record in world.cluster.records("t")]
        assert found == [
            (b"null", None),
            (b"1", b"2"),
            (b"null", None),
            (b"null", None),
            (b"null", b"3"),
        ]
        async with world.producer(**options) as producer:
            await producer.send("t")
        assert world.cluster.records("t")[-1].key is None

    simulate(scenario, topics={"t": 1})


@pytest.mark.parametrize("known", [True, False])
def test_records_for_a_missing_partition_are_counted_as_failed(known: bool) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(max_block_ms=3000) as producer:
            if known:
                await producer.prepare("t")
            sent = [producer.send("t", partition=7), *producer.send_many("t", [b"v"])]
            sent += producer.send_many("t", [ProducerRecord("t", b"v", partition=9)] * 2)
            found = await producer.gather(sent, return_exceptions=True)
            assert [type(each) for each in found] == [
                UnknownTopicOrPartitionError,
                RecordMetadata,
                *[UnknownTopicOrPartitionError] * 2,
            ]
            metrics = producer.metrics()
            assert metrics["producer.records.failed"] == 3
            assert metrics["producer.topic.failed{topic=t}"] == 3
            assert metrics["producer.records.acknowledged"] == 1

    simulate(scenario, topics={"t": 2})


def test_records_that_a_partitioner_refuses_later_are_counted_as_failed() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(partitioner=lambda *_: 99) as producer:
            with pytest.raises(SerializationError, match="has 1 partitions"):
                await producer.send("t", b"v")
            assert producer.metrics()["producer.records.failed"] == 1

    simulate(scenario, topics={"t": 1})


def test_prepare_of_a_topic_that_is_not_there() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            with pytest.raises(ApiTimeoutError) as caught:
                await producer.prepare("nowhere", timeout=2)
            assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)

    simulate(scenario)


def test_failures_that_nobody_retrieved_are_raised_at_the_end() -> None:
    async def scenario(world: World) -> None:
        world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=None)

        async def produce() -> None:
            async with world.producer() as producer:
                seen = [producer.send("t", b"x") for _ in range(3)]
                unseen = [producer.send("t", b"x") for _ in range(150)]
                await producer.gather(seen, return_exceptions=True)
                await producer.flush()
                unseen[0].add_done_callback(lambda delivery: None)
                assert isinstance(unseen[1].exception(), TopicAuthorizationError)

        with pytest.raises(DeliveryErrors) as caught:
            await produce()
        assert caught.value.count == 149
        assert len(caught.value.exceptions) == 100
        world.cluster.reset()

    simulate(scenario)


def test_each_failure_is_reported() -> None:
    async def scenario(world: World) -> None:
        failed: list[Any] = []
        producer = world.producer(on_delivery_error=failed.append)
        async with producer:
            with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
                deliveries = [producer.send("t", b"x") for _ in range(2000)]
                await producer.flush()
            await producer.send("t", b"fine")
            await asyncio.sleep(0.1)
            assert [delivery.exception() for delivery in failed] == [
                delivery.exception() for delivery in deliveries
            ]

    simulate(scenario)


def test_without_a_callback_failures_are_logged_at_a_bounded_rate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(linger_ms=0)
        with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
            for _ in range(50):
                producer.send("t", b"x")
                await producer.flush()
            assert len(caplog.records) == 1
            await asyncio.sleep(11)
            producer.send("t", b"x")
            await producer.flush()
        await producer.close()
        first, second = [record.getMessage() for record in caplog.records]
        assert first.startswith(
            "client aiokclient: 1 record(s) for topic t were not delivered: TOPIC"
        )
        assert second.startswith("client aiokclient: 50 record(s)")

    with caplog.at_level(logging.ERROR, "aiokclient.producer"):
        simulate(scenario)


def test_a_callback_that_raises_goes_to_the_loop() -> None:
    async def scenario(world: World) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reported.append(context)
        )

        def fails(delivery: Any) -> None:
            delivery.exception()
            raise ValueError("mine")

        async with world.producer(on_delivery_error=fails) as producer:
            with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
                producer.send("t", b"x")
                await producer.flush()
            await asyncio.sleep(0.01)
        assert [type(context["exception"]) for context in reported] == [ValueError]

    simulate(scenario)


def test_flush_only_waits() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=10_000) as producer:
            began = world.now
            first = producer.send("t", b"x")
            await producer.flush()
            assert first.done()
            assert world.now - began < 1, "flush does not wait for linger_ms"
            with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
                failed = producer.send("t", b"x")
                await producer.flush()
            assert isinstance(failed.exception(), KafkaError)

    simulate(scenario)


def test_metrics() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            world.cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError, times=1)
            await producer.gather(producer.send_many("t", [b"x"] * 10))
            metrics = producer.metrics()
        assert metrics["producer.records.acknowledged"] == 10
        assert metrics["producer.retries{error=NOT_ENOUGH_REPLICAS}"] == 1
        assert metrics["producer.buffer.bytes"] == metrics["producer.overflow.bytes"] == 0

    simulate(scenario)


def test_an_infinite_timeout() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.prepare("t", timeout=math.inf)
            await producer.send("t", b"v")

    simulate(scenario)

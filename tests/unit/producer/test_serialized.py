"""Tests of serializers that set headers, that are told their part, and that are prepared."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer, Producer, ProducerRecord, Serialized
from aiokclient.errors import ConfigError, SerializationError


class Headed:
    """A serializer of texts that sets the header `name`."""

    def __init__(self, name: str = "schema") -> None:
        self.name = name

    def serialize(self, topic: str, value: str, headers: Any) -> Serialized:
        return Serialized(value.encode(), [(self.name, b"id of " + value.encode())])


Way = Callable[[Producer[Any, Any], Any, Any, Any], Awaitable[object]]


async def by_send(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    await producer.send("t", value, key, headers=headers)


async def by_many(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    record = ProducerRecord("t", value, key, headers=headers)
    await producer.gather(producer.send_many("t", [record]))


async def by_all(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    async def items() -> AsyncIterator[ProducerRecord]:
        yield ProducerRecord("t", value, key, headers=headers)

    await producer.send_all("t", items())


async def by_wait(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    await producer.send_and_wait("t", value, key, headers=headers)


async def by_thread(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    await asyncio.wrap_future(producer.send_threadsafe("t", value, key, headers=headers))


async def in_transaction(producer: Producer[Any, Any], value: Any, key: Any, headers: Any) -> None:
    async with producer.transaction() as tx:
        tx.send("t", value, key, headers=headers)


WAYS: list[Way] = [by_send, by_many, by_all, by_wait, by_thread, in_transaction]


@pytest.mark.parametrize("way", WAYS)
def test_headers_of_serializers_replace_those_of_the_same_name(way: Way) -> None:
    async def scenario(world: World) -> None:
        options: Any = {"key_serializer": Headed("k"), "value_serializer": Headed("v")}
        if way is in_transaction:
            options["transactional_id"] = "x"
        given = [("v", b"old"), ("other", b"1"), ("v", None), ("k", b"old"), ("other", b"2")]
        async with world.producer(**options) as producer:
            await way(producer, "value", "key", given)
            await way(producer, "value", "key", given)
            await way(producer, None, None, given)
        assert given[0] == ("v", b"old")
        first, second, third = [
            (record.key, record.value, list(record.headers))
            for record in world.cluster.records("t", 0)
        ]
        other = [("other", b"1"), ("other", b"2")]
        headers = [*other, ("k", b"id of key"), ("v", b"id of value")]
        assert first == second == (b"key", b"value", headers)
        assert third == (None, None, given)

    simulate(scenario)


def test_the_header_of_the_value_replaces_that_of_the_key() -> None:
    async def scenario(world: World) -> None:
        serializer = Headed()
        options: Any = {"key_serializer": serializer, "value_serializer": serializer}
        async with world.producer(**options) as producer:
            await producer.send("t", "value", "key")
        (record,) = world.cluster.records("t", 0)
        assert list(record.headers) == [("schema", b"id of value")]

    simulate(scenario)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Serialized("text"), "The value serializer returned str, not bytes"),  # type: ignore[arg-type]
        (Serialized(None), "The value serializer returned NoneType, not bytes"),
        (Serialized(b"", [("name", "text")]), "headers that cannot be sent: str is not bytes"),  # type: ignore[list-item]
        (Serialized(b"", ["name"]), "headers that cannot be sent"),  # type: ignore[list-item]
        (Serialized(b"", 5), "headers that cannot be sent"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_in_a_serialized_value_is_refused(result: Any, text: str) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(value_serializer=lambda value: result) as producer:
            with pytest.raises(SerializationError, match=text):
                producer.send("t", "value")
            with pytest.raises(SerializationError, match=text):
                producer.send_many("t", ["value"])
        assert world.cluster.records("t", 0) == []

    simulate(scenario)


def test_a_serialized_value_may_have_no_headers_and_no_data_for_none() -> None:
    async def scenario(world: World) -> None:
        def serialize(value: Any) -> Any:
            return Serialized(None, [("n", b"1")]) if value is None else Serialized(value)

        options: Any = {"value_serializer": serialize, "serialize_none": True}
        async with world.producer(**options) as producer:
            await producer.send("t", b"value", headers=[("a", b"b")])
            await producer.send("t", None)
        found = [(each.value, list(each.headers)) for each in world.cluster.records("t", 0)]
        assert found == [(b"value", [("a", b"b")]), (None, [("n", b"1")])]

    simulate(scenario)


def test_a_serialized_value_without_a_serializer_is_refused() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.prepare("t")
            with pytest.raises(SerializationError, match="the value is Serialized"):
                producer.send("t", Serialized(b"value", [("a", b"b")]))

    simulate(scenario)


class Told:
    """A serializer and deserializer that notes its parts, and refuses a second one if `once`."""

    def __init__(self, once: bool = False) -> None:
        self.parts: list[str] = []
        self.once = once

    def bind(self, part: str) -> None:
        if self.once and self.parts and part not in self.parts:
            raise ConfigError("This serializer serves keys already.")
        self.parts.append(part)

    def serialize(self, topic: str, value: str, headers: Any) -> bytes:
        return value.encode()

    def deserialize(self, topic: str, data: bytes, headers: Any) -> str:
        return data.decode()


def test_serializers_and_deserializers_are_told_their_part_once() -> None:
    async def scenario(world: World) -> None:
        key, value = Told(), Told()
        written: Any = {"key_serializer": key, "value_serializer": value}
        async with world.producer(**written) as producer:
            await producer.send("t", "value", "key")
        assert (key.parts, value.parts) == (["key"], ["value"])
        read: Any = {"key_deserializer": key, "value_deserializer": value}
        async with world.consumer("t", **read) as consumer:
            assert await consumer.get() is not None
        assert (key.parts, value.parts) == (["key"] * 2, ["value"] * 2)

    simulate(scenario)


def test_an_object_for_both_parts_is_told_both_and_may_refuse() -> None:
    both, once = Told(), Told(once=True)
    servers = "localhost:1"
    Producer[str, str](bootstrap_servers=servers, key_serializer=both, value_serializer=both)
    assert both.parts == ["key", "value"]
    Consumer("t", bootstrap_servers=servers, key_deserializer=once)
    for _ in range(2):
        with pytest.raises(ConfigError, match="serves keys already"):
            Producer[str, str](bootstrap_servers=servers, value_serializer=once)
        with pytest.raises(ConfigError, match="serves keys already"):
            Consumer("t", bootstrap_servers=servers, value_deserializer=once)


class Prepared:
    """A serializer that must be prepared for each topic."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def prepare(self, topic: str) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.topics.append(topic)

    def serialize(self, topic: str, value: str, headers: Any) -> bytes:
        if topic not in self.topics:
            raise KeyError(topic)
        return value.encode()


@pytest.mark.parametrize("is_stream", [False, True])
def test_send_all_prepares_the_serializers_for_each_topic_once(is_stream: bool) -> None:
    async def scenario(world: World) -> None:
        serializer = Prepared()
        async with world.producer(value_serializer=serializer) as producer:
            with pytest.raises(SerializationError, match=r"await producer\.prepare\(topic\)"):
                producer.send("t", "a")
            items = ["a", ProducerRecord("u", "b"), (None, "c"), ProducerRecord("u", "d")] * 300

            async def stream() -> AsyncIterator[Any]:
                for item in items:
                    yield item

            assert await producer.send_all("t", stream() if is_stream else items) == 1200
            assert serializer.topics == ["t", "u"]
        values = [record.value for record in world.cluster.records("u", 0)]
        assert values == [b"b", b"d"] * 300

    simulate(scenario, topics={"t": 1, "u": 1})


def test_send_all_raises_the_error_of_a_preparation_and_sends_nothing_more() -> None:
    async def scenario(world: World) -> None:
        serializer = Prepared()
        async with world.producer(value_serializer=serializer) as producer:
            serializer.error = ValueError("no such subject")
            with pytest.raises(SerializationError, match="no such subject"):
                await producer.send_all("t", ["a", "b"])
            assert world.cluster.records("t", 0) == []
            serializer.error = None
            serializer.gate.clear()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await producer.send_all("t", ["a"])
            serializer.gate.set()
            assert await producer.send_all("t", ["a"]) == 1

    simulate(scenario)

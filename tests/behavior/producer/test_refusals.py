"""Records that `send` and `send_many` refuse at once, and refusals that the delivery raises."""

import asyncio
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy
import pytest

from aiokclient import Producer, ProducerRecord
from aiokclient.errors import (
    ClosedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]
Values = Callable[[str], list[bytes | None]]

WRONG: list[tuple[dict[str, Any], type[KafkaError]]] = [
    ({"value": "text"}, SerializationError),
    ({"value": 5}, SerializationError),
    ({"value": ["a"]}, SerializationError),
    ({"key": "text"}, SerializationError),
    ({"key": 5}, SerializationError),
    ({"headers": [("h", "text")]}, SerializationError),
    ({"headers": [("a", b"1"), (b"b", b"2")]}, SerializationError),
    ({"headers": [("a", b"1"), ("b",)]}, SerializationError),
    ({"headers": [("a", b"1"), ("\ud800", b"2")]}, SerializationError),
    ({"headers": 7}, SerializationError),
    ({"timestamp": "now"}, SerializationError),
    ({"timestamp": 1.5}, SerializationError),
    ({"timestamp": Decimal(3)}, SerializationError),
    ({"timestamp": -1}, SerializationError),
    ({"timestamp": 1 << 63}, SerializationError),
    ({"partition": -1}, UnknownTopicOrPartitionError),
    ({"partition": 1 << 40}, UnknownTopicOrPartitionError),
    ({"partition": "0"}, KafkaError),
    ({"partition": 0.0}, KafkaError),
    ({"value": bytes(1_048_577)}, RecordTooLargeError),
    ({"key": bytes(1_048_577)}, RecordTooLargeError),
    ({"headers": [("h", bytes(1_048_577))]}, RecordTooLargeError),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("amid", [0, 1, 2])
@pytest.mark.parametrize(("wrong", "error"), WRONG)
async def test_a_refused_send_keeps_nothing(
    make: Make,
    topic: str,
    values: Values,
    wrong: dict[str, Any],
    error: type[KafkaError],
    amid: int,
    known: bool,
) -> None:
    if not known and wrong.get("partition") == 1 << 40:
        return  # The topic may have any partition. The delivery fails.
    async with make() as producer:
        if known:
            await producer.prepare(topic)
        good = [producer.send(topic, b"before") for _ in range(amid)]
        with pytest.raises(error):
            producer.send(topic, **{"value": b"wrong", **wrong})
        good.append(producer.send(topic, b"after"))
        assert [metadata.offset for metadata in await producer.gather(good)] == [*range(amid + 1)]
    assert values(topic) == [b"before"] * amid + [b"after"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("wrong", "error"), WRONG)
async def test_a_refused_send_many_keeps_nothing(
    make: Make,
    topic: str,
    values: Values,
    wrong: dict[str, Any],
    error: type[KafkaError],
    known: bool,
) -> None:
    if not known and wrong.get("partition") == 1 << 40:
        return
    async with make() as producer:
        if known:
            await producer.prepare(topic)
        many: list[Any] = [b"fine", (b"k", b"fine"), ProducerRecord(topic, b"fine")]
        many.insert(2, ProducerRecord(**{"topic": topic, "value": b"wrong", **wrong}))
        with pytest.raises(error):
            producer.send_many(topic, many)
        with pytest.raises(error):
            producer.send_many(topic, many[::-1])
        assert (await producer.send(topic, b"after")).offset == 0
    assert values(topic) == [b"after"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\n", None, 5, b"t"]
)
async def test_a_bad_topic_name_is_refused(make: Make, topic: str, name: Any) -> None:
    async with make() as producer:
        with pytest.raises(InvalidTopicError, match="1 to 249") as caught:
            producer.send(name, b"v")
        assert repr(name) in str(caught.value)
        with pytest.raises(InvalidTopicError, match="1 to 249"):
            producer.send_many(topic, [b"fine", ProducerRecord(name, b"v")])
        with pytest.raises(InvalidTopicError, match="1 to 249"):
            producer.send_many(name, [b"v"])
        with pytest.raises(InvalidTopicError):
            await producer.prepare(name)
        with pytest.raises(InvalidTopicError):
            await producer.send_all(topic, [ProducerRecord(name, b"v")])
        assert (await producer.send(topic, b"v")).offset == 0
        longest = producer.send("x" * 249, b"v")
        await producer.close(0)
        assert isinstance(longest.exception(), ClosedError)


async def test_headers_from_an_iterator_are_written_or_refused(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    def once() -> Iterator[tuple[str, bytes]]:
        yield "h", b"v"

    async with make() as producer:
        try:
            await producer.send(topic, b"v", headers=once())  # type: ignore[arg-type]  # on purpose
        except SerializationError:
            return
    assert list(cluster.records(topic)[0].headers) == [("h", b"v")]


async def test_changes_after_send_do_not_change_the_record(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    headers: list[tuple[str, bytes | None]] = [("h", b"v")]
    items: list[Any] = [b"a", b"b"]
    async with make(linger_ms=1000) as producer:
        producer.send(topic, b"v", headers=headers)
        headers.append(("i", b"w"))
        producer.send_many(topic, items)
        items[0] = b"changed"
        await producer.flush()
    assert [record.value for record in cluster.records(topic)] == [b"v", b"a", b"b"]
    assert list(cluster.records(topic)[0].headers) == [("h", b"v")]


@pytest.mark.parametrize("size", [1_048_576 - 200, 1_048_576 - 100, 500_000])
async def test_accepted_records_are_not_too_large_for_a_broker(
    make: Make, topic: str, size: int
) -> None:
    async with make() as producer:
        assert (await producer.send(topic, bytes(size))).offset == 0


async def test_accepted_records_fit_into_max_request_size(
    make: Make, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("sizes", configs={"max.message.bytes": 2000})
    async with make(max_request_size=2000) as producer:
        for size in range(1850, 2050):
            try:
                delivery = producer.send("sizes", bytes(size))
            except RecordTooLargeError:
                continue
            await delivery
    cluster.delete_topic("sizes")


async def test_a_record_too_large_for_the_broker_fails_its_delivery(
    make: Make, cluster: EmbeddedCluster
) -> None:
    cluster.create_topic("small", configs={"max.message.bytes": 1000})
    async with make() as producer:
        with pytest.raises(RecordTooLargeError) as caught:
            await producer.send("small", bytes(1200))
        assert caught.value.code == 10
        assert caught.value.topic_partition == ("small", 0)
        assert (await producer.send("small", bytes(100))).offset == 0
    cluster.delete_topic("small")


class TestSequences:
    """The kinds of collections that `send_many` accepts."""

    @pytest.mark.parametrize("kind", [list, tuple, deque])
    async def test_send_many_accepts_sequences(
        self, make: Make, topic: str, values: Values, kind: Callable[[Any], Any]
    ) -> None:
        sent = [b"%d" % i for i in range(1000)]
        async with make(batch_size=1000) as producer:
            deliveries = producer.send_many(topic, kind(sent))
            assert len(deliveries) == 1000
            assert [m.offset for m in await producer.gather(deliveries)] == list(range(1000))
        assert values(topic) == sent

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize(
        "what",
        [
            lambda: iter([b"a"]),
            lambda: (item for item in [b"a"]),
            lambda: None,
            lambda: 5,
            lambda: b"bytes",
            lambda: "text",
            lambda: ProducerRecord("t", b"v"),
        ],
    )
    async def test_send_many_refuses_what_is_not_a_sequence(
        self, make: Make, topic: str, values: Values, what: Callable[[], Any], known: bool
    ) -> None:
        async with make() as producer:
            if known:
                await producer.prepare(topic)
            with pytest.raises((TypeError, KafkaError)):
                producer.send_many(topic, what())
            await producer.send(topic, b"after")
        assert values(topic) == [b"after"]

    @pytest.mark.parametrize("what", [iter([b"a"]), {b"a"}, {b"a": 1}.keys()])
    async def test_send_many_refuses_unordered_collections_and_names_send_all(
        self, make: Make, topic: str, what: Any
    ) -> None:
        async with make() as producer:
            with pytest.raises((TypeError, KafkaError), match="send_all"):
                producer.send_many(topic, what)
            assert await producer.send_all(topic, what) == 1

    async def test_send_many_of_nothing_returns_nothing(self, make: Make, topic: str) -> None:
        async with make() as producer:
            assert list(producer.send_many(topic, [])) == []
            assert await producer.send_all(topic, []) == 0


class TestSerializers:
    async def test_a_failing_serializer_keeps_nothing_of_a_send_many(
        self, make: Make, topic: str, values: Values
    ) -> None:
        async with make(value_serializer=lambda value: bytes([value])) as producer:
            await producer.prepare(topic)
            with pytest.raises(SerializationError) as caught:
                producer.send_many(topic, [1, 2, 300, 3])
            assert isinstance(caught.value.__cause__, ValueError)
            assert (await producer.send(topic, 9)).offset == 0
        assert values(topic) == [b"\x09"]

    async def test_tombstones_are_never_serialized(self, make: Make, topic: str) -> None:
        def never(value: Any) -> bytes:
            assert value is not None
            return bytes(value)

        async with make(key_serializer=never, value_serializer=never) as producer:
            assert (await producer.send(topic, None, key=None)).offset == 0
            deliveries = producer.send_many(topic, [None, (None, None), ProducerRecord(topic)])
            assert [m.offset for m in await producer.gather(deliveries)] == [1, 2, 3]

    @pytest.mark.parametrize("result", ["text", 5, [1]])
    async def test_a_serializer_must_return_bytes(
        self, make: Make, topic: str, result: Any
    ) -> None:
        async with make(key_serializer=lambda _: result) as producer:
            with pytest.raises(SerializationError, match="key serializer"):
                producer.send(topic, b"v", key=1)

    async def test_serializer_objects_get_topic_value_and_headers(
        self, make: Make, topic: str
    ) -> None:
        seen: list[Any] = []

        class Object:
            def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
                seen.append((topic, value, list(headers)))
                return b"x"

        async with make(key_serializer=Object(), value_serializer=Object()) as producer:
            await producer.send(topic, 5, key="k", headers=[("h", b"1")])
            await producer.gather(producer.send_many(topic, [("l", 6)]))
        assert seen == [
            (topic, "k", [("h", b"1")]),
            (topic, 5, [("h", b"1")]),
            (topic, "l", []),
            (topic, 6, []),
        ]

    async def test_send_raises_until_the_serializer_is_prepared(
        self, make: Make, topic: str
    ) -> None:
        class Registry:
            def __init__(self) -> None:
                self.schemas: dict[str, bytes] = {}

            async def prepare(self, topic: str) -> None:
                await asyncio.sleep(0)
                self.schemas[topic] = b"id"

            def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
                return self.schemas[topic] + bytes(value)

        async with make(value_serializer=Registry()) as producer:
            with pytest.raises(SerializationError, match=r"prepare\(") as caught:
                producer.send(topic, b"v")
            assert isinstance(caught.value.__cause__, KeyError)
            await producer.prepare(topic)
            assert (await producer.send(topic, b"v")).offset == 0

    async def test_prepare_ends_by_its_timeout(self, make: Make, topic: str) -> None:
        class Stuck:
            async def prepare(self, topic: str) -> None:
                await asyncio.Event().wait()

            def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
                return bytes(value)

        async with make(value_serializer=Stuck()) as producer:
            with pytest.raises(TimeoutError) as caught:
                await producer.prepare(topic, timeout=0.05)
            assert isinstance(caught.value, KafkaError)


class TestWhenItIsOver:
    @pytest.mark.parametrize("how", ["close", "with", "failed start"])
    async def test_a_closed_producer_refuses_records(
        self, make: Make, topic: str, how: str
    ) -> None:
        producer = make()
        if how == "with":
            async with producer:
                pass
        elif how == "close":
            await producer.start()
            await producer.close()
        else:
            await producer.close()
        for call in (
            lambda: producer.send(topic, b"v"),
            lambda: producer.send_many(topic, [b"v"]),
            lambda: producer.send_threadsafe(topic, b"v").result(0),
        ):
            with pytest.raises(ClosedError):
                call()
        for wait in (
            producer.flush,
            producer.drain,
            lambda: producer.send_all(topic, [b"v"]),
            lambda: producer.send_and_wait(topic, b"v"),
            lambda: producer.prepare(topic),
        ):
            with pytest.raises(ClosedError):
                await wait()

    async def test_a_producer_that_was_never_started_refuses_records(
        self, make: Make, topic: str
    ) -> None:
        producer = make()
        assert producer.full is False
        with pytest.raises(IllegalStateError):
            producer.send(topic, b"v")

    async def test_a_failed_delivery_raises_an_error_with_all_details(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
            with pytest.raises(TopicAuthorizationError) as caught:
                await producer.send(topic, b"v")
            error = caught.value
            assert (error.code, error.name) == (29, "TOPIC_AUTHORIZATION_FAILED")
            assert (error.api, error.broker) == ("Produce", 1)
            assert error.topic_partition == (topic, 0)
            assert (error.retriable, error.fatal) == (False, False)
            for part in ("TOPIC_AUTHORIZATION_FAILED", "Produce", f"{topic}-0", "broker 1"):
                assert part in str(error)
            assert (await producer.send(topic, b"v")).offset == 0


Fields = dict[str, Any]

UNUSUAL: dict[str, Callable[[], Fields]] = {
    "bytearray as value": lambda: {"value": bytearray(b"v")},
    "memoryview as value": lambda: {"value": memoryview(b"v")},
    "memoryview with gaps as value": lambda: {"value": memoryview(b"v-w-")[::2]},
    "memoryview of integers as value": lambda: {"value": memoryview(array("q", [1]))},
    "bytearray as key": lambda: {"key": bytearray(b"k")},
    "memoryview as key": lambda: {"key": memoryview(b"k")},
    "bytearray in a header": lambda: {"headers": [("h", bytearray(b"v"))]},
    "memoryview in a header": lambda: {"headers": [("h", memoryview(b"v"))]},
    "zip as headers": lambda: {"headers": zip(["h"], [b"v"], strict=True)},
    "generator as headers": lambda: {"headers": (("h", b"v") for _ in range(2))},
    "empty iterator as headers": lambda: {"headers": iter(())},
    "iterator as header": lambda: {"headers": [iter(("h", b"v"))]},
    "three items as header": lambda: {"headers": [("h", b"v", b"w")]},
    "view of a dict as headers": lambda: {"headers": {"h": b"v"}.items()},
    "dict as headers": lambda: {"headers": {"h": b"v"}},
    "numpy integer as partition": lambda: {"partition": numpy.int64(1)},
    "small numpy integer as partition": lambda: {"partition": numpy.uint8(1)},
    "negative numpy integer as partition": lambda: {"partition": numpy.int64(-1)},
    "numpy bool as partition": lambda: {"partition": numpy.bool_(True)},
    "bool as partition": lambda: {"partition": True},
    "numpy float as partition": lambda: {"partition": numpy.float64(1)},
    "numpy integer as timestamp": lambda: {"timestamp": numpy.int64(5)},
    "negative numpy integer as timestamp": lambda: {"timestamp": numpy.int64(-5)},
    "numpy bool as timestamp": lambda: {"timestamp": numpy.bool_(True)},
    "bool as timestamp": lambda: {"timestamp": False},
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", UNUSUAL)
async def test_send_send_many_and_send_all_give_the_same_answer(
    make: Make, wide: str, cluster: EmbeddedCluster, kind: str, known: bool
) -> None:
    def record(**more: Any) -> ProducerRecord:
        return ProducerRecord(**{"topic": wide, "value": b"v", **UNUSUAL[kind](), **more})

    async def answer(sending: Callable[[], Awaitable[Any]]) -> str:
        try:
            await sending()
        except KafkaError as error:
            return type(error).__name__
        return "sent"

    async def one() -> None:
        await producer.send(*record())

    async def many() -> None:
        await producer.gather(producer.send_many(wide, [b"first", record(), b"last"]))

    async def every() -> None:
        await producer.send_all(wide, [b"first", record(), b"last"])

    async def last() -> None:
        await producer.send_all(wide, [record()])

    async with make() as producer:
        answers = set()
        for sending in (one, many, every, last):
            if known:
                await producer.prepare(wide)
            answers.add(await answer(sending))
    assert len(answers) == 1, answers
    written = list(cluster.records(wide))
    if answers != {"sent"}:
        assert not written
        return
    assert len(written) == 8
    same = {(r.partition, r.key, r.value, tuple(r.headers)) for r in written if r.value == b"v"}
    assert len({key for _, key, *_ in same}) == 1
    assert len({headers for *_, headers in same}) == 1
    if "partition" in kind or "key" in kind:
        assert len(same) == 1
    if "timestamp" in kind:
        assert {r.timestamp for r in written if r.value == b"v"} == {5}


class Fickle(Sequence[Any]):
    """A sequence that has a wrong item when it is read again."""

    def __init__(self) -> None:
        self.readings = 0

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        if index >= 2:
            raise IndexError
        self.readings += 1
        return b"fine" if self.readings <= 2 else "wrong"


async def test_items_of_send_many_are_read_once(make: Make, topic: str, values: Values) -> None:
    async with make() as producer:
        await producer.prepare(topic)
        producer.send_many(topic, Fickle())
    assert values(topic) == [b"fine", b"fine"]


async def test_serializer_that_changes_earlier_items_changes_nothing(
    make: Make, topic: str, cluster: EmbeddedCluster
) -> None:
    value, headers = bytearray(b"first"), [("h", b"v")]

    class Changing:
        def serialize(self, topic: str, given: Any, headers_of_it: Any) -> Any:
            if given == "second":
                value[:] = b"other"
                headers[:] = [("wrong", 5)]  # type: ignore[list-item]  # on purpose
            return bytes(given) if given is value else b"second"

    async with make(value_serializer=Changing()) as producer:
        producer.send_many(topic, [ProducerRecord(topic, value, headers=headers), "second"])
    first, second = cluster.records(topic)
    assert (first.value, list(first.headers)) == (b"first", [("h", b"v")])
    assert second.value == b"second"

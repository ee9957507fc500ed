"""Tests that native sends give the same records, errors, and deliveries as those in Python."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import Producer, ProducerRecord
from aiokclient._native import in_use
from aiokclient.producer._pure.send_path import SendPath as PythonSendPath
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.testing import EmbeddedCluster

if not in_use():
    pytest.skip("the native modules are not in use", allow_module_level=True)
from aiokclient._native import producer as native

TOPICS = ("one", "three")


class StillClock:
    """A clock with the time of the event loop and the same random numbers for all producers."""

    def __init__(self) -> None:
        self.rng = random.Random(7)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        return 1_700_000_000_000


class InPython(Producer[Any, Any]):
    """A producer that does not use native code to send."""

    send = PythonSendPath.send  # type: ignore[assignment]
    send_many = PythonSendPath.send_many  # type: ignore[assignment]


class Text(bytes):
    pass


BYTES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([b"x" * 300, b"y" * 5000, bytearray(b"z"), Text(b"t"), "text", 5]),
)
NUMBERS = st.sampled_from([None, None, None, 0, 1, 2, 3, -1, True, "0", 1 << 70])
TIMES = st.sampled_from([None, None, 0, 5, 1 << 40, (1 << 63) - 1, -1, 1 << 63, 1.5, True])
HEADERS = st.sampled_from([(), (), [], [("h", b"v")], [("h", None)], [("h", "v")], [(b"h", b"v")]])
ARGUMENTS = st.tuples(
    st.sampled_from([*TOPICS, "bad name", "", None]), BYTES, BYTES, NUMBERS, TIMES, HEADERS
)
RECORDS = st.builds(ProducerRecord, st.sampled_from(TOPICS), BYTES, BYTES, NUMBERS, TIMES, HEADERS)
ITEMS = st.one_of(
    st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=9),
    st.lists(st.tuples(BYTES, BYTES), max_size=9),
    st.lists(st.one_of(BYTES, st.tuples(BYTES, BYTES), RECORDS), max_size=5),
    st.just([(b"k%d" % i, b"v" * 90) for i in range(40)]),
)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), ARGUMENTS),
        st.tuples(st.just("send_many"), st.tuples(st.sampled_from(TOPICS), ITEMS)),
    ),
    max_size=8,
)


@pytest.fixture(scope="module")
def servers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


async def sent(kind: Any, cluster: EmbeddedCluster, calls: Any, options: Any, prefix: str) -> Any:
    """Return the delivery or error of each call, and the records in the topics."""
    for name, partitions in zip(TOPICS, (1, 3), strict=True):
        cluster.create_topic(prefix + name, partitions)
    answers: list[Any] = []
    async with kind(
        bootstrap_servers=cluster.bootstrap_servers,
        clock=StillClock(),
        partitioner_adaptive_partitioning_enable=False,
        linger_ms=1000,
        max_block_ms=500,
        on_delivery_error=lambda _: None,
        max_request_size=4000,
        batch_size=700,
        **options,
    ) as producer:
        for name in TOPICS:
            await producer.prepare(prefix + name)
        for how, arguments in calls:
            topic, *rest = arguments
            topic = prefix + topic if topic in TOPICS else topic
            if how == "send_many":
                rest = [[renamed(item, prefix) for item in rest[0]]]
            try:
                answer = getattr(producer, how)(topic, *rest)
            except Exception as error:
                answers.append((type(error), str(error).replace(prefix, "")))
            else:
                answers.append([answer] if how == "send" else list(answer))
        pending = [one for answer in answers if isinstance(answer, list) for one in answer]
        results = await producer.gather(pending, return_exceptions=True)
        assert producer.full is False
    seen = [[*map(str, answer)] if isinstance(answer, list) else answer for answer in answers]
    records = [
        [(r.partition, r.key, r.value, r.timestamp, r.headers) for r in cluster.records(prefix + n)]
        for n in TOPICS
    ]
    return str([seen, results, records]).replace(prefix, "")


def renamed(item: Any, prefix: str) -> Any:
    return item._replace(topic=prefix + item.topic) if isinstance(item, ProducerRecord) else item


numbers = iter(range(1 << 30))


@settings(
    deadline=None,
    max_examples=60 if os.environ.get("AIOKCLIENT_EXPLORE") else 20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(calls=CALLS, choice=st.sampled_from(["", "ignore", "function", "serializer"]))
def test_both_send_alike(servers: EmbeddedCluster, calls: Any, choice: str) -> None:
    options: dict[str, Any] = {
        "": {},
        "ignore": {"partitioner_ignore_keys": True},
        "function": {"partitioner": lambda key, partitions, available: len(partitions) - 1},
        "serializer": {"value_serializer": lambda value: str(value).encode()},
    }[choice]
    found = [
        asyncio.run(sent(kind, servers, calls, options, f"t{next(numbers)}-"))
        for kind in (Producer, InPython)
    ]
    assert found[0] == found[1]


@pytest.fixture
async def producer(servers: EmbeddedCluster) -> AsyncIterator[Producer]:
    topic = f"own-{next(numbers)}"
    servers.create_topic(topic, 3)
    async with Producer(bootstrap_servers=servers.bootstrap_servers, linger_ms=0) as producer:
        await producer.prepare(topic)
        producer.own = topic  # type: ignore[attr-defined]
        yield producer


async def test_a_sequence_that_changes_while_it_is_sent(producer: Any) -> None:
    """A finalizer may change the passed list at any time, even during the send."""
    values: list[Any] = []

    class Late:
        def __del__(self) -> None:
            values.clear()

    for _ in range(20):
        values += [(b"k%d" % i, b"v" * 50) for i in range(500)]
        late: Any = Late()
        late.self = late
        del late
        gc.collect(0)
        deliveries = producer.send_many(producer.own, values)
        assert len(await producer.gather(deliveries)) == len(deliveries)


async def test_a_list_of_deliveries_that_shrinks_while_it_is_gathered(producer: Any) -> None:
    deliveries = [producer.send(producer.own, b"v", b"%d" % i) for i in range(50)]
    gathering = asyncio.ensure_future(producer.gather(deliveries))
    await asyncio.sleep(0)
    del deliveries[10:]
    assert len(await gathering) == 10
    await producer.flush()


def test_an_unfinished_producer_does_no_harm() -> None:
    path: Any = native.SendPath.__new__(native.SendPath)
    for call in (lambda: path.send("t", b"v"), lambda: path.send_many("t", [b"v"])):
        with pytest.raises(AttributeError):
            call()
        path._usable = True
        with pytest.raises((AttributeError, TypeError, SystemError)):
            call()
        path._usable = False
    assert path.full is False


async def test_nothing_leaks(producer: Any) -> None:
    topic = producer.own
    key, value, items = b"k" * 40, b"v" * 50, [b"w" * 30, None]
    record = ProducerRecord(topic, value, key, 1, 1_700_000_000_123)

    async def work() -> list[int]:
        for _ in range(40):
            deliveries = [producer.send(topic, value, key, i % 3) for i in range(30)]
            deliveries += producer.send_many(topic, items)
            deliveries += producer.send_many(topic, [(key, value), (None, None)] * 30)
            deliveries += producer.send_many(topic, [record] * 5)
            for wrong in ([(key, "text")], [(key, value), ProducerRecord(topic, value, key, -9)]):
                with pytest.raises(Exception, match=r"encoded|no partition"):
                    producer.send_many(topic, [*items, *wrong])
            assert len(await producer.gather(deliveries)) == len(deliveries)
        del deliveries
        # Send each record alone, so that the objects kept for requests with one batch exist.
        for partition in range(3):
            await producer.send(topic, partition=partition)
        producer.metrics()  # Until the batches are counted, the metrics refer to their topics.
        gc.collect()
        batches = sum(type(thing) is ProducerBatch for thing in gc.get_objects())
        return [*map(sys.getrefcount, (key, value, *items[:1], record, topic)), batches]

    await work()
    assert await work() == await work()


async def test_a_producer_that_is_done_with_is_collected(servers: EmbeddedCluster) -> None:
    """The last delivery refers to the producer. The garbage collector must see that reference."""
    kept, gone = [], []
    for _ in range(2):
        async with Producer(bootstrap_servers=servers.bootstrap_servers) as producer:
            topic = f"own-{next(numbers)}"
            servers.create_topic(topic)
            kept.append(producer.send(topic, b"v"))
            gone.append(weakref.ref(producer))
            await kept[-1]
    assert (await kept[0]).offset == 0, "a delivery outlives its producer"
    del producer
    kept.clear()
    await asyncio.sleep(0)
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


async def test_a_producer_keeps_its_dict_empty_so_that_cpython_caches_send(producer: Any) -> None:
    topic = vars(producer).pop("own")
    assert vars(producer) == {}
    deliveries = [producer.send(topic, b"v"), *producer.send_many(topic, [b"v"])]
    await producer.drain()
    await producer.prepare(topic)
    await producer.gather(deliveries)
    assert vars(producer) == {}
    producer.noted = "by the program"
    assert vars(producer) == {"noted": "by the program"}
    assert (await producer.send(topic, b"w")).topic == topic
    assert Producer.send.__objclass__ is Producer  # type: ignore[attr-defined]
    assert native.SendPath.send.__objclass__ is native.SendPath


async def test_a_producer_that_was_never_initialized_can_be_shown_and_deleted() -> None:
    class Unfinished(Producer[Any, Any]):
        def __init__(self) -> None:
            raise ValueError("before the options")

    with pytest.raises(ValueError, match="before the options"):
        Unfinished()
    made = Unfinished.__new__(Unfinished)
    assert made._closing is None
    del made
    gc.collect()

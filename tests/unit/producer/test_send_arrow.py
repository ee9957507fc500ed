"""Tests that `send_arrow` has the same results in native code and in Python.

A batch is sent with all its rows, or refused.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import Producer, ProducerRecord, TopicPartition
from aiokclient._native import in_use
from aiokclient.errors import (
    BufferExhaustedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer import send_arrow as send_module
from aiokclient.testing import EmbeddedCluster

pa = pytest.importorskip("pyarrow")

TOPICS = ("one", "three")
NOW = 1_700_000_000_000
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


class StillClock:
    """A clock with the time of the event loop and the same random numbers for all producers."""

    def __init__(self) -> None:
        self.rng = random.Random(7)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def time_ms(self) -> int:
        return NOW


numbers = iter(range(1 << 30))


@pytest.fixture(scope="module")
def servers() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def topic(servers: EmbeddedCluster) -> str:
    """A topic with three partitions that only one test uses."""
    name = f"own-{next(numbers)}"
    servers.create_topic(name, 3)
    return name


def options(cluster: EmbeddedCluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "clock": StillClock(),
        "partitioner_adaptive_partitioning_enable": False,
        "linger_ms": 1000,
        "max_block_ms": 1000,
        "on_delivery_error": lambda _: None,
        **more,
    }


# -- native and in Python

TEXTS = (pa.string(), pa.large_string())
CONTENTS = (*TEXTS, pa.binary(), pa.large_binary())
UNITS = [pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC")]
SIZES = st.sampled_from([0, 1, 5, 90, 300, 699, 3900, 3940, 5000])


def column(values: Any, kinds: Any) -> Any:
    """Return arrays of a random type with random values, some of them slices of larger arrays."""

    @st.composite
    def made(draw: Any, rows: int) -> Any:
        kind = draw(st.sampled_from(kinds))
        before = draw(st.sampled_from([0, 0, 1, 9]))
        found = draw(st.lists(values(kind), min_size=rows + before, max_size=rows + before))
        return pa.array(found, kind).slice(before)

    return made


def contents(kind: Any) -> Any:
    text = st.one_of(st.text(max_size=9), SIZES.map(lambda size: "x" * size))
    if kind in TEXTS:
        return st.none() | text
    return st.none() | st.binary(max_size=20) | text.map(str.encode)


def times(kind: Any) -> Any:
    largest = (1 << 62) if kind == pa.int64() else (1 << 31)
    return st.none() | st.sampled_from([0, 1, 999, 1000, largest, -1]) | st.integers(0, largest)


def headers(kind: Any) -> Any:
    names = st.text(max_size=5) | st.sampled_from(["h", "h", "é" * 40])
    values: Any = st.none() | st.sampled_from(["", "v", "w" * 600])
    if kind.value_type.field("value").type not in TEXTS:
        values = values.map(lambda value: None if value is None else value.encode())
    pairs = st.fixed_dictionaries({"key": names, "value": values})
    broken = st.sampled_from([None, {"key": None, "value": None}])
    lists = st.lists(pairs, max_size=3)
    return st.none() | lists | lists | st.lists(pairs | broken, max_size=2)


def header_types() -> list[Any]:
    pairs = [
        pa.struct(fields)
        for name in TEXTS
        for value in (pa.binary(), pa.large_string())
        for fields in ([("key", name), ("value", value)], [("value", value), ("key", name)])
    ]
    return [make(pair) for make in (pa.list_, pa.large_list) for pair in pairs]


COLUMNS = {
    "key": column(contents, CONTENTS),
    "partition": column(
        lambda _: st.none() | st.integers(0, 2) | st.sampled_from([0, 1, 7]),
        [pa.int8(), pa.int64()],
    ),
    "timestamp": column(times, [pa.int64(), *UNITS]),
    "headers": column(headers, header_types()),
}


@st.composite
def batches(draw: Any) -> tuple[str | None, Any]:
    """Return the arguments of a call of `send_arrow`."""
    rows = draw(st.sampled_from([0, 1, 2, 7, 40]))
    names = draw(st.sets(st.sampled_from([*COLUMNS])))
    found = {"value": draw(column(contents, CONTENTS)(rows))}
    found |= {name: draw(COLUMNS[name](rows)) for name in sorted(names)}
    topic = draw(st.sampled_from([*TOPICS, None, None]))
    if topic is None:
        topics = st.sampled_from([*TOPICS * 9, "bad name"])
        found["topic"] = pa.array(draw(st.lists(topics, min_size=rows, max_size=rows)), pa.string())
    return topic, pa.RecordBatch.from_pydict(found)


async def sent(cluster: EmbeddedCluster, calls: Any, prefix: str, **more: Any) -> Any:
    """Return the deliveries or the error of each call, and the records in the topics."""
    for name, partitions in zip(TOPICS, (1, 3), strict=True):
        cluster.create_topic(prefix + name, partitions)
    answers: list[Any] = []
    settings = options(cluster, max_request_size=4000, batch_size=700, **more)
    async with Producer(**settings) as producer:
        for name in TOPICS:
            await producer.prepare(prefix + name)
        for topic, batch in calls:
            name, rows = renamed(topic, batch, prefix)
            try:
                answers.append([*producer.send_arrow(name, rows)])
            except Exception as error:
                answers.append((type(error), str(error)))
        pending = [one for answer in answers if isinstance(answer, list) for one in answer]
        results = await producer.gather(pending, return_exceptions=True)
    seen = [[*map(str, answer)] if isinstance(answer, list) else answer for answer in answers]
    records = [
        [(r.partition, r.key, r.value, r.timestamp, r.headers) for r in cluster.records(prefix + n)]
        for n in TOPICS
    ]
    return str([seen, results, records]).replace(prefix, "")


def renamed(topic: str | None, batch: Any, prefix: str) -> Any:
    if topic is not None:
        return prefix + topic, batch
    return None, with_topics(batch, {name: prefix + name for name in TOPICS})


def with_topics(batch: Any, new: dict[str, str]) -> Any:
    """Return the batch with the topics renamed by `new`."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    names = [new.get(name, name) for name in columns["topic"].to_pylist()]
    return pa.RecordBatch.from_pydict({**columns, "topic": pa.array(names, pa.string())})


@pytest.mark.skipif(not in_use(), reason="the native modules are not in use")
@settings(
    deadline=None,
    max_examples=80 if os.environ.get("AIOKCLIENT_EXPLORE") else 25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    calls=st.lists(batches(), max_size=3),
    more=st.sampled_from([{}, {}, {"partitioner_ignore_keys": True}, {"compression_type": "lz4"}]),
)
def test_native_code_and_python_send_alike(servers: EmbeddedCluster, calls: Any, more: Any) -> None:
    found = []
    for native in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not native:
                patch.setattr(send_module, "send_columns", lambda *_: None)
            found.append(asyncio.run(sent(servers, calls, f"t{next(numbers)}-", **more)))
    assert found[0] == found[1]


@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(call=batches())
def test_rows_arrive_as_the_same_records_of_send_many(servers: EmbeddedCluster, call: Any) -> None:
    async def main() -> None:
        prefix = f"m{next(numbers)}-"
        for name, partitions in zip(TOPICS, (1, 3), strict=True):
            for each in (name, "many-" + name):
                servers.create_topic(prefix + each, partitions, configs=ANY_TIME)
        topic, batch = renamed(*call, prefix)
        async with Producer(**options(servers, batch_size=700)) as producer:
            for name in TOPICS:
                await producer.prepare(prefix + name)
                await producer.prepare(prefix + "many-" + name)
            try:
                deliveries = producer.send_arrow(topic, batch)
            except KafkaError:
                await producer.flush()
                assert [*servers.records(prefix + "one"), *servers.records(prefix + "three")] == []
                return
            await producer.gather(deliveries, return_exceptions=True)
            records = records_of(topic, batch)
            if records:
                renewed = [
                    r._replace(topic=r.topic.replace(prefix, prefix + "many-")) for r in records
                ]
                again = producer.send_many(renewed[0].topic, renewed)
                await producer.gather(again, return_exceptions=True)
        for name in TOPICS:
            found, expected = (
                [(r.key, r.value, r.timestamp, r.headers) for r in servers.records(prefix + each)]
                for each in (name, "many-" + name)
            )
            assert sorted(map(repr, found)) == sorted(map(repr, expected))

    asyncio.run(main())


MILLISECONDS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def times_in(batch: Any) -> list[int | None]:
    """Return the timestamps of a batch in milliseconds, computed with integers only."""
    at = batch.schema.get_field_index("timestamp")
    if at < 0:
        return [None] * batch.num_rows
    found = batch.column(at)
    factor, divisor = MILLISECONDS[getattr(found.type, "unit", "ms")]
    numbers = found.cast(pa.int64()).to_pylist()
    return [None if number is None else number * factor // divisor for number in numbers]


def records_of(topic: str | None, batch: Any) -> list[ProducerRecord]:
    """Return the rows of a batch as the records that `send_many` takes."""
    names = [name for name in batch.schema.names if name != "timestamp"]
    return [
        ProducerRecord(
            topic or row["topic"],
            encoded(row["value"]),
            encoded(row.get("key")),
            row.get("partition"),
            time,
            [(pair["key"], encoded(pair["value"])) for pair in row.get("headers") or ()],
        )
        for row, time in zip(batch.select(names).to_pylist(), times_in(batch), strict=True)
    ]


def encoded(content: Any) -> Any:
    return content.encode() if isinstance(content, str) else content


# -- what a program sees


async def test_send_arrow_returns_a_delivery_for_each_row(
    servers: EmbeddedCluster, topic: str
) -> None:
    keys = [f"k{i % 7}" if i % 3 else None for i in range(500)]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": keys,
            "value": [b"%d" % i for i in range(500)],
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % i}] for i in range(500)], pa.list_(HEADER)
            ),
        }
    )
    async with Producer(bootstrap_servers=servers.bootstrap_servers) as producer:
        await producer.prepare(topic)
        deliveries = producer.send_arrow(topic, batch)
        assert len(deliveries) == 500
        found = await producer.gather(deliveries)
    records = {TopicPartition(topic, p): servers.records(topic, p) for p in range(3)}
    for i, metadata in enumerate(found):
        record = records[TopicPartition(topic, metadata.partition)][metadata.offset]
        assert record.value == b"%d" % i
        assert record.headers == (("n", b"%d" % i),)


async def test_send_arrow_sends_to_a_topic_that_is_not_known_yet(
    servers: EmbeddedCluster, topic: str
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"key": ["a", None, "b"], "value": ["1", "2", None], "partition": [None, 2, 1]}
    )
    async with Producer(bootstrap_servers=servers.bootstrap_servers) as producer:
        found = await producer.gather(producer.send_arrow(topic, batch))
    assert [metadata.partition for metadata in found[1:]] == [2, 1]
    assert {record.value for record in servers.records(topic)} == {b"1", b"2", None}


async def test_send_arrow_uses_a_partitioner_but_no_serializers(
    servers: EmbeddedCluster, topic: str
) -> None:
    seen: list[Any] = []

    def choose(key: bytes | None, partitions: Any, available: Any) -> int:
        seen.append(key)
        return 2

    async with Producer(
        bootstrap_servers=servers.bootstrap_servers,
        partitioner=choose,
        value_serializer=lambda value: b"serialized",
    ) as producer:
        await producer.prepare(topic)
        batch = pa.RecordBatch.from_pydict({"key": ["a", None], "value": ["1", "2"]})
        found = await producer.gather(producer.send_arrow(topic, batch))
    assert [metadata.partition for metadata in found] == [2, 2]
    assert seen == [b"a", None]
    assert [record.value for record in servers.records(topic, 2)] == [b"1", b"2"]


async def test_send_arrow_splits_rows_into_batches_of_at_most_batch_size(
    servers: EmbeddedCluster, topic: str
) -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x" * 100] * 5000})
    async with Producer(**options(servers, batch_size=10_000)) as producer:
        await producer.prepare(topic)
        deliveries = producer.send_arrow(topic, batch)
        sizes = {delivery.locate_record()[0].builder.size for delivery in deliveries[::50]}
        assert max(sizes) <= 10_000
        await producer.gather(deliveries)
    assert len(servers.records(topic)) == 5000


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
async def test_send_arrow_sends_nothing_when_there_is_no_room_for_all(
    servers: EmbeddedCluster, topic: str, known: bool
) -> None:
    async with Producer(**options(servers, buffer_memory=1 << 20, max_block_ms=60_000)) as producer:
        if known:
            await producer.prepare(topic)
        batch = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 4000})
        with pytest.raises(BufferExhaustedError, match=r"slices \(batch.slice\)"):
            producer.send_arrow(topic, batch)
        assert producer.full is False
        deliveries = producer.send_arrow(topic, batch.slice(0, 100))
        await producer.gather(deliveries)
    assert len(servers.records(topic)) == 100


def rows(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict({"value": ["good", "other"], **columns})


def times_of(*values: int) -> Any:
    return pa.array(values, pa.timestamp("us", "UTC"))


PAIRS = pa.list_(HEADER)
WRONG = [
    ("t", rows(offset=[1, 2]), SerializationError, "Column 'offset' is not allowed"),
    ("t", rows(topic=["a", "b"]), SerializationError, "'topic' is not allowed. The topic is an"),
    ("t", rows(partition=["0", "1"]), SerializationError, "'partition' has the type string"),
    ("t", rows(partition=[0, -2]), UnknownTopicOrPartitionError, "has -2 in row 1"),
    ("t", rows(partition=[1 << 31, 0]), UnknownTopicOrPartitionError, "has 2147483648 in row 0"),
    ("t", rows(timestamp=[1.5, 2.5]), SerializationError, "'timestamp' has the type double"),
    ("t", rows(timestamp=times_of(5, -1)), SerializationError, "'timestamp' has -1 in row 1"),
    ("t", rows(key=[1, 2]), SerializationError, "'key' has the type int64"),
    ("t", rows(headers=["h", "i"]), SerializationError, "'headers' has the type string"),
    (
        "t",
        rows(headers=pa.array([[], [{"key": None, "value": b""}]], PAIRS)),
        SerializationError,
        "a header without a name in row 1",
    ),
    ("t", rows(value=["good", "x" * 9000]), RecordTooLargeError, "row 1"),
    ("t", rows(value=[1, 2]), SerializationError, "'value' has the type int64"),
    ("t", pa.RecordBatch.from_pydict({"key": ["a"]}), SerializationError, "'value' is missing"),
    (None, rows(), SerializationError, "'topic' is missing"),
    (None, rows(topic=["t", None]), InvalidTopicError, "'topic' is null in row 1"),
    (None, rows(topic=["t", "a b"]), InvalidTopicError, "has 'a b' in row 1"),
    (None, rows(topic=[1, 2]), SerializationError, "'topic' has the type int64"),
    ("a b", rows(), InvalidTopicError, "'a b' cannot be a topic"),
    ("t", pa.table({"value": ["a"]}), TypeError, "to_batches"),
    ("t", [b"v"], TypeError, "not list"),
]


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
@pytest.mark.parametrize(("target", "batch", "kind", "text"), WRONG)
async def test_send_arrow_names_column_and_row_and_sends_nothing(
    servers: EmbeddedCluster,
    topic: str,
    known: bool,
    target: str | None,
    batch: Any,
    kind: type[Exception],
    text: str,
) -> None:
    async with Producer(**options(servers, max_request_size=4000)) as producer:
        if known:
            await producer.prepare(topic)
        name = topic if target == "t" else target
        if target is None and "null" not in text and "topic" in batch.schema.names:
            batch = batch if "int64" in text else with_topics(batch, {"t": topic})
        with pytest.raises(kind, match=text.replace("(", r"\(")):
            producer.send_arrow(name, batch)
        await producer.flush()
    assert servers.records(topic) == []


@pytest.mark.parametrize("known", [True, False])
async def test_send_arrow_to_a_partition_that_is_missing_fails_the_delivery(
    servers: EmbeddedCluster, topic: str, known: bool
) -> None:
    async with Producer(**options(servers, max_block_ms=2000)) as producer:
        if known:
            await producer.prepare(topic)
        deliveries = producer.send_arrow(topic, rows(partition=[3, 0]))
        results = await producer.gather(deliveries, return_exceptions=True)
        assert isinstance(results[0], UnknownTopicOrPartitionError)
        assert not isinstance(results[1], KafkaError)


async def test_send_arrow_takes_columns_of_nulls_and_no_rows(
    servers: EmbeddedCluster, topic: str
) -> None:
    nulls = dict.fromkeys(("key", "value", "partition", "timestamp", "headers"), [None] * 3)
    async with Producer(bootstrap_servers=servers.bootstrap_servers) as producer:
        await producer.prepare(topic)
        assert len(producer.send_arrow(topic, rows().slice(0, 0))) == 0
        await producer.gather(producer.send_arrow(topic, pa.RecordBatch.from_pydict(nulls)))
    assert [(r.key, r.value, r.headers) for r in servers.records(topic)] == [(None, None, ())] * 3


async def test_send_arrow_belongs_to_a_transaction(servers: EmbeddedCluster, topic: str) -> None:
    async with Producer(
        bootstrap_servers=servers.bootstrap_servers, transactional_id=topic
    ) as producer:
        with pytest.raises(IllegalStateError):
            producer.send_arrow(topic, rows())
        async with producer.transaction() as tx:
            tx.send_arrow(topic, rows())
        with pytest.raises(IllegalStateError):
            tx.send_arrow(topic, rows())
    assert [record.value for record in servers.records(topic)] == [b"good", b"other"]

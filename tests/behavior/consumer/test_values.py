"""Deserialized keys and values, and records and batches that cannot be read."""

import asyncio
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from aiokclient import SKIP, Consumer, Producer, ProducerRecord, Serialized, TopicPartition
from aiokclient.errors import ConfigError, CorruptBatchError, KafkaError, RecordError
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import FetchRequest, FetchResponse


async def by_loop(consumer: Consumer[Any, Any]) -> list[Any]:
    return [await anext(aiter(consumer))]


async def by_lists(consumer: Consumer[Any, Any]) -> list[Any]:
    return list(await anext(aiter(consumer.batches(max_wait=0.01))))


async def by_poll(consumer: Consumer[Any, Any]) -> list[Any]:
    return list(await consumer.poll(timeout=20))


async def by_get(consumer: Consumer[Any, Any]) -> list[Any]:
    record = await consumer.get(timeout=20)
    assert record is not None
    return [record]


async def by_arrow(consumer: Consumer[Any, Any]) -> list[Any]:
    table = await anext(aiter(consumer.arrow_batches()))
    return list(table.column("offset").to_pylist())


ARROW = [by_arrow] if find_spec("pyarrow") else []
WAYS = [by_loop, by_lists, by_poll, by_get]


class TestDeserializers:
    async def test_deserializers_may_be_functions(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [(b"1", b"x"), (None, b"y"), (b"3", None), (b"", b"")])
        options = {"key_deserializer": bytes.decode, "value_deserializer": lambda data: [data]}
        async with stage.consumer(**options) as consumer:
            records = await stage.drain(consumer, 4)
        assert [(r.key, r.value) for r in records] == [
            ("1", [b"x"]),
            (None, [b"y"]),
            ("3", None),
            ("", [b""]),
        ]

    async def test_deserializers_may_be_objects(self, stage: Any) -> None:
        class Tells:
            def deserialize(self, topic: str, data: bytes, headers: Any) -> Any:
                return topic, data, list(headers)

        header = [("schema", b"7")]
        stage.cluster.produce(
            stage.topic,
            [ProducerRecord(stage.topic, b"v", b"k", 0, 1, header), ProducerRecord(stage.topic)],
        )
        options = {"key_deserializer": Tells(), "value_deserializer": Tells()}
        async with stage.consumer(**options) as consumer:
            first, second = await stage.drain(consumer, 2)
        assert first.key == (stage.topic, b"k", header)
        assert first.value == (stage.topic, b"v", header)
        assert list(first.headers) == header
        assert (second.key, second.value) == (None, None)

    def test_invalid_deserializers_are_refused(self) -> None:
        for option in ("key_deserializer", "value_deserializer", "on_record_error"):
            options: Any = {option: 5}
            with pytest.raises(ConfigError, match=option):
                Consumer("t", bootstrap_servers="localhost:1", **options)

    async def test_a_header_of_a_serializer_tells_the_deserializer_what_to_prepare(
        self, stage: Any
    ) -> None:
        known: set[bytes] = set()

        class Versioned:
            def serialize(self, topic: str, value: str, headers: Any) -> Serialized:
                return Serialized(value.encode(), [("version", value[:1].encode())])

            def is_prepared(self, data: bytes, headers: Any) -> bool:
                return dict(headers)["version"] in known

            async def prepare(self, topic: str, items: Any = ()) -> None:
                await asyncio.sleep(0)
                known.update(dict(headers)["version"] for _, headers in items)

            def deserialize(self, topic: str, data: bytes, headers: Any) -> tuple[str, int]:
                assert self.is_prepared(data, headers)
                return data.decode(), len(headers)

        options: Any = {"bootstrap_servers": stage.cluster.bootstrap_servers}
        async with Producer(value_serializer=Versioned(), **options) as producer:
            await producer.send(stage.topic, "1a", headers=[("version", b"0"), ("other", b"x")])
            await producer.send_all(stage.topic, ["2a", "1b", "2b"])
        async with stage.consumer(value_deserializer=Versioned()) as consumer:
            records = await stage.drain(consumer, 4)
        assert sorted(record.value for record in records) == [
            ("1a", 2),
            ("1b", 1),
            ("2a", 1),
            ("2b", 1),
        ]
        assert known == {b"1", b"2"}

    async def test_deserializers_determine_the_types(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"7"])
        consumer = Consumer[bytes, int](
            stage.topic,
            bootstrap_servers=stage.cluster.bootstrap_servers,
            value_deserializer=int,
            auto_offset_reset="earliest",
        )
        async with consumer:
            record = await consumer.get(timeout=20)
            assert record is not None
            assert record.value == 7


class TestRecordError:
    @pytest.mark.parametrize("way", WAYS)
    async def test_a_record_error_is_raised_once_and_the_next_record_follows(
        self, stage: Any, way: Any
    ) -> None:
        values = [b"0", b"1", b"bad", b"worse", b"4"]
        stage.cluster.produce(stage.topic, [(b"k", value) for value in values])
        seen: list[Any] = []
        async with stage.consumer(value_deserializer=int) as consumer:
            while len(seen) < 2:
                seen += [record.value for record in await way(consumer)]
            for offset in (2, 3):
                with pytest.raises(RecordError) as raised:
                    await way(consumer)
                error = raised.value
                assert isinstance(error, KafkaError)
                assert not isinstance(error, CorruptBatchError)
                assert (error.topic_partition, error.offset) == (stage.tp(), offset)
                assert (error.raw_key, error.raw_value) == (b"k", values[offset])
                assert list(error.headers) == []
                assert isinstance(error.__cause__, ValueError)
                assert f"{stage.topic}-0" in str(error)
                assert consumer.consumed()[stage.tp()].offset == offset + 1
            while len(seen) < 3:
                seen += [record.value for record in await way(consumer)]
        assert seen == [0, 1, 4]

    async def test_a_loop_continues_after_a_record_error(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"1", b"x", b"2", b"y", b"z", b"3"])
        seen: list[Any] = []
        failed: list[int] = []
        async with stage.consumer(value_deserializer=int) as consumer:
            while True:
                try:
                    async for record in consumer.until_end():
                        seen.append(record.value)
                    break
                except RecordError as error:
                    failed.append(error.offset)
        assert (seen, failed) == ([1, 2, 3], [1, 3, 4])

    async def test_lists_to_the_end_raise_each_record_error(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"1", b"2", b"x"])
        async with stage.consumer(value_deserializer=int) as consumer:
            lists = consumer.batches(until_end=True)
            assert [record.value for record in await anext(lists)] == [1, 2]
            with pytest.raises(RecordError):
                await anext(lists)
            assert [each async for each in consumer.batches(until_end=True)] == []
            assert consumer.consumed()[stage.tp()].offset == 3

    async def test_a_seek_after_a_record_error_delivers_the_record_again(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"1", b"x"])
        async with stage.consumer(value_deserializer=int) as consumer:
            await stage.drain(consumer, 1)
            for _ in range(3):
                with pytest.raises(RecordError) as raised:
                    await consumer.poll(timeout=20)
                consumer.seek(raised.value.topic_partition, raised.value.offset)

    async def test_a_record_error_names_the_key(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [(b"x", b"v")])
        async with stage.consumer(key_deserializer=int) as consumer:
            with pytest.raises(RecordError, match="key"):
                await consumer.poll(timeout=20)

    async def test_arrow_batches_are_not_deserialized(self, stage: Any) -> None:
        pytest.importorskip("pyarrow")
        stage.cluster.produce(stage.topic, [b"x"])
        async with stage.consumer(value_deserializer=int) as consumer:
            table = await anext(consumer.arrow_batches())
            assert table.column("value").to_pylist() == [b"x"]


class TestOnRecordError:
    async def test_on_record_error_returns_a_value_or_skips_or_raises(self, stage: Any) -> None:
        told: list[RecordError] = []

        def decide(error: RecordError) -> Any:
            told.append(error)
            if error.raw_value == b"raise":
                raise error
            return {b"skip": SKIP, b"none": None}.get(error.raw_value, "stands in")

        stage.cluster.produce(stage.topic, [b"1", b"skip", b"other", b"none", b"raise", b"6"])
        options = {"value_deserializer": int, "on_record_error": decide}
        async with stage.consumer(**options) as consumer:
            assert [r.value for r in await consumer.poll(timeout=20)] == [1, "stands in", None]
            with pytest.raises(RecordError) as raised:
                await consumer.poll(timeout=20)
            assert raised.value.offset == 4
            assert [r.value for r in await consumer.poll(timeout=20)] == [6]
        assert [error.offset for error in told] == [1, 2, 3, 4]
        assert {error.topic_partition for error in told} == {stage.tp()}

    async def test_on_record_error_may_skip_all_records(self, stage: Any) -> None:
        stage.cluster.produce(stage.topic, [b"x"] * 700)
        options = {"value_deserializer": int, "on_record_error": lambda error: SKIP}
        async with stage.consumer(**options) as consumer:
            assert [r async for r in consumer.until_end()] == []
            assert await consumer.position(stage.tp()) == 700
            stage.cluster.produce(stage.topic, [b"8"])
            record = await consumer.get(timeout=20)
            assert record.value == 8

    async def test_an_on_record_error_that_raises_fails_its_record(self, stage: Any) -> None:
        """If `on_record_error` raises, the record that it was called for fails.

        Earlier records are delivered.
        """

        def decide(error: RecordError) -> Any:
            raise ZeroDivisionError

        stage.cluster.produce(stage.topic, [b"1", b"x", b"3"])
        options = {"value_deserializer": int, "on_record_error": decide}
        async with stage.consumer(**options) as consumer:
            assert [r.value for r in await consumer.poll(timeout=20)] == [1]
            with pytest.raises(RecordError) as raised:
                await consumer.poll(timeout=20)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
            assert [r.value for r in await consumer.poll(timeout=20)] == [3]


Spoil = Callable[[int], None]


@pytest.fixture
def spoil(stage: Any) -> Iterator[Spoil]:
    """Damage the batch of the test's topic that begins at an offset, in each fetch response."""
    bad: list[int] = []

    def change(request: FetchRequest, response: FetchResponse) -> FetchResponse:
        for topic in response.responses:
            for partition in topic.partitions:
                pieces: Any = partition.records or ()
                pieces = [pieces] if isinstance(pieces, bytes | memoryview) else pieces
                changed = [bytes(piece) for piece in pieces]
                for i, piece in enumerate(changed):
                    if int.from_bytes(piece[:8], "big") in bad and partition.partition_index == 0:
                        changed[i] = piece[:-1] + bytes([piece[-1] ^ 0x55])
                partition.records = changed  # type: ignore[assignment]
        return response

    with stage.cluster.alter(ApiKey.FETCH, change):
        yield bad.append


async def follow(consumer: Consumer[Any, Any], seen: list[Any]) -> None:
    async for record in consumer:
        seen.append(record)


class TestCorruptBatch:
    @pytest.mark.parametrize("way", [*WAYS, *ARROW])
    async def test_a_corrupt_batch_raises_at_every_request_until_a_seek(
        self, stage: Any, spoil: Spoil, way: Any
    ) -> None:
        stage.fill(40, batch=10)
        spoil(20)
        seen = 0
        async with stage.consumer() as consumer:
            while seen < 20:
                seen += len(await way(consumer))
            assert seen == 20
            for other in (way, *WAYS, *ARROW, way):
                with pytest.raises(CorruptBatchError) as raised:
                    await other(consumer)
                error = raised.value
                assert isinstance(error, RecordError)
                assert error.topic_partition == stage.tp()
                assert (error.offset, error.last_offset) == (20, 29)
            assert consumer.consumed()[stage.tp()].offset == 20
            consumer.seek(stage.tp(), error.last_offset + 1)
            assert [r.offset for r in await stage.drain(consumer, 10)] == list(range(30, 40))

    async def test_a_corrupt_batch_is_fetched_once_more(self, stage: Any, spoil: Spoil) -> None:
        stage.fill(10)
        spoil(0)

        def fetches() -> int:
            return sum(
                part.fetch_offset == 0
                for request in stage.cluster.requests
                if request.api == ApiKey.FETCH
                for topic in request.message.topics
                for part in topic.partitions
            )

        async with stage.consumer() as consumer:
            for _ in range(5):
                with pytest.raises(CorruptBatchError):
                    await consumer.poll(timeout=20)
            assert fetches() == 2

    async def test_another_partition_can_be_read_despite_a_corrupt_batch(
        self, stage: Any, spoil: Spoil
    ) -> None:
        stage.new_topic(2)
        stage.fill(10)
        stage.fill(10, 1)
        spoil(0)
        async with stage.consumer(stage.tp(0), stage.tp(1)) as consumer:
            seen: list[Any] = []
            with pytest.raises(CorruptBatchError):
                await follow(consumer, seen)
            consumer.assign([stage.tp(1)])
            stage.fill(5, 1)
            seen += await stage.drain(consumer, 15 - len(seen))
            assert [r.offset for r in seen if r.partition == 1] == list(range(15))

    async def test_seek_to_end_moves_past_a_corrupt_batch(self, stage: Any, spoil: Spoil) -> None:
        stage.fill(10)
        spoil(0)
        async with stage.consumer() as consumer:
            with pytest.raises(CorruptBatchError):
                await consumer.poll(timeout=20)
            consumer.seek_to_end([stage.tp()])
            assert await consumer.position(stage.tp()) == 10
            stage.fill(1)
            record = await consumer.get(timeout=20)
            assert record.offset == 10

    async def test_without_check_crcs_a_batch_with_a_wrong_checksum_is_read(
        self, stage: Any, spoil: Spoil
    ) -> None:
        """With `check_crcs=False`, only a batch that cannot be decoded is an error."""
        stage.fill(10)
        spoil(0)
        async with stage.consumer(check_crcs=False) as consumer:
            try:
                records = await consumer.poll(timeout=20)
            except CorruptBatchError:
                return
            assert len(records) == 10

    async def test_a_batch_that_cannot_be_decompressed_is_corrupt(self, stage: Any) -> None:
        """A batch whose data cannot be decompressed is damaged, even if its checksum is right."""
        from aiokclient.record.crc import crc32c

        stage.fill(5, compression="none")
        (batch,) = stage.cluster._data.find_topic(stage.topic).partitions[0].log.read_batches(0)
        data = bytearray(batch.buffer)
        data[22] |= 3
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
        stage.cluster.append(stage.topic, 0, bytes(data))
        async with stage.consumer() as consumer:
            await stage.drain(consumer, 5)
            for _ in range(2):
                with pytest.raises(CorruptBatchError) as raised:
                    await consumer.poll(timeout=20)
            assert (raised.value.offset, raised.value.last_offset) == (5, 9)


class TestTransactions:
    async def test_aborted_records_are_never_delivered(self, stage: Any) -> None:
        pytest.importorskip("pyarrow")
        for turn in range(30):
            for producer in (1, 2, 3):
                stage.fill(3, producer_id=producer, transactional=True, base_sequence=turn * 3)
            stage.fill(1)
            for producer in (3, 1, 2):
                commit = (turn + producer) % 3 == 0
                stage.cluster.end_transaction(stage.topic, producer_id=producer, commit=commit)
        expected = [
            turn * 13 + first + i
            for turn in range(30)
            for producer, first in ((1, 0), (2, 3), (3, 6), (0, 9))
            for i in range(3 if producer else 1)
            if not producer or (turn + producer) % 3 == 0
        ]
        options = {"isolation_level": "read_committed"}
        for size in (500, 1 << 20):
            async with stage.consumer(max_partition_fetch_bytes=size, **options) as consumer:
                assert [r.offset async for r in consumer.until_end()] == expected
                consumer.seek_to_beginning()
                seen: list[int] = []
                while len(seen) < len(expected):
                    seen += await by_arrow(consumer)
                assert seen == expected
        async with stage.consumer() as consumer:
            assert len([r async for r in consumer.until_end()]) == 300

    async def test_records_of_an_open_transaction_are_delivered_after_its_commit(
        self, stage: Any
    ) -> None:
        stage.fill(2)
        stage.fill(2, producer_id=1, transactional=True)
        stage.fill(2)
        async with stage.consumer(isolation_level="read_committed") as consumer:
            assert await consumer.end_offsets([stage.tp()]) == {stage.tp(): 2}
            await stage.drain(consumer, 2)
            assert await consumer.poll(timeout=0.05) == []
            waiting = asyncio.create_task(consumer.poll(timeout=30))
            stage.cluster.end_transaction(stage.topic, producer_id=1, commit=False)
            assert [r.offset for r in await waiting] == [4, 5]


def test_a_topic_partition_equals_a_tuple() -> None:
    assert TopicPartition("t", 1) == ("t", 1)

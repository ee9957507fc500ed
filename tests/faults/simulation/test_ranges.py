"""Ranges that are read while leaders move, records are deleted, and transactions are open."""

import asyncio
import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import Client, TopicPartition
from aiokclient.errors import (
    ApiTimeoutError,
    ClosedError,
    CorruptBatchError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

pytest.importorskip("pyarrow")

TP = TopicPartition("t", 0)
SMALL: dict[str, Any] = {"fetch_max_bytes": 8_000, "columns": ["offset", "value"]}
"""Options that make the reading of a range take many fetches."""


def fill(world: World, count: int, batch: int = 10, **options: Any) -> None:
    start = world.cluster.offsets("t")[1]
    for first in range(start, start + count, batch):
        last = min(first + batch, start + count)
        world.cluster.produce("t", [b"%d" % n for n in range(first, last)], **options)


async def read_into(
    found: list[int],
    client: Client,
    start: int,
    end: int,
    then: Callable[[], object] = lambda: None,
    **options: Any,
) -> None:
    """Collect the offsets of a range, whose values must be the offsets.

    `then` is called after each batch.
    """
    async for batch in client.read_range(TP, start, end, **{**SMALL, **options}):
        rows = batch.to_pydict()
        assert rows["value"] == [b"%d" % offset for offset in rows["offset"]]
        found += rows["offset"]
        then()


async def read(client: Client, start: int, end: int, **options: Any) -> list[int]:
    found: list[int] = []
    await read_into(found, client, start, end, **options)
    return found


def fetches(world: World) -> int:
    return len(world.requests(ApiKey.FETCH))


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
@pytest.mark.parametrize(("start", "end"), [(0, 1000), (3, 997), (500, 501), (0, 1), (7, 7)])
def test_a_range_has_exactly_its_offsets(start: int, end: int, compression: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 1000, compression=compression)
        async with world.client() as client:
            assert await read(client, start, end) == list(range(start, end))

    simulate(scenario)


def test_rows_of_a_batch_are_limited() -> None:
    async def scenario(world: World) -> None:
        fill(world, 250)
        async with world.client() as client:
            whole = client.read_range(TP, 5, 245, batch_rows=100)
            sizes = [batch.num_rows async for batch in whole]
            assert sizes == [100, 100, 40]
            assert await read(client, 5, 245, batch_rows=1) == list(range(5, 245))

    simulate(scenario)


def test_few_fetches_of_limited_size_are_sent_before_a_batch_is_processed() -> None:
    async def scenario(world: World) -> None:
        fill(world, 1000)
        async with world.client() as client:
            batches = client.read_range(TP, 0, 1000, **SMALL)
            await anext(batches)
            before = fetches(world)
            await asyncio.sleep(5)
            assert before < fetches(world) <= before + 3
            async for _ in batches:
                pass
        sizes = [r.message.topics[0].partitions[0] for r in world.requests(ApiKey.FETCH)]
        # A response may have a quarter of the limit, because there may be four at a time: one is in
        # flight, two wait for the reader, and one is being converted.
        assert all(each.partition_max_bytes <= SMALL["fetch_max_bytes"] / 4 for each in sizes)

    simulate(scenario)


def test_a_range_fetches_no_more_than_the_reader_asks_for_at_its_beginning() -> None:
    """A limit in SQL needs only the first records of a large range."""

    async def scenario(world: World) -> None:
        for _ in range(400):
            world.cluster.produce("t", [bytes(1000)] * 30)
        async with world.client() as client:
            batches = client.read_range(TP, 0, 12_000)
            rows = 0
            for count in range(1, 11):
                rows += (await anext(batches)).num_rows
                await asyncio.sleep(1)
                assert fetches(world) == count
            sizes = [r.message.max_bytes for r in world.requests(ApiKey.FETCH)]
            assert sum(sizes) < 1_000_000
            async for batch in batches:
                rows += batch.num_rows
            assert rows == 12_000
            # Then the fetches grow fast, and are sent before the reader asks for them.
            assert fetches(world) < 50

    simulate(scenario)


def test_ranges_that_follow_one_another_use_one_connection() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.client() as client:
            await read(client, 0, 100)
            count = world.cluster.connections()
            for start in range(10):
                await read(client, start, 100)
            assert world.cluster.connections() == count

    simulate(scenario)


def test_a_range_survives_moves_of_its_leader_and_lost_connections() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2000)
        async with world.client(retry_backoff_ms=10) as client:
            found: list[int] = []
            async for batch in client.read_range(TP, 0, 2000, **SMALL):
                found += batch["offset"].to_pylist()
                if len(found) % 3 == 0:
                    world.cluster.move_leader("t")
                elif len(found) % 3 == 1:
                    world.cluster.disconnect()
            assert found == list(range(2000))

    simulate(scenario, brokers=3)


def test_a_fetch_that_a_broker_refuses_is_repeated() -> None:
    async def scenario(world: World) -> None:
        fill(world, 500)
        for code in (6, 74, 75, 56, -1, 9, 5):
            world.cluster.fail(ApiKey.FETCH, code, times=2)
            async with world.client(retry_backoff_ms=10) as client:
                assert await read(client, 0, 500) == list(range(500))

    simulate(scenario)


def test_missing_offsets_at_the_start_raise_immediately() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        world.cluster.delete_records("t", before=40)
        async with world.client() as client:
            begun = world.now
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0.*Offsets 10 to 39 are miss") as e:
                await read(client, 10, 100)
            assert (e.value.missing_start, e.value.missing_end) == (10, 40)
            assert world.now - begun < 1
            with pytest.raises(OffsetOutOfRangeError) as e:
                await read(client, 10, 20)
            assert (e.value.missing_start, e.value.missing_end) == (10, 20)
            assert await read(client, 40, 100) == list(range(40, 100))

    simulate(scenario)


@pytest.mark.parametrize("start", [0, 100, 150])
def test_offsets_after_the_end_of_the_log_raise_after_those_before_it(start: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.client() as client:
            found: list[int] = []
            begun = world.now
            with pytest.raises(OffsetOutOfRangeError, match="The log ends at offset 100") as raised:
                await read_into(found, client, start, 200)
            assert found == list(range(start, 100))
            missing = (raised.value.missing_start, raised.value.missing_end)
            assert missing == (max(start, 100), 200)
            assert world.now - begun < 5

    simulate(scenario)


@pytest.mark.parametrize("lag_s", [0.15, 1.2])
def test_broker_that_lags_for_a_moment_does_not_end_a_range(lag_s: float) -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        loop = asyncio.get_running_loop()

        def lags() -> bool:
            return loop.time() < until

        def fetch(request: Any, response: Any) -> Any:
            for topic in response.responses if lags() else ():
                for data in topic.partitions:
                    data.error_code, data.records = OffsetOutOfRangeError.code, None
            return response

        def list_offsets(request: Any, response: Any) -> Any:
            for topic in response.topics if lags() else ():
                for data in topic.partitions:
                    data.offset = min(data.offset, 30)
            return response

        async with world.client() as client:
            until = loop.time() + lag_s
            with (
                world.cluster.alter(ApiKey.FETCH, fetch),
                world.cluster.alter(ApiKey.LIST_OFFSETS, list_offsets),
            ):
                assert await read(client, 50, 100) == list(range(50, 100))

    simulate(scenario)


def test_retention_that_overtakes_a_range_raises_the_lost_offsets() -> None:
    async def scenario(world: World) -> None:
        fill(world, 3000)

        def lose() -> None:
            world.cluster.delete_records("t", before=2500)

        async with world.client() as client:
            found: list[int] = []
            with pytest.raises(OffsetOutOfRangeError, match="The log starts at offset 2500") as e:
                await read_into(found, client, 0, 3000, lose)
            assert found == list(range(len(found)))
            assert 0 < len(found) < 2500
            assert (e.value.missing_start, e.value.missing_end) == (len(found), 2500)

    simulate(scenario)


def transactional(world: World, count: int, **options: Any) -> None:
    start = world.cluster.offsets("t")[1]
    values = [b"%d" % n for n in range(start, start + count)]
    world.cluster.produce("t", values, producer_id=7, transactional=True, **options)


def test_an_open_transaction_holds_a_committed_range_until_the_timeout() -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        transactional(world, 10)
        fill(world, 40)
        async with world.client(default_api_timeout_ms=20_000) as client:
            found: list[int] = []
            begun = world.now
            with pytest.raises(ApiTimeoutError, match=r"from offset 50 on .* transaction is open"):
                await read_into(found, client, 0, 100, isolation_level="read_committed")
            assert found == list(range(50))
            assert 19 < world.now - begun < 23
            assert await read(client, 0, 100) == list(range(100))
            begun = world.now
            with pytest.raises(ApiTimeoutError):
                await read(client, 50, 100, isolation_level="read_committed", timeout=3)
            assert world.now - begun < 4

    simulate(scenario)


@pytest.mark.parametrize("commit", [True, False])
def test_a_committed_range_continues_when_the_transaction_ends(commit: bool) -> None:
    async def scenario(world: World) -> None:
        fill(world, 50)
        transactional(world, 10)
        fill(world, 40)

        async def end() -> None:
            await asyncio.sleep(8)
            world.cluster.end_transaction("t", producer_id=7, commit=commit)

        async with world.client() as client:
            ending = asyncio.create_task(end())
            found = await read(client, 45, 100, isolation_level="read_committed")
            await ending
            first = 50 if commit else 60
            assert found == [*range(45, 50), *range(first, 100)]
            # The marker is at offset 100.
            found = await read(client, 98, 101, isolation_level="read_committed")
            assert found == [98, 99]
            assert await read(client, 0, 101) == list(range(100))

    simulate(scenario)


class Compacted:
    """A broker whose log has no records from an offset up to its end, as after compaction."""

    def __init__(self, after: int) -> None:
        self._after = after
        self.answers = 0

    def __call__(self, request: Any, response: Any) -> Any:
        data = response.responses[0].partitions[0]
        records = b"".join(map(bytes, _pieces(data.records or b"")))
        if request.topics[0].partitions[0].fetch_offset >= self._after:
            records = b""
            self.answers += 1
        data.records = records.partition(self._after.to_bytes(8, "big"))[0]
        return response


def test_a_range_ends_when_no_record_is_left_below_its_end() -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.client() as client:
            compacted = Compacted(50)
            world.cluster.alter(ApiKey.FETCH, compacted, times=None)
            begun = world.now
            assert await read(client, 0, 100) == list(range(50))
            assert compacted.answers >= 3
            assert world.now - begun < 10

    simulate(scenario)


def test_a_topic_that_is_recreated_while_it_is_read_raises() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2000)

        def recreate() -> None:
            if world.cluster.offsets("t")[1] == 2000:
                world.cluster.delete_topic("t")
                world.cluster.create_topic("t", 1)
                fill(world, 3000)

        async with world.client(retry_backoff_ms=10) as client:
            begun = world.now
            with pytest.raises(UnknownTopicIdError, match=r"t-0.*created again"):
                await read_into([], client, 0, 2000, recreate)
            assert world.now - begun < 20
            new = world.cluster.topic_id("t")
            assert await read(client, 0, 10, topic_id=new) == list(range(10))

    simulate(scenario)


def test_a_topic_that_is_deleted_while_it_is_read_raises() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2000)

        def delete() -> None:
            if "t" in world.cluster.topics:
                world.cluster.delete_topic("t")

        async with world.client(retry_backoff_ms=10) as client:
            begun = world.now
            with pytest.raises(UnknownTopicOrPartitionError, match="deleted while it was read"):
                await read_into([], client, 0, 2000, delete)
            assert world.now - begun < 20

    simulate(scenario)


def test_a_topic_with_another_id_than_expected_is_not_read() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        old = world.cluster.topic_id("t")
        async with world.client() as client:
            assert await read(client, 0, 10, topic_id=old) == list(range(10))
            world.cluster.delete_topic("t")
            world.cluster.create_topic("t", 1)
            fill(world, 20)
            with pytest.raises(UnknownTopicIdError):
                await read(client, 0, 10, topic_id=old)
            new = world.cluster.topic_id("t")
            assert await read(client, 0, 20, topic_id=new) == list(range(20))
            with pytest.raises(UnknownTopicIdError, match="not the one to be read"):
                await read(client, 0, 10, topic_id=old)

    simulate(scenario)


def test_a_partition_that_does_not_exist_raises() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            for tp in (TopicPartition("t", 9), TopicPartition("nothing", 0)):
                with pytest.raises(UnknownTopicOrPartitionError):
                    await anext(client.read_range(tp, 0, 10))

    simulate(scenario)


class Damaged:
    """A broker that damages the batch at an offset in the first `times` responses that have it."""

    def __init__(self, offset: int, times: int) -> None:
        self._offset, self._left = offset, times

    def __call__(self, request: Any, response: Any) -> Any:
        if request.topics[0].partitions[0].fetch_offset <= self._offset and self._left:
            data = response.responses[0].partitions[0]
            records = bytearray(b"".join(map(bytes, _pieces(data.records))))
            at = records.find(self._offset.to_bytes(8, "big"))
            if at >= 0:
                self._left -= 1
                records[at + 62] ^= 0xFF
                data.records = bytes(records)
        return response


def _pieces(records: Any) -> Any:
    return records if isinstance(records, list | tuple) else [records]


@pytest.mark.parametrize("times", [1, 5])
def test_a_damaged_batch_is_fetched_again_once(times: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.client() as client:
            world.cluster.alter(ApiKey.FETCH, Damaged(30, times), times=None)
            found: list[int] = []
            if times == 1:
                await read_into(found, client, 0, 100)
                assert found == list(range(100))
            else:
                with pytest.raises(CorruptBatchError, match="offsets 30 to 39"):
                    await read_into(found, client, 0, 100)
                assert found == list(range(30))

    simulate(scenario)


def test_a_broker_that_does_not_respond_raises_after_the_timeout() -> None:
    async def scenario(world: World) -> None:
        fill(world, 1000)
        async with world.client() as client:
            found: list[int] = []
            begun = world.now
            with pytest.raises(ApiTimeoutError, match="t-0"):
                await read_into(found, client, 0, 1000, lambda: world.cluster.pause(1), timeout=7)
            assert found == list(range(len(found)))
            assert 0 < len(found) < 1000
            assert 6 < world.now - begun < 9
            world.cluster.resume(1)
            assert await read(client, 0, 1000) == list(range(1000))

    simulate(scenario)


def test_an_error_of_a_range_does_not_keep_the_client_alive() -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        client = world.client()
        async with client:
            with pytest.raises(OffsetOutOfRangeError) as raised:
                await anext(client.read_range(TP, 20, 30))
        alive = weakref.ref(client)
        del client
        await asyncio.sleep(1)
        gc.collect()
        assert raised.value.missing_start == 20
        assert alive() is None

    simulate(scenario)


def test_a_range_of_a_closed_client_raises() -> None:
    async def scenario(world: World) -> None:
        fill(world, 2000)
        client = world.client()
        async with client:
            batches = client.read_range(TP, 0, 2000, **SMALL)
            await anext(batches)
            late = client.read_range(TP, 0, 2000, **SMALL)
        for each in (batches, late):
            with pytest.raises(ClosedError):
                await anext(each)
        with pytest.raises(ClosedError):
            client.read_range(TP, 0, 1)

    simulate(scenario)


def test_a_cancellation_at_any_moment_leaves_the_client_usable() -> None:
    """Cancel reading tasks after longer and longer times, until a task ends before that."""

    async def scenario(world: World) -> None:
        fill(world, 100)
        async with world.client() as client:
            attempts = 0
            while True:
                reading = asyncio.create_task(read(client, 0, 100, fetch_max_bytes=3_000))
                await asyncio.sleep(attempts * 0.000_3)
                attempts += 1
                if not reading.cancel():
                    break
                with pytest.raises(asyncio.CancelledError):
                    await reading
                assert await read(client, 0, 20) == list(range(20))
            assert attempts > 10
            assert reading.result() == list(range(100))

    simulate(scenario)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_range_that_is_closed_early_releases_its_connections(count: int) -> None:
    async def scenario(world: World) -> None:
        fill(world, 1000)
        async with world.client() as client:
            await read(client, 0, 1)
            connections = world.cluster.connections()
            for _ in range(20):
                batches = client.read_range(TP, 0, 1000, **SMALL)
                for _ in range(count):
                    await anext(batches)
                await batches.aclose()
                with pytest.raises(StopAsyncIteration):
                    await anext(batches)
            await world.cluster.until(lambda: world.cluster.connections() <= connections)

    simulate(scenario)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"tp": "t"}, "not a partition"),
        ({"start": -1}, "start must be an offset"),
        ({"end": 1.5}, "end must be an offset"),
        ({"start": 11}, "after its end"),
        ({"columns": []}, "not a collection of different columns"),
        ({"columns": "value"}, "not a collection"),
        ({"columns": ["value", "value"]}, "different columns"),
        ({"columns": ["offsets"]}, "The columns are topic, partition"),
        ({"isolation_level": "serializable"}, "isolation_level must be one of"),
        ({"batch_rows": 0}, "batch_rows must be at least 1"),
        ({"fetch_max_bytes": 0}, "fetch_max_bytes must be at least 1"),
        ({"timeout": "1"}, "not a number of seconds"),
        ({"topic_id": "x"}, "topic_id must be"),
    ],
)
def test_wrong_arguments_raise_immediately(change: dict[str, Any], text: str) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            made: Callable[..., Any] = client.read_range
            with pytest.raises(TypeError, match=text):
                made(**{"tp": TP, "start": 0, "end": 10, **change})

    simulate(scenario)


class Overlapping:
    """A log in which transactions of several producers overlap, compressed in all ways."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.committed: list[int] = []
        self.written: list[int] = []
        sequences = dict.fromkeys(range(1, 5), 0)
        open_now: dict[int, list[int]] = {}
        for _ in range(150):
            producer = rng.choice([0, *sequences])
            if producer in open_now and rng.random() < 0.3:
                self._end(world, producer, open_now.pop(producer), rng.random() < 0.5)
                continue
            codec = rng.choice(["none", "gzip", "snappy", "lz4", "zstd"])
            options: dict[str, Any] = {"compression": codec}
            if producer:
                options |= {"producer_id": producer, "base_sequence": sequences[producer]}
                options["transactional"] = True
            start = world.cluster.offsets("t")[1]
            offsets = list(range(start, start + rng.randint(1, 12)))
            world.cluster.produce("t", [b"%d" % offset for offset in offsets], **options)
            self.written += offsets
            if producer:
                sequences[producer] += len(offsets)
                open_now.setdefault(producer, []).extend(offsets)
            else:
                self.committed += offsets
        for producer, offsets in open_now.items():
            self._end(world, producer, offsets, commit=rng.random() < 0.5)
        self.committed.sort()

    def _end(self, world: World, producer: int, offsets: list[int], commit: bool) -> None:
        world.cluster.end_transaction("t", producer_id=producer, commit=commit)
        if commit:
            self.committed += offsets


@pytest.mark.parametrize("seed", one_in(4, range(12)))
def test_ranges_are_exact_while_everything_fails(seed: int) -> None:
    """Ranges of a log with overlapping transactions, read while brokers and connections fail."""

    async def scenario(world: World) -> None:
        rng = random.Random(seed)
        log = Overlapping(world, rng)
        end = world.cluster.offsets("t")[1]
        over = asyncio.Event()

        async def disturb() -> None:
            while not over.is_set():
                await asyncio.sleep(rng.uniform(0.001, 0.05))
                action = rng.random()
                if action < 0.3:
                    world.cluster.move_leader("t")
                elif action < 0.5:
                    world.cluster.disconnect()
                elif action < 0.7:
                    code = rng.choice([3, 5, 6, 9, 56, 74, 75, 100])
                    world.cluster.fail(ApiKey.FETCH, code, times=1)

        async with world.client(retry_backoff_ms=5, reconnect_backoff_ms=5) as client:
            disturbing = asyncio.create_task(disturb())

            async def one() -> None:
                first, last = sorted(rng.sample(range(end + 1), 2))
                level = rng.choice(["read_committed", "read_uncommitted"])
                known = log.committed if level == "read_committed" else log.written
                found = await read(
                    client,
                    first,
                    last,
                    isolation_level=level,
                    fetch_max_bytes=rng.choice([400, 2_000, 20_000, 1 << 20]),
                    batch_rows=rng.choice([1, 7, 10_000]),
                )
                assert found == [offset for offset in known if first <= offset < last]

            for _ in range(5):
                await asyncio.gather(*(one() for _ in range(3)))
            over.set()
            await disturbing

    weather = Weather(loss=0.002, slicing=0.05, refusal=0.01)
    simulate(scenario, brokers=3, seed=seed, weather=weather)

"""Programs for aiokafka, run with aiokafka and with the adapter: both observe the same."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from adapted_clients import Stage, call, error_of

from aiokclient.adapters import aiokafka as adapter
from aiokclient.testing import EmbeddedCluster

Program = Callable[[ModuleType, "Stage"], Awaitable[list[Any]]]

PROGRAMS: list[Program] = []


def program(function: Program) -> Program:
    PROGRAMS.append(function)
    return function


@program
async def futures_of_sends(kafka: ModuleType, stage: Stage) -> list[Any]:
    seen: list[Any] = []
    async with stage.producer(linger_ms=5) as producer:
        futures = [await producer.send(stage.topic, b"%d" % i, partition=i % 3) for i in range(30)]
        metadata = await asyncio.gather(*futures)
        seen += sorted((each.partition, each.offset) for each in metadata)
        seen.append(metadata[0].topic_partition == stage.tp(0))
        seen.append([each.done() for each in futures] + [each.cancelled() for each in futures])
        first = await producer.send(stage.topic, b"a", partition=0)
        seen += [isinstance(first, asyncio.Future), asyncio.isfuture(first)]
        called: list[Any] = []
        first.add_done_callback(called.append)
        done, pending = await asyncio.wait([first])
        seen += [len(done), len(pending), called == [first], first.exception()]
        seen.append(
            (await asyncio.wait_for(await producer.send(stage.topic, b"b", partition=1), 9)).offset
        )
        seen.append(
            (await asyncio.shield(await producer.send(stage.topic, b"c", partition=1))).offset
        )
        for each in asyncio.as_completed([await producer.send(stage.topic, b"d", partition=1)]):
            seen.append((await each).offset)
        given_up = await producer.send(stage.topic, b"e", partition=2)
        seen += [given_up.cancel(), given_up.cancelled(), given_up.done()]
        metadata = await producer.send_and_wait(
            stage.topic, b"f", b"key", 2, timestamp_ms=123, headers=[("h", b"v")]
        )
        seen += [metadata.offset, metadata.timestamp, metadata.timestamp_type]
        seen.append(sorted(await producer.partitions_for(stage.topic)))
    return seen


@program
async def keyed_records(kafka: ModuleType, stage: Stage) -> list[Any]:
    async with stage.producer(key_serializer=str.encode, value_serializer=repr_bytes) as producer:
        futures = [await producer.send(stage.topic, i, key=f"key-{i}") for i in range(20)]
        chosen = [(await each).partition for each in futures]
        empty = await producer.send_and_wait(stage.topic, None, key="none", partition=0)
    values = [each.value for each in stage.cluster.records(stage.topic, 0)]
    return [chosen, empty.partition, values[-1]]


def repr_bytes(value: object) -> bytes:
    return repr(value).encode()


@program
async def batches(kafka: ModuleType, stage: Stage) -> list[Any]:
    seen: list[Any] = []
    async with stage.producer(max_batch_size=200) as producer:
        batch = producer.create_batch()
        count = 0
        while batch.append(key=b"k", value=b"%d" % count, timestamp=1000 + count) is not None:
            count += 1
        seen += [count, batch.record_count(), batch.closed(), batch.size()]
        future = await producer.send_batch(batch, stage.topic, partition=1)
        metadata = await future
        seen += [metadata.partition, metadata.offset]
        records = stage.cluster.records(stage.topic, 1)
        other = producer.create_batch()
        other.append(key=None, value=b"anywhere", timestamp=None)
        seen.append(
            (await (await producer.send_batch(other, stage.topic, partition=None))).offset >= 0
        )
        seen.append(
            await error_of(producer.send_batch(producer.create_batch(), stage.topic, partition=9))
        )
    return [*seen, [(each.key, each.value, each.timestamp) for each in records]]


@program
async def refused_sends(kafka: ModuleType, stage: Stage) -> list[Any]:
    producer = stage.producer(request_timeout_ms=2000)
    async with producer:
        seen = [
            await error_of(producer.send(stage.topic)),
            await error_of(producer.send(stage.topic, b"a", partition=9)),
            await error_of(producer.send(stage.topic, bytes(2_000_000))),
            await error_of(producer.begin_transaction()),
            await error_of(producer.send_offsets_to_transaction({stage.tp(0): 1}, "group")),
        ]
    seen.append(await error_of(producer.send(stage.topic, b"a")))
    other = kafka.AIOKafkaProducer(bootstrap_servers="127.0.0.1:1")
    seen.append(await error_of(other.start()))
    await other.stop()
    return seen


@program
async def transactions(kafka: ModuleType, stage: Stage) -> list[Any]:
    seen: list[Any] = []
    async with stage.producer(transactional_id=stage.group) as producer:
        seen.append(await error_of(producer.send(stage.topic, b"outside")))
        async with producer.transaction():
            await producer.send_and_wait(stage.topic, b"committed", partition=0)
            await producer.send_offsets_to_transaction({stage.tp(0): 7}, stage.group)
        try:
            async with producer.transaction():
                await producer.send_and_wait(stage.topic, b"aborted", partition=0)
                raise ValueError
        except ValueError:
            seen.append("raised")
        await producer.begin_transaction()
        await producer.send(stage.topic, b"last", partition=0)
        await producer.commit_transaction()
    async with stage.consumer(
        stage.topic, group_id=f"{stage.group}-reader", isolation_level="read_committed"
    ) as consumer:
        seen += [(await consumer.getone()).value, (await consumer.getone()).value]
        seen.append(consumer.last_stable_offset(stage.tp(0)) == consumer.highwater(stage.tp(0)))
    async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
        seen.append(await consumer.committed(stage.tp(0)))
    return seen


@program
async def reads_of_lists(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(50, 0)
    stage.fill(20, 1)
    seen: list[Any] = []
    async with stage.consumer(stage.topic) as consumer:
        read: dict[int, list[bytes]] = {}
        while sum(map(len, read.values())) < 70:
            for tp, records in (await consumer.getmany(timeout_ms=5000, max_records=15)).items():
                assert len(records) <= 15
                read.setdefault(tp.partition, []).extend(each.value for each in records)
        seen += [
            read[0] == [b"%d" % i for i in range(50)],
            read[1] == [b"%d" % i for i in range(20)],
        ]
        seen.append(await consumer.getmany(timeout_ms=10))
        consumer.seek(stage.tp(0), 45)
        only = await consumer.getmany(stage.tp(0), timeout_ms=5000)
        seen += [stage.partitions(only), [each.value for each in only[stage.tp(0)]]]
        seen.append(await error_of(consumer.getmany(max_records=0)))
        seen.append(
            sorted(await consumer.end_offsets([stage.tp(0), stage.tp(2)]))
            == [stage.tp(0), stage.tp(2)]
        )
    seen.append(await error_of(consumer.getmany()))
    return seen


@program
async def records(kafka: ModuleType, stage: Stage) -> list[Any]:
    async with stage.producer() as producer:
        await producer.send_and_wait(stage.topic, b"a", b"k", 0, 5, [("h", b"v")])
        await producer.send_and_wait(stage.topic, None, b"key", 0, 6)
    seen: list[Any] = []
    async with stage.consumer(
        stage.topic, value_deserializer=lambda data: None if data is None else data.decode()
    ) as consumer:
        for _ in range(2):
            record = await consumer.getone()
            seen.append((record.partition, record.offset, record.timestamp, record.timestamp_type))
            seen.append((record.key, record.value, list(record.headers)))
            seen.append((record.serialized_key_size, record.serialized_value_size))
            assert isinstance(record, kafka.ConsumerRecord)
            record.consumer = consumer  # As FastStream does.
            seen.append(record.checksum)
            fields = (record.topic, record.partition, record.offset, record.timestamp, 0)
            sizes = (record.serialized_key_size, record.serialized_value_size)
            parts = (record.key, record.value, None, *sizes, record.headers)
            assert kafka.ConsumerRecord(*fields, *parts) == record
    return seen


@program
async def positions(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(10, 0)
    first = stage.tp(0)
    seen: list[Any] = []
    async with stage.consumer(
        stage.topic, group_id=stage.group, enable_auto_commit=False
    ) as consumer:
        seen += [stage.partitions(consumer.assignment()), len(consumer.subscription())]
        seen.append([(await consumer.getone()).offset for _ in range(3)])
        seen.append(await consumer.position(first))
        await consumer.commit()
        seen.append(await consumer.committed(first))
        await consumer.commit({first: (5, "text")})
        seen.append(await consumer.committed(first))
        found = await consumer.seek_to_committed(first)
        seen += [found[first], (await consumer.getone(first)).offset]
        seen.append(await consumer.seek_to_end(first))
        seen.append(await consumer.position(first))
        seen.append(await consumer.seek_to_beginning(first))
        seen.append((await consumer.getone()).offset)
        consumer.pause(first)
        seen += [stage.partitions(consumer.paused()), await consumer.getmany(timeout_ms=50)]
        consumer.resume(first)
        seen.append((await consumer.getone()).offset)
        times = await consumer.offsets_for_times({first: 0, stage.tp(2): 0})
        seen += [times[first].offset, times[stage.tp(2)]]
        seen.append((await consumer.beginning_offsets([first]))[first])
        seen += [consumer.partitions_for_topic(stage.topic), stage.topic in await consumer.topics()]
        seen += [consumer.highwater(first), consumer.last_stable_offset(first)]
        seen.append(await error_of(consumer.commit({first: "x"})))
        seen.append(await error_of(consumer.commit({kafka.TopicPartition("absent", 0): 1})))
        seen.append(await error_of(consumer.position(kafka.TopicPartition("absent", 0))))
    return seen


@program
async def partitions_by_hand(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(3, 1)
    seen: list[Any] = []
    consumer = stage.consumer()
    consumer.assign([stage.tp(1)])
    async with consumer:
        seen.append([(await consumer.getone()).offset for _ in range(3)])
        seen += [stage.partitions(consumer.assignment()), await error_of(consumer.commit())]
        try:
            consumer.subscribe([stage.topic])
        except kafka.errors.IllegalStateError:
            seen.append("refused")
        consumer.unsubscribe()
        seen.append(consumer.assignment())
    return seen


@program
async def loops(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(5, 0)
    seen: list[Any] = []
    consumer = stage.consumer(stage.topic, group_id=stage.group)
    await consumer.start()
    async for record in consumer:
        seen.append(record.value)
        if len(seen) == 3:
            break
    waiting = asyncio.create_task(consumer.getone(stage.tp(2)))
    seen.append((await consumer.getone(stage.tp(0))).value)
    await consumer.stop()
    try:
        await waiting
    except kafka.ConsumerStoppedError:
        seen.append("stopped")
    seen.append([record async for record in again(consumer, kafka)])
    async with stage.consumer(stage.topic, group_id=stage.group) as other:
        seen.append(await other.committed(stage.tp(0)))
        seen.append((await other.getone()).value)
    return seen


async def again(consumer: Any, kafka: ModuleType) -> Any:
    try:
        async for record in consumer:
            yield record
    except kafka.ConsumerStoppedError:
        yield "stopped"


@program
async def several_tasks(kafka: ModuleType, stage: Stage) -> list[Any]:
    for partition in range(3):
        stage.fill(30, partition)
    read: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    async with stage.consumer(stage.topic) as consumer:

        async def read_partition(partition: int) -> None:
            while len(read[partition]) < 30:
                if len(read[partition]) % 2:
                    record = await consumer.getone(stage.tp(partition))
                    read[partition].append(record.value)
                else:
                    found = await consumer.getmany(
                        stage.tp(partition), timeout_ms=1000, max_records=4
                    )
                    for records in found.values():
                        read[partition] += [each.value for each in records]

        await asyncio.gather(*map(read_partition, range(3)))
        await consumer.seek_to_beginning()
        together: set[tuple[int, int]] = set()

        async def read_any() -> None:
            while len(together) < 90:
                try:
                    record = await asyncio.wait_for(consumer.getone(), 0.5)
                except TimeoutError:
                    continue
                assert (record.partition, record.offset) not in together
                together.add((record.partition, record.offset))

        await asyncio.gather(read_any(), read_any(), read_any())
    return [read, len(together)]


@program
async def reads_side_by_side(kafka: ModuleType, stage: Stage) -> list[Any]:
    async with stage.consumer(stage.topic) as consumer:
        single = asyncio.create_task(consumer.getone())
        several = asyncio.create_task(consumer.getmany(timeout_ms=60_000, max_records=2))
        seen: list[Any] = [await consumer.getmany(timeout_ms=0)]
        stage.fill(5)
        offsets = [(await single).offset]
        for records in (await several).values():
            offsets += [each.offset for each in records]
        while len(offsets) < 5:
            offsets.append((await consumer.getone()).offset)
    return [*seen, sorted(offsets)]


@program
async def seek_amid_a_read(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(5)
    first = stage.tp(0)
    async with stage.consumer(stage.topic) as consumer:
        for _ in range(5):
            await consumer.getone()
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await consumer.topics()
        consumer.seek(first, 2)
        seen: list[Any] = [(await waiting)[first][0].offset]
        consumer.seek(first, 0)
        consumer.seek(first, 3)
        seen += [await consumer.position(first), (await consumer.getone()).offset]
        for wrong in (-1, "1", None):
            seen.append(await error_of(call(consumer.seek, first, wrong)))
    return seen


@program
async def seek_back_after_each_record(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(2)
    first = stage.tp(0)
    seen: list[Any] = []
    async with stage.consumer(stage.topic) as consumer:
        for _ in range(5):
            record = await consumer.getone()
            consumer.seek(first, record.offset)
            again = asyncio.create_task(consumer.getone())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            # Other tasks run before the record is there again.
            seen += [again.done(), (await again).offset == record.offset]
            consumer.seek(first, record.offset)
        consumer.pause(first)
        seen.append(await consumer.getmany(timeout_ms=100))
        consumer.resume(first)
        seen.append((await consumer.getone()).offset)
    return seen


@program
async def stop_amid_sends(kafka: ModuleType, stage: Stage) -> list[Any]:
    producer = stage.producer(linger_ms=50)
    await producer.start()
    futures = [await producer.send(stage.topic, b"%d" % i, partition=i % 3) for i in range(30)]
    stopping = [asyncio.create_task(producer.stop()) for _ in range(2)]
    results = await asyncio.gather(*futures)
    await asyncio.gather(*stopping)
    late = [producer.send(stage.topic, b"late"), producer.flush()]
    return [sorted(each.offset for each in results), *[await error_of(each) for each in late]]


@program
async def abort_in_a_callback(kafka: ModuleType, stage: Stage) -> list[Any]:
    seen: list[Any] = []
    aborted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with stage.producer(transactional_id=stage.group) as producer:

        async def abort() -> None:
            await producer.abort_transaction()
            aborted.set_result(None)

        await producer.begin_transaction()
        future = await producer.send(stage.topic, b"aborted", partition=0)
        tasks = []
        future.add_done_callback(lambda _: tasks.append(asyncio.create_task(abort())))
        await future
        await aborted
        seen.append(await error_of(producer.commit_transaction()) != "none")
        async with producer.transaction():
            await producer.send(stage.topic, b"committed", partition=0)
    async with stage.consumer(stage.topic, isolation_level="read_committed") as consumer:
        seen.append((await consumer.getone()).value)
    return seen


@program
async def pattern_without_a_match(kafka: ModuleType, stage: Stage) -> list[Any]:
    later = f"later-{stage.topic}"
    consumer = stage.consumer(group_id=stage.group, metadata_max_age_ms=300)
    consumer.subscribe(pattern=f"^{later}")
    async with consumer:
        seen: list[Any] = [consumer.assignment(), consumer.subscription()]
        seen.append(await consumer.getmany(timeout_ms=50))
        stage.cluster.create_topic(later, 1)
        stage.cluster.produce(later, [b"v"])
        seen += [(await consumer.getone()).value, len(consumer.assignment())]
    return seen


@program
async def rebalances(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(10, 0)
    seen: list[Any] = []

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc,name-defined]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            seen.append(("revoked", stage.partitions(revoked)))
            if revoked:
                await consumer.commit()

        def on_partitions_assigned(self, assigned: Any) -> None:
            seen.append(("assigned", stage.partitions(assigned)))
            raise RuntimeError("It is logged.")

    consumer = stage.consumer(group_id=stage.group, heartbeat_interval_ms=100)
    consumer.subscribe([stage.topic], listener=Listener())
    async with consumer:
        await consumer.getone()
        async with stage.consumer(
            stage.topic, group_id=stage.group, heartbeat_interval_ms=100
        ) as other:
            while (
                len(consumer.assignment()) + len(other.assignment()) != 3 or not other.assignment()
            ):
                await consumer.getmany(timeout_ms=20, max_records=1)
            counts = sorted([len(consumer.assignment()), len(other.assignment())])
        while len(consumer.assignment()) != 3:
            await consumer.getmany(timeout_ms=20, max_records=1)
    return [counts, seen[:3], len(seen)]


@program
async def patterns(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(1, 0)
    consumer = stage.consumer(group_id=stage.group)
    consumer.subscribe(pattern=stage.topic[:-1] + "[" + stage.topic[-1] + "]")
    async with consumer:
        seen = [(await consumer.getone()).value, stage.topic in consumer.subscription()]
        wrong = ({}, {"topics": ["a"], "pattern": "b"}, {"topics": ["a"], "listener": object()})
        for each in wrong:
            try:
                consumer.subscribe(**each)
            except TypeError:
                seen.append("TypeError")
    return seen


@program
async def missing_offsets(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(3, 0)
    seen: list[Any] = []

    consumer = stage.consumer(group_id=stage.group, auto_offset_reset="none")
    consumer.assign([stage.tp(0)])
    errors: Any = import_module(f"{kafka.__name__}.errors")
    async with consumer:
        # Programs seek where the errors say, as aiokafka's documentation recommends.
        with pytest.raises(errors.NoOffsetForPartitionError) as absent:
            await consumer.getone()
        (partition,) = absent.value.args
        seen.append(partition.partition)
        consumer.seek(partition, 99)
        with pytest.raises(errors.OffsetOutOfRangeError) as beyond:
            await consumer.getone()
        (offsets,) = beyond.value.args
        seen.append([(tp.partition, offset) for tp, offset in offsets.items()])
        await consumer.seek_to_beginning(*offsets)
        seen.append((await consumer.getone()).offset)
    return seen


@program
async def missing_offset_of_one_partition(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(3, 0)
    consumer = stage.consumer(group_id=stage.group, auto_offset_reset="none")
    consumer.assign([stage.tp(0), stage.tp(1)])
    async with consumer:
        seen: list[Any] = [await error_of(consumer.getone(stage.tp(1)))]
        consumer.seek(stage.tp(0), 1)
        seen.append((await consumer.getone(stage.tp(0))).offset)
        consumer.seek(stage.tp(1), 99)
        seen.append(await error_of(consumer.getone(stage.tp(1))))
        (records,) = (await consumer.getmany(stage.tp(0), timeout_ms=9_000)).values()
        seen.append([each.offset for each in records])
    return seen


@program
async def failing_deserializer(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(2, 0)

    def refuse(data: bytes) -> bytes:
        raise LookupError(data)

    async with stage.consumer(stage.topic, value_deserializer=refuse) as consumer:
        seen: list[Any] = [await error_of(consumer.getone()) for _ in range(2)]
        seen.append(await error_of(consumer.getmany(timeout_ms=900)))
        seen.append(await consumer.position(stage.tp(0)))
        consumer.seek(stage.tp(0), 1)
        return [*seen, await error_of(anext(consumer))]


@program
async def cancelled_sends(kafka: ModuleType, stage: Stage) -> list[Any]:
    seen: list[Any] = []
    async with stage.producer() as producer:
        for keep in (False, True):
            futures = [await producer.send(stage.topic, b"a", partition=0) for _ in range(3)]
            together = asyncio.gather(*futures, return_exceptions=keep)
            together.cancel()
            seen.append(await error_of(asyncio.wait_for(together, 9)))
            seen += [together.cancelled(), [each.cancelled() for each in futures]]
        sent = await producer.send_and_wait(stage.topic, b"b", partition=1, timestamp_ms=5.5)
        seen += [sent.offset, sent.timestamp]
    await producer.flush()
    other = stage.producer(request_timeout_ms=900.5, client_id=None)
    await other.flush()
    await other.stop()
    return seen


@program
async def cancelled_reads(kafka: ModuleType, stage: Stage) -> list[Any]:
    async with stage.consumer(stage.topic) as consumer:
        waiting = [asyncio.create_task(consumer.getone()) for _ in range(5)]
        late = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
        await consumer.topics()
        waiting[0].cancel()
        waiting[2].cancel()
        stage.fill(10, 0)
        read = [(await waiting[index]).offset for index in (1, 3, 4)]
        (records,) = (await late).values()
    return [sorted(read), [each.offset for each in records]]


@program
async def prefixes(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(1, 0)
    seen: list[Any] = []
    for pattern in (
        re.compile(f"{stage.topic}$"),
        f"(?i){stage.topic.upper()}$",
        f"(?x) {stage.topic}$ # all of it",
        f"nothing|{stage.topic}$",
    ):
        consumer = stage.consumer(group_id=f"{stage.group}-{len(seen)}")
        consumer.subscribe(pattern=pattern)
        async with consumer:
            seen.append((await consumer.getone()).topic == stage.topic)
            seen.append(await error_of(call(consumer.subscribe, [stage.topic])))
    other = stage.consumer()
    seen += [await error_of(call(other.subscribe, pattern=each)) for each in ("(", 5)]
    await other.stop()
    return seen


@program
async def pauses_and_assignments(kafka: ModuleType, stage: Stage) -> list[Any]:
    for partition in range(3):
        stage.fill(3, partition)
    seen: list[Any] = []
    consumer = stage.consumer()
    consumer.assign([stage.tp(0), stage.tp(1)])
    async with consumer:
        consumer.pause(stage.tp(1))
        seen.append((await consumer.getone()).offset)
        consumer.assign([stage.tp(1)])
        seen += [consumer.paused(), (await consumer.getone()).value]
        consumer.assign([stage.tp(0), stage.tp(1)])
        seen.append((await consumer.getone(stage.tp(1))).value)
    async with stage.consumer(
        stage.topic, group_id=stage.group, heartbeat_interval_ms=100
    ) as first:
        first.pause(*first.assignment())
        async with stage.consumer(stage.topic, group_id=stage.group):
            while len(first.assignment()) == 3:
                await first.topics()  # A request, so that other tasks run.
            seen += [first.paused(), len(await first.getmany(timeout_ms=9000)) > 0]
    return seen


@program
async def stopped_consumer(kafka: ModuleType, stage: Stage) -> list[Any]:
    stage.fill(3, 0)
    consumer = stage.consumer(stage.topic, group_id=stage.group)
    seen: list[Any] = [await error_of(consumer.commit())]
    async with consumer:
        await consumer.getone()
    seen += [stage.partitions(consumer.assignment()), len(consumer.subscription())]
    seen += [consumer.partitions_for_topic(stage.topic), consumer.partitions_for_topic("absent")]
    seen += [hash(consumer.assignment()) == hash(frozenset(map(stage.tp, range(3))))]
    return seen


@program
async def administration(kafka: ModuleType, stage: Stage) -> list[Any]:
    admin = import_module(f"{kafka.__name__}.admin")
    resources = import_module(f"{kafka.__name__}.admin.config_resource")
    client = admin.AIOKafkaAdminClient(bootstrap_servers=stage.cluster.bootstrap_servers)
    await client.start()
    seen: list[Any] = []
    try:
        name = f"{stage.topic}-made"
        new = admin.NewTopic(name, 1, 1, topic_configs={"cleanup.policy": "compact"})
        created = await client.create_topics([new])
        seen += [created.topic_errors[0][1:], name in await client.list_topics()]
        seen.append([code for _, code, _ in (await client.create_topics([new])).topic_errors])
        await client.create_partitions({name: admin.NewPartitions(3)})
        described = await client.describe_topics([name])
        seen.append(sorted(each["partition"] for each in described[0]["partitions"]))
        kind = resources.ConfigResourceType.TOPIC
        wanted = resources.ConfigResource(kind, name, {"cleanup.policy": ""})
        (response,) = await client.describe_configs([wanted])
        entries = [entry[:2] for entry in response.resources[0][4]]
        altered = resources.ConfigResource("topic", name, {"cleanup.policy": "delete"})
        seen += [entries, (await client.alter_configs([altered]))[0].resources[0][0]]
        cluster = await client.describe_cluster()
        seen += [[each["node_id"] for each in cluster["brokers"]], cluster["controller_id"]]
        stage.fill(5, 0)
        deleted = await client.delete_records({stage.tp(0): admin.RecordsToDelete(3)})
        seen.append(deleted[stage.tp(0)])
        async with stage.consumer(stage.topic, group_id=stage.group) as consumer:
            await consumer.getone()
            await consumer.commit()
            seen.append((stage.group, "consumer") in await client.list_consumer_groups())
            seen.append(await client.find_coordinator(stage.group))
            (groups,) = await client.describe_consumer_groups([stage.group])
            seen.append((groups.groups[0][:2][0], groups.groups[0][2:5], len(groups.groups[0][5])))
            offsets = await client.list_consumer_group_offsets(stage.group)
            seen.append(offsets[stage.tp(0)])
            absent = kafka.TopicPartition(stage.topic, 2)
            chosen = await client.list_consumer_group_offsets(stage.group, partitions=[absent])
            seen.append(chosen[absent].offset)
        (groups,) = await client.describe_consumer_groups(["absent"])
        seen.append(groups.groups[0][:3])
        seen.append(await error_of(client.describe_consumer_groups(["absent"], 99)))
        gone = await client.delete_topics([name])
        seen.append([code for _, code in gone.topic_error_codes])
    finally:
        await client.close()
    return seen


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda each: each.__name__)
async def test_program_observes_the_same_with_both_libraries(
    run: Program, cluster: EmbeddedCluster
) -> None:
    with_adapter = await run(adapter, Stage(cluster, adapter))
    with_aiokafka = await run(aiokafka, Stage(cluster, aiokafka))
    assert with_adapter == with_aiokafka

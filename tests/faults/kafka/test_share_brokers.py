"""Share groups on brokers of Kafka 4.1, 4.2, and 4.3, on ones without share groups, and on disks.

`make share-real` runs them: three older versions are fetched, and six clusters start.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from churn import Nursery
from kafka_harness import KAFKA, SHARING, Distribution, KafkaCluster
from share_crew import Crew, RealSite
from share_queue import TIMEOUT_S, Queue, queue_on, take

from aiokclient import Admin, Consumer, Producer, TopicPartition
from aiokclient.errors import CorruptBatchError, LockLostError, UnsupportedVersionError

pytestmark = pytest.mark.share_real

LOCK_S = 2.0
PREVIEW = "4.1.1"
DISABLED = (Distribution(PREVIEW), Distribution(KAFKA.version, features=("share.version=0",)))


@pytest.fixture(scope="module", params=SHARING, ids=lambda found: found.version)
def older(request: pytest.FixtureRequest, java: str) -> Iterator[KafkaCluster]:
    """One broker of an older version with share groups."""
    properties = {"group.share.delivery.count.limit": 5}
    with KafkaCluster(request.param, properties=properties) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def preview(older: KafkaCluster) -> AsyncIterator[Queue]:
    """Yield a topic with a share group of an older broker, with short locks."""
    topic = older.create_topic()
    async with Admin(bootstrap_servers=older.bootstrap) as admin:
        # Kafka 4.1 does not create a group when its offsets are set.
        queue = Queue(older.bootstrap, topic, f"group-of-{topic}", admin)
        lock_ms = str(int(LOCK_S * 1000))
        await queue.configure(auto_offset_reset="earliest", record_lock_duration_ms=lock_ms)
        yield queue


async def test_older_brokers_release_reject_and_exhaust_records(preview: Queue) -> None:
    # Records that wait for too long are released, and their counts rise without a delivery.
    await preview.configure(record_lock_duration_ms="30000")
    await preview.fill(30)
    deliveries: Counter[bytes] = Counter()
    async with preview.consumer() as consumer, asyncio.timeout(120):
        accepted = 0
        # 0 is rejected, 1 released until it is exhausted, 2 to 9 the first time.
        while accepted < 28 or deliveries[b"1"] < 5:
            for record in await consumer.poll(1.0, tracked=True):
                deliveries[record.value] += 1
                assert record.delivery_count == deliveries[record.value]
                number = int(record.value)
                if number == 0:
                    assert consumer.reject(record)
                elif number == 1 or (number < 10 and record.delivery_count == 1):
                    assert consumer.release(record)
                else:
                    assert consumer.done(record)
                    accepted += 1
        assert set((await consumer.commit()).values()) <= {None}
        assert await consumer.poll(LOCK_S * 2) == []
    expected = {0: 1, 1: 5, **dict.fromkeys(range(2, 10), 2), **dict.fromkeys(range(10, 30), 1)}
    assert deliveries == {b"%d" % number: count for number, count in expected.items()}


async def test_handlers_of_three_locks_keep_their_records_if_brokers_renew(
    preview: Queue, older: KafkaCluster
) -> None:
    renews = older.distribution.version != PREVIEW
    # On a busy machine, records with shorter locks wait for too long until they are exhausted.
    lock_s = 5.0
    await preview.configure(record_lock_duration_ms=str(int(lock_s * 1000)))
    await preview.fill(10)
    seen: list[tuple[int, int]] = []
    losses: dict[int, LockLostError] = {}

    async def work(consumer: Any, record: Any) -> None:
        begun = record.delivery_count
        seen.append((record.offset, begun))
        try:
            async with consumer.processing(record):
                await asyncio.sleep(3 * lock_s if begun == 1 else 0)
        except LockLostError as error:
            losses[record.offset] = error

    async with preview.consumer() as consumer, asyncio.timeout(120):
        tasks: list[asyncio.Task[None]] = []
        async for record in consumer.tracked(max_outstanding=10):
            if record.delivery_count == 2:
                # The loss is told before the second delivery is settled.
                assert record.offset in losses
            tasks.append(asyncio.create_task(work(consumer, record)))
            if len(tasks) == (10 if renews else 20):
                break
        await asyncio.gather(*tasks)
        troubled = any("renewal is not possible" in each for each in consumer.health().reasons)
        assert troubled is not renews
        await consumer.drain(TIMEOUT_S)
        assert await consumer.poll(lock_s) == []
    assert {(each.reason, each.confirmed) for each in losses.values()} == (
        set() if renews else {("expired", False)}
    )
    counts = [1] if renews else [1, 2]
    assert sorted(seen) == [(offset, count) for offset in range(10) for count in counts]


async def test_workers_of_older_brokers_leave_no_record(preview: Queue) -> None:
    await preview.fill(40)
    async with preview.consumer() as consumer:
        done: list[bytes] = []

        async def handle(record: Any) -> None:
            done.append(record.value)
            if len(done) == 40:
                consumer.stop()

        await asyncio.wait_for(consumer.run(handle), 60)
    assert sorted(map(int, done)) == list(range(40))


async def test_starts_of_groups_are_stored_or_refused_with_what_to_do(
    older: KafkaCluster, preview: Queue
) -> None:
    stores = older.distribution.version != PREVIEW
    group, topic, tp = f"starts-of-{preview.topic}", preview.topic, TopicPartition(preview.topic, 0)
    await preview.fill(5)
    created = await preview.admin.create_share_group(group, [topic], "latest")
    altered = await preview.admin.alter_share_group_offsets(group, {tp: 2})
    if stores:
        assert created.raise_for_errors()[tp].after == 5
        altered.raise_for_errors()
        offsets = (await preview.admin.list_share_group_offsets([group])).raise_for_errors()
        assert offsets[group][tp].start_offset == 2
    else:
        for error in (created.errors[tp], altered.errors[tp]):
            assert isinstance(error, UnsupportedVersionError)
            assert "Upgrade the brokers to Kafka 4.2 or later." in str(error)
        # The configuration that the error names says where the group starts.
        assert "share.auto.offset.reset" in str(created.errors[tp])
        preview.group = group
        await preview.configure(auto_offset_reset="earliest")
        async with preview.consumer() as consumer:
            records = await take(consumer, 5, tracked=True)
            assert consumer.done(records)
            assert set((await consumer.commit()).values()) == {None}
        # Members have stored a start, which these brokers do not change either.
        altered = await preview.admin.alter_share_group_offsets(group, {tp: 2})
        assert isinstance(altered[tp], UnsupportedVersionError)
    deleted = await preview.admin.delete_share_group_offsets(group, [topic])
    assert deleted.raise_for_errors() == {topic: None}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("share_crew") as nursery:
        yield nursery


@pytest.mark.parametrize("distribution", SHARING[1:], ids=lambda found: found.version)
async def test_each_record_of_older_brokers_ends_as_its_handlers_say(
    java: str, nursery: Nursery, distribution: Distribution
) -> None:
    properties = {"group.share.delivery.count.limit": 10, "broker.session.timeout.ms": 3000}
    with KafkaCluster(distribution, brokers=3, properties=properties) as cluster:
        for seed in (1, 2):
            async with Crew(RealSite(cluster), nursery, seed, most=10, is_older=True) as crew:
                await crew.fill(30)
                audit = await crew.run([""] * 15, 30)
            print(f"\n{crew.describe()}\n{audit.summarize()}")  # noqa: T201
            assert audit.violations == []
            cluster.heal()


@pytest.mark.parametrize("distribution", DISABLED, ids=lambda found: found.version)
async def test_disabled_share_groups_are_told_until_they_are_enabled(
    java: str, distribution: Distribution
) -> None:
    with KafkaCluster(distribution) as cluster:
        topic = cluster.create_topic()
        async with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            with pytest.raises(UnsupportedVersionError, match=r"share\.version"):
                (await admin.create_share_group("g", [topic], "earliest")).raise_for_errors()
            queue = Queue(cluster.bootstrap, topic, "g", admin)
            with pytest.raises(UnsupportedVersionError, match=r"share\.version"):
                async with queue.consumer():
                    pass
            (await admin.update_features({"share.version": 1})).raise_for_errors()
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    if "share.version" in (await admin.describe_features()).finalized:
                        break
                    await asyncio.sleep(0.1)
            await queue.configure(auto_offset_reset="earliest")
            await queue.fill(3)
            async with queue.consumer() as consumer:
                records = await take(consumer, 3, tracked=True)
                assert consumer.done(records)
                assert set((await consumer.commit()).values()) == {None}


@pytest.fixture(scope="module")
def small(java: str) -> Iterator[KafkaCluster]:
    """One broker whose share groups have at most two members, and whose cleaner never rests."""
    properties = {"group.share.max.size": 2, "log.cleaner.backoff.ms": 100}
    with KafkaCluster(KAFKA, properties=properties) as cluster:
        yield cluster


async def test_a_real_group_that_is_full_is_joined_when_a_member_leaves(
    small: KafkaCluster,
) -> None:
    async with queue_on(small.bootstrap, small.create_topic()) as queue:
        await queue.fill(10)
        async with queue.consumer() as first, queue.consumer(max_poll_records=1) as second:
            async with queue.consumer() as third:
                async with asyncio.timeout(TIMEOUT_S):
                    while not any(
                        each.startswith("group is full") for each in third.health().reasons
                    ):
                        assert await third.poll(0.1) == []
                await first.close()
                records = await take(third, 10, tracked=True)
                assert third.done(records)
                assert set((await third.commit()).values()) == {None}
            assert await second.poll(0.0) == []
        assert await queue.lag() == 0


async def test_records_that_compaction_has_left_are_shared(small: KafkaCluster) -> None:
    compact = {"cleanup.policy": "compact", "segment.ms": 60_000, "min.cleanable.dirty.ratio": 0.01}
    async with queue_on(small.bootstrap, small.create_topic(configs=compact)) as queue:
        now = time.time_ns() // 1_000_000
        async with Producer(**queue.options) as producer:
            for batch in range(10):
                await producer.gather(
                    producer.send(
                        queue.topic, b"%d" % batch, b"%d" % key, partition=0, timestamp=now
                    )
                    for key in range(batch % 3, batch % 3 + 5)
                )
            # Its time begins another segment, and only the former ones are compacted.
            await producer.send(queue.topic, b"end", b"end", partition=0, timestamp=now + 300_000)
        tp, left = TopicPartition(queue.topic, 0), list(range(51))
        async with asyncio.timeout(120):
            while len(left) == 51:
                left = await read_offsets(queue, tp)
        assert len(left) == 8
        async with queue.consumer() as consumer:
            records = await take(consumer, len(left), tracked=True)
            assert [record.offset for record in records] == left
            assert consumer.done(records)
            assert set((await consumer.commit()).values()) == {None}
            async with asyncio.timeout(TIMEOUT_S):
                while await queue.lag() != 0:
                    assert await consumer.poll(0.2, tracked=True) == []


async def read_offsets(queue: Queue, tp: TopicPartition) -> list[int]:
    """Return the offsets of the records that a topic has."""
    async with Consumer[Any, Any](auto_offset_reset="earliest", **queue.options) as consumer:
        consumer.assign([tp])
        return [record.offset async for record in consumer.until_end()]


@pytest.mark.fault(32)
async def test_batches_that_are_damaged_on_disk_are_told_and_rejected(small: KafkaCluster) -> None:
    async with queue_on(small.bootstrap, small.create_topic()) as queue:
        async with Producer(**queue.options) as producer:
            for word in (b"first", b"damaged", b"last"):
                await producer.gather(
                    producer.send(queue.topic, b"%s-%d" % (word, number), partition=0)
                    for number in range(5)
                )
        log = Path(small.list_log_dirs(1)[0], f"{queue.topic}-0", f"{0:020}.log")
        await asyncio.to_thread(damage, log, b"damaged-2")
        values: list[bytes] = []
        errors: list[CorruptBatchError] = []
        async with queue.consumer() as consumer, asyncio.timeout(60):
            while len(values) < 10 or len(errors) < 2:
                try:
                    records = await consumer.poll(1.0, tracked=True)
                except CorruptBatchError as error:
                    errors.append(error)
                else:
                    values += [record.value for record in records]
                    assert consumer.done(records) or not records
            assert set((await consumer.commit()).values()) <= {None}
            while await queue.lag() != 0:
                assert await consumer.poll(0.2, tracked=True) == []
        words = (b"first", b"last")
        assert sorted(values) == [b"%s-%d" % (word, n) for word in words for n in range(5)]
        assert {(error.topic_partition, error.offset) for error in errors} == {
            (TopicPartition(queue.topic, 0), 5)
        }


def damage(log: Path, value: bytes) -> None:
    """Change a byte of a value in the file of a log."""
    with log.open("r+b") as file:
        place = file.read().index(value)
        file.seek(place)
        file.write(b"D")

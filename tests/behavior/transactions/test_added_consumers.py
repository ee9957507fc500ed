"""`tx.add(consumer)` on the embedded cluster and on Kafka, for every group protocol."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from open_transactions import none_open

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import ApplicationRecoverableError, IllegalStateError

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300},
    "cooperative": {
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 300,
    },
    "kip848": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Work:
    """A filled input topic of two partitions, an output topic, and a group."""

    def __init__(self, servers: Any, source: str, target: str) -> None:
        self.bootstrap = servers.bootstrap
        self.source, self.target = source, target
        self.group = f"g-{uuid.uuid4().hex[:8]}"

    def consumer(self, protocol: str, **options: Any) -> Consumer[bytes, bytes]:
        given = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **options}
        return Consumer(
            self.source,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            **PROTOCOLS[protocol],
            **given,
        )

    def producer(self) -> Producer[Any, Any]:
        return Producer(bootstrap_servers=self.bootstrap, transactional_id=self.group)

    async def results(self) -> list[int]:
        await none_open(self.bootstrap, self.target, [0])
        async with Consumer(
            self.target,
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            return sorted([int(record.value) async for record in consumer.until_end()])


@pytest.fixture
async def work(cluster_servers: Any) -> Work:
    source, target = await cluster_servers.new_topic(2), await cluster_servers.new_topic(1)
    async with Producer(bootstrap_servers=cluster_servers.bootstrap) as producer:
        for number in range(20):
            producer.send(source, b"%d" % number, partition=number % 2)
        await producer.flush()
    return Work(cluster_servers, source, target)


async def read(consumer: Consumer[bytes, bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            records = await consumer.poll(max_records=count - len(found))
            found += [record.value for record in records]
    return found


@every_protocol
async def test_a_commit_includes_what_was_consumed_and_an_abort_goes_back(
    work: Work, protocol: str
) -> None:
    async with work.consumer(protocol) as consumer, work.producer() as producer:

        async def fail() -> None:
            async with producer.transaction() as tx:
                tx.add(consumer)
                for value in await read(consumer, 15):
                    tx.send(work.target, value)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        stored = await consumer.committed(consumer.assignment())
        assert set(stored.values()) == {None}
        async with producer.transaction() as tx:
            tx.add(consumer)
            for value in await read(consumer, 20):
                tx.send(work.target, value)
        stored = await consumer.committed(consumer.assignment())
        assert sorted(to.offset for to in stored.values() if to is not None) == [10, 10]
        # The committed transaction counts as a commit, so the next one has nothing to commit.
        await producer.begin_transaction()
        assert producer.last_transaction is not None
        producer.last_transaction.add(consumer)
        await producer.abort_transaction()
        assert await consumer.poll(timeout=0.3) == []
    assert await work.results() == list(range(20))


@every_protocol
async def test_a_commit_fails_after_another_member_got_a_partition(
    work: Work, protocol: str
) -> None:
    async with work.consumer(protocol) as one, work.producer() as producer:
        await producer.begin_transaction()
        assert producer.last_transaction is not None
        producer.last_transaction.add(one)
        for value in await read(one, 20):
            producer.send(work.target, value)
        async with work.consumer(protocol) as two:
            async with asyncio.timeout(60):
                while len(two.assignment()) != 1 or len(one.assignment()) != 1:
                    await one.poll(timeout=0.1)
            with pytest.raises(ApplicationRecoverableError):
                await producer.commit_transaction()
            await producer.restart()
            # Each member reads the records of its own partition again.
            async with producer.transaction() as tx:
                tx.add(one)
                tx.add(two)
                for value in [*await read(one, 10), *await read(two, 10)]:
                    tx.send(work.target, value)
    assert await work.results() == list(range(20))


@pytest.mark.parametrize("protocol", ["cooperative", "kip848"])
async def test_a_rebalance_that_takes_nothing_away_does_no_harm(work: Work, protocol: str) -> None:
    async with work.consumer(protocol) as one, work.producer() as producer:
        other = work.consumer(protocol)
        async with started_beside(other) as start, producer.transaction() as tx:
            tx.add(one)
            records = await one.poll(timeout=60)
            for record in records:
                tx.send(work.target, record.value)
            before = one.group_metadata()
            joining = start()
            async with asyncio.timeout(60):
                # Wait until the rebalance has begun: there is a new generation, or the coordinator
                # has the new member. The partitions of the records in progress are not revoked yet.
                while one.group_metadata() == before and not member_of(other):
                    await asyncio.wait([joining], timeout=0.01)
            assert len(one.assignment()) == 2
    assert len(await work.results()) == len(records) > 0


@contextlib.asynccontextmanager
async def started_beside(
    other: Consumer[bytes, bytes],
) -> AsyncIterator[Callable[[], asyncio.Task[Any]]]:
    """Yield a function that starts a consumer in a task. At the end, close it in all cases."""
    tasks: list[asyncio.Task[Any]] = []

    def start() -> asyncio.Task[Any]:
        tasks.append(asyncio.create_task(other.start()))
        return tasks[0]

    try:
        yield start
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await other.close()


def member_of(consumer: Consumer[bytes, bytes]) -> bool:
    """Return whether this consumer is a member of the group."""
    group = consumer._engine and consumer._engine.group
    return bool(group and group.membership.metadata.member_id)


async def test_a_partition_that_was_assigned_by_hand_is_committed(work: Work) -> None:
    consumer = Consumer(
        bootstrap_servers=work.bootstrap,
        group_id=work.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    tp = TopicPartition(work.source, 0)
    consumer.assign([tp])
    async with consumer, work.producer() as producer:
        async with producer.transaction() as tx:
            tx.add(consumer)
            await read(consumer, 4)
        stored = await consumer.committed([tp])
        assert stored[tp] is not None
        assert stored[tp].offset == 4


async def test_a_transaction_that_fails_before_its_end_loses_no_record(work: Work) -> None:
    """Each second transaction fails in its body, at a record that was already read."""
    async with work.consumer("eager") as consumer, work.producer() as producer:
        read_in_vain: list[bytes] = []

        async def copy(fail: bool) -> int:
            async with producer.transaction() as tx:
                tx.add(consumer)
                values = await read(consumer, 4)
                for value in values:
                    tx.send(work.target, value)
                if fail:
                    read_in_vain.extend(values)
                    raise ZeroDivisionError
            return len(values)

        copied = 0
        while copied < 20:
            with pytest.raises(ZeroDivisionError):
                await copy(fail=True)
            copied += await copy(fail=False)
        assert len(read_in_vain) == 20
    assert await work.results() == list(range(20))


async def test_adding_after_a_read_raises_and_the_records_are_read_again(work: Work) -> None:
    async with work.consumer("eager") as consumer, work.producer() as producer:
        await producer.begin_transaction()
        tx = producer.last_transaction
        assert tx is not None
        values = await read(consumer, 3)
        with pytest.raises(IllegalStateError, match="before the first read"):
            tx.add(consumer)
        # The transaction is still open, and the consumer is not a part of it.
        await tx.send(work.target, b"1")
        await producer.commit_transaction()
        stored = await consumer.committed(consumer.assignment())
        assert set(stored.values()) == {None}
        # The records that were delivered before the next transaction belong to it.
        async with producer.transaction() as tx:
            tx.add(consumer)
            tx.add(consumer)  # Adding it again is allowed, also after a read.
            for value in [*values, *await read(consumer, 17)]:
                tx.send(work.target, value)
            tx.add(consumer)
        stored = await consumer.committed(consumer.assignment())
        assert sorted(to.offset for to in stored.values() if to is not None) == [10, 10]
    assert await work.results() == sorted([1, *range(20)])


async def test_adding_requires_a_group_without_automatic_commits(work: Work) -> None:
    async with (
        Consumer(work.source, bootstrap_servers=work.bootstrap) as alone,
        work.consumer("eager", enable_auto_commit=True) as automatic,
        work.producer() as producer,
        producer.transaction() as tx,
    ):
        with pytest.raises(IllegalStateError, match="group_id"):
            tx.add(alone)
        with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
            tx.add(automatic)

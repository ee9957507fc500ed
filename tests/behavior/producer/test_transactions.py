"""Transactions as a program sees them, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from open_transactions import none_open

from aiokclient import (
    Consumer,
    Delivery,
    GroupMetadata,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import (
    ApplicationRecoverableError,
    ConfigError,
    IllegalStateError,
    InvalidConfigurationError,
    SerializationError,
    TransactionAbortableError,
    UsageError,
)

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED


class Site:
    """A topic of two partitions, and producers with a transactional id of their own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.id = f"{topic}-{uuid.uuid4().hex[:6]}"

    def producer(self, **options: Any) -> Producer[Any, Any]:
        return Producer(
            **{"bootstrap_servers": self.bootstrap, "transactional_id": self.id, **options}
        )

    async def read(self) -> list[bytes | None]:
        """Return the committed values, after all transactions have ended."""
        await none_open(self.bootstrap, self.topic, range(2))
        return await self.read_now()

    async def read_now(self, isolation_level: str = "read_committed") -> list[bytes | None]:
        """Return the values of all records up to the present end, partition by partition."""
        async with Consumer(
            bootstrap_servers=self.bootstrap,
            isolation_level=isolation_level,
            auto_offset_reset="earliest",
        ) as consumer:
            tps = [TopicPartition(self.topic, partition) for partition in range(2)]
            consumer.assign(tps)
            records = [record async for record in consumer.until_end()]
        return [record.value for tp in tps for record in records if record.partition == tp[1]]

    async def committed(self, group: str, partition: int = 0) -> OffsetAndMetadata | None:
        async with Consumer(bootstrap_servers=self.bootstrap, group_id=group) as consumer:
            tp = TopicPartition(self.topic, partition)
            return (await consumer.committed([tp]))[tp]


@pytest.fixture(params=["embedded", "kafka", "kafka_old"])
async def site(request: pytest.FixtureRequest) -> Site:
    """A topic on a cluster at level 2 of transaction.version, or on an older Kafka at level 0."""
    if request.param == "embedded":
        cluster = request.getfixturevalue("embedded_servers").kafka
    else:
        cluster = request.getfixturevalue(request.param)
    topic = await asyncio.to_thread(cluster.create_topic, None, 2)
    return Site(cluster.bootstrap, topic)


@pytest.fixture
async def producer(site: Site) -> AsyncIterator[Producer[Any, Any]]:
    async with site.producer() as producer:
        yield producer


async def test_a_transaction_commits_its_records_at_its_end(
    site: Site, producer: Producer[Any, Any]
) -> None:
    async with producer.transaction() as tx:
        assert tx.outcome is None
        assert producer.last_transaction is tx
        deliveries = [tx.send(site.topic, b"a%d" % i, partition=i % 2) for i in range(10)]
        await deliveries[0]
        assert await site.read_now() == []
    assert tx.outcome is COMMITTED
    assert all(delivery.done() for delivery in deliveries)
    assert sorted(await site.read()) == sorted(b"a%d" % i for i in range(10))  # type: ignore[type-var]


async def test_an_exception_aborts_the_transaction_and_propagates(
    site: Site, producer: Producer[Any, Any]
) -> None:
    tx = producer.transaction()
    deliveries: list[Delivery] = []

    async def body() -> None:
        async with tx:
            deliveries.append(tx.send(site.topic, b"written", partition=0))
            await deliveries[0]
            deliveries.append(tx.send(site.topic, b"unsent", partition=1))
            raise ValueError("the body")

    with pytest.raises(ValueError, match="the body"):
        await body()
    written, unsent = deliveries
    assert tx.outcome is ABORTED
    assert written.exception() is None
    assert isinstance(unsent.exception(), TransactionAbortableError)
    async with producer.transaction():
        producer.send(site.topic, b"next", partition=0)
    assert await site.read() == [b"next"]
    assert b"written" in await site.read_now("read_uncommitted")


async def test_a_cancellation_aborts_the_transaction(
    site: Site, producer: Producer[Any, Any]
) -> None:
    tx, sent = producer.transaction(), asyncio.Event()

    async def work() -> None:
        async with tx:
            await tx.send(site.topic, b"v", partition=0)
            sent.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await sent.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tx.outcome is ABORTED
    assert await site.read() == []


async def test_a_scope_of_anyio_aborts_the_transaction(
    site: Site, producer: Producer[Any, Any]
) -> None:
    with anyio.CancelScope() as scope:
        async with producer.transaction() as tx:
            await tx.send(site.topic, b"v", partition=0)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert tx.outcome is ABORTED
    assert await site.read() == []


async def test_separate_calls(site: Site, producer: Producer[Any, Any]) -> None:
    await producer.begin_transaction()
    producer.send(site.topic, b"one", partition=0)
    await producer.commit_transaction()
    assert producer.last_transaction is not None
    assert producer.last_transaction.outcome is COMMITTED
    await producer.begin_transaction()
    await producer.send(site.topic, b"two", partition=0)
    await producer.abort_transaction()
    await producer.abort_transaction()
    assert producer.last_transaction.outcome is ABORTED
    await producer.begin_transaction()
    producer.send_many(site.topic, [b"three", b"four"])
    await producer.send_all(site.topic, [b"five"])
    await producer.commit_transaction()
    assert sorted(await site.read()) == [b"five", b"four", b"one", b"three"]  # type: ignore[type-var]


async def test_a_transaction_without_records_needs_no_request(
    site: Site, producer: Producer[Any, Any]
) -> None:
    for leave in (producer.commit_transaction, producer.abort_transaction):
        before = producer.metrics()
        await producer.begin_transaction()
        await leave()
        name = "client.requests{api=EndTxn}"
        assert producer.metrics().get(name) == before.get(name)


async def test_offsets_are_committed_with_the_records(
    site: Site, producer: Producer[Any, Any]
) -> None:
    group, tp = f"g-{site.topic}", TopicPartition(site.topic, 0)
    async with producer.transaction() as tx:
        tx.send(site.topic, b"v", partition=0)
        await tx.send_offsets({tp: 1}, GroupMetadata(group))
        await tx.send_offsets({tp: OffsetAndMetadata(2, "note")}, GroupMetadata(group))
    assert await site.committed(group) == OffsetAndMetadata(2, "note")

    async def body() -> None:
        async with producer.transaction() as tx:
            await tx.send_offsets({tp: 5}, GroupMetadata(group))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await body()
    assert await site.committed(group) == OffsetAndMetadata(2, "note")


@pytest.mark.parametrize(
    "send",
    [
        lambda producer, topic: producer.send(topic, b"v"),
        lambda producer, topic: producer.send_many(topic, [b"v"]),
    ],
)
async def test_a_send_outside_a_transaction_is_refused(
    site: Site, producer: Producer[Any, Any], send: Callable[[Any, str], object]
) -> None:
    for _ in range(2):
        with pytest.raises(IllegalStateError, match=r"ready.*begin_transaction\(\)"):
            send(producer, site.topic)
        with pytest.raises(IllegalStateError):
            await producer.send_all(site.topic, [])
        with pytest.raises(IllegalStateError):
            await asyncio.wrap_future(producer.send_threadsafe(site.topic, b"v"))
        async with producer.transaction():
            send(producer, site.topic)
    assert len(await site.read()) == 2


async def test_calls_in_the_wrong_order_are_refused(
    site: Site, producer: Producer[Any, Any]
) -> None:
    tp = TopicPartition(site.topic, 0)
    for call in (
        producer.commit_transaction,
        producer.abort_transaction,
        lambda: producer.send_offsets_to_transaction({tp: 1}, GroupMetadata("g")),
    ):
        with pytest.raises(IllegalStateError, match=r"begin_transaction\(\)"):
            await call()
    async with producer.transaction() as tx:
        with pytest.raises(IllegalStateError, match=r"commit_transaction\(\)"):
            await producer.begin_transaction()
        with pytest.raises(TypeError):
            await tx.send_offsets([1], GroupMetadata("g"))
        with pytest.raises(SerializationError):
            tx.send(site.topic, "text")
        tx.send(site.topic, b"v")
    with pytest.raises(IllegalStateError, match=r"This one has ended \(committed\)\."):
        tx.send(site.topic, b"v")
    with pytest.raises(IllegalStateError, match="ended"):
        await tx.send_offsets({tp: 1}, GroupMetadata("g"))
    with pytest.raises(IllegalStateError, match="ended"):
        async with tx:
            pass
    assert await site.read() == [b"v"]


async def test_calls_of_a_producer_without_a_transactional_id(site: Site) -> None:
    async with site.producer(transactional_id=None) as producer:
        with pytest.raises(IllegalStateError, match="transactional_id"):
            producer.transaction()
        for call in (producer.begin_transaction, producer.restart, producer.abort_transaction):
            with pytest.raises(IllegalStateError, match="transactional_id"):
                await call()


@pytest.mark.fault(7)
async def test_a_second_producer_with_the_same_id_fences_the_first(site: Site) -> None:
    async with site.producer() as first:
        await first.begin_transaction()
        await first.send(site.topic, b"first", partition=0)
        async with site.producer() as second:
            with pytest.raises(ApplicationRecoverableError):
                await first.send(site.topic, b"late", partition=0)
            with pytest.raises(ApplicationRecoverableError):
                first.send(site.topic, b"later", partition=0)
            with pytest.raises(ApplicationRecoverableError):
                await first.commit_transaction()
            with pytest.raises(ApplicationRecoverableError):
                await first.begin_transaction()
            async with second.transaction():
                second.send(site.topic, b"second", partition=0)
        await first.restart()
        async with first.transaction():
            first.send(site.topic, b"restarted", partition=0)
    assert await site.read() == [b"second", b"restarted"]


async def test_restart_aborts_what_is_open(site: Site, producer: Producer[Any, Any]) -> None:
    await producer.begin_transaction()
    written = producer.send(site.topic, b"gone", partition=0)
    await written
    unsent = producer.send(site.topic, b"unsent", partition=0)
    await producer.restart()
    assert isinstance(unsent.exception(), TransactionAbortableError)
    assert producer.last_transaction is not None
    assert producer.last_transaction.outcome is ABORTED
    async with producer.transaction():
        producer.send(site.topic, b"next", partition=0)
    assert await site.read() == [b"next"]


async def test_a_transaction_that_takes_too_long_says_so(site: Site) -> None:
    async with site.producer(transaction_timeout_ms=1000) as producer:
        await producer.begin_transaction()
        await producer.send(site.topic, b"v", partition=0)
        async with asyncio.timeout(30):
            await none_open(site.bootstrap, site.topic, [0])  # The coordinator aborts it.
        with pytest.raises(ApplicationRecoverableError, match=r"transaction_timeout_ms \(1000\)"):
            await producer.commit_transaction()
        await producer.restart()
        async with producer.transaction():
            producer.send(site.topic, b"next", partition=0)
    assert await site.read() == [b"next"]


async def test_a_timeout_over_the_limit_of_the_brokers_is_refused(site: Site) -> None:
    with pytest.raises(InvalidConfigurationError, match="transaction_timeout_ms"):
        await site.producer(transaction_timeout_ms=2**31 - 1).start()


@pytest.mark.parametrize(
    "options", [{"acks": 1}, {"enable_idempotence": False}, {"transactional_id": ""}]
)
def test_options_that_contradict_transactions(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Producer(**{"bootstrap_servers": "h:1", "transactional_id": "t", **options})


async def test_a_commit_raises_what_nobody_awaited(
    site: Site, producer: Producer[Any, Any]
) -> None:
    async with site.producer(max_request_size=8_000_000) as large:
        tx = large.transaction()

        async def body() -> None:
            async with tx:
                tx.send(site.topic, b"fine", partition=0)
                tx.send(site.topic, bytes(4_000_000), partition=1)

        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
            await body()
        assert tx.outcome is ABORTED
    assert await site.read() == []


async def test_a_refused_send_does_not_fail_the_transaction(
    site: Site, producer: Producer[Any, Any]
) -> None:
    async with producer.transaction() as tx:
        tx.send(site.topic, b"v", partition=0)
        with pytest.raises((UsageError, SerializationError, TypeError)):
            tx.send(site.topic, b"v", partition="0")  # type: ignore[arg-type]
    assert tx.outcome is COMMITTED
    assert await site.read() == [b"v"]


async def test_closing_aborts_the_open_transaction(site: Site) -> None:
    producer = site.producer()
    await producer.start()
    await producer.begin_transaction()
    await producer.send(site.topic, b"v", partition=0)
    await producer.close()
    assert producer.last_transaction is not None
    assert producer.last_transaction.outcome is ABORTED
    assert await site.read() == []


async def test_records_keep_their_order_over_many_transactions(
    site: Site, producer: Producer[Any, Any]
) -> None:
    sent = []
    for number in range(20):
        try:
            async with producer.transaction() as tx:
                values = [b"%d-%d" % (number, i) for i in range(50)]
                for value in values:
                    tx.send(site.topic, value, partition=0)
                if number % 4 == 3:
                    raise ValueError("no")
        except ValueError:
            continue
        sent += values
    assert await site.read() == sent

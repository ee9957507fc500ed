"""The end of a transaction that lost a record, or that was ended before its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokclient import (
    Client,
    Consumer,
    Producer,
    TopicPartition,
    TransactionOutcome,
    transform,
)
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    BufferExhaustedError,
    ClosedError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

pa = pytest.importorskip("pyarrow")
COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
MISSING = 7


@pytest.fixture(params=[0, 2], ids=["level 0", "level 2"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    topics = {"in": 1, "out": 2}
    async with EmbeddedCluster(topics=topics, transaction_version=request.param) as cluster:
        yield cluster


def producer_of(cluster: EmbeddedCluster, **options: Any) -> Producer[Any, Any]:
    return Producer(
        **{"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "t-1", **options}
    )


def consumer_of(cluster: EmbeddedCluster) -> Consumer[Any, Any]:
    return Consumer(
        "in",
        group_id="g",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        bootstrap_servers=cluster.bootstrap_servers,
    )


async def committed(cluster: EmbeddedCluster) -> list[bytes | None]:
    async with Consumer(
        "out",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        bootstrap_servers=cluster.bootstrap_servers,
    ) as consumer:
        return sorted([record.value async for record in consumer.until_end()])


@pytest.mark.parametrize("awaited", [False, True])
async def test_commit_raises_for_a_missing_partition_of_a_topic_not_yet_known(
    cluster: EmbeddedCluster, awaited: bool
) -> None:
    async with producer_of(cluster) as producer:
        with pytest.raises(TransactionAbortableError) as raised:  # noqa: PT012 - the end of the block raises
            async with producer.transaction() as tx:
                tx.send("out", b"kept out", partition=0)
                delivery = tx.send("out", b"lost", partition=MISSING)
                if awaited:
                    await delivery
        assert isinstance(raised.value.__cause__, UnknownTopicOrPartitionError)
        assert raised.value.topic_partition == TopicPartition("out", MISSING)
        assert isinstance(delivery.exception(), TransactionAbortableError)
        assert tx.outcome is ABORTED
        async with producer.transaction() as tx:
            tx.send("out", b"next")
    assert await committed(cluster) == [b"next"]


async def test_commit_raises_what_a_partitioner_raised_for_a_topic_not_yet_known(
    cluster: EmbeddedCluster,
) -> None:
    def partitioner(key: Any, partitions: Any, available: Any) -> int:
        if key == b"bad":
            raise LookupError("no such customer")
        return 0

    async with producer_of(cluster, partitioner=partitioner) as producer:
        with pytest.raises(TransactionAbortableError, match="no such customer") as caught:  # noqa: PT012 - the end of the block raises
            async with producer.transaction() as tx:
                tx.send("out", b"kept out", key=b"good")
                tx.send("out", b"lost", key=b"bad")
        assert isinstance(caught.value.__cause__, SerializationError)
        assert tx.outcome is ABORTED
    assert await committed(cluster) == []


async def test_transform_delivers_a_batch_again_after_a_record_for_a_missing_partition(
    cluster: EmbeddedCluster,
) -> None:
    cluster.produce("in", [b"1", b"2"])
    partitions = [MISSING, 0]
    async with (
        producer_of(cluster, retry_backoff_ms=1) as producer,
        consumer_of(cluster) as consumer,
        transform(consumer, producer) as stream,
    ):
        async for batch in stream:
            partition = partitions.pop(0)
            for record in batch:
                batch.send("out", record.value, partition=partition)
            if not partitions:
                consumer.stop()
    assert await committed(cluster) == [b"1", b"2"]


@pytest.mark.parametrize("closed", ["producer", "client"])
async def test_leaving_a_transaction_raises_if_the_producer_was_closed_in_its_body(
    cluster: EmbeddedCluster, closed: str
) -> None:
    client = Client(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    producer = Producer(client=client, transactional_id="t-1")
    await producer.start()
    cluster.produce("in", [b"1"])
    async with consumer_of(cluster) as consumer:
        with pytest.raises(ClosedError):  # noqa: PT012 - the end of the block raises
            async with producer.transaction() as tx:
                tx.add(consumer)
                assert await consumer.get(10.0) is not None
                await tx.send("out", b"lost")
                await {"producer": producer, "client": client}[closed].close()
        assert tx.outcome is ABORTED
        # The records of the transaction are read again.
        again = await consumer.get(10.0)
        assert again is not None
        assert again.value == b"1"
    await client.close()
    assert await committed(cluster) == []


async def test_transform_raises_if_the_producer_was_closed_in_the_loop(
    cluster: EmbeddedCluster,
) -> None:
    cluster.produce("in", [b"1"])
    producer = producer_of(cluster)
    await producer.start()
    async with consumer_of(cluster) as consumer:
        with pytest.raises(ClosedError):  # noqa: PT012 - the end of the block raises
            async with asyncio.timeout(10), transform(consumer, producer) as stream:
                async for batch in stream:
                    batch.send("out", b"lost")
                    await producer.close()
        again = await consumer.get(10.0)
        assert again is not None
        assert again.value == b"1"
    assert await committed(cluster) == []


async def test_transform_of_clients_that_are_not_started_raises_when_it_is_entered(
    cluster: EmbeddedCluster,
) -> None:
    producer, consumer = producer_of(cluster), consumer_of(cluster)
    stream = transform(consumer, producer)
    with pytest.raises(IllegalStateError, match="Producer is not started"):
        await stream.__aenter__()
    cluster.produce("in", [b"1"])
    async with producer, consumer, stream:
        async for batch in stream:
            batch.send("out", b"1")
            consumer.stop()
    assert await committed(cluster) == [b"1"]


async def test_leaving_a_transaction_that_is_being_aborted_does_not_raise(
    cluster: EmbeddedCluster,
) -> None:
    async with producer_of(cluster) as producer:
        with cluster.delay(ApiKey.END_TXN, 1.0):
            async with producer.transaction() as tx:
                await tx.send("out", b"kept out")
                await producer.abort_transaction(timeout=0.01)
                assert tx.outcome is UNKNOWN
        async with producer.transaction():
            producer.send("out", b"next")
        assert tx.outcome is ABORTED
    assert await committed(cluster) == [b"next"]


@pytest.mark.parametrize("sent", [False, True], ids=["before the commit", "during the commit"])
async def test_a_transaction_of_a_closed_producer_has_an_outcome(
    cluster: EmbeddedCluster, sent: bool
) -> None:
    producer = producer_of(cluster)
    await producer.start()
    await producer.begin_transaction()
    await producer.send("out", b"1")
    tx = producer.last_transaction
    assert tx is not None
    with cluster.delay(ApiKey.END_TXN, 0.5):
        if sent:
            commit = asyncio.create_task(producer.commit_transaction())
            await cluster.until(
                lambda: any(each.api is ApiKey.END_TXN for each in cluster.requests)
            )
            assert tx.outcome is None
        await producer.close(0)
        if sent:
            with pytest.raises(ClosedError):
                await commit
    assert tx.outcome is (UNKNOWN if sent else ABORTED)


ROOM = 200_000
"""The `buffer_memory` of a producer, in bytes. The overflow queue has the same size."""


def fill(tx: Any) -> None:
    while True:
        tx.send("out", b"x" * (ROOM // 10))


REFUSED: dict[str, tuple[Callable[[Any, Producer[Any, Any]], Any], type[KafkaError]]] = {
    "too large": (lambda tx, _: tx.send("out", b"x" * ROOM), RecordTooLargeError),
    "too large, many": (
        lambda _, producer: producer.send_many("out", [b"x" * ROOM]),
        RecordTooLargeError,
    ),
    "too large, with a key": (
        lambda _, producer: producer.send_many("out", [(b"k", b"x" * ROOM)]),
        RecordTooLargeError,
    ),
    "negative": (lambda tx, _: tx.send("out", b"v", partition=-1), UnknownTopicOrPartitionError),
    "negative, Arrow": (
        lambda tx, _: tx.send_arrow(
            "out", pa.RecordBatch.from_pydict({"value": ["v"], "partition": [-7]})
        ),
        UnknownTopicOrPartitionError,
    ),
    "no room, Arrow": (
        lambda tx, _: tx.send_arrow(
            "out", pa.RecordBatch.from_pydict({"value": ["x" * 10_000] * 100})
        ),
        BufferExhaustedError,
    ),
    "no room": (lambda tx, _: fill(tx), BufferExhaustedError),
    "no room for many": (
        lambda _, producer: producer.send_many("out", [b"x" * 10_000] * 100),
        BufferExhaustedError,
    ),
}
"""Sends that raise at once: the call, and the class of its error outside of a transaction."""


@pytest.mark.parametrize("case", REFUSED)
async def test_send_that_is_refused_in_a_transaction_raises_an_abortable_error(
    cluster: EmbeddedCluster, case: str
) -> None:
    send, kind = REFUSED[case]
    async with producer_of(cluster, buffer_memory=ROOM) as producer:
        await producer.prepare("out")
        async with producer.transaction() as tx:
            tx.send("out", b"first")
            with pytest.raises(kind) as raised:
                send(tx, producer)
            assert isinstance(raised.value, AbortableError)
            assert not isinstance(
                raised.value, ApplicationRecoverableError | InvalidConfigurationError
            )
            # The transaction continues without the refused record.
            await producer.drain()
            tx.send("out", b"last")
        assert tx.outcome is COMMITTED
        values = await committed(cluster)
        assert [value for value in values if value in (b"first", b"last")] == [b"first", b"last"]
        assert all(value is not None and len(value) < ROOM for value in values)

        with pytest.raises(kind):
            async with producer.transaction() as tx:
                send(tx, producer)
        assert tx.outcome is ABORTED


async def test_send_that_is_refused_without_a_transactional_id_raises_no_abortable_error(
    cluster: EmbeddedCluster,
) -> None:
    async with producer_of(cluster, transactional_id=None, buffer_memory=ROOM) as producer:
        await producer.prepare("out")
        for send, kind in REFUSED.values():
            with pytest.raises(kind) as raised:
                send(producer, producer)
            assert type(raised.value) is kind

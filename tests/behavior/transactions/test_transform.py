"""`transform`: each batch is consumed, transformed, and produced in one transaction."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
from open_transactions import none_open

from aiokclient import Consumer, Producer, transform
from aiokclient.errors import AbortableError, IllegalStateError, InvalidConfigurationError
from aiokclient.producer.transaction.status import TransactionOutcome

Servers = Any

PROTOCOLS = {
    "eager": {"partition_assignment_strategy": "range"},
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "kip848": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Work:
    """An input topic with records, an output topic, a group, and a transactional id."""

    def __init__(self, servers: Servers, source: str, target: str) -> None:
        self.servers, self.source, self.target = servers, source, target
        self.group = self.transactional_id = f"g-{uuid.uuid4().hex[:8]}"

    @asynccontextmanager
    async def clients(
        self, **options: Any
    ) -> AsyncIterator[tuple[Consumer[bytes, bytes], Producer[Any, Any]]]:
        given = {"group_protocol": "classic", **options}
        if given["group_protocol"] == "classic":
            given |= {"heartbeat_interval_ms": 500}
        async with (
            Consumer(
                self.source,
                bootstrap_servers=self.servers.bootstrap,
                group_id=self.group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                **given,
            ) as consumer,
            Producer(
                bootstrap_servers=self.servers.bootstrap, transactional_id=self.transactional_id
            ) as producer,
        ):
            yield consumer, producer

    async def results(self) -> list[bytes]:
        """Return the committed values in the output topic, after all transactions have ended."""
        await none_open(self.servers.bootstrap, self.target, [0])
        async with Consumer(
            self.target,
            bootstrap_servers=self.servers.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            return [record.value async for record in consumer.until_end()]


async def made(servers: Servers, count: int, partitions: int = 2) -> Work:
    source, target = await servers.new_topic(partitions), await servers.new_topic(1)
    async with Producer(bootstrap_servers=servers.bootstrap) as producer:
        for number in range(count):
            producer.send(source, b"%d" % number, partition=number % partitions)
        await producer.flush()
    return Work(servers, source, target)


def numbers(values: list[bytes]) -> list[int]:
    return sorted(int(value) for value in values)


@every_protocol
async def test_every_record_is_transformed_once(cluster_servers: Servers, protocol: str) -> None:
    work = await made(cluster_servers, 100)
    async with work.clients(**PROTOCOLS[protocol]) as (consumer, producer):
        seen = 0
        async with transform(consumer, producer, max_records=10) as stream:
            async for batch in stream:
                assert 0 < len(batch) <= 10
                for record in batch:
                    batch.send(work.target, record.value)
                seen += len(batch)
                if seen == 100:
                    consumer.stop()
        stored = await consumer.committed(consumer.assignment())
        assert sorted(to.offset for to in stored.values() if to is not None) == [50, 50]
    assert numbers(await work.results()) == list(range(100))


async def test_a_batch_that_the_loop_leaves_is_delivered_again(cluster_servers: Servers) -> None:
    work = await made(cluster_servers, 20, partitions=1)
    async with work.clients() as (consumer, producer):
        batches = []
        for leave in ("break", "raise", "finish"):
            with pytest.raises(ZeroDivisionError) if leave == "raise" else nullcontext():
                async with transform(consumer, producer, max_records=5) as stream:
                    async for batch in stream:
                        batches.append([record.offset for record in batch])
                        for record in batch:
                            batch.send(work.target, record.value)
                        if leave == "break":
                            break
                        if leave == "raise":
                            raise ZeroDivisionError
                        if batches[-1][-1] == 19:
                            consumer.stop()
        assert batches[0] == batches[1] == batches[2] == [0, 1, 2, 3, 4]
    assert numbers(await work.results()) == list(range(20))


async def test_after_an_abortable_error_the_batch_is_delivered_again(
    cluster_servers: Servers,
) -> None:
    work = await made(cluster_servers, 20, partitions=1)
    work.target = await cluster_servers.new_topic(1, configs={"max.message.bytes": 1000})
    async with work.clients() as (consumer, producer):
        batches = []
        async with transform(consumer, producer, max_records=5) as stream:
            async for batch in stream:
                batches.append([record.offset for record in batch])
                for record in batch:
                    batch.send(work.target, record.value)
                if len(batches) == 2:
                    refused = batch.send(work.target, bytes(5000))
                    with pytest.raises(AbortableError):
                        await refused
                    # The body goes on, but later sends in this transaction fail.
                    later = batch.send(work.target, b"later")
                    assert isinstance(later.exception(), AbortableError)
                if batches[-1][-1] == 19:
                    consumer.stop()
    assert batches[1] == batches[2] == [5, 6, 7, 8, 9]
    assert len(batches) == 5
    assert numbers(await work.results()) == list(range(20))


async def test_transform_restarts_the_producer_after_an_application_recoverable_error(
    cluster_servers: Servers,
) -> None:
    work = await made(cluster_servers, 20, partitions=1)
    async with work.clients() as (consumer, producer):
        batches = []
        async with transform(consumer, producer, max_records=5) as stream:
            async for batch in stream:
                batches.append([record.offset for record in batch])
                for record in batch:
                    batch.send(work.target, record.value)
                if len(batches) == 2:
                    # Another producer with the same id takes over, and ends the transaction.
                    async with Producer(
                        bootstrap_servers=work.servers.bootstrap,
                        transactional_id=work.transactional_id,
                    ):
                        pass
                if batches[-1][-1] == 19:
                    consumer.stop()
    assert batches[1] == batches[2] == [5, 6, 7, 8, 9]
    assert numbers(await work.results()) == list(range(20))


async def test_other_errors_leave_the_loop(cluster_servers: Servers) -> None:
    work = await made(cluster_servers, 5, partitions=1)
    async with work.clients() as (consumer, producer):

        async def misname() -> None:
            async with transform(consumer, producer) as stream:
                async for batch in stream:
                    batch.send("not a topic name", b"v")

        with pytest.raises(InvalidConfigurationError):
            await misname()
        assert producer.last_transaction is not None
        assert producer.last_transaction.outcome is TransactionOutcome.ABORTED
        record = await consumer.get()
        assert record is not None
        assert record.offset == 0


@every_protocol
async def test_every_record_is_processed_once_while_members_come_and_go(
    cluster_servers: Servers, protocol: str
) -> None:
    work = await made(cluster_servers, 200)
    found: list[int] = []

    async def run(number: int) -> None:
        mine = Work(work.servers, work.source, work.target)
        mine.group, mine.transactional_id = work.group, f"{work.group}-{number}"
        async with (
            mine.clients(**PROTOCOLS[protocol]) as (consumer, producer),
            transform(consumer, producer, max_records=3) as stream,
        ):
            async for batch in stream:
                for record in batch:
                    batch.send(work.target, record.value)
                await asyncio.sleep(0.01)

    members = [asyncio.create_task(run(0))]
    async with Consumer(
        work.target,
        bootstrap_servers=work.servers.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as results:
        while len(set(found)) < 200:
            if len(members) == 1 and len(found) > 20:
                members.append(asyncio.create_task(run(1)))
            if len(found) > 120:
                members[0].cancel()
            found += [int(record.value) for record in await results.poll(timeout=0.2)]
        for member in members:
            member.cancel()
        await asyncio.wait(members)
    assert all(member.cancelled() for member in members)
    assert numbers(await work.results()) == list(range(200))


async def test_entering_requires_a_transactional_id_and_a_group(cluster_servers: Servers) -> None:
    work = await made(cluster_servers, 1)
    servers = work.servers.bootstrap
    async with work.clients() as (consumer, producer):
        async with Producer(bootstrap_servers=servers) as plain:
            with pytest.raises(IllegalStateError, match="transactional_id"):
                async with transform(consumer, plain):
                    pass
        async with Consumer(work.source, bootstrap_servers=servers) as alone:
            with pytest.raises(IllegalStateError, match="group_id"):
                async with transform(alone, producer):
                    pass
        with pytest.raises(IllegalStateError, match="async with transform"):
            await anext(transform(consumer, producer))

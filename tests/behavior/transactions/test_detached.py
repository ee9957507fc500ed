"""Transactions that another process ends, on the embedded cluster and on two versions of Kafka."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from open_transactions import none_open

import aiokclient
from aiokclient import (
    Admin,
    Client,
    Consumer,
    DetachedTransaction,
    GroupMetadata,
    Producer,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import (
    ApplicationRecoverableError,
    ClosedError,
    IllegalStateError,
    TransactionAbortableError,
)

COMMITTED, ABORTED = TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED
PROGRAM = Path(__file__).resolve().parents[2] / "harness" / "detaching_producer.py"
DEADLINE = 60.0


class Site:
    """A topic of two partitions, a transactional id of its own, and a client."""

    def __init__(self, kind: str, bootstrap: str, topic: str, client: Client) -> None:
        self.kind, self.bootstrap, self.topic, self.client = kind, bootstrap, topic, client
        self.id = f"{topic}-{uuid.uuid4().hex[:6]}"

    def producer(self, **options: Any) -> Producer[Any, Any]:
        return Producer(
            **{"bootstrap_servers": self.bootstrap, "transactional_id": self.id, **options}
        )

    async def write(self, **options: Any) -> DetachedTransaction:
        """Write a transaction with two records and an offset, and close its producer."""
        async with self.producer(**options) as producer, producer.transaction() as tx:
            tx.send(self.topic, b"first", partition=0)
            tx.send(self.topic, b"second", partition=1)
            await tx.send_offsets({TopicPartition(self.topic, 0): 7}, GroupMetadata(self.id))
            return await tx.detach()

    async def read(self) -> list[bytes | None]:
        """Return the committed values, by partition, after all transactions have ended."""
        await none_open(self.bootstrap, self.topic, range(2))
        async with Consumer(
            bootstrap_servers=self.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            tps = [TopicPartition(self.topic, partition) for partition in range(2)]
            consumer.assign(tps)
            records = [record async for record in consumer.until_end()]
        return [record.value for tp in tps for record in records if record.partition == tp[1]]

    async def offset(self) -> int | None:
        async with Consumer(bootstrap_servers=self.bootstrap, group_id=self.id) as consumer:
            tp = TopicPartition(self.topic, 0)
            found = (await consumer.committed([tp]))[tp]
        return None if found is None else found.offset

    async def until(self, state: str) -> None:
        """Wait until the coordinator reports this state of the transactional id."""
        found = ""
        async with Admin(client=self.client) as admin, asyncio.timeout(DEADLINE):
            while found != state:
                found = (await admin.describe_transactions([self.id]))[self.id].state
                await asyncio.sleep(0.1)


@pytest.fixture(params=["embedded", "kafka", "kafka_old"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A topic on a cluster at level 2 of transaction.version, or on an older Kafka at level 0."""
    if request.param == "embedded":
        cluster = request.getfixturevalue("embedded_servers").kafka
    else:
        cluster = request.getfixturevalue(request.param)
    topic = await asyncio.to_thread(cluster.create_topic, None, 2)
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        yield Site(request.param, cluster.bootstrap, topic, client)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_end_transaction_ends_what_a_closed_producer_has_written(
    site: Site, commit: bool
) -> None:
    handle = pickle.loads(pickle.dumps(await site.write()))
    assert (handle.transactional_id, handle.epoch >= 0) == (site.id, True)
    outcome = await site.client.end_transaction(handle, commit)
    assert outcome is (COMMITTED if commit else ABORTED)
    assert await site.read() == ([b"first", b"second"] if commit else [])
    assert await site.offset() == (7 if commit else None)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_end_transaction_returns_the_first_outcome_when_it_is_repeated(
    site: Site, commit: bool
) -> None:
    handle = await site.write()
    outcome = COMMITTED if commit else ABORTED
    client = site.client
    found = [
        await client.end_transaction(handle, commit),
        await client.end_transaction(handle, commit),
        await client.end_transaction(handle, not commit),
        *await asyncio.gather(*(client.end_transaction(handle, commit=c) for c in (True, False))),
    ]
    assert found == [outcome] * 5
    assert await site.read() == ([b"first", b"second"] if commit else [])


async def test_end_transaction_commits_after_the_process_of_the_producer_was_killed(
    site: Site,
) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(aiokclient.__file__).parents[1])}
    arguments = (site.bootstrap, site.id, site.topic, site.id)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), *arguments, stdout=PIPE, env=env
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            line = await process.stdout.readline()
    finally:
        process.kill()
        await process.wait()
    handle = pickle.loads(bytes.fromhex(line.decode()))
    assert await site.client.end_transaction(handle) is COMMITTED
    assert await site.read() == [b"written", b"written"]
    assert await site.offset() == 7


async def test_end_transaction_finds_a_level_that_the_handle_does_not_have(site: Site) -> None:
    handle = await site.write()
    plain = DetachedTransaction(handle.transactional_id, handle.producer_id, handle.epoch)
    assert await site.client.end_transaction(plain) is COMMITTED
    assert await site.client.end_transaction(plain, commit=False) is COMMITTED


async def test_end_transaction_of_a_transaction_that_has_timed_out(site: Site) -> None:
    handle = await site.write(transaction_timeout_ms=1000)
    await site.until("CompleteAbort")
    for commit in (True, False):
        if site.kind == "kafka_old":
            with pytest.raises(ApplicationRecoverableError, match="longer than its timeout"):
                await site.client.end_transaction(handle, commit)
        else:
            assert await site.client.end_transaction(handle, commit) is ABORTED
    assert await site.read() == []


async def test_end_transaction_raises_after_a_newer_producer_has_started(site: Site) -> None:
    handle = await site.write()
    async with site.producer() as producer:
        for commit in (True, False):
            with pytest.raises(ApplicationRecoverableError, match="A newer producer"):
                await site.client.end_transaction(handle, commit)
        async with producer.transaction() as tx:
            tx.send(site.topic, b"newer", partition=0)
    with pytest.raises(ApplicationRecoverableError):
        await site.client.end_transaction(handle)
    assert await site.read() == [b"newer"]


async def test_a_detached_producer_can_only_be_closed_or_restarted(site: Site) -> None:
    async with site.producer() as producer:
        async with producer.transaction() as tx:
            tx.send(site.topic, b"detached", partition=0)
            handle = await tx.detach()
            for call in (
                lambda: tx.send(site.topic, b"late"),
                lambda: producer.send(site.topic, b"late"),
                lambda: producer.transaction().send(site.topic, b"late"),
            ):
                with pytest.raises(IllegalStateError):
                    call()
            for wait in (
                tx.detach,
                producer.begin_transaction,
                producer.commit_transaction,
                producer.abort_transaction,
            ):
                with pytest.raises(IllegalStateError):
                    await wait()
        assert tx.outcome is None
        await producer.restart()
        assert tx.outcome is ABORTED
        async with producer.transaction() as following:
            following.send(site.topic, b"following", partition=0)
        assert following.outcome is COMMITTED
        with pytest.raises(ApplicationRecoverableError):
            await site.client.end_transaction(handle)
    assert await site.read() == [b"following"]


async def test_a_restart_finds_out_that_another_client_has_committed(site: Site) -> None:
    async with site.producer() as producer:
        async with producer.transaction() as tx:
            tx.send(site.topic, b"kept", partition=0)
            handle = await tx.detach()
        assert await site.client.end_transaction(handle) is COMMITTED
        assert tx.outcome is None
        await producer.restart()
        assert tx.outcome is COMMITTED
    assert await site.read() == [b"kept"]


async def test_detach_raises_the_failure_of_a_delivery_and_the_exit_aborts(site: Site) -> None:
    async def work(producer: Producer[Any, Any]) -> None:
        async with producer.transaction() as tx:
            tx.send(site.topic, b"dropped", partition=0)
            tx.send(site.topic, b"x" * 2_000_000, partition=1)
            await tx.detach()

    async with site.producer(max_request_size=4_000_000) as producer:  # More than brokers accept.
        with pytest.raises(TransactionAbortableError):
            await work(producer)
        assert producer.last_transaction is not None
        assert producer.last_transaction.outcome is ABORTED
    assert await site.read() == []


async def test_an_empty_transaction_can_be_detached_and_ended(site: Site) -> None:
    async with site.producer() as producer, producer.transaction() as tx:
        handle = await tx.detach()
    assert handle.is_empty
    assert await site.client.end_transaction(handle) is COMMITTED
    assert await site.client.end_transaction(handle, commit=False) is ABORTED


async def test_end_transaction_refuses_wrong_arguments(site: Site) -> None:
    handle = DetachedTransaction(site.id, 1, 0)
    for arguments in ((site.id,), (None,), (handle, "no"), (handle, True, "soon")):
        with pytest.raises(TypeError):
            await site.client.end_transaction(*arguments)
    async with Client(bootstrap_servers=site.bootstrap) as client:
        pass
    with pytest.raises(ClosedError):
        await client.end_transaction(handle)


async def test_end_transaction_of_an_unknown_transaction_raises(site: Site) -> None:
    with pytest.raises(ApplicationRecoverableError):
        await site.client.end_transaction(DetachedTransaction(site.id, 1 << 40, 0))


async def test_detach_refuses_consumers_that_were_added(site: Site) -> None:
    options: dict[str, Any] = {"group_id": site.id, "enable_auto_commit": False}
    async with (
        Consumer(site.topic, bootstrap_servers=site.bootstrap, **options) as consumer,
        site.producer() as producer,
    ):
        await producer.begin_transaction()
        tx = producer.last_transaction
        assert tx is not None
        tx.add(consumer)
        with pytest.raises(IllegalStateError, match="send_offsets"):
            await tx.detach()
        await producer.abort_transaction()

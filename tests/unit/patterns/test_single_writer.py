"""Tests of a single writer, on the embedded cluster and on a real Kafka."""

import asyncio
import uuid
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from open_transactions import none_open

from aiokclient import Admin, Client, Consumer, Coordinator, Producer, State
from aiokclient.errors import (
    ApplicationRecoverableError,
    ClosedError,
    ConfigError,
    KafkaError,
    NotWriterError,
)
from aiokclient.patterns import single_writer, work_pool, writer
from aiokclient.protocol.messages import LeaveGroupRequest
from aiokclient.protocol.messages.leave_group import MemberIdentity

# A session timeout that never ends in a test, so that a silent member stays in the group.
QUICK: Any = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 100}
# If the writer joined again just before it was closed, the group keeps its membership until the
# session timeout.
STATIC: Any = {**QUICK, "session_timeout_ms": 6_000, "group_instance_id": "i"}


@pytest.fixture
def ledger() -> str:
    return f"ledger-{uuid.uuid4().hex[:12]}"


class Writing:
    """A task that competes to be the writer, and writes until it is stopped."""

    def __init__(self, group: str, topic: str, **options: Any) -> None:
        self.turns = 0
        self.writes = asyncio.Event()
        self.over = asyncio.Event()
        self.stopping = asyncio.Event()
        self.task = asyncio.create_task(self.run(group, topic, options))

    async def run(self, group: str, topic: str, options: dict[str, Any]) -> None:
        async with single_writer(group, **{**QUICK, **options}) as producer:
            try:
                await producer.send(topic, b"begins")
                self.writes.set()
                await self.stopping.wait()
                producer.send(topic, b"ends")
            finally:
                self.over.set()


async def test_one_writes_and_the_others_wait(cluster_servers: Any, ledger: str) -> None:
    topic = await cluster_servers.new_topic(1)
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    writings = [Writing(ledger, topic, **servers) for _ in range(3)]
    while writings:
        waits = [asyncio.create_task(each.writes.wait()) for each in writings]
        async with asyncio.timeout(60):
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        (writer,) = [each for each in writings if each.writes.is_set()]
        writer.stopping.set()
        await writer.task
        writings.remove(writer)
    async with Consumer(topic, auto_offset_reset="earliest", **servers) as consumer:
        values = [record.value async for record in consumer.until_end()]
    # Each writer has flushed all its records before the next writer begins.
    assert values == [b"begins", b"ends"] * 3


async def test_the_writer_stays_it_while_others_come_and_go(
    cluster_servers: Any, ledger: str
) -> None:
    topic = await cluster_servers.new_topic(1)
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    first = Writing(ledger, topic, **servers)
    await first.writes.wait()
    for _ in range(2):
        other = Writing(ledger, topic, **servers)
        with anyio.move_on_after(0.8):
            await other.writes.wait()
        assert not other.writes.is_set()
        assert not first.over.is_set()
        other.task.cancel()
        await asyncio.wait([other.task])
    first.stopping.set()
    await first.task


async def lose(client: Client, group: str) -> None:
    """Remove the static writer from its group, as if its session had ended."""
    member = MemberIdentity(group_instance_id="i")
    await client.request(
        LeaveGroupRequest(group_id=group, members=[member]), to=Coordinator("group", group)
    )


async def test_the_body_is_cancelled_when_the_group_has_lost_its_writer(
    cluster_servers: Any, ledger: str
) -> None:
    """The writer's body is cancelled and its producer is closed.

    It can wait to become the writer again.
    """
    topic = await cluster_servers.new_topic(1)
    seen: list[Producer[Any, Any]] = []

    async def write(client: Client) -> None:
        async with single_writer(ledger, client=client, **STATIC) as producer:
            seen.append(producer)
            await lose(client, ledger)
            await asyncio.Event().wait()

    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        with pytest.raises(NotWriterError, match=f"group {ledger}: .* no longer the single writer"):
            await write(client)
        with pytest.raises(ClosedError):
            await seen[0].send(topic, b"too late")
        async with single_writer(ledger, client=client, **QUICK) as producer:
            await producer.send(topic, b"again")


async def test_a_body_that_does_not_wait_is_told_by_its_sends(
    cluster_servers: Any, ledger: str
) -> None:
    topic = await cluster_servers.new_topic(1)

    async def write(client: Client) -> None:
        async with single_writer(ledger, client=client, **STATIC) as producer:
            with anyio.CancelScope(shield=True):
                await lose(client, ledger)
                for _ in range(100_000):
                    producer.send(topic, b"v")
                    await asyncio.sleep(0.001)

    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        with pytest.raises(NotWriterError):
            await write(client)


async def test_the_bodys_own_error_comes_through(cluster_servers: Any, ledger: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with single_writer(ledger, bootstrap_servers=cluster_servers.bootstrap, **QUICK):
            raise ZeroDivisionError


async def test_a_former_writer_cannot_commit_its_open_transaction(
    cluster_servers: Any, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep(*arguments: object) -> None:
        """Leave the producer of the former writer open, as a suspended process does."""

    monkeypatch.setattr(writer, "stop_producer", keep)
    topic = await cluster_servers.new_topic(1)
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    names: Any = {**servers, "transactional_id": ledger}
    fenced: list[Exception] = []

    async def first(begun: asyncio.Event, following: asyncio.Event) -> None:
        async with single_writer(ledger, **names, **STATIC) as producer:
            with anyio.CancelScope(shield=True):
                async with producer.transaction() as tx:
                    tx.send(topic, b"committed")
                await producer.begin_transaction()
                await producer.send(topic, b"too late")
                begun.set()
                await following.wait()
                for call in (producer.commit_transaction, producer.restart):
                    try:
                        await call()
                    except KafkaError as error:
                        fenced.append(error)

    begun, following = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(first(begun, following))
    await asyncio.wait_for(begun.wait(), 60)
    async with Client(**servers) as client:
        await lose(client, ledger)
    async with single_writer(ledger, **names, **QUICK) as producer:
        async with producer.transaction() as tx:
            tx.send(topic, b"next")
        following.set()
        with pytest.raises(NotWriterError):
            await task
        assert isinstance(fenced[0], ApplicationRecoverableError)
        assert isinstance(fenced[1], NotWriterError)
        # The next writer was not fenced.
        async with producer.transaction() as tx:
            tx.send(topic, b"last")
    await none_open(cluster_servers.bootstrap, topic, [0])
    async with Consumer(
        topic, auto_offset_reset="earliest", isolation_level="read_committed", **servers
    ) as consumer:
        values = [record.value async for record in consumer.until_end()]
    assert values == [b"committed", b"next", b"last"]


async def test_a_former_writer_whose_body_has_not_ended_does_not_keep_others_from_writing(
    cluster_servers: Any, ledger: str
) -> None:
    topic = await cluster_servers.new_topic(1)
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    begun, following = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with single_writer(ledger, **servers, **STATIC):
            begun.set()
            with anyio.CancelScope(shield=True):
                await following.wait()

    task = asyncio.create_task(first())
    async with asyncio.timeout(60), Client(**servers) as client, Admin(client=client) as admin:
        await begun.wait()
        [before] = (await admin.describe_groups([ledger]))[ledger].members
        await lose(client, ledger)
        # Wait until the first member has joined again, before the second one joins.
        while True:
            group = (await admin.describe_groups([ledger]))[ledger]
            if any(each.member_id != before.member_id for each in group.members):
                break
            await asyncio.sleep(0.02)
        async with single_writer(ledger, **servers, **QUICK) as producer:
            await producer.send(topic, b"next")
            assert not task.done()
            following.set()
            with pytest.raises(NotWriterError):
                await task


def test_an_unknown_option_is_named() -> None:
    options: Any = {"acsk": "all"}
    with pytest.raises(ConfigError, match="acks"):
        single_writer("g", bootstrap_servers="localhost:9092", **options)


async def test_options_of_connections_belong_to_the_client_that_is_shared(
    cluster_servers: Any,
) -> None:
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        with pytest.raises(ConfigError, match="bootstrap_servers"):
            async with single_writer("g", client=client, bootstrap_servers="localhost:9092"):
                pass


async def in_task(call: Any) -> Any:
    """Run a coroutine in a task of its own, as fixtures and tests run."""
    return await asyncio.create_task(call)


async def test_it_may_be_entered_in_one_task_and_left_in_another(
    cluster_servers: Any, ledger: str
) -> None:
    topic = await cluster_servers.new_topic(1)
    for _ in range(2):  # The second one can write, so the first one has left the group.
        scope = single_writer(ledger, bootstrap_servers=cluster_servers.bootstrap, **QUICK)
        producer = await in_task(scope.__aenter__())
        await in_task(producer.send_and_wait(topic, b"x"))
        assert not await in_task(scope.__aexit__(None, None, None))


async def test_an_error_of_its_body_comes_through_in_another_task(
    cluster_servers: Any, ledger: str
) -> None:
    scope = single_writer(ledger, bootstrap_servers=cluster_servers.bootstrap, **QUICK)
    await in_task(scope.__aenter__())
    error = LookupError("mine")
    assert not await in_task(scope.__aexit__(LookupError, error, None))
    async with single_writer(ledger, bootstrap_servers=cluster_servers.bootstrap, **QUICK):
        pass


async def test_a_former_writer_raises_in_the_task_that_leaves_it(
    cluster_servers: Any, ledger: str
) -> None:
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    scope = single_writer(ledger, group_instance_id="i", **servers, **QUICK)
    producer = await in_task(scope.__aenter__())
    async with Admin(**servers) as admin:
        (await admin.remove_members(ledger, ["i"], static=True)).raise_for_errors()
    while producer.state is not State.CLOSED:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    with pytest.raises(NotWriterError):
        await in_task(scope.__aexit__(None, None, None))


async def test_a_generation_may_be_left_in_another_task(cluster_servers: Any, ledger: str) -> None:
    servers = {"bootstrap_servers": cluster_servers.bootstrap}
    async with aclosing(work_pool(ledger, {"a": 1}, **servers)) as pool:
        items = await anext(pool)
        assert await in_task(items.__aenter__()) == ("a",)
        assert not await in_task(items.__aexit__(None, None, None))

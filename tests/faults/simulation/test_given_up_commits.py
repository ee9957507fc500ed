"""Commits that are cancelled, and take longer than the shield of the cancellation lasts.

What a transaction commits is fixed when its commit begins. If the commit is given up before EndTxn
was sent, it becomes an abort. After that, its outcome is unknown until a call finds it out. In no
case does it end as a commit without the offsets of its consumers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest
from thinned import one_in
from world import World, simulate

from aiokclient import GroupMetadata, TopicPartition, TransactionOutcome
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ClosedError,
    IllegalStateError,
    TransactionAbortableError,
)
from aiokclient.patterns import transform
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
INPUT, OUT = TopicPartition("in", 0), TopicPartition("t", 0)
MEMBER = GroupMetadata("g")
INPUTS = [b"input %d" % number for number in range(6)]
SHIELD_S, AWAY_S = 2.0, 8.0
PRODUCER: dict[str, Any] = {
    "transactional_id": "t-1",
    "transaction_timeout_ms": int(SHIELD_S * 1000),
    "close_timeout_ms": 1000,
    "retry_backoff_max_ms": 200,
}
READER: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "max_poll_records": 2}


# -- where the commit is when its caller is cancelled


@contextlib.asynccontextmanager
async def held(world: World, *apis: ApiKey, when: Any = "before") -> Any:
    with contextlib.ExitStack() as stack:
        for api in apis:
            stack.enter_context(world.cluster.delay(api, AWAY_S, when=when))
        yield


@contextlib.asynccontextmanager
async def unreachable(world: World) -> Any:
    """Let no byte through until AWAY_S have passed."""
    world.network.part({"client"}, {world.address(broker) for broker in world.cluster.brokers})
    asyncio.get_running_loop().call_later(AWAY_S, world.network.heal)
    yield


@contextlib.asynccontextmanager
async def refused(world: World) -> Any:
    """Close all connections, and refuse new ones, until AWAY_S have passed."""
    for broker in world.cluster.brokers:
        address = world.address(broker)
        world.network.cut(address)
        world.network.refuse(address)
        asyncio.get_running_loop().call_later(AWAY_S, world.network.refuse, address, False)
    yield


STAGES: dict[str, tuple[bool, Callable[[World], Any]]] = {
    "the records are not answered": (False, lambda world: held(world, ApiKey.PRODUCE)),
    "the records are sent late": (False, unreachable),
    "the records are refused": (False, refused),
    "the offsets are not answered": (True, lambda world: held(world, ApiKey.TXN_OFFSET_COMMIT)),
    "the offsets are sent late": (True, unreachable),
    "the offsets are refused": (True, refused),
    "EndTxn arrives late": (True, lambda world: held(world, ApiKey.END_TXN)),
    "EndTxn is answered late": (True, lambda world: held(world, ApiKey.END_TXN, when="after")),
}
"""Whether the records are written before, and what goes wrong then."""


# -- how the caller is cancelled


async def by_asyncio(call: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.create_task(call)
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def by_anyio(call: Coroutine[Any, Any, Any]) -> None:
    with anyio.move_on_after(0.5) as scope:
        await call
    assert scope.cancelled_caught


async def by_wait_for(call: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(call, 0.5)


WAYS = {"asyncio": by_asyncio, "anyio": by_anyio, "wait_for": by_wait_for}


# -- what the program does in the transaction


async def poll(consumer: Any) -> list[Any]:
    records: list[Any] = []
    while not records:
        records = await consumer.poll(timeout=5.0)
    return records


async def in_a_block(world: World, producer: Any, consumer: Any, stage: str) -> Awaitable[Any]:
    stack = contextlib.AsyncExitStack()
    tx = await stack.enter_async_context(producer.transaction())
    tx.add(consumer)
    await send(producer, await poll(consumer), stage)
    return stack.aclose()


async def in_calls(world: World, producer: Any, consumer: Any, stage: str) -> Awaitable[Any]:
    await producer.begin_transaction()
    producer.last_transaction.add(consumer)
    await send(producer, await poll(consumer), stage)
    commit: Awaitable[Any] = producer.commit_transaction()
    return commit


async def in_offsets(world: World, producer: Any, consumer: Any, stage: str) -> Awaitable[Any]:
    """Send the offsets in a call of its own, which is in progress when the commit begins."""
    await producer.begin_transaction()
    records = await poll(consumer)
    await send(producer, records, stage)

    async def commit() -> None:
        offsets, member = {INPUT: records[-1].offset + 1}, consumer.group_metadata()
        sending = producer.send_offsets_to_transaction(offsets, member)
        consumer.sending = asyncio.create_task(sending)
        await asyncio.sleep(0)
        await producer.commit_transaction()

    return commit()


async def in_a_stream(world: World, producer: Any, consumer: Any, stage: str) -> Awaitable[Any]:
    stack = contextlib.AsyncExitStack()
    stream = await stack.enter_async_context(transform(consumer, producer, max_records=2))
    batch = await anext(stream)
    await send(producer, batch.records, stage)

    async def go_on() -> None:
        async with stack:
            await anext(stream)

    return go_on()


async def send(producer: Any, records: list[Any], stage: str) -> None:
    flush, _ = STAGES[stage]
    for record in records:
        producer.send("t", record.value, partition=0)
    if flush:
        await producer.flush()


STYLES = {
    "async with": in_a_block,
    "calls": in_calls,
    "offsets": in_offsets,
    "transform": in_a_stream,
}


# -- what the program does afterwards


async def abort(world: World, producer: Any, consumer: Any) -> None:
    try:
        await producer.abort_transaction()
    except IllegalStateError:
        assert producer.last_transaction.outcome is COMMITTED
    except ApplicationRecoverableError:
        await producer.restart()


async def begin(world: World, producer: Any, consumer: Any) -> None:
    try:
        await producer.begin_transaction()
    except AbortableError:
        await abort(world, producer, consumer)
    except ApplicationRecoverableError:
        await producer.restart()
    else:
        await producer.abort_transaction()


async def restart(world: World, producer: Any, consumer: Any) -> None:
    await producer.restart()


async def wait(world: World, producer: Any, consumer: Any) -> None:
    await asyncio.sleep(3 * AWAY_S)


async def nothing(world: World, producer: Any, consumer: Any) -> None:
    pass


FOLLOWING = {
    "abort": abort,
    "begin": begin,
    "restart": restart,
    "wait": wait,
    "nothing": nothing,
}


async def visible(world: World) -> list[bytes]:
    async with world.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([OUT])
        return [record.value async for record in consumer.until_end()]


async def is_whole(world: World) -> None:
    """Check that exactly the records before the committed offset have results."""
    stored = world.cluster.committed("g").get(INPUT)
    assert await visible(world) == INPUTS[: 0 if stored is None else stored.offset]


async def go_back(consumer: Any) -> None:
    stored = (await consumer.committed([INPUT]))[INPUT]
    consumer.seek(INPUT, stored.offset)


async def finish(world: World, producer: Any, consumer: Any) -> None:
    async with transform(consumer, producer, max_records=2) as stream:
        async for batch in stream:
            for record in batch:
                batch.send("t", record.value, partition=0)
            if batch.records[-1].offset == len(INPUTS) - 1:
                consumer.stop()


async def scenario(world: World, stage: str, style: str, way: str, following: str) -> None:
    world.cluster.produce("in", INPUTS)
    async with world.producer(**PRODUCER) as producer, world.consumer("in", **READER) as consumer:
        # A whole transaction comes first, so that there is a committed offset to go back to.
        first = await STYLES["calls"](world, producer, consumer, "the records are refused")
        await first
        assert await visible(world) == INPUTS[:2]
        call = await STYLES[style](world, producer, consumer, stage)
        fault = STAGES[stage][1](world)
        async with fault:
            await WAYS[way](call)  # type: ignore[arg-type]
            tx = producer.last_transaction
            assert tx.outcome in (None, UNKNOWN, ABORTED, COMMITTED)
            await FOLLOWING[following](world, producer, consumer)
        world.network.heal()
        if style == "offsets":
            # Without `add`, the program goes back to the committed offset on its own.
            await asyncio.gather(consumer.sending, return_exceptions=True)
            await begin(world, producer, consumer)
            await go_back(consumer)
        await finish(world, producer, consumer)
        assert tx.outcome is not None
    await is_whole(world)
    assert await visible(world) == INPUTS


def run(level: int, work: Callable[[World], Any]) -> Any:
    return simulate(
        work,
        topics={"t": 1, "in": 1, "more": 1},
        transaction_version=level,
        weather=Weather(latency_s=(0.001, 0.01)),
    )


@pytest.mark.fault(35)
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stage", STAGES)
def test_records_and_offsets_stay_together_after_a_commit_was_given_up(
    stage: str, style: str
) -> None:
    """The ways and the levels of transaction.version take turns, from style to style, too."""
    ways = itertools.cycle(WAYS)
    offset = list(STYLES).index(style)
    for _ in range(offset):
        next(ways)
    cases = list(enumerate(zip(ways, FOLLOWING, strict=False)))
    for number, (way, following) in one_in(4, cases, list(STAGES).index(stage) + offset // 2):
        level = 2 * ((number + offset) % 2)
        work = functools.partial(scenario, stage=stage, style=style, way=way, following=following)
        try:
            run(level, work)
        except BaseException as error:
            error.add_note(f"cancelled by {way}, then {following}, level {level}")
            raise


# -- what the program sees


async def added(world: World, producer: Any, consumer: Any) -> Any:
    """Return the transaction that a program has begun, and in which it has read two records."""
    await producer.begin_transaction()
    producer.last_transaction.add(consumer)
    for record in await poll(consumer):
        producer.send("t", record.value, partition=0)
    await producer.flush()
    return producer.last_transaction


def with_clients(work: Callable[[World, Any, Any], Any], level: int, **options: Any) -> None:
    async def scenario(world: World) -> None:
        world.cluster.produce("in", INPUTS)
        async with (
            world.producer(**{**PRODUCER, **options}) as producer,
            world.consumer("in", **READER) as consumer,
        ):
            await work(world, producer, consumer)

    run(level, scenario)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_that_is_given_up_before_its_end_was_sent_ends_as_an_abort(level: int) -> None:
    """The coordinator is away, so that EndTxn waits for a connection."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"lost", partition=0)
        async with refused(world):
            await by_asyncio(producer.commit_transaction())
        lost = producer.last_transaction
        try:
            await producer.begin_transaction()
        except ApplicationRecoverableError:  # The coordinator has aborted it at its timeout.
            await producer.restart()
            await producer.begin_transaction()
        assert lost.outcome is ABORTED
        await producer.send("t", b"next", partition=0)
        await producer.commit_transaction()
        assert await visible(world) == [b"next"]

    with_clients(scenario, level)


@pytest.mark.parametrize(
    ("level", "when", "flushed", "raises"),
    [
        (0, "before", False, True),
        (0, "after", False, True),
        (2, "before", False, False),  # The transaction begins when the record arrives.
        (2, "before", True, True),  # The record is refused: its epoch is that of the timeout.
        (2, "after", True, False),  # An abort of an aborted transaction succeeds.
    ],
)
def test_a_begin_after_a_given_up_commit_raises_where_the_timeout_of_the_transaction_shows(
    level: int, when: Any, flushed: bool, raises: bool
) -> None:
    """Nothing of the given-up transaction becomes visible, whether the begin raises or not."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        await producer.begin_transaction()
        if flushed:
            await producer.send("t", b"flushed", partition=0)
        with world.cluster.delay(ApiKey.PRODUCE, 3 * SHIELD_S, when=when):
            producer.send("t", b"lost", partition=0)
            await by_asyncio(producer.commit_transaction())
        given_up = producer.last_transaction
        try:
            await producer.begin_transaction()
        except ApplicationRecoverableError:
            assert raises
            await producer.restart()
            await producer.begin_transaction()
        else:
            assert not raises
        assert given_up.outcome is ABORTED
        await producer.send("t", b"next", partition=0)
        await producer.commit_transaction()
        assert await visible(world) == [b"next"]

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("late", [False, True])
def test_an_abort_raises_after_a_commit_of_unknown_outcome_has_succeeded(
    late: bool, level: int
) -> None:
    """It raises whether the response comes before the abort or during it."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        tx = await added(world, producer, consumer)
        async with held(world, ApiKey.END_TXN, when="after"):
            await by_asyncio(producer.commit_transaction())
            assert tx.outcome is UNKNOWN
            assert await consumer.position(INPUT) == 2
            if late:
                await asyncio.sleep(2 * AWAY_S)
            with pytest.raises(ApplicationRecoverableError):
                await producer.abort_transaction()
        assert tx.outcome is COMMITTED
        with pytest.raises(ApplicationRecoverableError):
            await producer.begin_transaction()
        await producer.restart()
        await is_whole(world)
        assert await consumer.position(INPUT) == 2

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_consumers_go_back_only_when_the_unknown_outcome_was_found_out(level: int) -> None:
    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        tx = await added(world, producer, consumer)
        with world.cluster.drop(ApiKey.END_TXN, when="before"):
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction(timeout=0.5)
            assert tx.outcome is UNKNOWN
            assert await consumer.position(INPUT) == 2
            await producer.abort_transaction(timeout=0.1)
            assert tx.outcome is UNKNOWN
            assert await consumer.position(INPUT) == 2
        await producer.abort_transaction()
        assert tx.outcome is ABORTED
        assert await consumer.position(INPUT) == 0
        await finish(world, producer, consumer)
        assert await visible(world) == INPUTS

    with_clients(scenario, level, transaction_timeout_ms=6000)


@pytest.mark.parametrize("level", [0, 2])
def test_a_begin_raises_if_it_takes_consumers_back(level: int) -> None:
    """The program may have read records after the transaction, which are delivered again."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        tx = await added(world, producer, consumer)
        with world.cluster.drop(ApiKey.END_TXN, when="before"):
            with pytest.raises(TransactionAbortableError):
                await producer.commit_transaction(timeout=0.5)
            await producer.abort_transaction(timeout=0.1)
        assert [record.offset for record in await poll(consumer)] == [2, 3]
        with pytest.raises(TransactionAbortableError, match="gone back"):
            await producer.begin_transaction()
        assert tx.outcome is ABORTED
        await producer.abort_transaction()
        await finish(world, producer, consumer)
        assert await visible(world) == INPUTS

    with_clients(scenario, level, transaction_timeout_ms=20_000)


@pytest.mark.parametrize("level", [0, 2])
def test_a_commit_has_only_what_was_read_when_it_began(level: int) -> None:
    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        await added(world, producer, consumer)
        producer.send("t", b"slow", partition=0)
        with world.cluster.delay(ApiKey.PRODUCE, 1.0, when="before"):
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0.1)
            assert [record.offset for record in await poll(consumer)] == [2, 3]
            await commit
        assert world.cluster.committed("g")[INPUT].offset == 2
        await producer.begin_transaction()
        producer.last_transaction.add(consumer)
        await producer.commit_transaction()
        assert world.cluster.committed("g")[INPUT].offset == 4

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stream_goes_on_after_requests_for_batches_were_given_up(stage: str, level: int) -> None:
    """A program asks for each batch with a timeout, and asks again after it."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        async with (
            contextlib.AsyncExitStack() as faults,
            transform(consumer, producer, max_records=2) as stream,
        ):
            healed: float | None = None
            while True:
                if healed is not None and world.now > healed:
                    await faults.aclose()
                try:
                    batch = await asyncio.wait_for(anext(stream), 0.5)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    break
                for record in batch:
                    batch.send("t", record.value, partition=0)
                if STAGES[stage][0]:
                    await producer.flush()
                if batch.records[-1].offset == 3 and healed is None:
                    healed = world.now + AWAY_S
                    await faults.enter_async_context(STAGES[stage][1](world))
                if batch.records[-1].offset == 5:
                    consumer.stop()
        assert await visible(world) == INPUTS

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_a_body_that_fails_while_another_task_commits_takes_nothing_from_the_commit(
    level: int,
) -> None:
    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        with world.cluster.delay(ApiKey.PRODUCE, 3.0, when="before"):
            with contextlib.suppress(LookupError):
                async with producer.transaction() as tx:
                    tx.add(consumer)
                    for record in await poll(consumer):
                        tx.send("t", record.value, partition=0)
                    commit = asyncio.create_task(producer.commit_transaction())
                    await asyncio.sleep(0.1)
                    raise LookupError
                raise AssertionError
            await commit
        assert tx.outcome is COMMITTED
        await is_whole(world)
        await finish(world, producer, consumer)
        assert await visible(world) == INPUTS

    with_clients(scenario, level, transaction_timeout_ms=6000)


@pytest.mark.parametrize("level", [0, 2])
def test_consumers_go_back_when_the_producer_closes_with_an_open_transaction(level: int) -> None:
    """The consumer outlives its producer, and another one continues."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        await added(world, producer, consumer)
        await producer.close()
        async with world.producer(**PRODUCER) as successor:
            await finish(world, successor, consumer)
        assert await visible(world) == INPUTS

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("stage", STAGES)
def test_records_and_offsets_stay_together_when_the_producer_closes_during_a_commit(
    stage: str, level: int
) -> None:
    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        call = await in_calls(world, producer, consumer, stage)
        async with STAGES[stage][1](world):
            commit = asyncio.ensure_future(call)
            await asyncio.sleep(0.5)
            await producer.close()
            with contextlib.suppress(AbortableError, ApplicationRecoverableError, ClosedError):
                await commit
        await asyncio.sleep(2 * AWAY_S)
        async with world.producer(**PRODUCER) as successor:
            await finish(world, successor, consumer)
        await is_whole(world)
        assert await visible(world) == INPUTS

    with_clients(scenario, level)


@pytest.mark.parametrize("level", [0, 2])
def test_all_consumers_go_back_when_the_abort_is_cancelled(level: int) -> None:
    """Nothing answers the lookups, so that the abort waits for the first consumer."""

    async def scenario(world: World, producer: Any, consumer: Any) -> None:
        world.cluster.produce("more", INPUTS)
        options = {**READER, "group_id": "h"}
        async with world.consumer("more", **options) as other:
            await producer.begin_transaction()
            for each in (consumer, other):
                producer.last_transaction.add(each)
                assert await poll(each)
            with world.cluster.delay(ApiKey.OFFSET_FETCH, 2.0, when="before"):
                await by_asyncio(producer.abort_transaction())
            for each in (consumer, other):
                assert (await poll(each))[0].offset == 0

    with_clients(scenario, level)

"""Commits of transactions while the coordinator is a generation ahead of an added consumer.

The coordinator has completed a rebalance, or has given a member a new epoch, and its response has
not arrived. It refuses the identity that the consumer still has. The commit waits for the response.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from group_world import PROTOCOLS, committed, fill, join_api, member
from owned import until
from world import World, simulate

from aiokclient import Consumer, GroupMetadata, Producer, TransactionOutcome
from aiokclient.errors import (
    ApplicationRecoverableError,
    IllegalGenerationError,
    KafkaError,
    StaleMemberEpochError,
)
from aiokclient.protocol import ApiKey

LATE_S = 5.0
OPTIONS: dict[str, Any] = {"enable_auto_commit": False}
ahead = pytest.mark.parametrize(
    ("protocol", "partitions", "error"),
    [
        ("cooperative", 1, None),
        ("cooperative", 2, None),
        ("kip848", 1, IllegalGenerationError),
        ("kip848", 1, StaleMemberEpochError),
    ],
)


@contextlib.asynccontextmanager
async def clients(
    world: World, protocol: str, **options: Any
) -> AsyncIterator[tuple[Consumer[Any, Any], Producer[Any, Any]]]:
    """Yield a member of a group, which has records to read, and a producer with the options."""
    fill(world, 5)
    async with (
        member(world, name="one", **OPTIONS, **PROTOCOLS[protocol]) as one,
        world.producer(transactional_id="t-1", **options) as producer,
    ):
        yield one, producer


@contextlib.asynccontextmanager
async def outdated(
    world: World,
    one: Consumer[Any, Any],
    protocol: str,
    error: type[KafkaError] | None,
    late_s: float = LATE_S,
) -> AsyncIterator[None]:
    """Let another consumer join, and hold the response with which `one` gets a new identity.

    Transactions with the old identity are refused with `error`, as by brokers that do not accept
    earlier member epochs.
    """
    mine = one.group_metadata()

    def is_mine(request: Any) -> bool:
        return bool(request.member_id == mine.member_id)

    def is_old(request: Any) -> bool:
        return bool(request.generation_id_or_member_epoch == mine.generation_id)

    if error is not None:
        world.cluster.fail(ApiKey.TXN_OFFSET_COMMIT, error, where=is_old)
    other = member(world, name="other", **OPTIONS, **PROTOCOLS[protocol])
    with world.cluster.delay(join_api(protocol), late_s, when="after", where=is_mine):
        joining = asyncio.create_task(other.start())
        try:
            await until(lambda: is_ahead(world, mine))
            assert one.group_metadata() == mine
            yield
        finally:
            joining.cancel()
            await asyncio.wait([joining])
            await other.close()


def is_ahead(world: World, mine: GroupMetadata) -> bool:
    """Return whether the coordinator would refuse this identity."""
    group = world.cluster.groups["g"]
    # Under KIP-848, the group has its new epoch before the member has been given it.
    return group.generation > mine.generation_id and group.state != "Reconciling"


async def begin(
    world: World, one: Consumer[Any, Any], producer: Producer[Any, Any]
) -> Callable[[], Any]:
    await producer.begin_transaction()
    assert producer.last_transaction is not None
    producer.last_transaction.add(one)
    await one.poll(timeout=60, max_records=5)
    producer.send("out", b"v")
    return producer.commit_transaction


@ahead
def test_commit_when_the_response_to_the_join_is_late_then_waits_for_it(
    protocol: str, partitions: int, error: type[KafkaError] | None
) -> None:
    async def scenario(world: World) -> None:
        async with clients(world, protocol) as (one, producer):
            commit = await begin(world, one, producer)
            async with outdated(world, one, protocol, error):
                await commit()
            assert committed(world) == 5
        refused = world.requests(ApiKey.TXN_OFFSET_COMMIT)
        assert len(refused) == 2

    simulate(scenario, topics={"t": partitions, "out": 1})


@ahead
def test_plain_offsets_when_the_identity_is_outdated_then_are_refused_at_once(
    protocol: str, partitions: int, error: type[KafkaError] | None
) -> None:
    async def scenario(world: World) -> None:
        async with clients(world, protocol) as (one, producer):
            await one.poll(timeout=60)
            await producer.begin_transaction()
            async with outdated(world, one, protocol, error):
                with pytest.raises(ApplicationRecoverableError):
                    await producer.send_offsets_to_transaction(one.consumed(), one.group_metadata())
            assert len(world.requests(ApiKey.TXN_OFFSET_COMMIT)) == 1
            assert committed(world) is None

    simulate(scenario, topics={"t": partitions, "out": 1})


@ahead
def test_commit_when_the_partitions_are_released_meanwhile_then_fails(
    protocol: str, partitions: int, error: type[KafkaError] | None
) -> None:
    async def scenario(world: World) -> None:
        async with clients(world, protocol) as (one, producer):
            commit = await begin(world, one, producer)
            async with outdated(world, one, protocol, error, 20.0):
                ending = asyncio.create_task(commit())
                await until(lambda: world.requests(ApiKey.TXN_OFFSET_COMMIT))
                closing = asyncio.create_task(one.close())
                with pytest.raises(ApplicationRecoverableError):
                    await ending
                await closing
            await producer.restart()
            last = producer.last_transaction
            assert last is not None
            assert last.outcome is TransactionOutcome.ABORTED
            assert committed(world) is None

    simulate(scenario, topics={"t": partitions, "out": 1})


@ahead
def test_commit_when_the_response_does_not_come_then_fails_after_the_request_timeout(
    protocol: str, partitions: int, error: type[KafkaError] | None
) -> None:
    async def scenario(world: World) -> None:
        async with clients(world, protocol, request_timeout_ms=4000) as (one, producer):
            commit = await begin(world, one, producer)
            async with outdated(world, one, protocol, error, 20.0):
                with pytest.raises(ApplicationRecoverableError):
                    await commit()
            await producer.restart()
            assert committed(world) is None

    simulate(scenario, topics={"t": partitions, "out": 1})

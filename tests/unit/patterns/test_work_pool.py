"""Tests of a work pool, on the embedded cluster and on a real Kafka."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from aiokclient.errors import ConfigError, ProtocolError
from aiokclient.patterns import WorkItems, work_pool
from aiokclient.patterns.pool import Spreading, claim
from aiokclient.patterns.spread import Claim

ITEMS = {"site-a": 1, "site-b": 3, "site-c": 2, "site-d": 2}
# A session timeout that never ends in a test, so that a silent member stays in the group.
QUICK: Any = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 100}
PATIENCE_S = 60


class Worker:
    """A task that takes items until it is stopped.

    `mine` has its current items.
    """

    def __init__(self, pool: AsyncGenerator[WorkItems, None]) -> None:
        self.pool = pool
        self.mine: tuple[str, ...] = ()
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self.work())

    async def work(self) -> None:
        async with aclosing(self.pool):
            async for items in self.pool:
                async with items as mine:
                    self.mine = mine
                    self.changed.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self.mine = ()
                        self.changed.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def until_all_is_owned(*workers: Worker) -> list[tuple[str, ...]]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            owned = sorted(item for worker in workers for item in worker.mine)
            assert len(owned) == len(set(owned)), "two workers have the same item"
            if owned == sorted(ITEMS) and all(worker.mine for worker in workers):
                return [worker.mine for worker in workers]
            await asyncio.sleep(0.01)


async def test_items_are_spread_by_weight_and_stay(cluster_servers: Any) -> None:
    group = f"pool-{uuid.uuid4().hex[:12]}"

    def worker() -> Worker:
        return Worker(work_pool(group, ITEMS, bootstrap_servers=cluster_servers.bootstrap, **QUICK))

    first = worker()
    assert await until_all_is_owned(first) == [tuple(sorted(ITEMS))]
    second = worker()
    both = await until_all_is_owned(first, second)
    assert {sum(ITEMS[item] for item in mine) for mine in both} == {4}
    third = worker()
    three = await until_all_is_owned(first, second, third)
    moved = [set(now) - set(before) for now, before in zip(three, [*both, ()], strict=True)]
    assert sum(map(len, moved)) <= 2
    await second.stop()
    two = await until_all_is_owned(first, third)
    assert set(three[0]) <= set(two[0])
    await first.stop()
    await third.stop()


async def test_a_loop_that_is_left_leaves_the_group(cluster_servers: Any) -> None:
    """This also holds for `break` without `aclosing`. The event loop closes the generator."""
    group = f"pool-{uuid.uuid4().hex[:12]}"
    options = {"bootstrap_servers": cluster_servers.bootstrap, **QUICK}
    async for items in work_pool(group, ITEMS, **options):
        async with items as mine:
            assert mine == tuple(sorted(ITEMS))
        break
    # The partitions are free before the session timeout could have freed them.
    next_one = Worker(work_pool(group, ITEMS, **options))
    await until_all_is_owned(next_one)
    await next_one.stop()


async def test_leaving_the_body_early_waits_for_the_next_change(cluster_servers: Any) -> None:
    group = f"pool-{uuid.uuid4().hex[:12]}"
    options = {"bootstrap_servers": cluster_servers.bootstrap, **QUICK}
    seen: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()

    async def work() -> None:
        pool = work_pool(group, ITEMS, **options)
        async with aclosing(pool):
            async for items in pool:
                async with items as mine:
                    seen.put_nowait(mine)

    task = asyncio.create_task(work())
    assert await seen.get() == tuple(sorted(ITEMS))
    other = Worker(work_pool(group, ITEMS, **options))
    async with asyncio.timeout(PATIENCE_S):
        rest = await seen.get()
        while sorted(rest + other.mine) != sorted(ITEMS):
            other.changed.clear()
            await other.changed.wait()
    task.cancel()
    await asyncio.wait([task])
    await other.stop()


@pytest.mark.parametrize("items", [{"a": 0}, {"a": -1}, {"a": float("nan")}, {"a": "1"}, {1: 1}])
def test_weights_are_checked(items: Any) -> None:
    with pytest.raises(ConfigError, match="items: "):
        work_pool("g", items, bootstrap_servers="localhost:9092")


def test_a_weight_that_no_float_can_express_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a weight") as raised:
        work_pool("crawlers", {"a": 10**400}, bootstrap_servers="b:9092")
    assert len(str(raised.value)) < 400
    work_pool("crawlers", {"a": 10**300}, bootstrap_servers="b:9092")


@pytest.mark.parametrize(
    "said",
    [
        b'{"items": {"a": Infinity}, "held": [], "generation": 1}',
        b'{"items": {"a": NaN}, "held": [], "generation": 1}',
        b'{"items": {"a": 1%s}, "held": [], "generation": 1}' % (b"0" * 400),
        b'{"items": {"a": -1}, "held": [], "generation": 1}',
        b'{"items": {"a": "1"}, "held": [], "generation": 1}',
        b'{"items": {"a": 1}, "held": [], "generation": Infinity}',
        b'{"items": {"a": 1}, "held": 5, "generation": 1}',
        b"[" * 100_000,
        b'{"items": {"a": 1}, "held": %s, "generation": 1}' % (b"[" * 100_000),
        b'{"items": {"a": 1}, "held": [], "generation": %s}' % (b"9" * 5_000),
        b"[]",
        b"\xff",
    ],
)
def test_a_claim_that_is_not_one_of_a_worker_is_a_protocol_error(said: bytes) -> None:
    with pytest.raises(ProtocolError, match="not the claim of a worker"):
        claim(said)


def test_a_claim_is_decoded_as_it_was_sent() -> None:
    spreading = Spreading({"a": 1, "b": 2.5})
    spreading.held, spreading.generation = ("a",), 7
    assert claim(spreading.metadata()) == Claim({"a": 1, "b": 2.5}, ("a",), 7)

"""Tests of a work pool, on the embedded cluster and on a real Kafka."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient.errors import ConfigError, ProtocolError
from aiokclient.patterns import WorkItems, work_pool
from aiokclient.patterns.pool import Claim, Spreading, decode_claim, spread_items

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
        decode_claim(said)


def test_a_claim_is_decoded_as_it_was_sent() -> None:
    spreading = Spreading({"a": 1, "b": 2.5})
    spreading.held_items, spreading.generation = ("a",), 7
    assert decode_claim(spreading.metadata()) == Claim({"a": 1, "b": 2.5}, ("a",), 7)


# -- spreading weighted items: one owner each, even loads, and few moves

NAMES = [f"i{n}" for n in range(12)]
weights = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.5, 1, 2, 3, 10]), min_size=1)
workers = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


def fresh(names: list[str], items: Mapping[str, float]) -> dict[str, Claim]:
    return {name: Claim(items) for name in names}


def load(items: list[str], weights: Mapping[str, float]) -> float:
    return sum(weights[item] for item in items)


@settings(deadline=None)
@given(workers, weights)
def test_spread_assigns_each_item_once(names: list[str], items: dict[str, float]) -> None:
    shares = spread_items(fresh(names, items))
    assert set(shares) == set(names)
    given_out = [item for share in shares.values() for item in share]
    assert sorted(given_out) == sorted(items)


@settings(deadline=None)
@given(workers, weights)
def test_spread_is_balanced_so_that_no_move_improves_it(
    names: list[str], items: dict[str, float]
) -> None:
    shares = spread_items(fresh(names, items))
    for heavy in names:
        for light in names:
            for item in shares[heavy]:
                gap = load(shares[heavy], items) - load(shares[light], items)
                assert heavy == light or gap <= items[item] + 1e-6


@settings(deadline=None)
@given(workers, weights)
def test_nothing_moves_when_nothing_changes(names: list[str], items: dict[str, float]) -> None:
    shares = spread_items(fresh(names, items))
    again = {name: Claim(items, tuple(shares[name]), 1) for name in names}
    assert spread_items(again) == shares


@settings(deadline=None)
@given(workers.filter(lambda names: len(names) > 1), st.integers(0, 40))
def test_when_a_worker_goes_the_others_keep_theirs(names: list[str], count: int) -> None:
    items = {f"i{n}": 1.0 for n in range(count)}
    before = spread_items(fresh(names, items))
    left = names[1:]
    after = spread_items({name: Claim(items, tuple(before[name]), 1) for name in left})
    assert all(set(before[name]) <= set(after[name]) for name in left)


@settings(deadline=None)
@given(workers, st.integers(0, 40))
def test_when_a_worker_comes_no_more_than_its_share_moves(names: list[str], count: int) -> None:
    items = {f"i{n}": 1.0 for n in range(count)}
    before = spread_items(fresh(names, items))
    claims = {name: Claim(items, tuple(before[name]), 1) for name in names}
    after = spread_items({**claims, "new": Claim(items)})
    moved = sum(item not in after[name] for name in names for item in before[name])
    assert moved == len(after["new"]) == count // (len(names) + 1)


def test_a_worker_keeps_the_items_that_it_lists() -> None:
    shares = spread_items({"a": Claim({"x": 1, "y": 1}), "b": Claim({"z": 5}), "c": Claim({})})
    assert shares == {"a": ["x", "y"], "b": ["z"], "c": []}


def test_the_later_claim_wins_when_two_workers_claim_an_item() -> None:
    items = {"x": 1.0, "y": 1.0}
    shares = spread_items({"a": Claim(items, ("x",), 3), "b": Claim(items, ("x",), 4)})
    assert shares == {"a": ["y"], "b": ["x"]}


def test_the_greatest_weight_counts() -> None:
    claims = {"a": Claim({"x": 1, "y": 1, "z": 1}), "b": Claim({"x": 9, "y": 1, "z": 1})}
    shares = spread_items(claims)
    assert sorted(map(tuple, shares.values())) == [("x",), ("y", "z")]


def test_many_items_are_spread_items() -> None:
    items = {f"i{n}": float(1 + n % 17) for n in range(3_000)}
    names = [f"w{n}" for n in range(40)]
    shares = spread_items(fresh(names, items))
    loads = [load(share, items) for share in shares.values()]
    assert max(loads) - min(loads) <= 17


def test_heavy_items_are_assigned_first_and_ties_go_to_the_worker_with_fewer_items() -> None:
    items = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0}
    # b to v, d to w, then c to v (the first name), then a to w.
    assert spread_items(fresh(["w", "v"], items)) == {"v": ["b", "c"], "w": ["a", "d"]}


def test_equal_loads_go_to_the_worker_with_fewer_items() -> None:
    items = {"big": 2.0, "one": 1.0, "two": 1.0, "more": 1.0}
    held = {
        "a": Claim(items, ("one", "two"), 1),
        "b": Claim(items, ("big",), 1),
    }
    assert spread_items(held) == {"a": ["one", "two"], "b": ["big", "more"]}


def test_the_move_that_balances_best_is_made_first() -> None:
    items = {"x": 1.0, "y": 4.0, "z": 3.0}
    held = {"a": Claim(items, ("x", "y", "z"), 1), "b": Claim(items)}
    # Loads 8 and 0: moving y leaves 4 and 4.
    assert spread_items(held) == {"a": ["x", "z"], "b": ["y"]}


def test_an_item_moves_only_to_workers_that_list_it() -> None:
    held = {
        "a": Claim({"x": 1.0, "y": 1.0, "z": 1.0}, ("x", "y", "z"), 1),
        "b": Claim({"z": 1.0}),
        "c": Claim({}),
    }
    assert spread_items(held) == {"a": ["x", "y"], "b": ["z"], "c": []}


def test_an_item_that_its_holder_no_longer_lists_goes_to_another_worker() -> None:
    held = {"a": Claim({"x": 1.0}, ("x", "y"), 5), "b": Claim({"y": 1.0}, (), -1)}
    assert spread_items(held) == {"a": ["x"], "b": ["y"]}
    # An item that nobody lists is not assigned.
    assert spread_items({"a": Claim({}, ("gone",), 3)}) == {"a": []}


def test_between_equal_generations_the_last_name_keeps_the_item() -> None:
    items = {"x": 1.0, "y": 1.0}
    shares = spread_items({"b": Claim(items, ("x",), 3), "a": Claim(items, ("x",), 3)})
    assert shares == {"a": ["y"], "b": ["x"]}


def test_an_exchange_of_equal_loads_does_not_move_items() -> None:
    items = {"x": 1.0, "y": 1.0, "z": 1.0}
    held = {"a": Claim(items, ("x", "y"), 1), "b": Claim(items, ("z",), 1)}
    # Moving x would only exchange the loads.
    assert spread_items(held) == {"a": ["x", "y"], "b": ["z"]}


def test_differences_by_rounding_do_not_move_items() -> None:
    items = dict.fromkeys("abcdefghij", 0.1) | {"k": 1.0}
    held = {"v": Claim(items, tuple("abcdefghij"), 1), "w": Claim(items, ("k",), 1)}
    assert spread_items(held) == {"v": list("abcdefghij"), "w": ["k"]}


def test_tiny_weights_are_balanced() -> None:
    items = {"x": 0.001, "y": 0.001}
    held = {"a": Claim(items, ("x", "y"), 1), "b": Claim(items)}
    assert spread_items(held) == {"a": ["y"], "b": ["x"]}


def test_a_claim_without_more_holds_nothing() -> None:
    assert Claim({}) == Claim({}, (), -1)

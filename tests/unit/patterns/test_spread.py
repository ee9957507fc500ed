"""Tests of spreading weighted items: one owner each, even loads, and few moves."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient.patterns.spread import Claim, spread

ITEMS = [f"i{n}" for n in range(12)]
weights = st.dictionaries(st.sampled_from(ITEMS), st.sampled_from([0.5, 1, 2, 3, 10]), min_size=1)
workers = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6, unique=True)


def fresh(names: list[str], items: Mapping[str, float]) -> dict[str, Claim]:
    return {name: Claim(items) for name in names}


def load(items: list[str], weights: Mapping[str, float]) -> float:
    return sum(weights[item] for item in items)


@settings(deadline=None)
@given(workers, weights)
def test_spread_assigns_each_item_once(names: list[str], items: dict[str, float]) -> None:
    shares = spread(fresh(names, items))
    assert set(shares) == set(names)
    given_out = [item for share in shares.values() for item in share]
    assert sorted(given_out) == sorted(items)


@settings(deadline=None)
@given(workers, weights)
def test_spread_is_balanced_so_that_no_move_improves_it(
    names: list[str], items: dict[str, float]
) -> None:
    shares = spread(fresh(names, items))
    for heavy in names:
        for light in names:
            for item in shares[heavy]:
                gap = load(shares[heavy], items) - load(shares[light], items)
                assert heavy == light or gap <= items[item] + 1e-6


@settings(deadline=None)
@given(workers, weights)
def test_nothing_moves_when_nothing_changes(names: list[str], items: dict[str, float]) -> None:
    shares = spread(fresh(names, items))
    again = {name: Claim(items, tuple(shares[name]), 1) for name in names}
    assert spread(again) == shares


@settings(deadline=None)
@given(workers.filter(lambda names: len(names) > 1), st.integers(0, 40))
def test_when_a_worker_goes_the_others_keep_theirs(names: list[str], count: int) -> None:
    items = {f"i{n}": 1.0 for n in range(count)}
    before = spread(fresh(names, items))
    left = names[1:]
    after = spread({name: Claim(items, tuple(before[name]), 1) for name in left})
    assert all(set(before[name]) <= set(after[name]) for name in left)


@settings(deadline=None)
@given(workers, st.integers(0, 40))
def test_when_a_worker_comes_no_more_than_its_share_moves(names: list[str], count: int) -> None:
    items = {f"i{n}": 1.0 for n in range(count)}
    before = spread(fresh(names, items))
    claims = {name: Claim(items, tuple(before[name]), 1) for name in names}
    after = spread({**claims, "new": Claim(items)})
    moved = sum(item not in after[name] for name in names for item in before[name])
    assert moved == len(after["new"]) == count // (len(names) + 1)


def test_a_worker_keeps_the_items_that_it_lists() -> None:
    shares = spread({"a": Claim({"x": 1, "y": 1}), "b": Claim({"z": 5}), "c": Claim({})})
    assert shares == {"a": ["x", "y"], "b": ["z"], "c": []}


def test_the_later_claim_wins_when_two_workers_claim_an_item() -> None:
    items = {"x": 1.0, "y": 1.0}
    shares = spread({"a": Claim(items, ("x",), 3), "b": Claim(items, ("x",), 4)})
    assert shares == {"a": ["y"], "b": ["x"]}


def test_the_greatest_weight_counts() -> None:
    claims = {"a": Claim({"x": 1, "y": 1, "z": 1}), "b": Claim({"x": 9, "y": 1, "z": 1})}
    shares = spread(claims)
    assert sorted(map(tuple, shares.values())) == [("x",), ("y", "z")]


def test_many_items_are_spread() -> None:
    items = {f"i{n}": float(1 + n % 17) for n in range(3_000)}
    names = [f"w{n}" for n in range(40)]
    shares = spread(fresh(names, items))
    loads = [load(share, items) for share in shares.values()]
    assert max(loads) - min(loads) <= 17

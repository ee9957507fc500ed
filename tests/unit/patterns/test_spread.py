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


def test_heavy_items_are_assigned_first_and_ties_go_to_the_worker_with_fewer_items() -> None:
    items = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0}
    # b to v, d to w, then c to v (the first name), then a to w.
    assert spread(fresh(["w", "v"], items)) == {"v": ["b", "c"], "w": ["a", "d"]}


def test_equal_loads_go_to_the_worker_with_fewer_items() -> None:
    items = {"big": 2.0, "one": 1.0, "two": 1.0, "more": 1.0}
    held = {
        "a": Claim(items, ("one", "two"), 1),
        "b": Claim(items, ("big",), 1),
    }
    assert spread(held) == {"a": ["one", "two"], "b": ["big", "more"]}


def test_the_move_that_balances_best_is_made_first() -> None:
    items = {"x": 1.0, "y": 4.0, "z": 3.0}
    held = {"a": Claim(items, ("x", "y", "z"), 1), "b": Claim(items)}
    # Loads 8 and 0: moving y leaves 4 and 4.
    assert spread(held) == {"a": ["x", "z"], "b": ["y"]}


def test_an_item_moves_only_to_workers_that_list_it() -> None:
    held = {
        "a": Claim({"x": 1.0, "y": 1.0, "z": 1.0}, ("x", "y", "z"), 1),
        "b": Claim({"z": 1.0}),
        "c": Claim({}),
    }
    assert spread(held) == {"a": ["x", "y"], "b": ["z"], "c": []}


def test_an_item_that_its_holder_no_longer_lists_goes_to_another_worker() -> None:
    held = {"a": Claim({"x": 1.0}, ("x", "y"), 5), "b": Claim({"y": 1.0}, (), -1)}
    assert spread(held) == {"a": ["x"], "b": ["y"]}
    # An item that nobody lists is not assigned.
    assert spread({"a": Claim({}, ("gone",), 3)}) == {"a": []}


def test_between_equal_generations_the_last_name_keeps_the_item() -> None:
    items = {"x": 1.0, "y": 1.0}
    shares = spread({"b": Claim(items, ("x",), 3), "a": Claim(items, ("x",), 3)})
    assert shares == {"a": ["y"], "b": ["x"]}


def test_an_exchange_of_equal_loads_does_not_move_items() -> None:
    items = {"x": 1.0, "y": 1.0, "z": 1.0}
    held = {"a": Claim(items, ("x", "y"), 1), "b": Claim(items, ("z",), 1)}
    # Moving x would only exchange the loads.
    assert spread(held) == {"a": ["x", "y"], "b": ["z"]}


def test_differences_by_rounding_do_not_move_items() -> None:
    items = dict.fromkeys("abcdefghij", 0.1) | {"k": 1.0}
    held = {"v": Claim(items, tuple("abcdefghij"), 1), "w": Claim(items, ("k",), 1)}
    assert spread(held) == {"v": list("abcdefghij"), "w": ["k"]}


def test_tiny_weights_are_balanced() -> None:
    items = {"x": 0.001, "y": 0.001}
    held = {"a": Claim(items, ("x", "y"), 1), "b": Claim(items)}
    assert spread(held) == {"a": ["y"], "b": ["x"]}


def test_a_claim_without_more_holds_nothing() -> None:
    assert Claim({}) == Claim({}, (), -1)

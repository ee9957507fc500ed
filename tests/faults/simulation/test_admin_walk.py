"""Random walks of admin calls on an embedded cluster, whose brokers are killed in between.

`make walk` runs many at full length, and on three real brokers (tests/faults/kafka). `SEED=n`
repeats one.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from admin_walk import simulated
from admin_walk.model import BrokenModelError, Done, Model, Refused, State

from aiokclient.admin import Admin, NewTopic
from aiokclient.errors import (
    ApiTimeoutError,
    InvalidConfigError,
    KafkaError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)

ONE = os.environ.get("AIOKCLIENT_WALK_SEED")
SEEDS = [int(ONE)] if ONE else range(int(os.environ.get("AIOKCLIENT_WALK_SEEDS") or 20))
CALLS = int(os.environ.get("AIOKCLIENT_WALK_CALLS") or 500)
SHORT = 80
KEY = ("topic", "orders")


@pytest.mark.parametrize("seed", range(2))
def test_the_cluster_is_as_the_results_of_a_short_walk_say(seed: int) -> None:
    assert sum(simulated.run(seed, SHORT).calls.values()) == SHORT


@pytest.mark.walk
@pytest.mark.parametrize("seed", SEEDS)
def test_the_cluster_is_as_the_results_of_a_walk_say(seed: int) -> None:
    report = simulated.run(seed, CALLS)
    print(f"\nseed {seed}: {report}")  # noqa: T201
    assert sum(report.calls.values()) == CALLS


def test_a_seed_repeats_its_walk() -> None:
    assert simulated.run(7, 30).lines == simulated.run(7, 30).lines


def test_a_walk_fails_when_a_success_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create_nothing(self: Admin, topics: list[NewTopic], **_: Any) -> Any:
        return {topic.name: None for topic in topics}

    monkeypatch.setattr(Admin, "create_topics", create_nothing)
    with pytest.raises(BrokenModelError, match=r"(?s)topic-.*create_topics"):
        simulated.run(0, SHORT)


def create(state: State) -> list[Done | Refused]:
    return [Refused((TopicExistsError,))] if state else [Done(True)]


def delete(state: State) -> list[Done | Refused]:
    return [Done(None)] if state else [Refused((UnknownTopicOrPartitionError,))]


@pytest.mark.parametrize(
    ("result", "disturbed", "states"),
    [
        (None, False, {True}),
        (None, True, {True}),
        (ApiTimeoutError("late"), True, {None, True}),
        # An earlier attempt has created it.
        (TopicExistsError(), True, {True}),
    ],
    ids=["success", "success after a fault", "timeout", "repeated"],
)
def test_a_result_leaves_the_states_that_explain_it(
    result: KafkaError | None, disturbed: bool, states: set[State]
) -> None:
    model = Model()
    model.apply_result(KEY, create, result, disturbed, "create")
    assert model.list_states(KEY) == states
    assert (KEY in model.uncertain) == (len(states) > 1)


@pytest.mark.parametrize(
    ("result", "disturbed"),
    [
        (TopicExistsError(), False),
        (InvalidConfigError(), True),
        (ApiTimeoutError("late"), False),
    ],
    ids=["already there", "another refusal", "timeout without a fault"],
)
def test_a_result_that_no_state_explains_breaks_the_model(
    result: KafkaError, disturbed: bool
) -> None:
    with pytest.raises(BrokenModelError, match=type(result).__name__):
        Model().apply_result(KEY, create, result, disturbed, "create")


def test_an_uncertain_result_is_settled_by_what_is_read_then() -> None:
    model = Model()
    model.apply_result(KEY, create, ApiTimeoutError("late"), True, "create")
    assert model.compare({KEY: True}) == model.compare({}) == []
    model.settle({KEY: True})
    model.apply_result(KEY, delete, None, False, "delete")
    assert model.compare({}) == []
    (problem,) = model.compare({KEY: True})
    assert "('topic', 'orders')" in problem

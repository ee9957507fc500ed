"""Tests of the loop over items: which items are retried, which fail, and when the loop ends."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping

import pytest
from world import World, simulate

from aiokclient.cluster.requests.attempts import RefusalLog
from aiokclient.cluster.requests.per_item import ItemResults, PerItem, ask_in_parallel, ask_within
from aiokclient.errors import (
    ApiTimeoutError,
    DisconnectedError,
    KafkaError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    TopicAuthorizationError,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.types import TopicPartition


class StoppedClock:
    """A clock whose time never changes."""

    rng = random.Random(1)

    def monotonic(self) -> float:
        return 100.0

    def time_ms(self) -> int:
        return 0


class Loop:
    """A loop over three items that stores which items are refreshed and refused."""

    def __init__(self, refreshes: bool = True) -> None:
        retry = Attempts(200.0, Backoff(1.0, 8.0, jitter=0.0), StoppedClock())
        self.items = PerItem(["a", "b", "c", "a"], retry, Scope.ADMIN)
        self.refreshed: list[str] = []
        self.refused: dict[str, KafkaError] = {}
        self.refreshes = refreshes

    def settle(self, errors: Mapping[str, KafkaError]) -> float:
        return self.items.record_errors(
            errors, refresh=self.refresh, refuse=self.refused.__setitem__
        )

    def refresh(self, item: str, error: KafkaError) -> bool:
        self.refreshed.append(item)
        return self.refreshes


def test_settle_keeps_only_items_with_retriable_errors() -> None:
    loop = Loop()
    denied = TopicAuthorizationError()
    delay_s = loop.settle({"c": NotLeaderOrFollowerError(), "b": denied})
    assert loop.items.remaining == ["c"]
    assert loop.refreshed == ["c"]
    assert loop.refused == {"b": denied}
    assert delay_s == 1.0


def test_settle_counts_one_attempt_whatever_the_number_of_errors() -> None:
    loop = Loop()
    assert loop.settle(dict.fromkeys("abc", RequestTimedOutError())) == 1.0
    assert loop.settle(dict.fromkeys("abc", RequestTimedOutError())) == 2.0
    assert loop.settle({}) == 0.0
    assert loop.items.remaining == []


def test_settle_refuses_an_item_that_was_looked_up_in_vain() -> None:
    loop = Loop(refreshes=False)
    loop.settle({"a": NotLeaderOrFollowerError()})
    assert loop.items.remaining == []
    assert loop.refreshed == list(loop.refused) == ["a"]


def test_settle_asks_whether_an_error_is_final_before_the_policy() -> None:
    refused: list[str] = []
    items = PerItem(
        "ab",
        Attempts(200.0, Backoff(1.0, 8.0, jitter=0.0), StoppedClock()),
        Scope.ADMIN,
    )
    items.record_errors(
        dict.fromkeys("ab", RequestTimedOutError()),
        refresh=lambda item, error: True,
        refuse=lambda item, error: refused.append(item),
        is_final=lambda item, error: item == "a",
    )
    assert items.remaining == ["b"]
    assert refused == ["a"]


def test_settle_retries_an_item_without_delay_if_refuse_says_so() -> None:
    items = PerItem(
        "ab",
        Attempts(200.0, Backoff(1.0, 8.0, jitter=0.0), StoppedClock()),
        Scope.ADMIN,
    )
    delay_s = items.record_errors(
        dict.fromkeys("ab", TopicAuthorizationError()),
        refresh=lambda item, error: True,
        refuse=lambda item, error: item == "b",
    )
    assert delay_s == 0.0
    assert items.remaining == ["b"]


def test_drop_removes_items_that_need_no_further_attempt() -> None:
    loop = Loop()
    loop.items.drop_items({"a", "c"})
    assert loop.items.remaining == ["b"]
    assert not loop.refused


def test_results_are_missing_only_without_a_value_and_an_error() -> None:
    results: ItemResults[TopicPartition, int] = ItemResults()
    parts = [TopicPartition("t", index) for index in range(3)]
    results.put_partition(parts[0], 0, "ListOffsets", 1, 7)
    results.put_partition(parts[1], 6, "ListOffsets", 1, 0)
    missing = KafkaError("missing")
    results.fail_missing(parts, lambda tp: missing)
    assert results.found_values == {parts[0]: 7}
    assert isinstance(results.errors[parts[1]], NotLeaderOrFollowerError)
    assert results.errors[parts[2]] is missing


def test_failed_item_has_its_error_instead_of_its_value() -> None:
    results: ItemResults[str, int] = ItemResults()
    denied = TopicAuthorizationError()
    results.put_item("a", None, 1)
    results.put_item("b", None, 2)
    results.fail_item("a", denied)
    results.fail_item("c", denied)
    assert (results.found_values, results.errors) == ({"b": 2}, {"a": denied, "c": denied})


@pytest.mark.parametrize(("earlier", "logged_after"), [(0, 8), (4, 1), (1, 4)])
def test_refusals_of_items_are_logged_when_they_last_a_second(
    caplog: pytest.LogCaptureFixture, earlier: int, logged_after: int
) -> None:
    """Of an operation with earlier attempts, the time of the first one is unknown."""
    caplog.set_level(logging.WARNING, logger="aiokclient")
    counts: list[int] = []

    async def scenario(world: World) -> None:
        clock = world.sim.clock
        retry = Attempts(math.inf, Backoff(0.15, 0.15, jitter=0.0), clock)
        for _ in range(earlier):
            retry.next_attempt()
        refused = NotLeaderOrFollowerError(api="ListOffsets")
        items = PerItem(
            "ab",
            retry,
            Scope.ADMIN,
            refusals=RefusalLog(ClientLog("aiokclient", "c", None), clock),
        )

        async def ask(left: list[str]) -> Mapping[str, KafkaError]:
            counts.append(len(caplog.records))
            return {"b": refused} if len(counts) <= logged_after else {}

        await items.request_items(ask, refresh=lambda item, error: True)

    simulate(scenario)
    assert counts == [0] * logged_after + [1]


def test_last_error_of_a_round_is_the_first_refusal_in_it() -> None:
    loop = Loop()
    assert loop.items.last_error is None
    refused, silent = NotLeaderOrFollowerError(), DisconnectedError()
    loop.settle({"a": silent, "b": DisconnectedError()})
    assert loop.items.last_error is silent
    loop.settle({"a": DisconnectedError(), "b": refused})
    assert loop.items.last_error is refused
    loop.settle({"b": silent})
    assert loop.items.last_error is refused


def test_settle_waits_for_the_longest_delay_of_the_items() -> None:
    loop = Loop()
    for expected_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        errors = {"a": NotLeaderOrFollowerError(), "b": TopicAuthorizationError()}
        assert loop.settle(errors) == expected_s
    assert loop.items.remaining == ["a"]


PARTITION = TopicPartition("orders", 3)


@pytest.mark.parametrize("rounds", [0, 3])
def test_ask_within_ends_when_every_partition_has_succeeded(rounds: int) -> None:
    asked: list[list[TopicPartition]] = []
    other = TopicPartition("orders", 4)

    async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError]:
        asked.append(left)
        return {PARTITION: NotLeaderOrFollowerError()} if len(asked) <= rounds else {}

    async def scenario(world: World) -> None:
        await within(world, 10, [PARTITION, other], ask)

    simulate(scenario)
    assert asked == [[PARTITION, other], *[[PARTITION]] * rounds]


def test_ask_within_raises_the_first_error_that_is_final() -> None:
    denied = TopicAuthorizationError()

    async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError]:
        return {PARTITION: denied}

    async def scenario(world: World) -> None:
        with pytest.raises(TopicAuthorizationError) as caught:
            await within(world, 10, [PARTITION], ask)
        assert caught.value is denied

    simulate(scenario)


def test_ask_within_names_a_partition_that_is_left_at_the_timeout() -> None:
    async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, KafkaError]:
        return {PARTITION: NotLeaderOrFollowerError()}

    async def scenario(world: World) -> None:
        began = world.now
        with pytest.raises(ApiTimeoutError, match=r"no offset within 5\.0 s") as caught:
            await within(world, 5, [PARTITION], ask)
        assert world.now - began == pytest.approx(5)
        assert caught.value.topic_partition == PARTITION
        assert isinstance(caught.value.__cause__, NotLeaderOrFollowerError)

    simulate(scenario)


async def within(world: World, timeout: float, partitions: list[TopicPartition], ask) -> None:
    clock = world.sim.clock
    await ask_within(
        timeout,
        partitions,
        ask,
        Attempts(clock.monotonic() + timeout, Backoff(), clock),
        Scope.LIST_OFFSETS,
        refresh=lambda tp, error: True,
        check=lambda: None,
        api="ListOffsets",
        needed="offset",
    )


async def test_a_target_that_cannot_be_asked_fails_its_part_alone() -> None:
    answered: list[str] = []
    failed: list[list[str]] = []

    async def ask(target: int, part: list[str]) -> None:
        if target == 2:
            raise RequestTimedOutError
        answered.extend(part)

    await ask_in_parallel(
        {1: ["a"], 2: ["b", "c"], 3: ["d"]}, ask, lambda part, error: failed.append(part)
    )
    assert sorted(answered) == ["a", "d"]
    assert failed == [["b", "c"]]

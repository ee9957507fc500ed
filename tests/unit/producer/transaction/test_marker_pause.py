"""The pause of a transaction that begins before the markers of the previous one are written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Producer
from aiokclient.producer.transaction.ending import LONGER_S, LONGEST_S, SOON_S, MarkerPause
from aiokclient.testing.broker.transactions.coordinator import TransactionCoordinator
from aiokclient.testing.broker.transactions.transaction import TransactionMetadata

FAST_S, LATE_S = 0.002, 0.025


def transact(pause: MarkerPause, now: float, took: float) -> float:
    """Run a transaction that begins immediately. Return the pause before its first request."""
    pause.on_transaction_end(now)
    left = pause.compute_wait_s(now)
    pause.on_request_sent(now + left)
    pause.on_request_answered(now + left + took)
    return left


def test_there_is_no_pause_while_no_response_is_late() -> None:
    pause = MarkerPause()
    assert [transact(pause, n, FAST_S * (1 + n % 3)) for n in range(100)] == [0.0] * 100


def test_a_late_response_makes_the_pause_longer_and_others_slowly_shorter() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    transact(pause, 2.0, LATE_S)
    assert transact(pause, 3.0, FAST_S) == pytest.approx(LONGER_S)
    later = [transact(pause, 4.0 + n, FAST_S) for n in range(50)]
    assert later == sorted(later, reverse=True)
    assert later[20] > 0.0
    assert later[-1] == 0.0


def test_the_pause_has_a_limit_and_ends_if_all_responses_are_slow() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    lengths = [transact(pause, 2.0 + n, 1.0) for n in range(2000)]
    assert max(lengths) == pytest.approx(LONGEST_S)
    assert lengths[-1] == 0.0


def test_the_pause_counts_from_the_end_of_the_previous_transaction() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    transact(pause, 2.0, LATE_S)
    pause.on_transaction_end(5.0)
    assert pause.compute_wait_s(5.0 + LONGER_S / 4) == pytest.approx(LONGER_S * 3 / 4)
    assert pause.compute_wait_s(5.0 + LONGER_S) == 0.0


def test_only_the_first_request_of_a_transaction_waits() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    transact(pause, 2.0, LATE_S)
    assert pause.is_used
    assert pause.compute_wait_s(2.0) == 0.0
    pause.on_transaction_end(6.0)
    assert not pause.is_used


def test_a_late_response_to_a_transaction_that_began_later_says_nothing_of_markers() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    pause.on_transaction_end(2.0)
    pause.on_request_sent(2.0 + 2 * SOON_S)
    pause.on_request_answered(2.0 + 2 * SOON_S + LATE_S)
    assert pause.length_s == 0.0


def write_markers_after(delay_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the coordinators of embedded clusters write the markers of a transaction late."""
    soon = TransactionCoordinator._write_markers_soon

    def later(self: TransactionCoordinator, transaction: TransactionMetadata) -> None:
        asyncio.get_running_loop().call_later(delay_s, soon, self, transaction)

    monkeypatch.setattr(TransactionCoordinator, "_write_markers_soon", later)


async def commit(producer: Producer[Any, Any]) -> None:
    async with producer.transaction() as tx:
        tx.send("t", b"v", partition=0)


@pytest.mark.parametrize(("delay_s", "limit_s"), [(0.0, 0.006), (0.003, 0.009), (0.005, 0.011)])
def test_transactions_wait_for_the_markers_and_not_for_the_leader(
    delay_s: float, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_markers_after(delay_s, monkeypatch)

    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:
            for _ in range(20):
                await commit(producer)
            began = world.now
            for _ in range(200):
                await commit(producer)
            assert (world.now - began) / 200 < limit_s

    simulate(scenario, topics={"t": 2}, transaction_version=2)


def test_a_transaction_can_end_during_the_pause() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(transactional_id="t-1", linger_ms=0) as producer:
            await commit(producer)
            assert producer._engine is not None
            assert producer._engine.transactions is not None
            producer._engine.transactions.pause.length_s = LONGEST_S
            for _ in range(3):
                await producer.begin_transaction()
                producer.send("t", b"dropped")
                await producer.abort_transaction()
                await commit(producer)
            await producer.begin_transaction()
            producer.send("t", b"lost")

    simulate(scenario, topics={"t": 2}, transaction_version=2)


def test_a_new_pause_waits_for_nothing() -> None:
    pause = MarkerPause()
    assert not pause.is_used
    assert pause.compute_wait_s(0.0) == 0.0
    pause.on_request_answered(1.0)  # Nothing was sent soon after a transaction.
    assert pause.length_s == 0.0


@pytest.mark.parametrize(("late_s", "length"), [(0.0119, 0.0), (0.0121, 0.001), (1.0, 0.001)])
def test_a_response_is_late_when_it_took_12_ms_longer_than_the_fastest(
    late_s: float, length: float
) -> None:
    pause = MarkerPause()
    transact(pause, 1.0, FAST_S)
    # The fastest time grows by 2% with each response.
    transact(pause, 2.0, FAST_S * 1.02 + late_s)
    assert pause.length_s == pytest.approx(length)


def test_slow_responses_are_late_only_until_faster_ones_are_forgotten() -> None:
    pause = MarkerPause()
    transact(pause, 1.0, 0.1)
    transact(pause, 2.0, 0.1141)
    assert pause.length_s == pytest.approx(0.001), "0.1 was forgotten at once"
    for n in range(5):
        transact(pause, 3.0 + n, 0.1)
    assert pause.length_s < 0.001
    pause = MarkerPause()
    transact(pause, 1.0, 0.1)
    for n in range(3):
        transact(pause, 2.0 + n, 0.106)
    transact(pause, 6.0, 0.1175)
    assert pause.length_s == 0.0, "0.1 was remembered for too long"


def test_the_pause_grows_by_1_ms_up_to_5_and_shrinks_by_a_fortieth() -> None:
    pause = MarkerPause()
    pause.on_transaction_end(1.0)
    pause.on_request_sent(1.0)
    for length in (0.001, 0.002, 0.003, 0.004, 0.005, 0.005):
        pause.on_request_refused()
        assert pause.length_s == pytest.approx(length)
    transact(pause, 2.0, FAST_S)
    assert pause.length_s == pytest.approx(0.005 - 0.001 / 40)


@pytest.mark.parametrize(("after_s", "counts"), [(0.0199, True), (0.0201, False), (0.5, False)])
def test_only_a_request_within_20_ms_changes_the_pause(after_s: float, counts: bool) -> None:
    pause = MarkerPause()
    pause.on_transaction_end(1.0)
    pause.on_request_sent(1.0 + after_s)
    pause.on_request_refused()
    assert (pause.length_s > 0.0) is counts
    pause.length_s = 0.003
    pause.on_request_answered(1.0 + after_s + FAST_S)
    assert (pause.length_s < 0.003) is counts

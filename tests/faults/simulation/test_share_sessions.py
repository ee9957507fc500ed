"""Settlements and renewals that meet errors, closes, and each other, over a scripted broker."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from scripted.share_broker import (
    AVAILABLE,
    FINISHED,
    LOCKED,
    VERSIONS,
    ShareBrokers,
    ShareFault,
)

from aiokclient import ShareConsumer
from aiokclient.errors import LockLostError
from aiokclient.protocol import ApiKey
from aiokclient.testing import Simulation


class Stage:
    """A consumer that holds all records of one partition, and its scripted broker."""

    def __init__(self, sim: Simulation, brokers: ShareBrokers, options: dict[str, Any]) -> None:
        self.sim, self.brokers = sim, brokers
        self.errors: list[Any] = []
        self.records: list[Any] = []
        self.consumer: ShareConsumer[Any, Any] = ShareConsumer(
            "t",
            group_id="g",
            bootstrap_servers=brokers.address,
            connector=sim.connector,
            clock=sim.clock,
            on_acknowledge_error=self.errors.append,
            **options,
        )

    @property
    def states(self) -> list[int]:
        """The states of the records at the broker."""
        return self.brokers.parts[0].states

    @property
    def now(self) -> float:
        return self.sim.loop.time()

    def fail(self, kind: str, name: str, *, level: str = "acknowledgement", **options: Any) -> Any:
        """Let the broker answer requests of a kind with a fault."""
        self.brokers.fault = ShareFault(kind, level, name, **options)
        return self.brokers.fault

    async def stop(self) -> None:
        """Stop the consumer, and wait until no fetch is in flight."""
        self.consumer.stop()
        await asyncio.sleep(0.6)

    def heal(self) -> None:
        self.brokers.fault = ShareFault("none", "", "")

    def count(self, kind: str) -> int:
        return sum(each.kind == kind for each in self.brokers.requests)


def play(
    scene: Callable[[Stage], Coroutine[Any, Any, None]], *, lock_ms: int = 30_000, **options: Any
) -> None:
    """Run a scene with a consumer that holds three records."""

    @contextlib.asynccontextmanager
    async def staged(sim: Simulation) -> AsyncIterator[Stage]:
        brokers = ShareBrokers(sim.network, 1, lock_ms=lock_ms)
        brokers.produce(0, 3)
        stage = Stage(sim, brokers, options)
        async with stage.consumer:
            while len(stage.records) < 3:
                stage.records += await stage.consumer.poll(5.0, tracked=True)
            yield stage
        await brokers.stop()

    async def main(sim: Simulation) -> None:
        async with staged(sim) as stage:
            await scene(stage)

    Simulation(1, limit_s=1000).run(main)


@pytest.mark.fault(36)
def test_a_close_with_settlements_that_are_refused_for_now_repeats_them_slowly_and_ends() -> None:
    async def scene(stage: Stage) -> None:
        stage.fail("acknowledge", "15", repeated=True)
        stage.consumer.done(stage.records[0])
        since = stage.now
        await stage.consumer.close(3.0)
        assert stage.now - since < 3.5
        assert 3 <= stage.count("acknowledge") < 40
        assert all(isinstance(error, LockLostError) for error in stage.errors)

    play(scene)


@pytest.mark.fault(36)
@pytest.mark.parametrize(
    ("level", "name"), [("top", "123"), ("top", "7"), ("acknowledgement", "7")]
)
def test_a_close_sends_settlements_again_and_in_a_new_session_if_needed(
    level: str, name: str
) -> None:
    async def scene(stage: Stage) -> None:
        fault = stage.fail("acknowledge", name, level=level)
        stage.consumer.done(stage.records[0])
        stage.consumer.reject(stage.records[2])
        await stage.consumer.close()
        assert fault.seen
        assert stage.states == [FINISHED, AVAILABLE, FINISHED]
        assert stage.brokers.requests[-1].epoch == -1
        assert stage.errors == []

    play(scene)


def test_a_record_that_is_settled_before_its_renewal_is_sent_has_the_outcome_of_that() -> None:
    async def scene(stage: Stage) -> None:
        reading = asyncio.create_task(stage.consumer.poll(2.0))
        await asyncio.sleep(0.1)  # A fetch is in flight.
        stage.consumer.renew(stage.records[:2])
        stage.consumer.done(stage.records[0])
        outcomes = await stage.consumer.commit(timeout=5.0)
        assert outcomes == {stage.records[0]: None, stage.records[1]: None}
        (renewal,) = [each for each in stage.brokers.requests if each.kind == "renewal"]
        assert [batch.first_offset for _, batch in renewal.list_acknowledged()] == [1]
        assert stage.states == [FINISHED, LOCKED, LOCKED]
        await reading

    play(scene)


def test_a_record_may_be_settled_while_its_renewal_is_in_flight() -> None:
    async def scene(stage: Stage) -> None:
        await stage.stop()
        stage.sim.network.slowed[stage.brokers.address] = 0.1
        stage.consumer.renew(stage.records[0])
        await asyncio.sleep(0.05)
        stage.consumer.done(stage.records[0])
        assert await stage.consumer.commit(timeout=5.0) == {stage.records[0]: None}
        assert [each.kind for each in stage.brokers.requests if each.kind] == [
            "renewal",
            "acknowledge",
        ]
        assert stage.states[0] == FINISHED

    play(scene)


def test_renewals_are_tried_again_after_a_group_has_forbidden_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: Stage) -> None:
        stage.fail("renewal", "121", repeated=True)
        stage.consumer.renew(stage.records[0])
        (error,) = (await stage.consumer.commit(return_exceptions=True)).values()
        assert "not renewed" in str(error)
        assert any("renewal is not possible" in each for each in stage.consumer.health().reasons)
        assert not stage.records[0].lock_lost
        stage.heal()  # An operator changes the configuration of the group.
        await asyncio.sleep(3.0)
        assert all(record.lock_lost for record in stage.records)  # These could not be renewed.
        stage.brokers.produce(0, 1)
        (record,) = await stage.consumer.poll(5.0, tracked=True)
        await asyncio.sleep(10.0)
        assert not record.lock_lost
        assert stage.count("renewal") > 4
        assert not any("renewal" in each for each in stage.consumer.health().reasons)

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        play(scene, lock_ms=2000)
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events.count("share_renewal_impossible") == 1


def test_renewals_that_are_refused_for_one_lost_lock_go_on_without_it() -> None:
    async def scene(stage: Stage) -> None:
        stage.brokers.end_lock(0, 1)
        with pytest.raises(LockLostError) as caught:
            async with stage.consumer.processing(stage.records[1]):
                await asyncio.Event().wait()
        assert caught.value.reason == "refused"
        await asyncio.sleep(10.0)
        assert [record.lock_lost for record in stage.records] == [False, True, False]
        assert not any("renewal" in each for each in stage.consumer.health().reasons)
        assert stage.consumer.done([stage.records[0], stage.records[2]])
        assert set((await stage.consumer.commit()).values()) == {None}

    play(scene, lock_ms=2000)


def test_renewals_that_a_group_forbids_are_refused_a_few_times_and_lose_nothing_before_their_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(stage: Stage) -> None:
        stage.fail("renewal", "121", repeated=True)
        await asyncio.sleep(1.4)
        # All three, the first, the last two, and the last one.
        assert stage.count("renewal") == 4
        assert not any(record.lock_lost for record in stage.records)
        assert any("renewal is not possible" in each for each in stage.consumer.health().reasons)
        assert stage.consumer.done(stage.records)
        assert set((await stage.consumer.commit()).values()) == {None}

    with caplog.at_level(logging.WARNING, logger="aiokclient"):
        play(scene, lock_ms=2000)
    assert "cannot be renewed" in caplog.text


def test_a_group_is_taken_to_forbid_renewals_if_one_was_refused_and_the_others_are_settled() -> (
    None
):
    async def scene(stage: Stage) -> None:
        await stage.stop()
        fault = stage.fail("renewal", "121", repeated=True)
        stage.consumer.renew(stage.records)
        for _ in range(2):  # All three, and the first.
            await fault.answered.wait()
            fault.answered.clear()
        assert stage.consumer.done(stage.records[1:])
        outcomes = await stage.consumer.commit(return_exceptions=True)
        assert "not renewed" in str(outcomes[stage.records[0]])
        assert [outcomes[record] for record in stage.records[1:]] == [None, None]
        assert not stage.records[0].lock_lost

    play(scene)


@pytest.mark.fault(13)
def test_a_settlement_that_waits_for_a_silent_broker_is_lost_at_its_deadline() -> None:
    async def scene(stage: Stage) -> None:
        await stage.stop()
        stage.fail("acknowledge", "no answer before", level="connection")
        stage.consumer.done(stage.records[0])
        await asyncio.sleep(0.1)
        stage.consumer.done(stage.records[1])
        outcomes = await stage.consumer.commit(stage.records[1], 30.0, return_exceptions=True)
        (error,) = outcomes.values()
        assert isinstance(error, LockLostError)
        assert (error.reason, error.confirmed) == ("expired", False)
        assert stage.now < stage.records[1].lock_deadline + 0.1
        assert stage.records[2].lock_lost
        # The one in flight is unknown until the connection is given up.
        outcomes = await stage.consumer.commit(stage.records[0], 60.0, return_exceptions=True)
        (error,) = outcomes.values()
        assert isinstance(error, LockLostError)
        assert (error.reason, error.confirmed) == ("disconnected", None)

    play(scene, lock_ms=2000, request_timeout_ms=10_000)


@pytest.mark.fault(13)
@pytest.mark.parametrize(("code", "confirmed"), [("133", False), ("15", None)])
def test_a_settlement_is_in_doubt_only_if_a_refused_request_may_have_been_applied(
    code: str, confirmed: bool | None
) -> None:
    """A broker with too many sessions refuses a request before it looks at it."""

    async def scene(stage: Stage) -> None:
        await stage.stop()
        fault = stage.fail("acknowledge", code, level="top", repeated=True)
        stage.consumer.done(stage.records[0])
        outcomes = await stage.consumer.commit(stage.records[0], 30.0, return_exceptions=True)
        (error,) = outcomes.values()
        assert len(fault.seen) > 1
        assert isinstance(error, LockLostError)
        assert (error.reason, error.confirmed) == ("expired", confirmed)

    play(scene, lock_ms=2000)


def test_a_renewal_does_not_wait_for_the_backoff_of_other_requests() -> None:
    async def scene(stage: Stage) -> None:
        reading = asyncio.create_task(stage.consumer.poll(20.0, tracked=True))
        await asyncio.sleep(0.05)
        stage.consumer.done(stage.records[0])
        fault = stage.fail("fetch", "42", level="top")
        await fault.answered.wait()
        await asyncio.sleep(8.0)  # Less than the backoff.
        assert stage.brokers.requests[-1].kind == "renewal"
        assert not any(record.lock_lost for record in stage.records[1:])
        reading.cancel()
        await asyncio.wait([reading])

    play(scene, lock_ms=2000, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)


def test_a_record_that_is_acquired_again_was_lost() -> None:
    async def scene(stage: Stage) -> None:
        stage.states[1] = AVAILABLE  # The broker ends the lock before its time.
        found = await stage.consumer.poll(5.0, tracked=True)
        assert [(each.offset, each.delivery_count) for each in found] == [(1, 2)]
        assert [record.lock_lost for record in stage.records] == [False, True, False]
        assert not stage.consumer.done(stage.records[1])
        assert stage.consumer.done(found[0])
        assert await stage.consumer.commit(found) == {found[0]: None}
        assert [error.reason for error in stage.errors] == ["moved"]

    play(scene)


@pytest.mark.fault(3)
def test_records_of_a_leader_that_was_away_during_a_fetch_are_lost_as_moved() -> None:
    """And those that it acquires afterwards are not, though the known metadata is older."""

    async def scene(stage: Stage) -> None:
        reading = asyncio.create_task(stage.consumer.poll(5.0, tracked=True))
        await asyncio.sleep(0.1)
        stage.states[:] = [AVAILABLE] * 3
        stage.brokers.parts[0].epoch += 2
        stage.brokers.produce(0, 1)
        found = await reading
        await asyncio.sleep(2.0)
        assert [(each.offset, each.delivery_count) for each in found] == [
            (0, 2),
            (1, 2),
            (2, 2),
            (3, 1),
        ]
        assert [record.lock_lost for record in stage.records] == [True] * 3
        assert stage.consumer.done(found)
        assert not stage.consumer.done(stage.records)
        assert await stage.consumer.commit(found) == dict.fromkeys(found)
        assert [error.reason for error in stage.errors] == ["moved"] * 3

    play(scene)


@pytest.mark.fault(3)
def test_records_of_a_leader_that_was_away_before_any_metadata_are_lost_when_not_renewed() -> None:
    """Though it refuses them with the code by which it says that the group allows no renewals."""

    async def scene(stage: Stage) -> None:
        stage.consumer.stop()
        stage.states[:] = [FINISHED] * 3  # By another member.
        stage.brokers.parts[0].epoch += 2
        begun_at = stage.now
        for record in stage.records:
            await stage.consumer.lock_lost(record)
            assert record.lock_lost
        assert stage.now < begun_at + 1.0
        assert stage.count("renewal") == 1
        assert not stage.consumer.done(stage.records)
        await asyncio.sleep(0.1)
        assert [error.reason for error in stage.errors] == ["moved"] * 3

    play(scene)


def test_a_commit_tells_two_deliveries_of_a_record_apart() -> None:
    """Also those with the same count, which a new leader may begin anew."""

    async def scene(stage: Stage) -> None:
        stage.states[1] = AVAILABLE
        stage.brokers.parts[0].counts[1] = 0
        (again,) = await stage.consumer.poll(5.0, tracked=True)
        first = stage.records[1]
        assert (again.offset, again.delivery_count) == (first.offset, first.delivery_count)
        assert again != first
        assert stage.consumer.done(again)
        outcomes = await stage.consumer.commit([first, again], return_exceptions=True)
        assert len(outcomes) == 2
        assert isinstance(outcomes[first], LockLostError)
        assert outcomes[again] is None

    play(scene)


def test_a_partition_that_cannot_be_fetched_for_now_is_settled_without_a_fetch() -> None:
    """A fetch with its acknowledgements would add it to the session, and acquire its records."""

    async def scene(stage: Stage) -> None:
        reading = asyncio.create_task(stage.consumer.poll(3.0, tracked=True))
        await asyncio.sleep(0.05)
        fault = stage.fail("fetch", "-1", level="records")
        stage.consumer.done(stage.records[0])
        await fault.answered.wait()
        await asyncio.sleep(0.05)
        stage.consumer.done(stage.records[1])
        await stage.consumer.commit(stage.records[1])
        assert [each.kind for each in stage.brokers.requests[-2:]].count("acknowledge") == 1
        assert stage.count("fetch") == 1
        stage.brokers.produce(0, 1)
        assert [record.offset for record in await reading] == [3]

    play(scene, retry_backoff_ms=1000, retry_backoff_max_ms=1000)


def test_a_broker_without_renewals_lets_locks_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka 4.1 has version 1 of the requests: no renewals, and no limit of records."""
    for key in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
        monkeypatch.setitem(VERSIONS, key, (1, 1))

    async def scene(stage: Stage) -> None:
        begun = stage.now
        assert stage.consumer.renew(stage.records[0])
        outcomes = await stage.consumer.commit(return_exceptions=True)
        assert "KIP-1222" in str(outcomes[stage.records[0]])
        await stage.consumer.lock_lost(stage.records[1])
        assert stage.now - begun == pytest.approx(4.0, abs=0.6)
        assert stage.count("renewal") == 0
        assert any("renewal is not possible" in each for each in stage.consumer.health().reasons)

    play(scene, lock_ms=4_000)
    assert "cannot be renewed" in caplog.text

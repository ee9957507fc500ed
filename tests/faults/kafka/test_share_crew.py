"""Share groups on three brokers: members and brokers are killed, suspended, and moved.

`make share-real` runs more seeds, on Kafka and on the embedded cluster, and also members of other
clients.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from churn import Nursery
from churn.events import Event
from kafka_harness import KafkaCluster
from share_crew import Change, Crew, EmbeddedSite, RealSite, ShareAudit, Site

from aiokclient.testing import EmbeddedCluster

FIRST = int(os.environ.get("AIOKCLIENT_SHARE_SEED") or 0)
SEEDS = int(os.environ.get("AIOKCLIENT_SHARE_SEEDS") or 10)
CONFIGS = {
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.heartbeat.interval.ms": 500,
}
EACH = ("kill", "suspend", "move", "cancel", "kill_broker", "cancel_handlers", "join")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("share_crew") as nursery:
        yield nursery


@pytest.fixture(scope="module")
def embedded() -> Iterator[Site]:
    with EmbeddedCluster(3, configs=CONFIGS) as cluster:
        yield EmbeddedSite(cluster)


@pytest.fixture(params=["embedded", "kafka3"])
def site(request: pytest.FixtureRequest) -> Site:
    """Three brokers, embedded or real."""
    if request.param == "embedded":
        found: Site = request.getfixturevalue("embedded")
        return found
    return RealSite(request.getfixturevalue(request.param))


async def run_crew(
    site: Site, nursery: Nursery, seed: int, actions: Any, count: int, **options: Any
) -> ShareAudit:
    """Run a group under test, print what was found, and return the checks."""
    async with Crew(site, nursery, seed, **options) as crew:
        await crew.fill(count // 2)
        audit = await crew.run(actions, count // 2)
    told = "\n".join([crew.describe(), audit.summarize(), *audit.violations])
    print(f"\n{told}")  # noqa: T201
    return audit


@pytest.mark.fault(1, 3, 14, 18)
async def test_each_record_of_real_brokers_ends_as_its_handlers_say(
    kafka3: KafkaCluster, nursery: Nursery
) -> None:
    audit = await run_crew(RealSite(kafka3), nursery, 1, EACH, 16, most=8)
    assert audit.violations == []


@pytest.mark.share_real
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_each_record_ends_as_its_handlers_say_for_processes_of_many_seeds(
    site: Site, nursery: Nursery, seed: int
) -> None:
    audit = await run_crew(site, nursery, seed, [""] * 20, 100, most=1 + seed * 7 % 20)
    assert audit.violations == []


@pytest.mark.share_real
@pytest.mark.fault(3)
async def test_members_of_other_clients_share_records_with_ours(
    kafka3: KafkaCluster, nursery: Nursery
) -> None:
    pytest.importorskip("confluent_kafka")
    foreign, actions = ("java", "librdkafka"), ("kill", "move", "kill")
    audit = await run_crew(RealSite(kafka3), nursery, 5, actions, 16, most=6, foreign=foreign)
    assert audit.violations == []


@pytest.mark.share_real
@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_members_of_other_clients_share_records_with_ours_for_many_seeds(
    site: Site, nursery: Nursery, seed: int
) -> None:
    foreign = ("java", "librdkafka")
    audit = await run_crew(site, nursery, seed, [""] * 15, 100, most=10, foreign=foreign)
    assert audit.violations == []


async def test_process_that_accepts_what_it_has_lost_is_noticed(nursery: Nursery) -> None:
    with EmbeddedCluster(3, configs=CONFIGS) as cluster:
        async with Crew(EmbeddedSite(cluster), nursery, 0) as crew:
            await crew.fill(1, {"accept": 1})
            how: dict[str, Any] = {"how": "manual", "outstanding": 1}
            wrong = crew.join("ours", 1, **how, broken="believing", options={"renew_locks": False})
            await crew.until(lambda: crew.find_begun(wrong))
            # So many members that each partition has two of them.
            right = crew.join("ours", 5, **how)
            await crew.until(lambda: crew.find_begun(right) >= crew.find_begun(wrong))
            wrong.order(f"go {wrong.members[0]}")
            audit = await crew.end()
    assert any("is held by" in each for each in audit.violations), audit.violations


def replay(*events: tuple[Any, ...], changes: Any = (), fate: str = "accept") -> list[str]:
    """Return the violations of a group with one record, by (time, what, data) of its members."""
    told = [Event(time, data[0], what, data) for time, what, *data in events]
    told = [each._replace(data=tuple(each.data)) for each in told]
    audit = ShareAudit(told, {0: list(changes)}, {(0, 0): fate}, 5)
    audit.check_ends({})
    return audit.violations


BEGUN: tuple[tuple[Any, ...], ...] = (
    (1.0, "acquired", "a", 0, 0, 0, 1),
    (1.1, "begin", "a", 0, 0, 1, 6.0, False),
)
AGAIN: tuple[tuple[Any, ...], ...] = (
    (3.0, "acquired", "b", 0, 0, 0, 2),
    (3.1, "begin", "b", 0, 0, 2, 8.0, False),
    (3.2, "ask", "b", 0, 0, 2, "accept"),
    (3.3, "end", "b", 0, 0, 2),
)
LOST = (2.9, "lost", "a", 0, 0, 0, "moved")


def test_an_audit_finds_what_members_of_a_share_group_must_not_do() -> None:
    assert replay(*BEGUN, LOST, *AGAIN) == []
    assert "is held by a" in replay(*BEGUN, *AGAIN)[0]
    assert replay(*BEGUN, *AGAIN, changes=[Change(2.8, 2.9)]) == []
    long = (1.1, "begin", "a", 0, 0, 1, 60.0, False)
    assert "does not know" in replay(BEGUN[0], long, changes=[Change(2.0, 2.1)])[0]
    assert "of which no broker knows" in replay(*BEGUN, LOST, *AGAIN[1:])[0]
    assert "was lost" in replay(*BEGUN, LOST)[0]
    confirmed = (1.3, "ask", "a", 0, 0, 1, "accept"), (1.4, "outcome", "a", 0, 0, 1, "accept", None)
    ended = (1.3, "end", "a", 0, 0, 1)
    assert "after it was confirmed" in replay(*BEGUN, *confirmed, ended, *AGAIN)[0]
    repeated = (3.0, "acquired", "b", 0, 0, 0, 1), (3.2, "ask", "b", 0, 0, 1, "accept")
    assert "twice with the count 1" in replay(*BEGUN, LOST, *repeated)[0]
    assert replay(*BEGUN, LOST, *repeated, changes=[Change(1.5, 2.0)]) == []
    assert "in spite of" in replay(*BEGUN, LOST, *AGAIN, fate="poison")[-1]
    late = (1.1, "begin", "a", 0, 0, 1, 0.05, True)
    assert "when its lock was lost" in replay(BEGUN[0], late, LOST, *AGAIN)[0]


def test_an_audit_excuses_repeated_counts_only_of_leaders_that_may_have_forgotten_them() -> None:
    """Without sessions, and while the broker of the share coordinator may be away."""

    def repeat(*told: tuple[Any, ...], leaders: tuple[int, int] = (1, 1)) -> list[str]:
        acquired = (1.0, "acquired", "p1.0", 0, 0, 0, 1, leaders[0])
        begun = (1.1, "begin", "p1.0", 0, 0, 1, 6.0, False)
        again = (9.0, "acquired", "p2.0", 0, 0, 0, 1, leaders[1])
        asked = (9.2, "ask", "p2.0", 0, 0, 1, "accept")
        events = [acquired, begun, (3.0, "lost", "p1.0", 0, 0, 0, "expired"), again, asked]
        return replay(*sorted([*events, *told], key=lambda event: event[0]))

    opened, next_opened = (0.9, "session", "p1.0", 1), (8.0, "session", "p2.0", 1)
    closed, down, up = (5.0, "disconnected", "p1.0", 1), (4.0, "down", 2, False), (7.0, "up", 2)
    forgotten = opened, closed, next_opened, down, up
    assert repeat(*forgotten) == []
    assert repeat(opened, (5.0, "left", "p1.0"), next_opened, down, up) == []
    # No broker was away, or only the leader, or another one long before.
    wrong = [
        (opened, closed, next_opened),
        (opened, closed, next_opened, (4.0, "down", 1, False), (7.0, "up", 1)),
        (opened, closed, next_opened, (-90.0, "down", 2, False), (-80.0, "up", 2)),
        # A session with the leader was there all the time: one, or one after another.
        (opened, next_opened, down, up),
        (*forgotten, (0.8, "session", "p3.0", 1)),
        (*forgotten, (4.9, "session", "p3.0", 1), (8.1, "disconnected", "p3.0", 1)),
    ]
    for told in wrong:
        assert "twice with the count 1" in repeat(*told)[0], told
    # Only sessions with the leader count.
    other = (0.8, "session", "p3.0", 3)
    assert repeat(*forgotten, other) == []
    assert "twice with the count 1" in repeat(*forgotten, other, leaders=(3, 3))[0]


def test_an_audit_excuses_repeated_counts_of_a_leader_that_was_suspended_while_it_moved() -> None:
    opened = (0.1, "session", "a", 1), (0.1, "session", "b", 2)
    asked = (9.9, "ask", "b", 0, 0, 1, "accept")
    moved = [Change(4.0, 4.2)]

    def repeat(*told: tuple[Any, ...], **options: Any) -> list[str]:
        events = sorted([*opened, *told, asked], key=lambda event: event[0])
        return replay(*events, **options)

    def suspend(begin: float = 1.0, end: float = 6.1, suspended: bool = True) -> Any:
        return (begin, "down", 1, suspended), (end, "up", 1)

    stale, new = (6.2, "acquired", "a", 0, 0, 0, 1, 1), (6.5, "acquired", "b", 0, 0, 0, 1, 2)
    assert repeat(*suspend(), stale, new, changes=moved) == []
    assert repeat(*suspend(), (6.1, *new[1:]), stale, changes=moved) == []
    wrong = [
        (*suspend(suspended=False), stale, new),
        # It was suspended before the move, or after it.
        (*suspend(1.0, 3.9), stale, new),
        (*suspend(4.3), stale, new),
        # It has been awake for long, or both are of one leader.
        (*suspend(), (16.2, *stale[1:]), (16.5, *new[1:])),
        (*suspend(), stale, (6.5, *stale[1:])),
        (*suspend(), (6.2, *new[1:]), new),
    ]
    for told in wrong:
        assert "twice with the count 1" in repeat(*told, changes=moved)[0], told
    assert "twice with the count 1" in repeat(*suspend(), stale, new)[0]
    # The member may believe the stale leader until it learns of the move.
    held = (6.3, "begin", "a", 0, 0, 1, 9.0, False)
    other = (6.6, "begin", "b", 0, 0, 1, 9.5, False)
    assert repeat(*suspend(), stale, held, new, other, changes=moved) == []
    assert "is held by a" in repeat(*suspend(4.3), stale, held, new, other, changes=moved)[0]


def test_an_audit_excuses_finished_records_of_a_leader_that_was_suspended_meanwhile() -> None:
    opened = (0.1, "session", "a", 1), (0.1, "session", "b", 2)
    accepted = (
        (4.5, "acquired", "b", 0, 0, 0, 1, 2),
        (4.6, "begin", "b", 0, 0, 1, 9.0, False),
        (4.7, "ask", "b", 0, 0, 1, "accept"),
        (4.8, "end", "b", 0, 0, 1),
    )

    def finish(
        begin: float, end: float, at: float, leader: int = 1, confirmed: float = 4.9
    ) -> list[str]:
        outcome = (confirmed, "outcome", "b", 0, 0, 1, "accept", None)
        suspended = (begin, "down", 1, True), (end, "up", 1)
        stale = (at, "acquired", "a", 0, 0, 0, 2, leader)
        told: list[Any] = [*opened, *accepted, outcome, *suspended, stale]
        told.sort(key=lambda event: event[0])
        return replay(*told, changes=[Change(4.0, 4.2)])

    assert finish(1.0, 6.1, 6.2) == []
    assert finish(1.0, 6.1, 6.2, leader=0) == [], "the leader of another client is not known"
    wrong = [
        finish(1.0, 6.1, 6.2, leader=2),
        # It was suspended before the move, or after it, or has been awake for long.
        finish(1.0, 3.9, 6.2),
        finish(4.3, 6.1, 6.2),
        finish(1.0, 6.1, 16.2),
        # It was awake when the end was confirmed.
        finish(1.0, 6.1, 6.4, confirmed=6.3),
    ]
    for found in wrong:
        assert "after it was confirmed" in found[0]

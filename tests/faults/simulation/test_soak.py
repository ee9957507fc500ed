"""Tests of the parts of the soak that need no Kafka: its schedules, its clients, and its checks.

The clients run once in the simulation, amid a few faults, and record entries. The checks are tested
with these entries: unchanged entries break no promise, and each deliberate change breaks one.
"""

import asyncio
import functools
import gc
import itertools
import os
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import stolen_time
from ledger import Payload, pack
from secret_search import SecretSearch
from soak.checks import ATOMIC, COPIES, LONGEST_HOLD_S, PARTITIONS, PLAIN, RunChecks
from soak.entries import (
    Acknowledged,
    Assigned,
    Called,
    Committed,
    Delivered,
    Ended,
    Entry,
    Held,
    Lost,
    Processed,
    Read,
    Revoked,
    Sent,
)
from soak.measures import SEEN_S, Usage, Watch
from soak.members import Members
from soak.run import MINUTE, Settings
from soak.sabotage import CHANGES, Sabotage
from soak.schedule import GROUPS, KINDS, NODES, SIDES, as_text, schedule, track_of
from soak.workload import Workload
from world import World, simulate

from aiokclient import TopicPartition

HARNESS = Path(__file__).resolve().parents[2] / "harness"
SECRET = "a-password-of-the-test"
P0, C0 = TopicPartition(PLAIN, 0), TopicPartition(COPIES, 0)


# -- the schedule


def test_a_seed_determines_the_faults_in_every_process() -> None:
    printed = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join([str(HARNESS), str(HARNESS.parents[1])])
        command = [sys.executable, "-m", "soak", "--plan", "--seed", "17", "--minutes", "10"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        printed.add(done.stdout.strip())
    first, rest = Settings(10, 17).faults()
    assert printed == {f"{as_text(first)}\n{as_text(rest)}"}


def test_seeds_give_different_faults() -> None:
    assert len({as_text(schedule(seed, 5, 600)) for seed in range(50)}) == 50


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_has_every_kind_and_ends_in_time(seed: int) -> None:
    faults = schedule(seed, 5, 125)
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}
    assert {fault.node for fault in faults} == set(NODES)
    assert {fault.side for fault in faults} == set(SIDES)
    assert {fault.group for fault in faults} == set(GROUPS)
    assert all(5 <= fault.at <= fault.at + fault.seconds <= 125 for fault in faults)


@pytest.mark.parametrize("seed", range(20))
def test_at_most_one_broker_is_away_at_a_time(seed: int) -> None:
    broken = [f for f in schedule(seed, 5, 600) if track_of(f.kind) == "broker"]
    for fault, following in itertools.pairwise(broken):
        assert fault.at + fault.seconds < following.at


def test_the_first_minute_is_the_same_whatever_the_length_of_the_run() -> None:
    for minutes in (1, 2, 10):
        assert Settings(minutes, 3).faults()[0] == Settings(1, 3).faults()[0]
    assert all(fault.at >= MINUTE for fault in Settings(10, 3).faults()[1])


def test_a_run_of_half_a_minute_has_the_faults_that_end_within_it() -> None:
    whole, _ = Settings(1, 1).faults()
    first, rest = Settings(0.5, 1).faults()
    assert first == [fault for fault in whole if fault.at + fault.seconds < MINUTE / 2]
    assert rest == []
    assert {"kill", "suspend", "rebootstrap", "join"} <= {fault.kind for fault in first}
    assert len(first) < len(whole)


# -- a recorded run


@dataclass
class SimulatedPace:
    record_s: float = 0.1
    transaction_s: float = 0.3
    observation_s: float = 0.5


@functools.cache
def recorded() -> tuple[Entry, ...]:
    """Return the entries of a run in the simulation, in which brokers and connections fail."""

    async def scenario(world: World) -> list[Entry]:
        found: list[Entry] = []
        workload = Workload(
            lambda *_: world.options(), found.append, SimulatedPace(), random.Random(1)
        )
        members = Members(workload, found.append)
        checks = RunChecks()
        async with workload.running():
            for group in GROUPS:
                for number in range(2):
                    members.join(group, number)
            await members.started()
            await asyncio.sleep(4)
            world.network.cut()
            workload.sample()
            await asyncio.sleep(3)
            for group in GROUPS:
                await members.leave(members.of(group)[0])
                members.join(group, 3)
            world.cluster.stop(1)
            await asyncio.sleep(3)
            world.cluster.start(1)
            await members.started()
            for _ in range(50):
                workload.sample()
            await asyncio.sleep(3)
            workload.sending = False
            checks.note_all(found)
            noted = len(found)
            async with asyncio.timeout(60):
                while True:
                    await asyncio.sleep(1)
                    checks.note_all(found[noted:])
                    noted = len(found)
                    if not checks.open:
                        break
            await members.leave_all()
        return found

    topics = dict.fromkeys((PLAIN, COPIES, ATOMIC), PARTITIONS)
    return tuple(simulate(scenario, brokers=3, topics=topics))


def checked(found: list[Entry] | tuple[Entry, ...], promise: str = "") -> RunChecks:
    """Return the checks of a recorded run. If `promise` is given, the run is made to break it."""
    search = SecretSearch()
    search.add("password", SECRET)
    checks, sabotage = RunChecks(search), Sabotage(promise, SECRET)
    for entry in found:
        checks.note_all(sabotage(entry))
    checks.finish()
    assert sabotage.done == bool(promise)
    return checks


def test_a_recorded_run_has_all_kinds_of_entries_and_breaks_no_promise() -> None:
    checks = checked(recorded())
    assert checks.breaches == []
    checks.check()
    assert checks.plain.read > 200
    assert checks.copies.read == checks.plain.read
    assert all(group.assigned_times > 2 for group in checks.groups.values())
    assert checks.atomic.outcomes["committed"] > 5
    assert checks.atomic.outcomes["aborted"] > 5


@pytest.mark.parametrize("promise", CHANGES)
def test_each_deliberate_change_of_a_recorded_run_is_found(promise: str) -> None:
    checks = checked(recorded(), promise)
    assert checks.broken[promise], checks.breaches
    with pytest.raises(AssertionError, match=f"broken: .*{promise}"):
        checks.check()


# -- single checks


def broken_by(*found: Entry, finish: bool = False) -> str:
    checks = RunChecks()
    checks.note_all(found)
    if finish:
        checks.finish()
    return "\n".join(checks.breaches)


def value(sequence: int, tp: TopicPartition = P0, producer: int = 0) -> bytes:
    return pack(Payload(tp.topic, tp.partition, producer, sequence))


def sends(count: int) -> list[Entry]:
    return [Sent(0, P0, sequence) for sequence in range(count)]


def test_a_record_that_is_acknowledged_after_the_reader_has_passed_it_is_lost() -> None:
    found = broken_by(*sends(2), Read(P0, 5, value(1)), Acknowledged(0, P0, 0, 4))
    assert found.startswith("A: ")
    assert "is not in the log" in found


def test_a_record_at_another_offset_than_the_acknowledged_one_is_reported() -> None:
    assert "acknowledged at 4, and is at 5" in broken_by(
        *sends(1), Acknowledged(0, P0, 0, 4), Read(P0, 5, value(0))
    )
    assert "acknowledged at 4, and is at 5" in broken_by(
        *sends(1), Read(P0, 5, value(0)), Acknowledged(0, P0, 0, 4)
    )


def test_a_record_that_is_there_twice_is_reported() -> None:
    found = broken_by(*sends(1), Read(P0, 0, value(0)), Read(P0, 1, value(0)))
    assert "A: " in found
    assert "more than once" in found


def test_an_acknowledged_record_that_is_never_read_is_reported_at_the_end() -> None:
    entries = [*sends(1), Acknowledged(0, P0, 0, 0)]
    assert broken_by(*entries) == ""
    assert broken_by(*entries, finish=True).startswith("E: ")


def test_a_record_in_another_partition_is_reported() -> None:
    elsewhere = TopicPartition(PLAIN, 1)
    assert broken_by(*sends(1), Read(elsewhere, 0, value(0))).startswith("C: ")


def test_a_copy_that_is_missing_or_doubled_is_reported() -> None:
    originals = [*sends(3), *(Read(P0, n, value(n)) for n in range(3))]
    missing = [Read(C0, 0, value(0)), Read(C0, 1, value(2))]
    doubled = [Read(C0, 0, value(0)), Read(C0, 1, value(0))]
    assert "K: " in broken_by(*originals, *missing)
    assert "K: " in broken_by(*originals, *doubled)


def test_copies_may_be_read_before_their_originals() -> None:
    copies, originals = ([Read(tp, n, value(n)) for n in range(3)] for tp in (C0, P0))
    assert broken_by(*sends(3), *copies, *originals) == ""


def transaction(outcome: str, *partitions: int, later: tuple[int, ...] = ()) -> list[Entry]:
    """Return the entries of a transaction that is visible in these partitions."""
    tps = [TopicPartition(ATOMIC, index) for index in range(PARTITIONS)]
    found: list[Entry] = [Sent(0, tp, number) for number in (0, 1) for tp in tps]
    found += [Read(tps[index], 0, value(0, tps[index])) for index in partitions]
    found += [Ended(0, 0, outcome)]
    found += [Read(tps[index], 5, value(1, tps[index])) for index in later]
    return [*found, Ended(0, 1, "committed")]


@pytest.mark.parametrize(
    ("outcome", "visible", "problem"),
    [
        ("committed", (0, 1, 2), ""),
        ("aborted", (), ""),
        ("unknown", (), ""),
        ("unknown", (0, 1, 2), ""),
        ("committed", (), "is missing"),
        ("committed", (0, 1), "and not in [2]"),
        ("aborted", (0, 1, 2), "is visible"),
        ("aborted", (1,), "is visible"),
        ("unknown", (1,), "and not in"),
    ],
)
def test_transactions_are_visible_as_a_whole_or_not_at_all(
    outcome: str, visible: tuple[int, ...], problem: str
) -> None:
    found = broken_by(*transaction(outcome, *visible, later=(0, 1, 2)), finish=True)
    assert found.startswith("K: ") if problem else found == ""
    assert problem in found


def of_group(*found: Entry) -> str:
    return broken_by(*found)


def test_two_members_may_own_a_partition_only_until_one_learns_that_it_has_lost_it() -> None:
    both = [Assigned("classic", "a", [P0]), Assigned("classic", "b", [P0])]
    assert of_group(*both, Lost("classic", "a", [P0])) == ""
    assert "had another owner" in of_group(*both, Revoked("classic", "a", [P0]))


def test_records_are_delivered_only_to_owners_and_are_processed_before_a_revocation() -> None:
    delivered = Delivered("kip848", "a", P0, 0)
    assigned = Assigned("kip848", "a", [P0])
    assert "does not own" in of_group(delivered)
    assert "is processing" in of_group(assigned, delivered, Revoked("kip848", "a", [P0]))
    assert of_group(assigned, delivered, Lost("kip848", "a", [P0])) == ""


def test_a_group_skips_no_record_and_commits_only_what_is_processed() -> None:
    assigned, first = Assigned("classic", "a", [P0]), Delivered("classic", "a", P0, 0)
    done = Processed("classic", "a", P0, 0)
    assert of_group(assigned, first, done, Committed("classic", P0, 1)) == ""
    assert "not processed" in of_group(assigned, first, Committed("classic", P0, 1))
    assert "instead of 1" in of_group(assigned, first, Delivered("classic", "a", P0, 2))
    assert "skipped" in of_group(assigned, Delivered("classic", "a", P0, 1))
    backwards = [Committed("classic", P0, 1), Committed("classic", P0, 0)]
    assert "after 1 was" in of_group(assigned, first, done, *backwards)


def test_late_calls_and_held_loops_are_reported() -> None:
    assert broken_by(Called("close()", 9.0, 5.0)) == ""
    assert broken_by(Called("close()", 11.0, 5.0)).startswith("D: ")
    assert broken_by(Held("callback", 0.04)) == ""
    assert broken_by(Held("callback", 0.06)).startswith("J: ")


def work_s(seconds: float) -> None:
    """Use the processor for this number of seconds."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_pauses_of_the_machine_do_not_count_as_holding_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = tmp_path / "stat"
    monkeypatch.setattr(stolen_time, "STAT", counters)
    monkeypatch.setattr(stolen_time, "FRESH_S", 0.0)

    def steal(seconds: int) -> None:
        ticks = seconds * os.sysconf("SC_CLK_TCK")
        counters.write_text(f"cpu  1 0 1 1 0 0 0 {ticks} 0 0\n")

    def work(stolen_s: int) -> None:
        work_s(0.08)
        steal(stolen_s)

    steal(5)
    loop, noted = asyncio.get_running_loop(), list[Entry]()
    with Watch(noted.append).watching(loop):
        for stolen_s in (5, 9):
            loop.call_soon(work, stolen_s)
            await asyncio.sleep(0)
    busy, paused = [each.cpu_s for each in noted if isinstance(each, Held) and "work" in each.what]
    assert busy > LONGEST_HOLD_S
    assert paused < 0


async def test_a_collection_in_another_thread_does_not_count_as_holding_the_loop() -> None:
    begin, finalizing, leave = threading.Event(), threading.Event(), threading.Event()

    class Garbage:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            finalizing.set()
            leave.wait()

    def collect() -> None:
        work_s(2 * LONGEST_HOLD_S)
        Garbage()
        begin.wait()
        gc.collect()

    def during_the_collection() -> None:
        begin.set()
        finalizing.wait()
        work_s(2 * SEEN_S)

    loop, noted = asyncio.get_running_loop(), list[Entry]()
    thread = threading.Thread(target=collect)
    gc.disable()
    try:
        with Watch(noted.append).watching(loop):
            thread.start()
            loop.call_soon(during_the_collection)
            await asyncio.sleep(0)
            leave.set()
            thread.join()
    finally:
        gc.enable()
    (held,) = [each.cpu_s for each in noted if isinstance(each, Held) and "during" in each.what]
    assert held < LONGEST_HOLD_S


async def test_a_callback_that_cancels_its_handle_is_named() -> None:
    loop, noted = asyncio.get_running_loop(), list[Entry]()

    def cancel_itself() -> None:
        handle.cancel()
        work_s(2 * SEEN_S)

    with Watch(noted.append).watching(loop):
        handle = loop.call_soon(cancel_itself)
        await asyncio.sleep(0)
    assert any("cancel_itself" in each.what for each in noted if isinstance(each, Held))


def test_usage_may_differ_by_five_percent() -> None:
    before = Usage(100, 40, 20, 100_000_000)
    assert Usage(105, 42, 21, 105_000_000).differences(before, with_memory=True) == []
    assert Usage(95, 38, 19, 60_000_000).differences(before, with_memory=True) == []
    changed = Usage(106, 37, 22, 106_000_000)
    assert len(changed.differences(before, with_memory=True)) == 4
    assert len(changed.differences(before, with_memory=False)) == 3


def test_an_unknown_sabotage_is_refused() -> None:
    with pytest.raises(ValueError, match="Choose from A, B"):
        Sabotage("Z")

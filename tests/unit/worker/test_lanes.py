"""The lanes of a worker, compared with what each order means, for random steps."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import TopicPartition
from aiokclient.consumer.state.partition import DeliveredList, PartitionState
from aiokclient.worker.lanes import BatchLanes, FailingRuns, Lanes, Order, Run


@dataclass(frozen=True)
class FakeRecord:
    offset: int
    key: bytes | None
    topic: str = "t"
    partition: int = 0
    leader_epoch: int = 0


class FakePartition(PartitionState):
    def __init__(self, number: int) -> None:
        super().__init__(TopicPartition("t", number))
        self.seek(0)
        self.next = 0


STEPS = st.lists(st.sampled_from(["add", "take", "done", "hold", "release", "drop"]), max_size=120)
ORDERS: list[Order] = ["partition", "key", None]


class Walk:
    """Lanes, with what must be true of them after each step."""

    def __init__(self, lanes: Lanes, order: Order, rng: random.Random) -> None:
        self.lanes, self.order, self.rng = lanes, order, rng
        self.partitions = [FakePartition(number) for number in range(3)]
        self.running: list[Run] = []
        self.waiting: dict[tuple[int, int], bytes | None] = {}
        """The records that were added and are neither done nor dropped."""
        self.ended: list[tuple[Hashable, int]] = []
        self.now = 0.0

    def lane_of(self, partition: int, record: Any) -> Hashable:
        if self.order == "partition":
            return partition
        return (partition, record.key) if self.order == "key" and record.key else None

    def add(self) -> None:
        partition = self.rng.choice(self.partitions)
        room = self.lanes.count_room(partition)
        if room <= 0:
            return
        count = self.rng.randint(1, min(room, 4))
        records = []
        for offset in range(partition.next, partition.next + count):
            key = self.rng.choice([None, b"a", b"b"])
            records.append(FakeRecord(offset, key, partition=partition.tp.partition))
            self.waiting[partition.tp.partition, offset] = key
        partition.next += count
        if isinstance(self.lanes, BatchLanes):
            records = DeliveredList(records)
            partition.track_record(records, self.now)
        else:
            partition.track_records(records, self.now)
        partition.move_position(partition.next, 0)
        self.lanes.add_records(partition, records, self.now)

    def take(self) -> None:
        run = self.lanes.take_next(self.now)
        if run is None:
            return
        busy = self.busy_lanes()
        for partition, record in run.list_records():
            place = partition.tp.partition, record.offset
            assert place in self.waiting, "it is done or dropped"
            lane = self.lane_of(place[0], record)
            assert lane is None or lane not in busy
            if lane is not None:
                earlier = [
                    offset
                    for (number, offset), key in self.waiting.items()
                    if offset < record.offset
                    and number == place[0]
                    and self.lane_of(number, FakeRecord(offset, key)) == lane
                    and all(each.offset != offset for _, each in run.list_records())
                ]
                assert not earlier, "an earlier record of the lane is not done"
        self.running.append(run)
        assert self.lanes.running == len(self.running) <= 4

    def busy_lanes(self) -> set[Hashable]:
        return {
            self.lane_of(partition.tp.partition, record)
            for run in self.running
            for partition, record in run.list_records()
        }

    def pick(self) -> Run | None:
        if not self.running:
            return None
        return self.running.pop(self.rng.randrange(len(self.running)))

    def done(self) -> None:
        run = self.pick()
        if run is not None:
            for partition, record in run.list_records():
                del self.waiting[partition.tp.partition, record.offset]
            for partition, entry in run.list_entries():
                assert partition.finish_record(entry)
            self.lanes.finish_run(run)

    def hold(self) -> None:
        run = self.pick()
        if run is not None:
            if run.entries is not None:
                run.divide_lists()
            self.lanes.hold_run(run, self.now + self.rng.choice([0.0, 1.0, 5.0]))

    def release(self) -> None:
        self.now += self.rng.choice([0.0, 1.0, 3.0])
        self.lanes.release_due(self.now)

    def drop(self) -> None:
        partition = self.rng.choice(self.partitions)
        in_hand = {
            (number.tp.partition, record.offset)
            for run in self.running
            for number, record in run.list_records()
        }
        expected = {
            place
            for place in self.waiting
            if place[0] == partition.tp.partition and place not in in_hand
        }
        dropped = set()
        for entry in self.lanes.drop_partition(partition):
            assert partition.finish_record(entry)
            records = entry if isinstance(entry, DeliveredList) else [entry]
            dropped |= {(partition.tp.partition, record.offset) for record in records}
        assert dropped == expected
        for place in dropped:
            del self.waiting[place]

    def check_lowest(self) -> None:
        """Check that each partition knows its lowest record that is not done."""
        for partition in self.partitions:
            left = [at for number, at in self.waiting if number == partition.tp.partition]
            assert partition.consumed == min(left, default=partition.next)

    def finish(self) -> None:
        """Handle everything that is left."""
        for _ in range(1000):
            self.take()
            if self.running:
                self.done()
            elif self.waiting:
                self.now += 1.0
                self.lanes.release_due(self.now)
            else:
                break
        assert not self.waiting, "records are never handled"
        assert not self.lanes.has_records()
        assert self.lanes.running == self.lanes.held == self.lanes.count_waiting() == 0
        assert self.lanes.find_next_due() is None
        assert not self.lanes._tails, "lanes without records are kept"
        if self.order == "partition" and isinstance(self.lanes, BatchLanes):
            assert not self.lanes._lanes, "lanes without records are kept"


@pytest.mark.parametrize("order", ORDERS)
@given(steps=STEPS, seed=st.integers(0, 10_000))
def test_lanes_hand_out_each_record_once_and_in_the_order_of_its_lane(
    order: Order, steps: list[str], seed: int
) -> None:
    walk = Walk(Lanes(order, 4), order, random.Random(seed))
    for step in steps:
        getattr(walk, step)()
        walk.check_lowest()
    walk.finish()


@pytest.mark.parametrize("order", ORDERS)
@given(steps=STEPS, seed=st.integers(0, 10_000))
def test_lanes_of_batches_hand_out_each_record_once_and_in_order(
    order: Order, steps: list[str], seed: int
) -> None:
    walk = Walk(BatchLanes(order, 4, 3, 2.0), order, random.Random(seed))
    for step in steps:
        getattr(walk, step)()
        walk.check_lowest()
    walk.finish()


def test_two_records_of_a_partition_are_taken_at_a_time() -> None:
    partition, lanes = FakePartition(0), Lanes("partition", 50)
    assert lanes.count_room(partition) == 2
    lanes.add_records(partition, [FakeRecord(0, None), FakeRecord(1, None)], 0.0)
    assert lanes.count_room(partition) == 0
    first = lanes.take_next(0.0)
    assert first is not None
    assert lanes.take_next(0.0) is None
    lanes.hold_run(first, 5.0)
    assert lanes.take_next(4.0) is None
    assert lanes.count_room(partition) == 0
    lanes.release_due(5.0)
    assert lanes.take_next(5.0) is first


def test_a_lane_gets_its_next_records_when_it_is_empty() -> None:
    partition, lanes = FakePartition(0), Lanes("partition", 50)
    lanes.add_records(partition, [FakeRecord(0, None), FakeRecord(1, None)], 0.0)
    for room, freed in ((0, []), (2, [partition])):
        run = lanes.take_next(0.0)
        assert run is not None
        lanes.finish_run(run)
        assert lanes.count_room(partition) == room
        assert list(lanes.take_freed() or ()) == freed
    assert lanes.take_freed() == {}
    lanes.add_records(partition, [FakeRecord(2, None)], 0.0)
    lanes.drop_partition(partition)
    assert list(lanes.take_freed() or ()) == [partition]


def test_a_retry_holds_back_its_key_alone() -> None:
    partition, lanes = FakePartition(0), Lanes("key", 4)
    keys = [b"a", b"a", b"b", None]
    lanes.add_records(partition, [FakeRecord(offset, key) for offset, key in enumerate(keys)], 0.0)
    first = lanes.take_next(0.0)
    assert first is not None
    lanes.hold_run(first, 5.0)
    others = [lanes.take_next(0.0), lanes.take_next(0.0), lanes.take_next(0.0)]
    assert [run and run.record.offset for run in others] == [2, 3, None]
    assert lanes.held == 1


def test_the_runs_that_have_failed_are_known_by_partition_until_they_end() -> None:
    first, second = FakePartition(0), FakePartition(1)
    failing = FailingRuns()
    batch = Run(first, FakeRecord(0, None), 0.0)
    batch.entries = [(first, FakeRecord(0, None)), (second, FakeRecord(0, None))]
    single = Run(first, FakeRecord(1, None), 0.0)
    for run, at in ((batch, 10.0), (single, 20.0)):
        run.count_failure({}, at)
        failing.add_run(run)
    assert failing.list_partitions(9.0) == []
    assert failing.list_partitions(10.0) == [first, second]
    batch.entries = [(first, FakeRecord(0, None))]  # The other one is done.
    failing.add_run(batch)
    assert failing.list_partitions(10.0) == [first]
    failing.remove_run(batch)
    assert failing.list_partitions(10.0) == []
    assert failing.list_partitions(20.0) == [first]
    failing.remove_run(batch)
    single.is_dropped = True
    failing.forget_dropped()
    assert failing.list_partitions(30.0) == []
    assert not failing.runs


def test_the_records_of_a_batch_are_outstanding_as_one() -> None:
    partition, lanes = FakePartition(0), BatchLanes("partition", 50, 500, 1.0)
    records = DeliveredList(FakeRecord(offset, None) for offset in range(1000))
    partition.track_record(records, 0.0)
    partition.move_position(1000, 0)
    lanes.add_records(partition, records, 0.0)
    assert len(partition.outstanding) == 2
    for first in (0, 500):
        run = lanes.take_next(0.0)
        assert run is not None
        assert run.copy_records() == records[first : first + 500]
        assert partition.consumed == first
        ((_, entry),) = run.list_entries()
        assert partition.finish_record(entry)
        lanes.finish_run(run)
    assert partition.consumed == 1000

"""Tests of the rules for the memory of each partition.

A model checks them under any sequence of events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient.producer.batching.accumulator import Memory, Room
from aiokclient.producer.batching.queue import PartitionQueue, TopicStatus

LIMIT = 1000


def fill(memory: Memory, account: PartitionQueue, size: int) -> Room:
    room = memory.find_pool(account, size)
    if room is not Room.NOWHERE:
        memory.take_bytes(account, size, room is Room.OVERFLOW, account.unsendable)
    return room


def holder(memory: Memory, unsendable: bool = False) -> PartitionQueue:
    account = PartitionQueue(TopicStatus("t", 1), 0)
    memory.set_unsendable(account, unsendable)
    return account


def test_a_partition_that_can_be_sent_has_the_buffer_then_the_overflow_queue() -> None:
    memory = Memory(LIMIT)
    one, other = holder(memory), holder(memory)
    assert fill(memory, one, 900) is Room.BUFFER
    assert fill(memory, other, 101) is Room.OVERFLOW
    assert fill(memory, one, 100) is Room.BUFFER
    assert fill(memory, one, 899) is Room.OVERFLOW
    assert fill(memory, other, 1) is Room.NOWHERE


def test_none_raises_an_error_in_every_form() -> None:
    """An attribute of None would end the process if compiled modules did not check for it."""
    absent: Any = None
    with pytest.raises(AttributeError, match="overflowed"):
        Memory(LIMIT).find_pool(absent, 1)
    queue: Any = PartitionQueue(TopicStatus("t", 1), 0)
    queue.sequences = None
    with pytest.raises(AttributeError, match="state"):
        queue.next_batch(True, 5)


def test_a_partition_goes_on_in_the_overflow_queue_when_it_has_something_there() -> None:
    memory = Memory(LIMIT)
    account = holder(memory)
    memory.take_bytes(account, 10, True, account.unsendable)
    assert memory.find_pool(account, 1) is Room.OVERFLOW


def test_one_that_cannot_be_sent_has_a_quarter_all_together_half() -> None:
    memory = Memory(LIMIT)
    dead = [holder(memory, unsendable=True) for _ in range(3)]
    for account in dead[:2]:
        assert fill(memory, account, 251) is Room.NOWHERE
        assert fill(memory, account, 250) is Room.BUFFER
        assert fill(memory, account, 250) is Room.OVERFLOW
        assert fill(memory, account, 1) is Room.NOWHERE
    assert fill(memory, dead[2], 1) is Room.NOWHERE
    alive = holder(memory)
    assert fill(memory, alive, 500) is Room.BUFFER
    assert fill(memory, alive, 500) is Room.OVERFLOW
    assert fill(memory, alive, 1) is Room.NOWHERE


def test_what_a_dying_broker_held_starves_nobody() -> None:
    memory = Memory(LIMIT)
    dying, alive = holder(memory), holder(memory)
    memory.take_bytes(dying, 1000, False, dying.unsendable)
    memory.take_bytes(dying, 1000, True, dying.unsendable)
    assert fill(memory, alive, 1) is Room.NOWHERE
    memory.set_unsendable(dying, True)
    assert fill(memory, dying, 1) is Room.NOWHERE
    assert fill(memory, alive, 500) is Room.BUFFER
    assert fill(memory, alive, 500) is Room.OVERFLOW
    memory.set_unsendable(dying, False)
    assert fill(memory, alive, 1) is Room.NOWHERE


def test_memory_has_a_bound_however_many_partitions_fill_it_and_become_unsendable() -> None:
    memory = Memory(LIMIT)
    for _ in range(5):
        dying = holder(memory)
        for size in (1000, 500, 100, 10, 1):
            while fill(memory, dying, size) is not Room.NOWHERE:
                pass
        memory.set_unsendable(dying, True)
        for pool in (memory.buffer, memory.overflow):
            assert pool.total <= LIMIT + LIMIT // 2
    assert fill(memory, holder(memory), 1) is Room.NOWHERE


@pytest.mark.parametrize(("in_use", "size", "then"), [(749, 1, True), (750, 1, False)])
def test_batches_move_in_while_less_than_three_quarters_are_in_use(
    in_use: int, size: int, then: bool
) -> None:
    memory = Memory(LIMIT)
    other, account = holder(memory), holder(memory)
    memory.take_bytes(other, in_use, False, other.unsendable)
    assert memory.may_move_in(account, size) is then


def test_moving_in_for_one_that_cannot_be_sent() -> None:
    memory = Memory(LIMIT)
    account = holder(memory, unsendable=True)
    assert memory.may_move_in(account, 250)
    assert not memory.may_move_in(account, 251)
    memory.take_bytes(account, 190, False, account.unsendable)
    assert not memory.may_move_in(account, 1), (
        "three quarters of the partition's share are already in use"
    )


def test_a_batch_larger_than_the_buffer_moves_in_when_that_is_empty() -> None:
    memory = Memory(LIMIT)
    assert memory.may_move_in(holder(memory), LIMIT + 1)


@dataclass
class Model:
    memory: Memory = field(default_factory=lambda: Memory(LIMIT))

    def __post_init__(self) -> None:
        self.accounts = [holder(self.memory) for _ in range(4)]
        self.taken: list[tuple[PartitionQueue, int, bool]] = []

    def step(self, index: int, size: int, kind: str) -> None:
        account = self.accounts[index]
        if kind == "send":
            before = self.room_of_others(account)
            room = fill(self.memory, account, size)
            if room is not Room.NOWHERE:
                self.taken.append((account, size, room is Room.OVERFLOW))
            elif not account.unsendable:
                assert size > before
        elif kind == "flip":
            self.memory.set_unsendable(account, not account.unsendable)
        elif self.taken:
            self.memory.release_bytes(*self.taken.pop(size % len(self.taken)))
        self.check()

    def room_of_others(self, account: PartitionQueue) -> int:
        pool = self.memory.overflow
        alive = sum(held.overflowed for held in self.accounts if not held.unsendable)
        dead = sum(held.overflowed for held in self.accounts if held.unsendable)
        return min(pool.limit - alive - min(pool.half, dead), pool.limit + pool.half - alive - dead)

    def check(self) -> None:
        for pool, name in ((self.memory.buffer, "buffered"), (self.memory.overflow, "overflowed")):
            dead = sum(getattr(each, name) for each in self.accounts if each.unsendable)
            alive = sum(getattr(each, name) for each in self.accounts if not each.unsendable)
            assert (pool.total - pool.unsendable, pool.unsendable) == (alive, dead)
            # Only memory that unsendable partitions held earlier can exceed the limit.
            assert pool.total <= pool.limit + pool.half


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(1, 400), st.sampled_from(["send", "flip", "give"])
        ),
        max_size=80,
    )
)
def test_the_sums_are_correct_and_within_the_limits(steps: list[tuple[int, int, str]]) -> None:
    model = Model()
    for index, size, kind in steps:
        model.step(index, size, kind)

"""Tests that native deliveries behave like those in Python, and use memory correctly.

All other tests of deliveries run with one of the two implementations.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokclient._native import in_use
from aiokclient.clock import SystemClock
from aiokclient.errors import KafkaError
from aiokclient.producer._pure import deliveries as pure_deliveries
from aiokclient.producer._pure import delivery as pure_delivery
from aiokclient.producer.delivery.deliveries import Deliveries, Outcomes, Run, gather
from aiokclient.producer.delivery.delivery import WakeQueue
from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.types import RecordMetadata

if not in_use():
    pytest.skip("the native modules are not in use", allow_module_level=True)
from aiokclient._native import producer as native

PURE = SimpleNamespace(
    **{name: getattr(pure_delivery, name) for name in ("BatchState", "QueueState", "TopicState")},
    Delivery=pure_delivery.Delivery,
    DeliveryBatch=pure_delivery.DeliveryBatch,
)
NATIVE: Any = SimpleNamespace(
    **{name: getattr(native, name) for name in ("BatchState", "QueueState", "TopicState")},
    Delivery=native.Delivery,
    DeliveryBatch=native.DeliveryBatch,
)


def pure_gather(several: Any, clock: Any, *, return_exceptions: bool) -> Any:
    """Do the same as `gather`, with the Python implementation."""
    work = pure_deliveries.Gathering(several, pure_deliveries.OutcomeRuns())
    return pure_deliveries.gathered(work, clock, return_exceptions=return_exceptions)


FIELDS = ("topic", "partition", "offset", "timestamp", "done", "result", "exception")


class Hooks:
    """The functions of a producer that a batch calls. The calls are recorded."""

    def __init__(self, loop: Any = None) -> None:
        self.loop = loop
        self.thread = threading.get_ident()
        self.calling: dict[Any, None] = {}
        self.wakes = WakeQueue(self.loop)
        self.asked: list[Any] = []

    def skip_linger(self, batch: Any) -> None:
        self.asked.append("skip_linger")

    def count_retrieved(self, batch: Any, count: int) -> None:
        self.asked.append(count)


def outcome(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception as error:
        return type(error), str(error)


def driven(awaited: Any) -> Any:
    """Return the result or error of an await, or the fact that it waits."""
    steps = awaited.__await__()
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    except Exception as error:
        return type(error), str(error)
    steps.close()
    return "waits"


class World:
    """Several batches and deliveries of one implementation."""

    def __init__(self, kind: Any, hooks: Hooks) -> None:
        self.kind = kind
        self.hooks = hooks
        self.batches: list[Any] = []
        self.called: list[Any] = []
        for number in range(3):
            batch = kind.DeliveryBatch("t", number if number else None, hooks)
            batch.count = 12
            self.batches.append(batch)
        self.deliveries = [kind.Delivery(b, i, 100 + i) for b in self.batches for i in range(6)]

    def apply(self, step: tuple[Any, ...]) -> Any:
        name, batch, number, other = step
        found = self.batches[batch]
        delivery = self.deliveries[6 * batch + number]
        if name in ("succeed", "fail") and not found.done and found.partition is not None:
            if name == "succeed":
                return found.succeed(10 * number - 1, other * 5 - 1)
            return found.fail(KafkaError(f"no {number}"))
        if name == "forward" and batch < other and found.moved + number <= 6 and not found.done:
            if self.batches[other].done:
                return None
            return number and found.forward_records(number, self.batches[other], number)
        if name == "emptied" and found.moved == 6 and not found.done:
            return found.on_emptied()
        if name == "retrieve":
            return str(found.retrieve_run_error(number, 6 - number))
        if name == "callback":
            return delivery.add_done_callback(lambda d: self.called.append(hash(d) and number))
        if name == "await":
            return outcome(lambda: driven(delivery))
        return None

    def look(self) -> Any:
        seen: list[Any] = [list(self.hooks.asked), list(self.called)]
        for batch in self.batches:
            names = ("done", "moved", "skips_linger", "unretrieved", "base_offset", "append_time")
            seen.append([getattr(batch, name) for name in names])
            seen.append(bytes(batch._retrieved or bytes(6)))
            seen.append([self.batches.index(target) for target in batch.targets])
            seen.append(bool(batch._waiters))
        for delivery in self.deliveries:
            batch, index = delivery.locate_record()
            seen.append((self.batches.index(batch), index, repr(delivery)))
            for name in FIELDS[:5]:
                value = outcome(lambda d=delivery, n=name: getattr(d, n))
                seen.append(outcome(value) if callable(value) else value)
        return seen


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["succeed", "fail", "forward", "emptied", "retrieve", "callback", "await", "await"]
        ),
        st.integers(0, 2),
        st.integers(0, 5),
        st.integers(0, 2),
    ),
    max_size=12,
)


@settings(deadline=None)
@given(STEPS)
def test_native_and_pure_deliveries_behave_alike(steps: list[tuple[Any, ...]]) -> None:
    async def go(kind: Any) -> list[Any]:
        hooks = Hooks(asyncio.get_running_loop())
        world = World(kind, hooks)
        seen = []
        for step in steps:
            seen.append(world.apply(step))
            await asyncio.sleep(0)
            seen.append(world.look())
        for name in FIELDS[5:]:
            seen += [outcome(getattr(d, name)) for d in world.deliveries]
        return seen

    seen_native, seen_pure = asyncio.run(go(NATIVE)), asyncio.run(go(PURE))
    assert plain(seen_native) == plain(seen_pure)


def plain(seen: Any) -> Any:
    """Replace errors by their messages, so that they can be compared."""
    if isinstance(seen, list):
        return [plain(one) for one in seen]
    return str(seen) if isinstance(seen, Exception) else seen


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=20), STEPS, st.booleans())
def test_native_and_pure_gather_give_the_same(
    chosen: list[tuple[int, int]], steps: list[tuple[Any, ...]], as_runs: bool
) -> None:
    async def go(gathering: Any) -> Any:
        hooks = Hooks(asyncio.get_running_loop())
        world = World(NATIVE, hooks)
        several: Any = [world.deliveries[6 * batch + number] for batch, number in chosen]
        if as_runs:
            several = Deliveries(Run(world.batches[b], i, min(2, 6 - i), 7) for b, i in chosen)
            assert list(several) == list(pure_deliveries.DeliveryRuns(several.runs))
        task = asyncio.ensure_future(gathering(several, SystemClock(), return_exceptions=True))
        await asyncio.sleep(0)
        for step in steps:
            world.apply(step)
        for number, batch in enumerate(world.batches[1:]):
            if not batch.done:
                batch.succeed(number)
        if not world.batches[0].done:
            world.batches[0].forward_records(6 - world.batches[0].moved, world.batches[2], 0)
            world.batches[0].on_emptied()
        return plain(list(await task)), world.batches[0].unretrieved, world.batches[1].unretrieved

    assert asyncio.run(go(gather)) == asyncio.run(go(pure_gather))


@given(
    st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(-9, 9), max_size=4), st.booleans()
)
def test_native_and_pure_sequences_of_deliveries_are_alike(
    sizes: list[int], at: list[int], merged: bool
) -> None:
    hooks = SimpleNamespace(loop=None)
    batches = [NATIVE.DeliveryBatch("t", 1, hooks) for _ in range(2)]
    runs = [Run(batches[i % 2], i, size, i) for i, size in enumerate(sizes)]
    ours, theirs = Deliveries(runs), pure_deliveries.DeliveryRuns(runs)
    assert list(ours) == list(theirs) == list(ours[:])
    assert (len(ours), repr(ours), list(ours.runs)) == (len(theirs), repr(theirs), theirs.runs)
    for i in at:
        assert outcome(lambda i=i: ours[i]) == outcome(lambda i=i: theirs[i])
        assert outcome(lambda i=i: ours[i::2]) == outcome(lambda i=i: theirs[i::2])
    assert list(reversed(ours)) == list(theirs)[::-1]
    assert all(delivery in ours for delivery in theirs)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # The batch. The last one has failed.
            st.integers(0, 9),
            st.integers(1, 4),
            st.integers(0, 1),
        ),
        max_size=6,
    ),
    st.lists(st.integers(-20, 20), max_size=4),
)
def test_native_and_pure_sequences_of_outcomes_are_alike(
    runs: list[tuple[int, int, int, int]], at: list[int]
) -> None:
    hooks = SimpleNamespace(loop=None)
    error = KafkaError("no")
    made: list[Any] = [Outcomes(), pure_deliveries.OutcomeRuns()]
    for several, kind in zip(made, (NATIVE, PURE), strict=True):
        batches = [kind.DeliveryBatch("t", partition, hooks) for partition in range(3)]
        batches[0].succeed(100, -1, 0)
        batches[1].succeed(200, 7)
        batches[2].succeed(-1)
        for number, index, count, timestamp in runs:
            if number == 3:
                several.add_failed(error, count)
            else:
                several.add_written(batches[number], index, count, timestamp)
    ours, theirs = made
    whole, one = list(theirs), [1]
    assert list(ours) == list(iter(ours)) == whole
    assert [getattr(each, "_answer", None) for each in ours] == [
        getattr(each, "_answer", None) for each in whole
    ]
    assert (len(ours), repr(ours)) == (len(theirs), repr(theirs)) == (len(whole), repr(whole))
    for i in at:
        assert outcome(lambda i=i: ours[i]) == outcome(lambda i=i: theirs[i])
        for step in (slice(i, None, 2), slice(None, i), slice(None, None, -1)):
            assert ours[step] == theirs[step] == whole[step]
            assert type(ours[step]) is type(theirs[step]) is list
    for several in made:
        assert several == whole
        assert whole == several
        assert several.__eq__(several) is True
        assert several != [*whole, error]
        assert several != tuple(whole)
        assert (several + one, one + several, several + several) == (
            [*whole, 1],
            [1, *whole],
            [*whole, *whole],
        )
        assert outcome(lambda s=several: hash(s))[0] is TypeError
        assert outcome(lambda s=several: s + tuple(one))[0] is TypeError
        assert [type(copy.copy(several)), type(copy.deepcopy(several))] == [list, list]
        assert copy.copy(several) == whole
        assert str(pickle.loads(pickle.dumps(several))) == str(whole)
    assert list(reversed(ours)) == whole[::-1]
    for each in whole:
        assert each in ours
        assert ours.index(each) == whole.index(each)
        assert ours.count(each) == whole.count(each)


def test_native_and_pure_batch_states_are_alike() -> None:
    for kind in (NATIVE, PURE):
        builder = RecordBatchBuilder(limit=200)
        empty = builder.size
        batch = kind.BatchState("t", 1, SimpleNamespace(loop=None), builder)
        first = [getattr(batch, name) for name in ("left", "reserved", "stamp", "stamps")]
        assert first == [0, 0, -1, []]
        assert batch.explicit is None
        assert batch.append_record(50, 5, b"k", b"v", ()) == -1, "no memory is reserved"
        batch.reserved = 200
        assert batch.append_record(50, 5, b"k", b"v", ()) == 0
        assert (batch.left, batch.stamps) == (200 - empty - 50, [(0, 5)])
        assert batch.append_record(200, 5, b"k", b"v", ()) == -1, "less than 200 bytes are left"
        assert batch.append_record(40, 5, b"k", b"x" * 200, ()) == -1, "the batch is full"
        batch.store_timestamp(3, 9)
        batch.reserved = 100
        assert batch.compute_room() == 100 - builder.size == batch.left
        assert [batch.timestamp_of(i) for i in (0, 2, 3, 9)] == [5, 5, 9, 9]
        batch.explicit = [-1, 4]
        assert [batch.partition_of(i) for i in range(3)] == [None, 4, 1]
        queue, topic = kind.QueueState(), kind.TopicState("t")
        assert (queue.open, queue.unsendable) == (None, False)
        assert (topic.name, topic.queues, topic.known) == ("t", [], False)
        assert (topic.sticky, topic.sticky_left) == (None, 0)


def test_native_deliveries_created_without_their_fields_are_safe() -> None:
    for name in ("Delivery", "DeliveryBatch", "BatchState", "QueueState", "TopicState"):
        made: Any = getattr(NATIVE, name).__new__(getattr(NATIVE, name))
        for attribute in dir(made):
            asked = outcome(lambda made=made, a=attribute: getattr(made, a, None))
            if (
                callable(asked)
                and attribute != "wait_for_change"
                and not attribute.startswith("__")
            ):
                outcome(asked)
        for ask in (repr, hash, lambda made: made == made, lambda made: made.__await__()):
            outcome(lambda ask=ask, made=made: ask(made))
    empty: Any = Deliveries.__new__(Deliveries)
    assert list(empty) == []
    with pytest.raises(TypeError, match="takes deliveries"):
        asyncio.run(
            gather(
                [NATIVE.Delivery.__new__(NATIVE.Delivery)], SystemClock(), return_exceptions=False
            )
        )


@pytest.mark.parametrize("wrong", [None, 1, "delivery", object(), asyncio.sleep])
async def test_gather_refuses_other_objects(wrong: Any) -> None:
    batch = NATIVE.DeliveryBatch("t", 1, Hooks())
    batch.succeed(1)
    for gathering in (gather, pure_gather):
        with pytest.raises(TypeError, match=f"takes deliveries, not {type(wrong).__name__}"):
            await gathering(
                [NATIVE.Delivery(batch, 0, 0), wrong], SystemClock(), return_exceptions=True
            )


def work(rounds: int) -> None:
    """Use all functions of deliveries, with and without failures."""

    async def go() -> None:
        hooks = Hooks(asyncio.get_running_loop())
        for number in range(rounds):
            world = World(NATIVE, hooks)
            several = Deliveries(Run(batch, 0, 6, 7) for batch in world.batches)
            waiting = [asyncio.ensure_future(d) for d in world.deliveries[::4]]
            gathers = [
                asyncio.ensure_future(gather(each, SystemClock(), return_exceptions=True))
                for each in (several, world.deliveries)
            ]
            for delivery in world.deliveries:
                delivery.add_done_callback(world.called.append)
            dropped = several[3].__await__()
            next(dropped)
            del dropped
            await asyncio.sleep(0)
            waiting[0].cancel()
            world.batches[0].forward_records(4, world.batches[1], 2)
            world.batches[0].forward_records(2, world.batches[2], 0)
            world.batches[0].on_emptied()
            world.batches[1].succeed(number)
            world.batches[2].fail(KafkaError("no"))
            await asyncio.gather(*waiting, *gathers, return_exceptions=True)
            for delivery in [*world.deliveries, *several]:
                for name in FIELDS:
                    outcome(lambda d=delivery, n=name: getattr(d, n))
                outcome(delivery.result)
                driven(delivery)
            world.called.clear()
            hooks.asked.clear()

    asyncio.run(go())


def blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def grown(rounds: int) -> int:
    before = blocks()
    work(rounds)
    return blocks() - before


def test_native_deliveries_leak_no_memory() -> None:
    """A leak would show in each run.

    Free lists, including Python's own, grow only in the first runs.
    """
    work(200)
    assert any(grown(200) < 100 for _ in range(8))


async def ended() -> None:
    batch = NATIVE.DeliveryBatch("", 0, Hooks())
    batch.succeed(0)
    await NATIVE.Delivery(batch, 0, 0)


def test_native_deliveries_keep_reference_counts_correct() -> None:
    hooks = Hooks()
    topic, error = "".join(["a", " topic"]), KafkaError("no")
    metadata: Any = RecordMetadata
    # Freed objects on a free list keep a reference to the type. This fills the free list to its
    # limit.
    del [metadata(topic, 1, 2, 3) for _ in range(20_000)][:]

    def count() -> list[int]:
        for _ in range(50):
            batches = [NATIVE.DeliveryBatch(topic, 1, hooks) for _ in range(2)]
            several = [NATIVE.Delivery(batch, i, 1 << 40) for batch in batches for i in range(3)]
            batches[0].count = batches[1].count = 3
            batches[0].succeed(1 << 40)
            batches[1].fail(error)
            for delivery in several:
                outcome(delivery.result)
                outcome(delivery.exception)
                driven(delivery)
            asyncio.run(gather(several, SystemClock(), return_exceptions=True))
            assert list(metadata._make([topic, 1, 2, 3])) == [topic, 1, 2, 3]
        del batches, several, delivery
        error.with_traceback(None)
        # An exception is kept for the next await, together with its last traceback.
        asyncio.run(ended())
        gc.collect()
        return [sys.getrefcount(thing) for thing in (topic, error, hooks, metadata)]

    assert count() == count()


def test_native_deliveries_never_misuse_memory() -> None:
    """The tests run under an allocator that detects writes past the end and uses after free."""
    is_repeated = "AIOKCLIENT_EXPLORE" not in os.environ
    code = f"""
import runpy
from hypothesis import settings
settings.register_profile("any time", deadline=None, derandomize={is_repeated})
settings.load_profile("any time")
names = runpy.run_path({__file__!r})
names["work"](60)
names["test_native_and_pure_deliveries_behave_alike"]()
names["test_native_and_pure_sequences_of_deliveries_are_alike"]()
names["test_native_deliveries_created_without_their_fields_are_safe"]()
"""
    env = {**os.environ, "PYTHONMALLOC": "debug", "AIOKCLIENT_PURE": "0"}
    subprocess.run([sys.executable, "-X", "dev", "-c", code], env=env, check=True, timeout=250)


def test_the_setting_selects_native_or_pure_deliveries() -> None:
    code = (
        "from aiokclient.producer.delivery.delivery import DeliveryBatch\n"
        "print(DeliveryBatch.__module__)"
    )
    pure, native = "aiokclient.producer._pure.delivery", "aiokclient._native.producer"
    for setting, expected in (("1", pure), ("0", native), ("", native)):
        env = {**os.environ, "AIOKCLIENT_PURE": setting}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected

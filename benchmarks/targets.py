"""What the library sets out to reach, as ratios within one run, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from measuring.comparison import SAME
from measuring.report import Report, Table, ratio

CALLBACKS, CONSUME = "confluent-kafka callbacks", "confluent-kafka consume(5000)"
AIOKAFKA = "aiokafka send, await each"


class Target(NamedTuple):
    """`ours` over `theirs` of a figure has to reach `least` (`cpu` and times: the other way)."""

    what: str
    work: str
    ours: Sequence[str]
    """The ways of doing it that count; the best of them is taken."""
    theirs: str
    least: float
    figure: str = "cpu"
    label: str = SAME


SENDS = ("aiokclient send, await each", "aiokclient send, gather")
LISTS, MANY = ("aiokclient lists",), ("aiokclient send_many, gather",)
TARGETS = (
    Target("produce 100 B: CPU", "produce 100 B", SENDS, CALLBACKS, 5),
    Target("produce 100 B: CPU", "produce 100 B", SENDS, AIOKAFKA, 25),
    Target("produce 1 KB: CPU", "produce 1 KB", SENDS, CALLBACKS, 3.5),
    Target("produce 1 KB lz4: CPU", "produce 1 KB lz4", SENDS, CALLBACKS, 1.7),
    Target("produce 1 KB zstd: CPU", "produce 1 KB zstd", SENDS, CALLBACKS, 1.2),
    Target("send_many 100 B: CPU", "produce 100 B", MANY, CALLBACKS, 10),
    Target("consume 100 B in lists: CPU", "consume 100 B", LISTS, CONSUME, 4),
    Target("consume 100 B in lists: CPU", "consume 100 B", LISTS, "aiokafka getmany", 8),
    Target("async for 100 B: CPU", "consume 100 B", ("aiokclient async for",), CONSUME, 3.5),
    Target(
        *("async for 100 B: CPU", "consume 100 B", ("aiokclient async for",)),
        *("aiokafka async for", 20),
    ),
    Target("consume 1 KB in lists: CPU", "consume 1 KB", LISTS, CONSUME, 3),
    Target("consume 1 KB lz4 in lists: CPU", "consume 1 KB lz4", LISTS, CONSUME, 2.5),
    Target("Arrow batches 100 B: CPU", "consume 100 B", ("aiokclient Arrow batches",), CONSUME, 10),
    Target("produce 100 B: messages a second", "produce 100 B", SENDS, CALLBACKS, 3, "rate"),
    Target("consume 100 B: messages a second", "consume 100 B", LISTS, CONSUME, 3, "rate"),
    Target(
        *("one awaited send: p50", "latency", ("aiokclient",), "confluent-kafka produce and poll"),
        *(1, "p50_us", ""),
    ),
    Target(
        *("one awaited send: p99", "latency", ("aiokclient",), "confluent-kafka produce and poll"),
        *(1, "p99_us", ""),
    ),
    Target(
        *("one awaited send: p50", "latency", ("aiokclient",), "blocking socket"),
        *(1 / 1.3, "p50_us", ""),
    ),
    Target(
        *("tasks that await: CPU", "concurrency", ("aiokclient", "aiokclient, linger 5 ms")),
        *("aiokafka", 4, "cpu", ""),
    ),
    Target(
        *("pure Python, produce: CPU", "produce 100 B", ("aiokclient pure Python send, gather",)),
        *("kafka-python send, get each", 1),
    ),
    Target(
        *("pure Python, consume: CPU", "consume 100 B", ("aiokclient pure Python lists",)),
        *("kafka-python poll", 1),
    ),
    Target(
        *("pure Python, consume: CPU", "consume 100 B", ("aiokclient pure Python lists",)),
        *("aiokafka without extensions getmany", 1),
    ),
    Target(
        *("10,000 partitions known: CPU", "scale partitions"),
        *(("aiokclient send, gather, 10000 partitions",),),
        *("aiokclient send, gather, 10 partitions", 1 / 1.3, "cpu", ""),
    ),
)


def reached(target: Target, reports: Sequence[Report]) -> float | None:
    """How many times better ours is than theirs; None where one of them was not measured."""
    numbers = next((r.numbers[target.work] for r in reports if target.work in r.numbers), {})
    suffix = f", {target.label}" if target.label else ""

    def figure(name: str) -> float | None:
        return numbers.get(name + suffix, {}).get(target.figure)

    theirs, found = figure(target.theirs), [figure(name) for name in target.ours]
    known = [each for each in found if each]
    if not theirs or not known:
        return None
    if target.figure == "rate":
        return max(known) / theirs
    return theirs / min(known)


def table(reports: Sequence[Report]) -> Table:
    found = Table(
        "What is to be reached",
        ["work", "against", "wanted, times better", "is", "reached"],
        notes=["Same settings for all. Times better: less CPU, less time, or more a second."],
    )
    for target in TARGETS:
        value = reached(target, reports)
        shown = "not measured" if value is None else ratio(value, 1)
        verdict = "" if value is None else "yes" if value >= target.least else "no"
        wanted = ratio(target.least, 1)
        found.rows.append([target.what, target.theirs, wanted, shown, verdict])
    return found

"""The performance targets of the library, as ratios within one run, and their verification."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import logins
from measuring.comparison import DEFAULTS, SAME
from measuring.report import Report, Table, ratio

CALLBACKS, CONSUME = "confluent-kafka callbacks", "confluent-kafka consume(5000)"
AIOKAFKA = "aiokafka send, await each"


class Target(NamedTuple):
    """A target: the figure of `ours`, divided by that of `theirs`, must be at least `least`.

    For CPU time and latency, where less is better, the figure of `theirs` is divided by that of
    `ours`.
    """

    what: str
    work: str
    ours: Sequence[str]
    """The subjects of this library to compare. If there are several, the best one is used."""
    theirs: str | tuple[str, ...]
    """The subject to compare with. If there are several, the best one is used."""
    least: float
    figure: str = "cpu"
    label: str = SAME


FRANZ_GO = "franz-go"
WRITTEN = {
    "await each": "aiokclient as users write it, flush, await each",
    "gather": "aiokclient as users write it, gather",
}
WINDOW = ("aiokclient as users write it, window",)
SENDS = ("aiokclient send, await each", "aiokclient send, gather")
LISTS, MANY = ("aiokclient lists",), ("aiokclient send_many, gather",)
EACH = ("aiokclient async for",)
ENCRYPTED = tuple(f"{size} over {way}" for size in ("100 B", "1 KB") for way in ("SSL", "SASL_SSL"))
AS_WRITTEN = (
    *(
        Target(f"{work} as users write it, {how}: CPU", work, (way,), FRANZ_GO, 1)
        for work in (
            *("produce 100 B", "produce 100 B keyed", "produce 100 B lz4", "produce 1 KB"),
            *("produce 1 KB lz4", "produce 1 KB zstd"),
            *(f"produce {over}" for over in ENCRYPTED),
        )
        for how, way in WRITTEN.items()
    ),
    *(
        Target(f"{work} {how}: CPU", work, ways, FRANZ_GO, 1)
        for work in (
            *("consume 100 B", "consume 100 B lz4", "consume 1 KB", "consume 1 KB lz4"),
            *(f"consume {over}" for over in ENCRYPTED),
        )
        for how, ways in (("in lists", LISTS), ("by async for", EACH))
    ),
    *(
        Target(
            f"{work}, window of deliveries: messages a second", work, WINDOW, FRANZ_GO, 1, "rate"
        )
        for work in ("produce 100 B", "produce 1 KB")
    ),
    *(
        Target(f"produce 100 B as users write it, {how}: CPU", "produce 100 B", (way,), peer, least)
        for how, way in WRITTEN.items()
        for peer, least in ((CALLBACKS, 5), (AIOKAFKA, 25))
    ),
    *(
        Target(
            f"{work} in the loop of aiokafka's benchmark: CPU",
            work,
            ("aiokclient in the loop of aiokafka's benchmark",),
            "aiokafka in the loop of its own benchmark",
            least,
        )
        for work, least in (("produce 100 B", 10), ("consume 100 B", 10))
    ),
    Target(
        *("receive and send again, as in FastStream's benchmark: CPU", "echo", ("aiokclient",)),
        *("aiokafka", 1, "cpu", DEFAULTS),
    ),
)
"""The targets that count: programs as users write them, not as the benchmark is fastest."""
OVER_TLS = tuple(
    Target(f"{work}: CPU", work, ours, theirs, 1)
    for way, ours, theirs in (("produce", SENDS, CALLBACKS), ("consume", LISTS, CONSUME))
    for size in ("100 B", "1 KB")
    for work in (f"{way} {size} over SSL", f"{way} {size} over SASL_SSL")
)
TARGETS = (
    *AS_WRITTEN,
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
        *(("aiokafka", "aiokafka, linger 5 ms"), 4, "cpu", ""),
    ),
    Target(
        *("transactions of 1 record: per second", "transactions 1 record", ("aiokclient",)),
        *("confluent-kafka", 1, "rate", ""),
    ),
    Target(
        *("transactions of 10 records: per second", "transactions 10 records", ("aiokclient",)),
        *("confluent-kafka", 1, "rate", ""),
    ),
    Target(
        *("transactions of 1,000 records: per second", "transactions 1000 records"),
        *(("aiokclient",), "confluent-kafka", 1, "rate", ""),
    ),
    Target(
        *("transactions of 1,000 records: CPU", "transactions 1000 records", ("aiokclient",)),
        *("confluent-kafka", 2, "cpu", ""),
    ),
    Target(
        *("transactions of 1 record: CPU", "transactions 1 record", ("aiokclient",)),
        *("aiokclient, raw requests", 1 / 1.3, "cpu", ""),
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
    *(
        Target(
            *(f"all client metrics each second, {way}: CPU", f"telemetry {way}"),
            *(("everything at 1 s",), "push disabled", 1 / 1.02, "cpu", ""),
        )
        for way in ("produce", "consume")
    ),
    *(
        Target(
            *(f"share group, {size} accepted in lists: CPU", f"share {size}"),
            *(("aiokclient poll",), "aiokclient Consumer, poll", 1 / most, "cpu", ""),
        )
        for size, most in (("100 B", 2), ("1 KB", 1.4))
    ),
    *OVER_TLS,
    Target(
        *("logins: longest iteration of the event loop", "logins", (logins.LONGEST,)),
        *(logins.LIMIT, 1, "held_ms", ""),
    ),
)


def reached(target: Target, reports: Sequence[Report]) -> tuple[float, dict[str, float]] | None:
    """Return by what factor our result is better than theirs, and all figures of our result.

    Returns None if one of the two results was not measured.
    """
    numbers = next((r.numbers[target.work] for r in reports if target.work in r.numbers), {})
    suffix = f", {target.label}" if target.label else ""
    more = target.figure == "rate"

    def best(names: Sequence[str]) -> dict[str, float] | None:
        found = [numbers.get(name + suffix, {}) for name in names]
        known = [figures for figures in found if figures.get(target.figure)]
        pick = max if more else min
        return pick(known, key=lambda figures: figures[target.figure]) if known else None

    theirs = (target.theirs,) if isinstance(target.theirs, str) else target.theirs
    own, other = best(target.ours), best(theirs)
    if own is None or other is None:
        return None
    value = own[target.figure] / other[target.figure]
    return (value if more else 1 / value), own


def verdict(target: Target, value: float, figures: Mapping[str, float]) -> str:
    """Return a text: whether the target is reached, or by what factor it is missed.

    For messages per second, the text also says how many cores were busy.
    """
    text = "yes" if value >= target.least else f"no, by a factor of {target.least / value:.2f}"
    if target.figure != "rate" or "broker" not in figures or not target.work.startswith("produce"):
        return text
    broker, client = (figures[name] * figures["rate"] / 1e3 for name in ("broker", "cpu"))
    busy = f"{client + broker:.1f} of {os.cpu_count()} cores busy"
    return f"{text}; {busy}, {broker:.1f} by the broker"


def table(reports: Sequence[Report]) -> Table:
    found = Table(
        "Performance targets",
        ["workload", "compared with", "target ratio", "measured ratio", "reached"],
        notes=[
            "The first rows count: programs as users write them, and those written elsewhere. The "
            "others are for the fastest ways.",
            "All clients have the same settings. A ratio of 2 means half the CPU time, half the "
            "latency, or twice the messages per second.",
            "Client and broker share the cores, which limit the messages per second.",
        ],
    )
    for target in TARGETS:
        result = reached(target, reports)
        against = target.theirs if isinstance(target.theirs, str) else " or ".join(target.theirs)
        row = [target.what, against, ratio(target.least, 1)]
        if result is None:
            found.rows.append([*row, "not measured", ""])
        else:
            found.rows.append([*row, ratio(result[0], 1), verdict(target, *result)])
    return found

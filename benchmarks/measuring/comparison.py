"""Clients side by side at one kind of work, with the same settings for all and with their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from measuring.report import Table, number, ratios
from measuring.runner import Measurement

SAME, DEFAULTS = "same settings", "defaults"
FEWER = "k messages: thousands in a run. Slow clients get fewer, so that all runs take seconds."
Found = dict[tuple[str, str], Measurement]


@dataclass(frozen=True)
class Case:
    """One kind of message."""

    name: str
    size: int = 100
    compression: str = "none"
    keyed: bool = False
    part: float = 1.0
    """Of the count: large and compressed messages need fewer for a steady figure."""
    whole: bool = False
    """All subjects do it; otherwise those that matter most."""
    defaults: bool = False
    """It is also measured with each client's own settings."""


def cores_busy(found: Measurement) -> float | None:
    """How many cores the client and its broker kept busy together: near all is the limit.

    None where the wall clock began later than what CPU is counted of."""
    if any(run.counts.at_once for run in found.runs):
        return None
    client, broker, rate = found.cpu, found.broker, found.rate
    if client is None or broker is None or rate is None:
        return None
    return (client + broker) * rate / 1e3


def side_by_side(title: str, found: Found, peers: Sequence[str], notes: Sequence[str]) -> Table:
    """A row a subject. `peers`: the subjects that ratios are taken against, by name."""
    with_same = [m for (_, label), m in found.items() if label == SAME]
    with_own = {m.name: m for (_, label), m in found.items() if label == DEFAULTS}
    peers = [peer for peer in peers if any(m.name == peer and m.runs for m in with_same)]
    busy = any(m.runs and cores_busy(m) is not None for m in with_same)
    head = ["client", "k messages", "CPU s/M", "k msg/s", "broker CPU s/M", *["cores busy"] * busy]
    head += [f"{peer} ÷" for peer in peers]
    if with_own:
        head += ["CPU s/M, defaults", "k msg/s, defaults", *(f"{peer} ÷" for peer in peers[:1])]
    table = Table(title, head, [], notes)
    for row in with_same:
        if not row.runs:
            table.rows.append([row.name, f"not measured: {row.missing}", *[""] * (len(head) - 2)])
            continue
        cells = [row.name, *map(number, (row.messages, row.cpu, row.rate, row.broker))]
        if busy:
            cells.append(number(cores_busy(row)))
        cells += ratios(row, with_same, peers)
        other = with_own.get(row.name)
        if other is not None:
            cells += [number(other.cpu), number(other.rate)]
            cells += ratios(other, list(with_own.values()), peers[:1])
        table.rows.append([*cells, *["-"] * (len(head) - len(cells))])
    return table

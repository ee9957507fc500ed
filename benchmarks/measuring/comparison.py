"""The comparison of clients in one workload, with the same settings for all and with defaults."""

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
    """A workload of messages of one kind."""

    name: str
    size: int = 100
    compression: str = "none"
    keyed: bool = False
    part: float = 1.0
    """Fraction of the usual number of messages. Fewer large or compressed messages are enough for a
    stable result."""
    whole: bool = False
    """Whether all subjects run this case, or only the most important ones."""
    defaults: bool = False
    """Whether the case is also measured with the default settings of each client."""


def cores_busy(found: Measurement) -> float | None:
    """Return the number of cores that client and broker used together.

    If it is close to the number of cores of the machine, the cores limit the throughput. Returns
    None if the wall clock started later than the measurement of CPU time.
    """
    if any(run.counts.at_once for run in found.runs):
        return None
    client, broker, rate = found.cpu, found.broker, found.rate
    if client is None or broker is None or rate is None:
        return None
    return (client + broker) * rate / 1e3


def side_by_side(title: str, found: Found, peers: Sequence[str], notes: Sequence[str]) -> Table:
    """Return a table with a row for each subject.

    `peers` are the names of the subjects with which the ratio columns compare each row.
    """
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

"""Tables of results, and the data from which they are made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measuring.runner import Measurement

PEERS = ("confluent-kafka", "aiokafka", "kafka-python")


@dataclass
class Table:
    title: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    notes: Sequence[str] = ()

    def text(self) -> str:
        """Return the table as text for a terminal."""
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [self.title, ""]
        for row in (self.head, *self.rows):
            first, *others = (
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join((first, *others)).rstrip())
        return "\n".join([*lines, *(f"  {note}" for note in self.notes), ""])

    def markdown(self) -> str:
        lines = [f"### {self.title}", ""]
        lines.append("| " + " | ".join(self.head) + " |")
        lines.append("| --- " + "| ---: " * (len(self.head) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}  " for note in self.notes), ""])


@dataclass
class Report:
    """The result of one benchmark.

    `numbers` has the figures by workload, and then by subject and label.
    """

    question: str
    tables: list[Table] = field(default_factory=list)
    numbers: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """The workloads and subjects that are left out because they failed."""

    def add(self, work: str, found: dict[tuple[str, str], Measurement], table: Table) -> None:
        self.tables.append(table)
        of_work = self.numbers.setdefault(work, {})
        for (name, label), measurement in found.items():
            subject = f"{name}, {label}" if label else name
            if measurement.runs:
                of_work[subject] = measurement.numbers()
            if measurement.failed:
                self.failed.append(f"{work}: {subject}")

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, file: Path) -> Report:
        data = json.loads(file.read_text())
        data["tables"] = [Table(**table) for table in data["tables"]]
        return cls(**data)


def number(value: float | None, digits: int = 2) -> str:
    """Format a figure for a table. Large figures have no decimals."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.{digits}f}"


def ratio(peer: float | None, own: float | None) -> str:
    """Return by what factor the figure is lower than the peer's."""
    return "-" if not peer or not own else f"{peer / own:.2f}"


def best_of(family: str, found: Iterable[Measurement]) -> float | None:
    """Return the lowest CPU time among all ways of using a library."""
    return min((m.cpu for m in found if m.family == family and m.cpu is not None), default=None)


def ratios(row: Measurement, found: Sequence[Measurement], names: Sequence[str]) -> list[str]:
    """Return the CPU times of the named measurements, divided by the row's own."""
    by_name = {each.name: each.cpu for each in found}
    return [ratio(by_name.get(name), row.cpu) for name in names]

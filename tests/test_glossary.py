"""Checks of the glossary: its rows are complete, and its names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
SUFFIXES = {".py", ".pyx", ".pxd"}


def tables() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each section's heading with the rows of its table, without the table's head."""
    for section in GLOSSARY.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("|")]
        yield (
            heading,
            [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]],
        )


TABLES = dict(tables())


def test_each_term_is_listed_once() -> None:
    terms = [term for rows in TABLES.values() for row in rows for term in row[0].split(", ")]
    assert sorted({term for term in terms if terms.count(term) > 1}) == []


@cache
def package_words() -> set[str]:
    """Return every word in the sources of the package, and the paths of its modules."""
    folder = ROOT / "aiokclient"
    files = [p for p in folder.rglob("*") if p.suffix in SUFFIXES]
    found = {path.relative_to(folder).with_suffix("").as_posix() for path in files}
    for path in files:
        found.update(re.findall(r"\w+", path.read_text()))
    return found


def test_the_names_of_the_glossary_are_in_the_code() -> None:
    missing = [
        name
        for rows in TABLES.values()
        for row in rows
        for name in re.findall(r"`([^`]+)`", row[3])
        if name not in package_words()
    ]
    assert missing == []


def test_every_row_of_the_glossary_is_complete() -> None:
    for heading, rows in TABLES.items():
        assert [row for row in rows if len(row) != 4 or not all(row)] == [], heading

"""Checks of the glossary: its names exist, and no identifier uses a retired word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
FOLDERS = ("aiokclient", "tests")
SUFFIXES = {".py", ".pyx", ".pxd"}

LEGITIMATE: dict[str, str] = {}
"""Identifiers that contain a retired word with another meaning, and the reason."""


class Retired(NamedTuple):
    """A retired term, as its words, and the folder in which it is retired."""

    words: tuple[str, ...]
    folder: str


class Identifier(NamedTuple):
    """A name that a source file defines."""

    name: str
    path: str
    line: int


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
RETIRED = [
    Retired(tuple(term.split()), folder)
    for terms, _, folder in TABLES["Retired words"]
    for term in terms.split(", ")
    if folder != "-"
]


@cache
def sources() -> list[Path]:
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts
    )


SNAKE = "|".join("_".join(term.words) for term in RETIRED)
CAMEL = "|".join("".join(map(str.title, term.words)) for term in RETIRED)
ANY_RETIRED = re.compile(
    rf"(?<![A-Za-z])(?:{SNAKE}|{SNAKE.upper()})(?![A-Za-z])|(?:{CAMEL})(?![a-z])"
)
"""A pattern that finds the files to parse, because a search is much faster than parsing."""


def words(name: str) -> tuple[str, ...]:
    """Return the words of an identifier in snake case or camel case, in lower case."""
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))


def defined(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names that a file defines, with their lines. The module's own name is the first.

    If the file contains no retired word, the other names are omitted.
    """
    yield path.stem, 1
    text = path.read_text()
    if not ANY_RETIRED.search(text):
        return
    if path.suffix != ".py":
        for match in re.finditer(r"^\s*(?:cdef |cpdef |async )*(?:class|def)\s+(\w+)", text, re.M):
            yield match[1], text.count("\n", 0, match.start(1)) + 1
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


@cache
def identifiers() -> list[tuple[Identifier, tuple[str, ...]]]:
    return [
        (Identifier(name, path.relative_to(ROOT).as_posix(), line), words(name))
        for path in sources()
        for name, line in defined(path)
    ]


def contains(outer: tuple[str, ...], inner: tuple[str, ...]) -> bool:
    """Return whether the words of `inner` are consecutive words of `outer`."""
    return any(outer[i : i + len(inner)] == inner for i in range(len(outer) - len(inner) + 1))


def test_no_identifier_uses_a_retired_word() -> None:
    wrong = [
        f"{each.path}:{each.line}: {each.name} (retired: {' '.join(term)!r}, see docs/glossary.md)"
        for each, parts in identifiers()
        if each.name not in LEGITIMATE
        for term, folder in RETIRED
        if term[0] in parts and contains(parts, term)
        if folder == "all" or each.path.startswith(f"{folder}/")
    ]
    assert wrong == []


def test_the_legitimate_uses_are_needed() -> None:
    names = {identifier.name for identifier, _ in identifiers()}
    assert sorted(LEGITIMATE.keys() - names) == []


def test_each_term_is_listed_once_and_in_one_meaning() -> None:
    terms = [
        term
        for heading, rows in TABLES.items()
        if heading != "Retired words"
        for row in rows
        for term in row[0].split(", ")
    ]
    assert sorted({term for term in terms if terms.count(term) > 1}) == []
    retired = {term for row in TABLES["Retired words"] for term in row[0].split(", ")}
    assert retired.isdisjoint(terms)


@cache
def package_words() -> set[str]:
    """Return every word in the sources of the package, and the paths of its modules."""
    files = [path for path in sources() if path.relative_to(ROOT).parts[0] == "aiokclient"]
    found = {path.relative_to(ROOT / "aiokclient").with_suffix("").as_posix() for path in files}
    for path in files:
        found.update(re.findall(r"\w+", path.read_text()))
    return found


def test_the_names_of_the_glossary_are_in_the_code() -> None:
    missing = [
        name
        for heading, rows in TABLES.items()
        if heading != "Retired words"
        for row in rows
        for name in re.findall(r"`([^`]+)`", row[3])
        if name not in package_words()
    ]
    assert missing == []


def test_every_row_of_the_glossary_is_complete() -> None:
    for heading, rows in TABLES.items():
        width = 3 if heading == "Retired words" else 4
        assert [row for row in rows if len(row) != width or not all(row)] == [], heading


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("in_hand", ("in", "hand")),
        ("InHand", ("in", "hand")),
        ("_PLACES", ("places",)),
        ("ACLBinding", ("acl", "binding")),
        ("test_a_kip848_member", ("test", "a", "kip", "member")),
    ],
)
def test_identifiers_are_split_into_words(name: str, expected: tuple[str, ...]) -> None:
    assert words(name) == expected

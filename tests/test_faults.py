"""Checks that tests/faults.md, which says where each fault is tested, agrees with the tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
FOLDERS = {
    "S": ["faults/simulation"],
    "P": ["faults/proxy"],
    "K": ["faults/kafka", "behavior"],
    "F": ["unit/protocol", "unit/record", "unit/network"],
}


def promised() -> dict[int, str]:
    """Return the letters in the last column of the table of faults, by the number of the fault."""
    rows = re.findall(r"^\| (\d+) \|.*\| ([SPKF ]+|-) \|$", (TESTS / "faults.md").read_text(), re.M)
    return {int(number): letters.replace(" ", "").strip("-") for number, letters in rows}


def marked(path: Path) -> Iterator[int]:
    """Yield the numbers in the fault markers of a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
            yield from (ast.literal_eval(argument) for argument in node.args)


def numbers_marked_for(letter: str) -> set[int]:
    files = (file for folder in FOLDERS[letter] for file in (TESTS / folder).rglob("test_*.py"))
    return {number for file in files for number in marked(file)}


def test_the_table_is_whole() -> None:
    assert list(promised()) == list(range(1, 59))


def test_every_row_is_tested_where_it_says() -> None:
    there = {letter: numbers_marked_for(letter) for letter in FOLDERS}
    missing = [
        f"{number} {letter}"
        for number, letters in promised().items()
        for letter in letters
        if number not in there[letter]
    ]
    assert missing == []


def test_no_marker_without_a_row() -> None:
    known = promised()
    files = sorted(TESTS.rglob("test_*.py"))
    assert [(file.name, n) for file in files for n in marked(file) if n not in known] == []

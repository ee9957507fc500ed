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


SKIPPING = re.compile(r"skip|xfail|needs_kerberos")
"""What the decorators of tests contain that may not run, or may fail. They do not count."""


def marked(source: str) -> Iterator[int]:
    """Yield the numbers in the fault markers of the tests of a file that always run."""
    tree = ast.parse(source)
    everywhere = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    yield from _of_tests(tree.body, everywhere)


def _of_tests(body: list[ast.stmt], outer: list[ast.expr]) -> Iterator[int]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _of_tests(node.body, [*outer, *node.decorator_list])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [*outer, *node.decorator_list]
            if node.name.startswith("test_") and not _is_skipped(marks):
                yield from _numbers(marks)


def _is_skipped(marks: list[ast.expr]) -> bool:
    """Return whether a test may be skipped, or expected to fail, as a whole.

    Single parameters with such a mark do not matter.
    """
    return any(
        SKIPPING.search(ast.unparse(mark))
        for mark in marks
        if not ast.unparse(mark).startswith("pytest.mark.parametrize")
    )


def _numbers(marks: list[ast.expr]) -> Iterator[int]:
    for mark in marks:
        for node in ast.walk(mark):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                yield from (ast.literal_eval(argument) for argument in node.args)


def numbers_marked_for(letter: str) -> set[int]:
    files = (file for folder in FOLDERS[letter] for file in (TESTS / folder).rglob("test_*.py"))
    return {number for file in files for number in marked(file.read_text())}


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
    found = [(file.name, number) for file in files for number in marked(file.read_text())]
    assert [(name, number) for name, number in found if number not in known] == []


def test_only_markers_of_tests_that_run_count() -> None:
    source = """
pytestmark = pytest.mark.fault(1)

@pytest.mark.fault(2, 3)
def test_one(): ...

@pytest.mark.fault(4)
@pytest.mark.skipif(True, reason="")
def test_two(): ...

@pytest.mark.fault(5)
@needs_kerberos
def test_three(): ...

@pytest.mark.fault(6)
def helper(): ...

@pytest.mark.fault(7)
class TestAll:
    @pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.skip)])
    async def test_four(self): ...

@pytest.mark.xfail
class TestMore:
    @pytest.mark.fault(8)
    def test_five(self): ...

UNUSED = pytest.mark.fault(9)
"""
    assert set(marked(source)) == {1, 2, 3, 7}

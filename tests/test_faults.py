"""Checks that tests/faults.md, which says where each fault is tested, agrees with the tests.

A test counts if it always runs, and if it asserts something.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from asserting import Function, does_assert

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
SKIPS = ("pytest.skip", "pytest.xfail", "pytest.importorskip")
INSTALLED = ("confluent_kafka", "kip848_peers", "pyarrow", "uvloop")
"""Modules that the environments of these tests have, so that no test is skipped for them."""


class Marked(NamedTuple):
    """A test with markers of faults."""

    name: str
    numbers: list[int]
    function: Function
    may_be_skipped: bool


def marked_tests(source: str) -> Iterator[Marked]:
    """Yield the tests of a file that have fault markers."""
    if "mark.fault" not in source:
        return  # Most files have none, and parsing them all takes seconds.
    tree = ast.parse(source)
    everywhere = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    skipped = any(_skips(node) for node in tree.body if not isinstance(node, Function))
    for name, function, marks in _tests(tree.body, everywhere):
        if numbers := list(_numbers(marks)):
            may_be_skipped = skipped or _is_skipped(marks) or _skips(function)
            yield Marked(name, numbers, function, may_be_skipped)


def marked(source: str) -> Iterator[int]:
    """Yield the numbers in the fault markers of the tests of a file that always run."""
    for test in marked_tests(source):
        if not test.may_be_skipped:
            yield from test.numbers


def _tests(
    body: list[ast.stmt], outer: list[ast.expr]
) -> Iterator[tuple[str, Function, list[ast.expr]]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for name, function, marks in _tests(node.body, [*outer, *node.decorator_list]):
                yield f"{node.name}::{name}", function, marks
        elif isinstance(node, Function) and node.name.startswith("test_"):
            yield node.name, node, [*outer, *node.decorator_list]


def _is_skipped(marks: list[ast.expr]) -> bool:
    """Return whether the marks of a test skip it, or expect it to fail, as a whole.

    Single parameters with such a mark do not matter.
    """
    return any(
        SKIPPING.search(ast.unparse(mark))
        for mark in marks
        if not ast.unparse(mark).startswith("pytest.mark.parametrize")
    )


def _skips(body: ast.AST) -> bool:
    """Return whether a function, or a statement of a module, may skip the test."""
    return any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func) in SKIPS
        and not (node.args and ast.unparse(node.args[0]).strip("'\"") in INSTALLED)
        for node in ast.walk(body)
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
    assert list(promised()) == list(range(1, 64))


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


def test_every_marked_test_asserts_something() -> None:
    silent = [
        f"{file.relative_to(TESTS)}::{test.name}"
        for file in sorted(TESTS.rglob("test_*.py"))
        for test in marked_tests(file.read_text())
        if not does_assert(test.function, file)
    ]
    assert silent == []


def test_a_test_asserts_something_itself_or_by_a_function_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("""
@pytest.fixture
def checked():
    yield
    assert True is not False
""")
    (tmp_path / "helping.py").write_text("""
def check(value): _check(value)

def _check(value): assert value

class World:
    def run(self): return 1
    def settle(self): raise AssertionError("not settled")

class Checking:
    def __exit__(self, *error): assert error == (None, None, None)
""")
    file = tmp_path / "test_own.py"
    file.write_text("""
from helping import Checking, World, check

def test_itself(): assert f()
def test_expected():
    with pytest.raises(ValueError): f()
def test_inner():
    async def main(): assert f()
    run(main)
def test_helper(): check(f())
def test_reference(): run(check)
def test_method(world): world.settle()
def test_exit():
    with Checking(): f()
def test_fixture(checked): f()

def test_nothing(): f()
def test_constants():
    assert True
    assert (f(), "always true")
def test_harmless_method(): World().run()
def test_circle(): test_circle()
def f(): return 1
""")
    found = [node for node in ast.parse(file.read_text()).body if isinstance(node, Function)]
    asserting = {node.name for node in found if does_assert(node, file)}
    assert {node.name for node in found if node.name.startswith("test_")} - asserting == {
        "test_nothing",
        "test_constants",
        "test_harmless_method",
        "test_circle",
    }


@pytest.mark.parametrize(
    ("statement", "counts"),
    [
        ("pytest.skip('not here')", False),
        ("peers = pytest.importorskip('peers')", False),
        ("confluent = pytest.importorskip('confluent_kafka')", True),
    ],
)
def test_markers_of_tests_that_may_skip_themselves_do_not_count(
    statement: str, counts: bool
) -> None:
    marker = "@pytest.mark.fault(1)"
    inside = f"{marker}\ndef test_one():\n    {statement}\n    assert f()"
    above = f"{statement}\n\n{marker}\ndef test_one(): assert f()"
    beside = f"{marker}\ndef test_one(): assert f()\n\ndef test_two():\n    {statement}"
    assert list(marked(inside)) == list(marked(above)) == ([1] if counts else [])
    assert list(marked(beside)) == [1]


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

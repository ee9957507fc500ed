"""Rules for every file of the project: sizes, names, imports, and public packages."""

import ast
import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import shape
from imports import cycles, imported, module_graph
from public_packages import NEED_PYSPARK, PUBLIC_PACKAGES
from slow import SLOW

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 600
FUNCTION_LINES = 80
ROOT_MODULES = 12
FOLDER_MODULES = 18
CALLABLES = 14
"""Functions that the constructors and fields of internal classes may take."""
WORDS = 1.7
"""Words in the name of a method, as a mean."""
AMBIGUOUS = 0.05
"""The share of names that are a method in one class and a value in another."""
SMALL = 0.3
"""The share of modules with fewer than `shape.SMALL` lines."""
SINGLE = 20
"""Modules that only one module of the same package uses."""
WALKS = {
    "a send and its await": (90, 17, 55),
    "a fetched frame until it is delivered": (90, 22, 57),
    "one buffered record": (45, 15, 30),
    "an error code until the exception": (134, 23, 77),
    "a commit in a transaction": (71, 18, 46),
}
"""The most functions, modules, and changes of module on the ways that tests/walks.py traces."""
UPWARD = (
    ("aiokclient.consumer.consumer", "aiokclient.worker"),
    ("aiokclient.share.share_consumer", "aiokclient.worker"),
)
"""The imports of a layer above, within a call or for its types: `Consumer.run` calls a worker."""
FOLDERS = ("aiokclient", "pyspark_aiokclient", "tests", "examples", "benchmarks", ".ci")
SUFFIXES = ("*.py", "*.pyx", "*.pxi")
# Tables of data, which have only declarations, one for each row.
TABLES = ("aiokclient/protocol/messages/",)
PRESCRIBED = "aiokclient/adapters/"
"""The folder whose modules have the names of other clients' modules."""
VAGUE = {"utils", "util", "helpers", "helper", "common", "compat", "misc"}
LOW_LEVEL = ("aiokclient.protocol.messages",)
"""Low-level public packages, in which each message has a module."""


@pytest.fixture(autouse=True, scope="module")
def _without_collections() -> Iterator[None]:
    """The trees of all sources have no cycles. To look for some takes longer than to parse them."""
    gc.disable()
    yield
    gc.enable()


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for suffix in SUFFIXES:
            yield from sorted((ROOT / folder).rglob(suffix))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def native_lines(text: str) -> int:
    """Return the number of lines of a Cython file that are not blank, comments, or docstrings."""
    quoted = text.split('"""')
    outside = "".join(quoted[::2])
    return sum(bool(line.strip()) and line.strip()[0] != "#" for line in outside.splitlines())


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield all statements. `ast.walk` also goes through their expressions, which are many more."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())


def too_long(path: Path) -> Iterator[str]:
    """Yield what is too long in a file: the file itself, or functions."""
    text = path.read_text()
    if path.suffix != ".py":
        if native_lines(text) > FILE_LINES:
            yield f"{name_of(path)}: which second concept is in it?"
        return
    if text.count("\n") <= FUNCTION_LINES:
        return  # Within the limits even with comments and docstrings, which take long to find.
    tree = ast.parse(text)
    functions = [
        (node, range(node.lineno, (node.end_lineno or 0) + 1))
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    longest = max((len(extent) for _, extent in functions), default=0)
    if text.count("\n") <= FILE_LINES and longest <= FUNCTION_LINES:
        return
    lines = shape.code_lines(text, list(ast.walk(tree)))
    if len(lines) > FILE_LINES and not name_of(path).startswith(TABLES):
        yield f"{name_of(path)}: which second concept is in it?"
    for node, extent in functions:
        length = len(lines.intersection(extent))
        if length > FUNCTION_LINES:
            yield f"{name_of(path)}:{node.lineno} {node.name}: {length}"


def test_sizes() -> None:
    # One test for all files: as tests of their own, most of the time would be that of pytest.
    paths = list(sources())
    assert len(paths) > 1000
    assert [each for path in paths for each in too_long(path)] == []


def test_modules_of_different_packages_do_not_import_each_other() -> None:
    graph = module_graph(ROOT / "aiokclient")
    for module, upward in UPWARD:
        graph[module] = {each for each in graph[module] if not each.startswith(upward)}
    found = cycles(graph)
    across = [group for group in found if len({name.split(".")[1] for name in group}) > 1]
    assert across == [], "modules import each other: which should depend on which?"


@pytest.fixture(scope="module")
def library() -> shape.Shape:
    return shape.measure(ROOT, [name for name in PUBLIC_PACKAGES if name not in NEED_PYSPARK])


def test_shape_is_within_its_limits(library: shape.Shape) -> None:
    """Print the shape with `-s`, and check it."""
    sys.stdout.write(f"\n{library.rows()}\n")
    assert len(library.callables) <= CALLABLES, library.callables
    assert library.words >= WORDS
    assert library.ambiguous_share <= AMBIGUOUS, library.ambiguous
    assert library.small_share <= SMALL, library.small
    assert len(library.single) <= SINGLE, library.single


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_ways_through_the_library_are_short() -> None:
    command = [sys.executable, "tests/walks.py", "--json"]
    environment = {**os.environ, "AIOKCLIENT_PURE": "1", "PYTHONPATH": str(ROOT)}
    longer: dict[str, Any] = dict.fromkeys(WALKS)
    for _ in range(3):  # On a loaded machine, timers add calls to all walks of a run.
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
        counts = {name: tuple(each) for name, each in json.loads(done.stdout).items()}
        assert counts.keys() == WALKS.keys()
        longer = {
            name: (each, WALKS[name])
            for name, each in counts.items()
            if name in longer
            if any(count > most for count, most in zip(each, WALKS[name], strict=True))
        }
        if not longer:
            return
    raise AssertionError(f"counts, and their limits: {longer}")


def test_folders_have_few_modules(library: shape.Shape) -> None:
    large = {
        folder: count
        for folder, count in library.folders.items()
        if count > (ROOT_MODULES if folder == "aiokclient" else FOLDER_MODULES)
    }
    assert large == {}


def test_public_packages_are_those_listed() -> None:
    import aiokclient

    for name in PUBLIC_PACKAGES:
        package = import_module(name)
        assert package.__doc__
        names = list(package.__all__)
        assert names == sorted(set(names)), name
        if name not in NEED_PYSPARK or find_spec("pyspark"):
            assert [each for each in names if not hasattr(package, each)] == [], name
    # A package with a public name is public itself.
    packages = {n for n in aiokclient.__all__ if isinstance(getattr(aiokclient, n), type(sys))}
    assert {f"aiokclient.{name}" for name in packages} <= set(PUBLIC_PACKAGES)


def test_internal_modules_list_no_names() -> None:
    """A name with an underscore is its module's own. A list would name each of the others again.

    Packages, tables, and modules that export names of others have lists.
    """
    listed = []
    for path in sorted((ROOT / "aiokclient").rglob("*.py")):
        if path.name == "__init__.py" or path.parent.name in ("errors", "messages"):
            continue
        if name_of(path).removesuffix(".py").replace("/", ".") in PUBLIC_PACKAGES:
            continue
        if "__all__" not in (text := path.read_text()):
            continue
        assigned: set[str] = set()
        defined: set[str] = set()
        for node in ast.parse(text).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                defined.add(node.name)
            elif isinstance(node, ast.Assign):
                names = {each.id for each in node.targets if isinstance(each, ast.Name)}
                defined |= names
                assigned |= set(ast.literal_eval(node.value)) if "__all__" in names else set()
        if assigned and assigned <= defined:
            listed.append(name_of(path))
    assert listed == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=name_of)
def test_examples_use_public_names_only(path: Path) -> None:
    for full in imported(path, path.stem):
        if full.split(".")[0] == "aiokclient" and full != "aiokclient":
            package, _, name = full.rpartition(".")
            public = package in PUBLIC_PACKAGES and name in import_module(package).__all__
            assert public or full in PUBLIC_PACKAGES or full.startswith(LOW_LEVEL), full


def test_slow_tests_exist() -> None:
    assert list(SLOW) == sorted(SLOW)
    files = [name.partition("::")[0] for name in SLOW]
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_a_name_of_a_test_stands_in_one_file_only() -> None:
    files: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        code = "".join(path.read_text().split('"""')[::2])  # Strings may contain tests, too.
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", code, re.M):
            files.setdefault(name, set()).add(name_of(path))
    recurring = {name: sorted(where) for name, where in files.items() if len(where) > 1}
    assert recurring == {}, "what does each of them test?"


def test_no_vague_module() -> None:
    vague = [
        name_of(p)
        for p in sources()
        if VAGUE & {p.stem, *name_of(p).split("/")} and not name_of(p).startswith(PRESCRIBED)
    ]
    assert vague == []


def test_import_is_light() -> None:
    heavy = ["pyarrow", "numpy", "pandas", "rich", "opentelemetry", "google.protobuf"]
    heavy += ["cramjam", "lz4", "zstandard", "importlib.metadata", "argparse", "uvloop", "pytest"]
    heavy += ["aiokclient.testing"]
    for line, more in (
        ("import aiokclient", ["aiokclient.protocol.messages.metadata"]),
        ("from aiokclient import Consumer, Producer", []),
    ):
        code = f"import sys\n{line}\nprint([m for m in {heavy + more!r} if m in sys.modules])"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]", line

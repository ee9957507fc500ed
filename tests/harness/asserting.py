"""Find tests that assert nothing, by their source.

A test asserts something if it has an `assert`, raises an AssertionError, or expects an exception,
or if that is true of a function that it names: one of its file, of a module of the harness that the
file imports, or a fixture. Methods are found by their names alone, because nothing here knows the
types of objects.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["Function", "does_assert"]

TESTS = Path(__file__).resolve().parent.parent
HARNESS = TESTS / "harness"
DEPTH = 4
"""The most calls that lead from a test to the function that asserts."""
EXPECTING = ("pytest.raises", "pytest.fail", "pytest.warns", "pytest.RaisesGroup")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def does_assert(function: Function, file: Path, depth: int = DEPTH) -> bool:
    """Return whether a function asserts something, itself or by the functions that it names."""
    return _does_assert(function, file, depth, set())


def _does_assert(function: Function, file: Path, depth: int, seen: set[int]) -> bool:
    if id(function) in seen:
        return False
    seen.add(id(function))
    if any(_is_assertion(node) for node in ast.walk(function)):
        return True
    names = set(_names(function))
    return depth > 0 and any(
        _does_assert(found, of, depth - 1, seen)
        for of in _files_of(file)
        for name in names & _functions(of).keys()
        for found in _functions(of)[name]
    )


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        # What is always true, such as a text, asserts nothing.
        return not isinstance(node.test, ast.Constant | ast.Tuple)
    if isinstance(node, ast.Raise):
        return node.exc is not None and "AssertionError" in ast.unparse(node.exc)
    return isinstance(node, ast.Call) and ast.unparse(node.func) in EXPECTING


def _names(function: Function) -> Iterator[str]:
    """Yield the names that a function uses, and those of its parameters, which may be fixtures."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


@cache
def _functions(file: Path) -> dict[str, list[Function]]:
    """Return the functions and methods of a file by name.

    The name of a class stands for its special methods, such as `__init__` and `__aexit__`.
    """
    found: dict[str, list[Function]] = {}
    for node in ast.walk(_tree(file)):
        if isinstance(node, Function):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            special = [
                each
                for each in node.body
                if isinstance(each, Function) and each.name.startswith("__")
            ]
            found.setdefault(node.name, []).extend(special)
    return found


@cache
def _files_of(file: Path) -> list[Path]:
    """Return a file, the modules of the tests that it imports, and its files of fixtures."""
    files = [file]
    for node in ast.walk(_tree(file)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            files += [found for found in _sources(module, file.parent) if found not in files]
    files += [each for folder in file.parents if (each := folder / "conftest.py").exists()]
    return files


def _sources(module: str, folder: Path) -> list[Path]:
    path = module.replace(".", "/")
    return [
        each
        for root in (folder, HARNESS, TESTS.parent)
        for each in (root / f"{path}.py", root / path / "__init__.py")
        if each.exists() and (root == folder or TESTS in each.parents)
    ]

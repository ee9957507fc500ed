"""Tests of the modules in Python that are compiled from their own sources."""

from __future__ import annotations

import ast
import os
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import aiokclient
from aiokclient import _native

PACKAGE = Path(aiokclient.__file__).parent
CLASS = re.compile(r"^cdef class (\w+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"^    cdef (?:public )?[\w.]+ (\w+)$", re.MULTILINE)
SPECIAL = {"__weakref__"}


def declared_in(path: Path) -> dict[str, set[str]]:
    """Return the attributes that a .pxd file declares, for each of its classes."""
    _, *parts = CLASS.split(path.read_text())
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: set(ATTRIBUTE.findall(body)) - SPECIAL for name, body in pairs}


def assigned_in(path: Path) -> dict[str, set[str]]:
    """Return the attributes that the methods of each class of a module in Python assign."""
    found: dict[str, set[str]] = {}
    for owner in ast.parse(path.read_text()).body:
        if isinstance(owner, ast.ClassDef):
            found[owner.name] = {
                node.attr
                for node in ast.walk(owner)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            }
    return found


def slots_in(path: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for owner in ast.parse(path.read_text()).body:
        if isinstance(owner, ast.ClassDef):
            for statement in owner.body:
                if isinstance(statement, ast.Assign) and "__slots__" in ast.unparse(statement):
                    found[owner.name] = set(ast.literal_eval(statement.value))
    return found


def with_declarations() -> list[Path]:
    """Return the .pxd files of modules in Python."""
    found = [path for path in PACKAGE.rglob("*.pxd") if CLASS.search(path.read_text())]
    return sorted(path for path in found if path.with_suffix(".py").exists())


def test_every_module_with_declarations_is_listed_once() -> None:
    found = [path.relative_to(PACKAGE).with_suffix("") for path in with_declarations()]
    assert [".".join(path.parts) for path in found] == list(_native.COMPILED)


@pytest.mark.parametrize("declarations", with_declarations(), ids=lambda path: path.stem)
def test_declarations_name_the_attributes_that_the_source_assigns(declarations: Path) -> None:
    """Cython refuses a declared method that is missing, but not an attribute."""
    source = declarations.with_suffix(".py")
    declared, assigned, slots = declared_in(declarations), assigned_in(source), slots_in(source)
    assert declared
    for name, attributes in declared.items():
        if name in slots:
            assert attributes == slots[name], name
        else:
            assert attributes == assigned[name], name


@pytest.mark.parametrize("suffix", [".py", ".pxd", None])
def test_a_checkout_runs_sources_that_are_newer_than_their_compiled_forms(
    suffix: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_sources_newer = _native.are_sources_newer.__wrapped__
    monkeypatch.setattr(_native, "__file__", str(tmp_path / "_native" / "__init__.py"))
    native = tmp_path / "_native" / "producer.pxd"
    files = [native]
    for name in _native.COMPILED:
        path = tmp_path.joinpath(*name.split("."))
        files += [path.with_suffix(each) for each in (".py", ".pxd")]
        files.append(Path(f"{path}{EXTENSION_SUFFIXES[0]}"))
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.utime(file, (1000, 1000))
    assert not are_sources_newer()
    changed = path.with_suffix(suffix) if suffix else native
    os.utime(changed, (1001, 1001))
    assert are_sources_newer()
    for file in files:
        if file.suffix == ".pxd":
            file.unlink()
    assert not are_sources_newer(), "a package that is installed has no declarations"
    files[-1].unlink()
    assert are_sources_newer(), "all run from their sources if one is not compiled"

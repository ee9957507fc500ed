"""The imports between modules of the package, including those for types and in functions."""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NATIVE_IMPORT = re.compile(r"^\s*(?:from|c?import)\s+([\w.]+)", re.MULTILINE)
INCLUDE = re.compile(r'^include "(.+)"$', re.MULTILINE)
Graph = dict[str, set[str]]


@functools.cache
def module_graph(package: Path) -> Graph:
    """Return the imports of each module of the package."""
    root = package.parent
    files = {module_name(path, root): path for path in package.rglob("*.py*") if is_source(path)}
    return {
        module: {
            found
            for name in imported(path, module)
            if (found := owner(name, files)) is not None and found != module
        }
        for module, path in files.items()
    }


def is_source(path: Path) -> bool:
    return path.suffix in (".py", ".pyx")


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def owner(name: str, files: Mapping[str, Path]) -> str | None:
    """Return the module that has this name or this attribute, or None if there is none."""
    if name in files:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in files else None


def imported(path: Path, module: str) -> Iterator[str]:
    """Yield the full names of all imports in the file, including those inside of functions."""
    if path.suffix == ".pyx":
        text = path.read_text()
        text += "".join((path.parent / name).read_text() for name in INCLUDE.findall(text))
        yield from NATIVE_IMPORT.findall(text)
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*base, *filter(None, [node.module])]) if node.level else node.module
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in cycles."""
    reach = {module: reachable(graph, module) for module in graph}
    found: dict[str, list[str]] = {}
    for module in sorted(graph):
        if module in reach[module]:
            first = min(other for other in reach[module] if module in reach[other])
            found.setdefault(first, []).append(module)
    return list(found.values())


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen

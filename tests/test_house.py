"""What holds for every file of the project: sizes, names of modules, what an import costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES = 500
FUNCTION_LINES = 70
FOLDERS = ("aiokclient", "pyspark_aiokclient", "tests", "examples", "benchmarks", ".ci")
# Tables of pure data: nothing but declarations, one row a thing.
TABLES = ("aiokclient/protocol/messages/",)
VAGUE = {"utils", "util", "helpers", "helper", "common", "compat", "misc"}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for suffix in ("*.py", "*.pyx"):
            yield from sorted((ROOT / folder).rglob(suffix))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", list(sources()), ids=name_of)
def test_sizes(path: Path) -> None:
    text = path.read_text()
    if not name_of(path).startswith(TABLES):
        assert text.count("\n") <= FILE_LINES, f"{name_of(path)}: what second concept lives in it?"
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES, f"{name_of(path)}:{node.lineno} {node.name}: {length}"


def test_no_vague_module() -> None:
    vague = [name_of(p) for p in sources() if p.stem in VAGUE or VAGUE & set(p.parts)]
    assert vague == []


def test_import_is_light() -> None:
    heavy = ["pyarrow", "numpy", "pandas", "rich", "typer", "opentelemetry", "google.protobuf"]
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


def test_public_names_are_sorted_and_there() -> None:
    import aiokclient

    names = list(aiokclient.__all__)
    assert names == sorted(names)
    assert [n for n in names if not hasattr(aiokclient, n)] == []
    assert (ROOT / "aiokclient" / "py.typed").exists()

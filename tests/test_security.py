"""Checks of SECURITY.md: the tests that it names exist, and its limits are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from aiokclient.config.security.oidc.endpoint import MAX_RESPONSE
from aiokclient.network.authentication import MOST_STEPS
from aiokclient.network.connection import SETUP_FRAME_LIMIT
from aiokclient.network.sasl import MAX_CHALLENGE
from aiokclient.network.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "SECURITY.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| Promise"))
]
TEST_FILES = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::\w+`", TEXT)))


def test_every_promise_names_its_tests() -> None:
    assert len(ROWS) > 20
    for promise, tests in ROWS:
        assert promise.endswith("."), promise
        assert re.fullmatch(r"`tests/[\w/]+\.py::\w+`(, `tests/[\w/]+\.py::\w+`)*", tests), promise


@pytest.mark.parametrize("path", TEST_FILES)
def test_every_named_test_exists(path: str) -> None:
    names = re.findall(rf"`{re.escape(path)}::(\w+)`", TEXT)
    tree = ast.parse((ROOT / path).read_text())
    functions = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert set(names) <= functions


def test_the_limits_are_those_of_the_code() -> None:
    assert f"a frame has at most {SETUP_FRAME_LIMIT >> 20} MiB" in TEXT
    assert f"a challenge at most {MAX_CHALLENGE >> 10} KiB" in TEXT
    assert f"a login at most {MOST_STEPS} messages" in TEXT
    assert f"from {MIN_ITERATIONS} to {MAX_ITERATIONS}" in TEXT
    assert f"a token endpoint has at most {MAX_RESPONSE >> 20} MiB" in TEXT

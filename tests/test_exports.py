"""The public names, and what importing them costs."""

import json
import subprocess
import sys

import pytest

import aiokclient

HEAVY = ["asyncio", "anyio", "ssl", "pyarrow", "cramjam", "zstandard", "lz4", "opentelemetry"]


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has imported after running the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_all_is_sorted_and_there() -> None:
    assert list(aiokclient.__all__) == sorted(aiokclient.__all__)
    for name in aiokclient.__all__:
        assert getattr(aiokclient, name) is not None
    assert set(aiokclient.__all__) <= set(dir(aiokclient))


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(AttributeError, match="Prodcuer"):
        aiokclient.Prodcuer


def test_importing_it_is_light() -> None:
    modules = modules_after("import aiokclient")
    assert modules & set(HEAVY) == set()
    assert [name for name in modules if name.startswith("aiokclient.")] == []


def test_using_it_needs_no_arrow() -> None:
    modules = modules_after("from aiokclient import Admin, Client, Consumer, Producer")
    assert modules & {"pyarrow", "pyspark", "numpy", "opentelemetry"} == set()

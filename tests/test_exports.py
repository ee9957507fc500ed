"""The public names, and what importing them costs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aiokclient
from aiokclient import _native

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


@pytest.mark.parametrize("pure", ["", "0", "1"])
def test_native_tells_which_implementation_is_in_use(pure: str) -> None:
    code = "import aiokclient; from aiokclient.record import batch; import json\n"
    code += "print(json.dumps([aiokclient.native, batch.IMPLEMENTATION]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        env={**os.environ, "AIOKCLIENT_PURE": pure},
    )
    native, implementation = json.loads(done.stdout)
    assert native is (implementation == "native")
    assert not (native and pure == "1")


def test_native_is_false_when_one_module_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "WANTED", True)
    monkeypatch.setattr(_native, "MODULES", (*_native.MODULES, "record._missing_cy"))
    assert _native.in_use() is False


def test_every_native_module_is_listed() -> None:
    package = Path(aiokclient.__file__).parent
    found = sorted(path.relative_to(package) for path in package.rglob("*.pyx"))
    names = [".".join(path.with_suffix("").parts) for path in found]
    assert sorted(_native.MODULES) == sorted(names)


def test_using_it_needs_no_arrow() -> None:
    modules = modules_after("from aiokclient import Admin, Client, Consumer, Producer")
    assert modules & {"pyarrow", "pyspark", "numpy", "opentelemetry"} == set()

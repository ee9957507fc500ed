"""Environments in which the library does not run as it should: trio, and missing native modules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aiokclient
from aiokclient import Admin, Client, Consumer, Producer
from aiokclient.errors import WrongLoopError

PACKAGE = Path(aiokclient.__file__).parent


def test_start_under_trio_says_that_the_library_is_for_asyncio() -> None:
    trio = pytest.importorskip("trio", reason="only the newest Python has all tools")

    async def start(kind: Any) -> None:
        async with kind(bootstrap_servers="localhost:1"):
            pass

    for kind in (Producer, Consumer, Admin, Client):
        with pytest.raises(WrongLoopError, match="for asyncio, and does not run under trio"):
            trio.run(start, kind)


def test_start_without_any_loop_names_asyncio_run() -> None:
    coroutine: Any = Producer(bootstrap_servers="localhost:1").start()
    with pytest.raises(RuntimeError, match=r"asyncio\.run"):
        coroutine.send(None)


PROGRAM = """
import asyncio
from aiokclient import Producer, native
from aiokclient.testing import EmbeddedCluster

async def main():
    async with EmbeddedCluster(topics={"t": 1}) as cluster:
        for _ in range(2):
            async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                await producer.send("t", b"v")

asyncio.run(main())
print("native" if native else "pure")
"""


@pytest.mark.parametrize("chosen", [False, True], ids=["by accident", "AIOKCLIENT_PURE"])
def test_checkout_without_native_modules_logs_one_warning(tmp_path: Path, chosen: bool) -> None:
    no_binaries = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "aiokclient", ignore=no_binaries)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "AIOKCLIENT_PURE": "1" if chosen else "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "pure\n", done.stderr
    assert done.stderr.count("make native") == (0 if chosen else 1)

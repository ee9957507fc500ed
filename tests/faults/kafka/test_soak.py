"""A soak: every kind of client in one event loop, on three brokers with TLS and SCRAM, amid faults.

`make soak MINUTES=10 SEED=7` runs the soak for longer. The run is a process of its own
(`harness/soak`), so that its tasks, sockets, threads, and memory are those of the library alone. A
run of one minute does not compare memory, because the comparison begins after the first minute.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MINUTES = float(os.environ.get("AIOKCLIENT_SOAK_MINUTES") or 0.5)
SEED = os.environ.get("AIOKCLIENT_SOAK_SEED", "1")
# glibc must return large blocks as soon as they are free, and must not have an arena for each
# thread. Otherwise, the process would hold memory that it does not use.
ALLOCATOR = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "65536"}
BREAK = os.environ.get("AIOKCLIENT_SOAK_BREAK", "")


@pytest.mark.timeout(60 * MINUTES + 300)
@pytest.mark.fault(1, 3, 5, 14, 40, 41, 46, 56)
def test_all_promises_are_kept_amid_faults(java: str) -> None:
    command = [sys.executable, "-u", "-m", "soak", "--minutes", f"{MINUTES:g}"]
    command += ["--seed", SEED] if SEED else []
    command += ["--break", BREAK] if BREAK else []
    paths = os.pathsep.join([str(ROOT / "tests" / "harness"), str(ROOT)])
    environment = {**os.environ, **ALLOCATOR, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, "The output of the run says what was broken."

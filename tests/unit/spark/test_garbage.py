"""Long-lived objects of Spark's workers are excluded from garbage collections, and only there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

TASKS = """
import gc, json, runpy, sys, types

def main():
    from aiokclient.spark import garbage

    counts = []
    for _ in range(4):
        garbage.exclude()
        garbage.exclude()
        counts.append(gc.get_freeze_count())
        made = [[number] for number in range(1000)]
        gc.collect()
    garbage.exclude()
    counts.append(gc.get_freeze_count())
    print(json.dumps(counts))
"""


def freeze_counts(module: str, folder: Path) -> list[int]:
    """Run tasks in a process with this main module. Return the excluded objects in each task."""
    package = folder.joinpath(*module.split("."))
    package.parent.mkdir(exist_ok=True)
    if package.parent != folder:
        package.with_name("__init__.py").touch()
    package.with_suffix(".py").write_text(f"{TASKS}\nmain()\n")
    done = subprocess.run(
        [sys.executable, "-m", module],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    counts: list[int] = json.loads(done.stdout)
    return counts


def test_worker_excludes_its_objects_once_after_the_garbage_of_the_first_task(
    tmp_path: Path,
) -> None:
    first, second, *later = freeze_counts("pyspark.daemon", tmp_path)
    assert first == 0
    assert second > 1000
    # Excluded objects that are deleted are counted no more.
    assert all(0 < count <= second for count in later)


def test_process_that_is_no_worker_excludes_nothing(tmp_path: Path) -> None:
    assert freeze_counts("program", tmp_path) == [0] * 5

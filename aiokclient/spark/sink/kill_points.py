"""Points at which a test of the sink stops or ends the process that reaches them.

They are after-log, before-flush, before-handoff, between-commits, and after-commit.

The option `aiokclient.test.points` names a folder. A file in it, such as `before-flush.3.0` (point,
batch, and Spark partition) or `after-commit.3`, arms a point once. If its text is `kill`, the
process ends there as if it were killed. If it is `wait`, the process waits until the file
`before-flush.3.0.go` exists, so that a test can end another process. The file is renamed when the
process reaches the point. A test could not hit these points from outside.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

POLL_S = 0.02


async def reach(folder: str | None, point: str, batch: int, partition: int | None = None) -> None:
    """Stop or end this process if a test has armed this point."""
    if folder is not None:
        name = f"{point}.{batch}" if partition is None else f"{point}.{batch}.{partition}"
        await asyncio.to_thread(_reach, Path(folder), name)


def _reach(folder: Path, name: str) -> None:
    try:
        action = (folder / name).read_text()
        (folder / name).rename(folder / f"{name}.reached")
    except FileNotFoundError:
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while not (folder / f"{name}.go").exists():
        time.sleep(POLL_S)


def is_armed(folder: str | None, point: str, batch: int) -> bool:
    """Return whether a test has armed this point."""
    return folder is not None and Path(folder, f"{point}.{batch}").exists()

"""The process of `--reload`: it runs a command, and starts it again when a file has changed.

For development: the command gets SIGTERM, ends within its own bound, and is started again. If it
ends with an error, the next change starts it. It runs in the same process group, so that a Ctrl-C
in the terminal reaches it directly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

INTERVAL_S: Final = 0.5
"""Seconds between two looks at the files."""
IGNORED: Final = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages"})
"""Names of folders whose files are not looked at, nor are those of hidden folders."""


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the Python files below a folder, without those of virtual environments."""
    for path, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name not in IGNORED
            and not name.startswith(".")
            and not (Path(path, name) / "pyvenv.cfg").exists()
        ]
        yield from (Path(path, name) for name in names if name.endswith(".py"))


def read_times(folder: Path) -> dict[Path, int]:
    """Return when each Python file below a folder was changed last, in nanoseconds."""
    times = {}
    for path in list_files(folder):
        try:
            times[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # It was removed in the meantime.
    return times


def find_change(before: Mapping[Path, int], now: Mapping[Path, int]) -> Path | None:
    """Return a file that was added, changed, or removed, or None."""
    changed = (path for path in {**before, **now} if before.get(path) != now.get(path))
    return next(changed, None)


class Reloader:
    """A command, and the signals that end it."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self._is_ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the command until a signal comes, or it ends by itself. Return its exit code."""
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            signal.signal(number, self._on_signal)
        try:
            while True:
                times = read_times(self._folder)
                self._process = process = subprocess.Popen(self._command)
                change = self._wait_for_change(process, times)
                if change is not None and process.poll() is None:
                    process.terminate()
                code = process.wait()
                if change is None:
                    return code
                sys.stderr.write(f"{change} has changed. The workers start again.\n")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _wait_for_change(
        self, process: subprocess.Popen[bytes], before: Mapping[Path, int]
    ) -> Path | None:
        """Wait until a file changes, and return it, or None if the command shall not run again."""
        has_failed = False
        while not self._is_ended:
            time.sleep(INTERVAL_S)
            change = find_change(before, read_times(self._folder))
            if change is not None and not self._is_ended:
                return change
            code = process.poll()
            if code == 0:
                return None
            if code is not None and not has_failed:
                has_failed = True
                sys.stderr.write("The workers have failed. They start again after a change.\n")
        return None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_ended = True
        # The terminal sends SIGINT to the whole process group, so the command has it already.
        if number == signal.SIGTERM and self._process is not None:
            self._process.send_signal(number)


def run_and_reload(command: Sequence[str]) -> int:
    """Run a command, again after each change of a Python file in the current folder.

    Return its exit code after SIGTERM, SIGINT, or its end without an error.
    """
    return Reloader(command, Path.cwd()).run()

"""Commands in processes of their own, with pipes or on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "LIMIT_S",
    "Ended",
    "Screen",
    "command_of",
    "converse",
    "on_terminal",
    "open_terminal",
    "run_on_terminal",
    "run_process",
    "variables",
]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60
ROWS, COLUMNS = 40, 110


class Ended(NamedTuple):
    """The exit code of a process that has ended, and its output."""

    code: int
    out: str
    err: str


class Screen(NamedTuple):
    """The exit code of a process on a terminal that has ended, and what the terminal got."""

    code: int
    text: str


def command_of(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "aiokclient", *words]


def variables(folder: Path, servers: str = "", **more: str) -> dict[str, str]:
    """Return the environment of a process, whose profiles and cache are in `folder`."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith("AIOKCLIENT_")}
    found = {
        **kept,
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        # On a loaded machine, a cluster may take longer to answer.
        "AIOKCLIENT_COMPLETION_TIMEOUT": "30",
        **more,
    }
    # asyncio's debug mode writes to standard error.
    found.pop("PYTHONDEVMODE", None)
    if servers:
        found["AIOKCLIENT_BOOTSTRAP_SERVERS"] = servers
    return found


def run_process(
    words: Sequence[str], environment: Mapping[str, str], *, typed: str = "", redirection: str = ""
) -> Ended:
    """Run a command, in a shell if there is a redirection such as ``>&-``."""
    command = command_of(words)
    if redirection:
        command = ["sh", "-c", f'exec "$@" {redirection}', "sh", *command]
    done = subprocess.run(
        command, input=typed.encode(), capture_output=True, timeout=LIMIT_S, env=environment
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_on_terminal(
    words: Sequence[str], environment: Mapping[str, str], answers: Mapping[str, str] | None = None
) -> Screen:
    """Run a command on a terminal of 110 columns, and type an answer after each of the questions.

    `answers` are by a part of the question.
    """
    ours, terminal = open_terminal()
    with subprocess.Popen(
        command_of(words),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=on_terminal(environment),
        start_new_session=True,
    ) as process:
        os.close(terminal)
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        text = converse(ours, answers or {})
        timer.cancel()
    return Screen(process.returncode, text)


def open_terminal() -> tuple[int, int]:
    """Return both sides of a terminal of 110 columns: ours, and that of a process."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    return ours, terminal


def on_terminal(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process on a terminal."""
    return {**environment, "TERM": "xterm", "COLUMNS": str(COLUMNS)}


def converse(ours: int, answers: Mapping[str, str]) -> str:
    """Answer the questions on a terminal until its process ends, and return what it showed."""
    waiting = dict(answers)
    shown = b""
    while part := _read(ours):
        shown += part
        for question in [each for each in waiting if each.encode() in shown]:
            os.write(ours, f"{waiting.pop(question)}\n".encode())
    os.close(ours)
    assert not waiting, f"{waiting} was not asked: {shown!r}"
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # The process has closed its side of the terminal.
        return b""

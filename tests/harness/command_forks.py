"""Commands in forks of a process that has imported the command line already.

A new process imports what a command needs, which takes most of its processor time. A fork has all
that. It is a process of its own as well, with the standard streams, the variables, and the terminal
that it is given. Tests about the start of a program use `command_process` instead.

`python command_forks.py FD` is the process that forks. The socket FD gets a line for each command,
with the standard streams of the fork, and answers its process id, and then its exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TextIO, cast

from command_process import (
    LIMIT_S,
    ROOT,
    Ended,
    Screen,
    converse,
    on_terminal,
    open_terminal,
)

__all__ = ["run_fork", "run_fork_on_terminal"]

PRELOADED = ("aiokclient.cli", "aiokclient.admin", "aiokclient.cluster", "aiokclient.network")
PRELOADED_MODULES = (
    "aiokclient.consumer.consumer",
    "aiokclient.producer.producer",
    "asyncio",
    "rich.console",
    "rich.live",
    "rich.progress",
    "rich.table",
)
LONGEST_LINE = 1 << 16


def run_fork(words: Sequence[str], environment: Mapping[str, str], *, typed: str = "") -> Ended:
    """Run a command in a fork, as `run_process` does in a new process."""
    given, out, err = os.pipe(), os.pipe(), os.pipe()
    streams = (given[0], out[1], err[1])
    with open(given[1], "wb") as writer, open(out[0], "rb") as o, open(err[0], "rb") as e:
        fork = Fork(words, environment, streams)
        with ThreadPoolExecutor(2) as pool:
            reading = pool.submit(o.read), pool.submit(e.read)
            with contextlib.suppress(BrokenPipeError):
                writer.write(typed.encode())
                writer.close()
            code = fork.wait()
            return Ended(code, *(each.result().decode() for each in reading))


def run_fork_on_terminal(
    words: Sequence[str], environment: Mapping[str, str], answers: Mapping[str, str] | None = None
) -> Screen:
    """Run a command in a fork, as `run_on_terminal` does in a new process."""
    ours, terminal = open_terminal()
    fork = Fork(words, on_terminal(environment), [terminal] * 3, has_terminal=True)
    text = converse(ours, answers or {})
    return Screen(fork.wait(), text)


class Fork:
    """A command in a fork, with the given standard streams, which the caller no longer has.

    One command runs at a time.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        *,
        has_terminal: bool = False,
    ) -> None:
        self._server = connect_server()
        line = json.dumps([list(words), dict(environment), has_terminal]).encode() + b"\n"
        sent = socket.send_fds(self._server, [line], list(streams))
        self._server.sendall(line[sent:])
        for each in set(streams):
            os.close(each)
        pid = self._read_number()
        self._timer = threading.Timer(LIMIT_S, os.kill, (pid, signal.SIGKILL))
        self._timer.start()

    def wait(self) -> int:
        """Return the exit code. A process that does not end within a minute is killed."""
        try:
            return self._read_number()
        finally:
            self._timer.cancel()

    def _read_number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            part = self._server.recv(1)
            assert part, "the process that forks has ended"
            line += part
        return int(line)


@functools.cache
def connect_server() -> socket.socket:
    """Start the process that forks, once, and return its socket. It ends with this process."""
    ours, theirs = socket.socketpair()
    environment = {n: v for n, v in os.environ.items() if not n.startswith("AIOKCLIENT_")}
    environment.pop("PYTHONDEVMODE", None)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env={**environment, "PYTHONPATH": str(ROOT)},
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def serve(server: socket.socket) -> None:
    """Fork for each line from the socket, until it is closed. In a fork, run the command."""
    while True:
        line, streams, *_ = socket.recv_fds(server, LONGEST_LINE, 3)
        while line and not line.endswith(b"\n"):
            line += server.recv(LONGEST_LINE)
        if not line:
            return
        pid = os.fork()
        if not pid:
            server.close()
            words, environment, has_terminal = json.loads(line)
            run_command(words, environment, has_terminal, streams)
        for each in streams:
            os.close(each)
        server.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        server.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def run_command(
    words: list[str], environment: dict[str, str], has_terminal: bool, streams: list[int]
) -> None:
    """Run a command as a new process would, and exit with its code."""
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    if has_terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.stdin = open_stream(0, "r", "strict")
    sys.stdout = open_stream(1, "w", "strict")
    sys.stderr = open_stream(2, "w", "backslashreplace")
    sys.argv = ["aiokclient", *words]
    from aiokclient.cli import main

    sys.exit(main())


def open_stream(number: int, mode: str, errors: str) -> TextIO:
    """Open a standard stream as Python does when it starts."""
    buffering = 1 if number == 2 or os.isatty(number) else -1
    return cast(
        "TextIO",
        open(number, mode, buffering, encoding="utf-8", errors=errors, closefd=False),
    )


def preload() -> None:
    """Import what commands need."""
    for name in PRELOADED:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in PRELOADED_MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    preload()
    serve(socket.socket(fileno=int(sys.argv[1])))

"""Processes for members, which start quickly.

They are forked from one process that has imported everything. `python -m churn` runs that process
(`serve`). It receives a description and a socket for each member. When this process or the test
ends, all members are killed, even suspended ones.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from . import librdkafka
from .events import line
from .ours import OurMember

Live: TypeAlias = Callable[[Mapping[str, Any], socket.socket], None]

HARNESS = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1


class Nursery:
    """A context in which `fork` creates processes.

    `package` is the one whose members they are: it is run as a module, and calls `serve`.
    """

    def __init__(self, package: str = "churn") -> None:
        self._package = package

    def __enter__(self) -> Self:
        self._control, theirs = socket.socketpair()
        path = os.pathsep.join([str(HARNESS), str(HARNESS.parents[1]), *sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._package, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
        )
        theirs.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._control.close()
        self._process.wait(10)

    def fork(self, spec: Mapping[str, Any]) -> tuple[int, socket.socket]:
        """Start a process with this member, and return its id and the socket to it."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [json.dumps(spec).encode()], [theirs.fileno()])
            pid = int(self._control.recv(32))
        return pid, ours


def serve(control: socket.socket, live: Live) -> None:
    """Fork a process for each member that is requested, and run the member by `live` there."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            return
        pid = os.fork()
        if pid:
            os.close(descriptors[0])
            control.send(b"%d" % pid)
            continue
        try:
            control.close()
            die_with_parent()
            live(json.loads(message), socket.socket(fileno=descriptors[0]))
        finally:
            os._exit(0)


def die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def live(spec: Mapping[str, Any], channel: socket.socket) -> None:
    """Run a member in this process."""

    def tell(what: str, *data: object) -> None:
        channel.sendall(line(what, *data))

    try:
        if spec["kind"] == "librdkafka":
            librdkafka.live(spec, channel, tell)
        else:
            asyncio.run(live_ours(spec, channel, tell))
    except Exception:
        tell("failed", traceback.format_exc())


async def live_ours(spec: Mapping[str, Any], channel: socket.socket, tell: Any) -> None:
    class Warnings(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell("warning", f"{record.name}: {record.getMessage()}")

    logging.getLogger().addHandler(Warnings(logging.WARNING))
    member = OurMember(spec, tell)

    def orders() -> None:
        found = channel.recv(4096)
        if not found:
            os._exit(0)
        for order in found.decode().split():
            member.order(order)

    # The member writes its events with blocking calls, so that each one is reported before anything
    # else happens.
    asyncio.get_running_loop().add_reader(channel, orders)
    await member.run()

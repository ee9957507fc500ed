"""One Kafka process on loopback, which writes its log to a file."""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .distribution import JVM_OPTIONS, Distribution
from .properties import text

spawner = ThreadPoolExecutor(1, "kafka-spawner")
"""The executor whose only thread starts all nodes.

A node ends with the thread that started it, so this thread lives as long as the tests run.
"""


class ReservedPort:
    """A loopback port that the system gives to no other process while this object exists.

    The socket is bound and never listens. Java sets SO_REUSEADDR for server sockets, so on Linux
    the broker can bind the same port and listen on it. The system does not choose the port for
    others. So it stays free for the broker, even between a kill and the next start.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        if sys.platform != "linux":  # On other systems, the broker could not bind the same port.
            self.release()

    def release(self) -> None:
        self._socket.close()


class KafkaNode:
    """A node with its folder. ``start`` does not wait until the node is ready; the cluster does."""

    def __init__(
        self,
        distribution: Distribution,
        folder: Path,
        properties: Mapping[str, object],
        jvm: tuple[str, ...],
        plugins: tuple[Path, ...] = (),
    ) -> None:
        self._plugins = plugins
        self.folder, self.log = folder, folder / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.configure(properties)
        self.use(distribution, jvm)
        running.add(self)

    def configure(self, properties: Mapping[str, object]) -> None:
        """Use these properties from the next start on."""
        (self.folder / "node.properties").write_text(text(properties))

    def use(self, distribution: Distribution, jvm: tuple[str, ...] = ()) -> None:
        """Use this version from the next start on."""
        file = self.folder / "node.properties"
        options = (*JVM_OPTIONS, *jvm)
        self._command = distribution.command(
            "kafka.Kafka", str(file), jvm=options, plugins=self._plugins
        )
        # Where the system supports it, the node ends with the tests even if they are killed.
        if setpriv := shutil.which("setpriv"):
            self._command = [setpriv, "--pdeathsig", "KILL", *self._command]

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the node was not started"
        return self._process.pid

    def start(self) -> None:
        assert not self.alive, "the node runs already"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KAFKA_")}
        with self.log.open("ab") as log:
            self._process = spawner.submit(
                subprocess.Popen,
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment,
            ).result()

    def signal(self, number: int) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended, even if it is suspended."""
        self.signal(signal.SIGKILL)
        self.wait(10)

    def wait(self, timeout: float) -> None:
        if self._process is not None:
            self._process.wait(timeout)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        running.discard(self)

    def tail(self, start: int = 0, limit: int = 4000) -> str:
        """Return the end of the log, from byte ``start`` on."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[start:][-limit:].decode(errors="replace")


running: "weakref.WeakSet[KafkaNode]" = weakref.WeakSet()


@atexit.register
def remove_all() -> None:
    for node in list(running):
        with contextlib.suppress(Exception):
            node.remove()

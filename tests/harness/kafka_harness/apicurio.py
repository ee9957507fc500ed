"""Apicurio Registry, which Maven downloads and which runs as a process on loopback.

It has most calls of Confluent's registry, under a path of its own, and keeps everything in memory.
"""

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from .distribution import run
from .files import CACHE, prepared
from .java import find, find_java
from .node import ReservedPort, spawner
from .probe import wait_until

VERSION = "2.6.13.Final"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
PATH = "/apis/ccompat/v7"
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def installation() -> Path:
    """Return the folder of the registry, which Maven downloads at the first use (142 MB)."""
    return prepared(CACHE / f"apicurio-registry-{VERSION}" / "app", _fetch)


def _fetch(target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [find("mvn"), "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"]
        run(
            f"fetching Apicurio Registry {VERSION} through Maven",
            [*command, f"-DoutputDirectory={folder}"],
        )
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")


class ApicurioRegistry:
    """A running registry. It is a context manager."""

    def __init__(self) -> None:
        self._reserved = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="apicurio-registry-"))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The URL of the API that is Confluent's."""
        return f"http://127.0.0.1:{self._reserved.port}{PATH}"

    def start(self) -> None:
        """Start the registry, with no schemas in it, and wait until it answers."""
        (jar,) = installation().glob("*-runner.jar")
        options = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._reserved.port}")
        command = [find_java(), *JVM, *options, "-jar", str(jar)]
        # Where the system supports it, the registry ends with the tests even if they are killed.
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self._folder / "log").open("wb") as log:
            self._process = spawner.submit(
                subprocess.Popen,
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ,
            ).result()
        wait_until("Apicurio Registry", self._answers, 180)

    def kill(self) -> None:
        """End the process. Its schemas are lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        self.kill()
        self._reserved.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            log = (self._folder / "log").read_text(errors="replace")
            raise RuntimeError(f"Apicurio Registry ended unexpectedly.\n{log[-3000:]}")
        with contextlib.closing(
            urllib.request.urlopen(f"{self.url}/subjects", timeout=5)
        ) as response:
            return bool(response.status == 200)

"""A standalone cluster of Spark on loopback: a master and two workers, from pyspark's own jars.

Its processes do not find this checkout. They have what is installed on every machine (Spark,
pandas, and pyarrow), and what an application ships in the archive of an environment.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from kafka_harness.node import ReservedPort, spawner
from kafka_harness.probe import wait_until
from packaging.requirements import Requirement

__all__ = ["StandaloneCluster", "Submitted"]

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).resolve().parent
LOOPBACK = "127.0.0.1"
WORKERS = 2
INSTALLED = ("pandas", "pyarrow")
"""The packages that every machine has in addition to Spark."""
SHIPPED = ("aiokclient", "rich")
"""The packages in the shipped environment. It contains their requirements, too."""
ARCHIVE = "environment.tar.gz"
MEMORY = "512m"
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java virtual machines that run for a few seconds only."""
CONFIGS = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.memory": MEMORY,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.memory": MEMORY,
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
START_S = 240.0
END_S = 10.0


class Submitted:
    """An application that was submitted, and its output."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process, self._output = process, output

    @property
    def output(self) -> str:
        return self._output.read_text("utf-8", "replace")

    def complete(self, timeout: float) -> str:
        """Wait until the application has succeeded, and return its output."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, f"The application ended with {code}:\n{self.output[-8000:]}"
        return self.output

    def await_file(self, path: Path, timeout: float = START_S) -> str:
        """Wait until the application has written a file, and return its text."""

        def written() -> bool:
            assert self._process.poll() is None, self.output[-8000:]
            return path.exists()

        wait_until(str(path), written, timeout)
        return path.read_text()

    def end(self) -> None:
        """Kill the driver, if it runs. The cluster then ends its executors."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class StandaloneCluster:
    """A master, two workers with one core each, and the folder from which a user submits.

    The folder has the environment, its archive, and what else the test puts there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "user"
        self._files, self._installed = folder / "cluster", folder / "installed"
        self._port, self._web_port = ReservedPort(), ReservedPort()
        self.master = f"spark://{LOOPBACK}:{self._port.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._submitted: list[Submitted] = []

    def __enter__(self) -> Self:
        for each in (self.folder, self._files):
            each.mkdir()
        _link_installed(self._installed)
        _make_environment(self.folder)
        try:
            master = ("--port", self._port.port, "--webui-port", self._web_port.port)
            self._start("master", "master.Master", *master)
            self._await_workers(0)
            for number in range(WORKERS):
                work = self._files / f"work-{number}"
                size = ("--cores", 1, "--memory", MEMORY, "--work-dir", work, "--webui-port", 0)
                self._start(f"worker-{number}", "worker.Worker", *size, self.master)
            self._await_workers(WORKERS)
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

    def close(self) -> None:
        """End the applications, the workers with their executors, and the master."""
        for application in self._submitted:
            application.end()
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._port.release()
        self._web_port.release()

    def submit(
        self,
        program: Path,
        *arguments: str,
        files: tuple[str, ...] = (),
        configs: Mapping[str, str] | None = None,
    ) -> Submitted:
        """Submit a program as a user does, in the user's folder."""
        options = ["--master", self.master, "--archives", f"{ARCHIVE}#environment"]
        options += ["--files", ",".join(files)] if files else []
        for name, value in {**CONFIGS, **(configs or {})}.items():
            options += ["--conf", f"{name}={value}"]
        environment = self._environment("driver") | {
            "PYSPARK_PYTHON": "./environment/bin/python",
            "SPARK_SUBMIT_OPTS": f"{JVM_OPTIONS} -Dderby.system.home={self._files}",
        }
        output = self._files / f"output-{len(self._submitted)}"
        command = [SPARK_HOME / "bin" / "spark-submit", *options, program, *arguments]
        process = _spawn(command, output, self.folder, environment)
        self._submitted.append(Submitted(process, output))
        return self._submitted[-1]

    def _start(self, name: str, main: str, *arguments: object) -> None:
        command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{main}"]
        command += ["--host", LOOPBACK, *map(str, arguments)]
        log = self._files / f"{name}.log"
        self._processes.append(_spawn(command, log, self._files, self._environment(name)))

    def _environment(self, name: str) -> dict[str, str]:
        """Return the environment variables of a process, without the settings of the tests."""
        ours = ("PYTHON", "PYSPARK", "SPARK")
        others = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
        return others | {
            "PYTHONPATH": str(self._installed),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self._files / f"local-{name}"),
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS,
        }

    def _await_workers(self, count: int) -> None:
        def registered() -> bool:
            for log in sorted(self._files.glob("*.log")):
                ended = any(process.poll() is not None for process in self._processes)
                assert not ended, f"{log.name}:\n{log.read_text()[-3000:]}"
            return int(self._state()["aliveworkers"]) == count

        wait_until(f"{count} workers of Spark", registered, START_S)

    def _state(self) -> dict[str, Any]:
        """Return the state that the master reports."""
        url = f"http://{LOOPBACK}:{self._web_port.port}/json/"
        with urllib.request.urlopen(url, timeout=START_S) as response:
            state: dict[str, Any] = json.load(response)
        return state


def _spawn(
    command: list[Any], output: Path, folder: Path, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own."""
    # Where the system supports it, the process ends with the tests even if those are killed.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    with output.open("wb") as log:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        return spawner.submit(start).result()


def _needed(*names: str) -> dict[str, Distribution]:
    """Return these distributions and all their requirements."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    for name in waiting:  # The loop also visits the names that it appends.
        found[name] = distribution(name)
        for requirement in map(Requirement, found[name].requires or ()):
            marker = requirement.marker
            if requirement.name not in waiting and (not marker or marker.evaluate({"extra": ""})):
                waiting.append(requirement.name)
    return found


def _link_installed(folder: Path) -> None:
    """Make a folder with the packages that every machine has."""
    folder.mkdir()
    for each in _needed(*INSTALLED).values():
        names = {path.parts[0] for path in each.files or ()} - {"..", "__pycache__"}
        for name in names:
            (folder / name).symlink_to(Path(str(each.locate_file(name))))


def _make_environment(folder: Path) -> None:
    """Make a virtual environment with the shipped packages, and its archive."""
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    # Build without native modules, and then copy those of this checkout. Compiling takes a minute.
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(packages)],
        cwd=ROOT,
        env={**os.environ, "AIOKCLIENT_PURE": "1"},
        check=True,
        capture_output=True,
    )
    native = Path("aiokclient", "_native")
    for module in (ROOT / native).glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
        shutil.copy(module, packages / native)
    for name, each in _needed(*SHIPPED).items():
        for path in each.files or () if name != "aiokclient" else ():
            if path.parts[0] != "..":
                target = packages / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(str(each.locate_file(path))), target)
    with tarfile.open(folder / ARCHIVE, "w:gz", compresslevel=1) as archive:
        archive.add(environment, arcname=".")

"""Whole processes: Python alone, commands of this library, and the programs that do the same."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_harness import JavaTool, MissingToolError
from measuring.runner import Run, RunFailedError, say
from measuring.spec import Counts, Spec
from measuring.subject import NotMeasuredError

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "build" / "command-line"
PYTHON = "AIOKCLIENT_PYTHON"
"""The variable with an interpreter that has the library, instead of a new environment."""
# The peak memory of a process includes that of the one which has started it until then, so that a
# small one starts it. The command writes to a pipe, and has ended well if its code is 0.
LAUNCHER = """
import os, sys
reader, writer = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_CLOSE, reader)]
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
os.close(writer)
size = 0
while part := os.read(reader, 65536):
    size += len(part)
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), size, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


class CommandSubject:
    """A command that is started in a pipe. `words` are those after the program."""

    def __init__(self, name: str, family: str, words: Sequence[str]) -> None:
        self.name, self.family, self.words = name, family, words
        self.share, self.warming = 1.0, 0.0
        self.environment: Mapping[str, str] = {}

    def command(self, spec: Spec) -> list[str]:
        return [*self.program(), *(each.format(servers=spec.bootstrap) for each in self.words)]

    def program(self) -> list[str]:
        raise NotImplementedError


class Bare(CommandSubject):
    """The interpreter without any program."""

    def program(self) -> list[str]:
        return [str(installed_python())]


class Own(CommandSubject):
    """A command of this library."""

    def program(self) -> list[str]:
        python = installed_python()
        script = python.with_name("aiokclient")
        if script.exists():
            return [str(script)]
        return [str(python), "-c", "from aiokclient.cli import main; main()"]


class Kcat(CommandSubject):
    def program(self) -> list[str]:
        if shutil.which("kcat") is None:
            raise NotMeasuredError("kcat is not installed.")
        return ["kcat"]


class JvmTopics(CommandSubject):
    def command(self, spec: Spec) -> list[str]:
        try:
            return list(JavaTool("topics", "--bootstrap-server", spec.bootstrap, "--list").command)
        except MissingToolError as error:
            raise NotMeasuredError(str(error)) from None


COMMANDS: tuple[CommandSubject, ...] = (
    Bare("python -c pass", "python", ["-c", "pass"]),
    Own("aiokclient --version", "aiokclient", ["--version"]),
    Own("aiokclient --help", "aiokclient", ["--help"]),
    Own("aiokclient topics list --help", "aiokclient", ["topics", "list", "--help"]),
    Own("completion of fixed words", "aiokclient", ["__complete", "aiokclient topics de"]),
    Own("completion from the cache", "aiokclient", ["__complete", "aiokclient topics delete "]),
    Own("aiokclient topics list", "aiokclient", ["topics", "list", "-b", "{servers}"]),
    Kcat("kcat -L", "kcat", ["-b", "{servers}", "-L"]),
    JvmTopics("kafka-topics --list", "java", []),
)


@functools.cache
def installed_python() -> Path:
    """Return an interpreter of an environment in which the library is installed from a wheel."""
    if python := os.environ.get(PYTHON):
        return Path(python)
    say(f"installing the library in {INSTALLED}")
    venv.create(INSTALLED, with_pip=True, clear=True)
    python_path = INSTALLED / "bin" / "python"
    pip = [str(python_path), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, f"{ROOT}[cli]"], check=True)
    return python_path


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> Run:
    """Run a command in a pipe, and return what it took. Raises RunFailedError."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    fields = done.stdout.split()
    if done.returncode or fields[0] != "0":
        raise RunFailedError(f"{command} ended with {done.stdout}{done.stderr}")
    cpu_s, peak = float(fields[2]), int(fields[3])
    mib = peak / 1024 if sys.platform != "darwin" else peak / 2**20
    figures = {"cpu_ms": cpu_s * 1e3, "peak_mib": mib, "output_bytes": float(fields[1])}
    return Run(Counts(messages=1, bytes=0, cpu_s=cpu_s, wall_s=0.0, figures=figures), None)

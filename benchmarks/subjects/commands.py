"""Whole processes: Python alone, commands of this library, and the programs that do the same."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
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
# small one starts it. The command writes to a pipe, and has ended well if its code is 0. If there
# is a file, the command reads it from a pipe into which `cat` writes it.
LAUNCHER = """
import os, sys, time
file, *command = sys.argv[1:]
reader, writer = os.pipe()
actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
if file:
    source, sink = os.pipe()
    os.posix_spawnp("cat", ["cat", file], {}, file_actions=[(os.POSIX_SPAWN_DUP2, sink, 1)])
    os.close(sink)
    actions.append((os.POSIX_SPAWN_DUP2, source, 0))
began = time.perf_counter()
pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions)
os.close(writer)
if file:
    os.close(source)
size = 0
while part := os.read(reader, 65536):
    size += len(part)
_, status, used = os.wait4(pid, 0)
wall = time.perf_counter() - began
cpu = used.ru_utime + used.ru_stime
print(os.waitstatus_to_exitcode(status), size, cpu, used.ru_maxrss, wall)
"""


class CommandSubject:
    """A command that is started in a pipe. `words` are those after the program."""

    def __init__(self, name: str, family: str, words: Sequence[str]) -> None:
        self.name, self.family, self.words = name, family, words
        self.share, self.warming = 1.0, 0.0
        self.environment: Mapping[str, str] = {}

    def command(self, spec: Spec) -> list[str]:
        filled = {"servers": spec.bootstrap, "topic": spec.topic, "count": spec.count}
        return [*self.program(), *(each.format(**filled) for each in self.words)]

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
    """A command of kcat, with the librdkafka of confluent-kafka if that is installed.

    The kcat of distributions often has an older one, which waits for a second whenever its queue
    is full, and does not have the option that ends this.
    """

    def __init__(self, name: str, family: str, words: Sequence[str]) -> None:
        super().__init__(name, family, words)
        if newer := newer_librdkafka():
            self.environment = {"LD_PRELOAD": str(newer), "LD_LIBRARY_PATH": str(newer.parent)}

    def program(self) -> list[str]:
        if shutil.which("kcat") is None:
            raise NotMeasuredError("kcat is not installed.")
        return ["kcat"]


def newer_librdkafka() -> Path | None:
    """Return the librdkafka that a wheel of confluent-kafka contains, or None."""
    found = find_spec("confluent_kafka")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parents[1] / "confluent_kafka.libs"
    return next(iter(sorted(folder.glob("librdkafka-*.so*"))), None)


TUNED = ("-X", "fetch.queue.backoff.ms=1") if newer_librdkafka() else ()
"""kcat's option for its queue, if its librdkafka has it."""


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


PRODUCING: tuple[CommandSubject, ...] = (
    Own("aiokclient produce", "aiokclient", ["produce", "{topic}", "-b", "{servers}"]),
    Kcat("kcat -P", "kcat", ["-P", "-b", "{servers}", "-t", "{topic}"]),
)
"""The commands that send the lines of a pipe."""
CONSUMING: tuple[CommandSubject, ...] = (
    Own(
        "aiokclient consume",
        "aiokclient",
        ["consume", "{topic}", "--from", "start", "-n", "{count}", "-b", "{servers}"],
    ),
    Kcat(
        "kcat -C",
        "kcat",
        [
            "-C",
            "-q",
            "-b",
            "{servers}",
            "-t",
            "{topic}",
            "-o",
            "beginning",
            "-c",
            "{count}",
            *TUNED,
        ],
    ),
)
"""The commands that write the records of a topic as lines into a pipe."""


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


def run_command(
    command: Sequence[str], environment: Mapping[str, str], file: str = "", lines: int = 1
) -> Run:
    """Run a command in a pipe, and return what it took. Raises RunFailedError.

    If there is a file, the command reads it from a pipe. `lines` are those that it reads or writes.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, file, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    fields = done.stdout.split()
    if done.returncode or fields[0] != "0":
        raise RunFailedError(f"{command} ended with {done.stdout}{done.stderr}")
    cpu_s, peak = float(fields[2]), int(fields[3])
    mib = peak / 1024 if sys.platform != "darwin" else peak / 2**20
    figures = {"cpu_ms": cpu_s * 1e3, "peak_mib": mib, "output_bytes": float(fields[1])}
    counts = Counts(messages=lines, bytes=0, cpu_s=cpu_s, wall_s=float(fields[4]), figures=figures)
    return Run(counts, None)

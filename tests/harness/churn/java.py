"""A member that uses Java's consumer, in a separate process.

The programs are tests/java/GroupMember.java and, for share groups, tests/java/ShareMember.java.
"""

import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_harness import KAFKA
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

SOURCES = REPOSITORY / "tests" / "java"
OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SILENCE = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


def start(
    spec: Mapping[str, Any], program: str = "GroupMember"
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a member. Return its process, and the socket for commands to it and events from it."""
    settings = [f"{name}={value}" for name, value in spec["options"].items()]
    arguments = [program, spec["topic"], *settings]
    shared = f"-XX:SharedArchiveFile={KAFKA.archive()}"
    command = [find("java"), *OPTIONS, shared, SILENCE, "-cp", class_path(program), *arguments]
    # Where the system supports it, the process ends with the tests even if they are killed.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    ours, theirs = socket.socketpair()
    with theirs:
        return subprocess.Popen(command, stdin=theirs, stdout=theirs), ours


def class_path(program: str) -> str:
    """Return the class path with the program, which is compiled once and cached."""
    jars, source = KAFKA.class_path(), SOURCES / f"{program}.java"
    name = "".join(f"-{part.lower()}" for part in re.findall("[A-Z][a-z]+", program))[1:]

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", jars, "-d", str(folder), str(source)]
        subprocess.run(command, check=True)

    classes = prepared(CACHE / f"{name}-{source.stat().st_mtime_ns}", compile_into)
    # The archive is valid only if the class path begins with the one for which it was made.
    return f"{jars}:{classes}"

"""A member that uses Java's consumer, in a separate process: see tests/java/GroupMember.java."""

import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_harness import KAFKA
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

SOURCE = REPOSITORY / "tests" / "java" / "GroupMember.java"
OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SILENCE = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


def start(spec: Mapping[str, Any]) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a member. Return its process, and the socket for commands to it and events from it."""
    settings = [f"{name}={value}" for name, value in spec["options"].items()]
    arguments = ["GroupMember", spec["topic"], *settings]
    shared = f"-XX:SharedArchiveFile={KAFKA.archive()}"
    command = [find("java"), *OPTIONS, shared, SILENCE, "-cp", class_path(), *arguments]
    # Where the system supports it, the process ends with the tests even if they are killed.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    ours, theirs = socket.socketpair()
    with theirs:
        return subprocess.Popen(command, stdin=theirs, stdout=theirs), ours


def class_path() -> str:
    """Return the class path with the program, which is compiled once and cached."""
    jars = KAFKA.class_path()

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    classes = prepared(CACHE / f"group-member-{SOURCE.stat().st_mtime_ns}", compile_into)
    # The archive is valid only if the class path begins with the one for which it was made.
    return f"{jars}:{classes}"

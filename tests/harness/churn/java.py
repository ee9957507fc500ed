"""A member that is Java's consumer, in a process of its own; see tests/java/GroupMember.java."""

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
    """Its process, and the socket that takes orders and brings what it tells."""
    settings = [f"{name}={value}" for name, value in spec["options"].items()]
    arguments = ["GroupMember", spec["topic"], *settings]
    shared = f"-XX:SharedArchiveFile={KAFKA.archive()}"
    command = [find("java"), *OPTIONS, shared, SILENCE, "-cp", class_path(), *arguments]
    # Where the system can do it, it dies with the tests even if they are killed.
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    ours, theirs = socket.socketpair()
    with theirs:
        return subprocess.Popen(command, stdin=theirs, stdout=theirs), ours


def class_path() -> str:
    """With the program, which is compiled once and kept."""
    jars = KAFKA.class_path()

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    classes = prepared(CACHE / f"group-member-{SOURCE.stat().st_mtime_ns}", compile_into)
    # The archive holds for class paths that begin as its own.
    return f"{jars}:{classes}"

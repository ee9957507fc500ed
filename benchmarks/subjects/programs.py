"""franz-go and Kafka's Java client, if their toolchains are installed."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from kafka_harness import KAFKA, MissingToolError, find_java
from measuring.spec import Spec
from measuring.subject import NotMeasuredError

SOURCES = Path(__file__).resolve().parents[1] / "peers"
BUILT = SOURCES.parents[1] / "build" / "peers"


class Program:
    """A benchmark program that uses the client. It is built once, when it is first needed."""

    share: ClassVar[float] = 1.0
    warming: ClassVar[float] = 0.1
    environment: ClassVar[dict[str, str]] = {}

    def __init__(self, family: str) -> None:
        self.name = self.family = family

    def command(self, spec: Spec) -> list[str]:
        return [*self.program(), *spec.arguments()]

    def program(self) -> list[str]:
        raise NotImplementedError


class FranzGo(Program):
    def program(self) -> list[str]:
        return [str(_built_go())]


class Java(Program):
    """The Java client. It warms up longer than the others, because a JVM compiles hot code."""

    warming = 0.5

    def program(self) -> list[str]:
        classes, jars = _built_java()
        return [find_java(), "-cp", f"{classes}:{jars}", "JavaPeer"]


@functools.cache
def _built_go() -> Path:
    source, target = SOURCES / "franz_go", BUILT / "franz_go"
    if shutil.which("go") is None:
        raise NotMeasuredError("go was not found.")
    _run("franz-go", ["go", "build", "-o", str(target), "."], source)
    return target


@functools.cache
def _built_java() -> tuple[Path, str]:
    source, target = SOURCES / "JavaPeer.java", BUILT / "java"
    try:
        find_java()
        jars = KAFKA.class_path()
    except MissingToolError:
        raise NotMeasuredError("Java or Maven was not found.") from None
    if shutil.which("javac") is None:
        raise NotMeasuredError("javac was not found.")
    built = target / "JavaPeer.class"
    if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
        _run("Java", ["javac", "-cp", jars, "-d", str(target), str(source)], SOURCES)
    return target, jars


def _run(what: str, command: list[str], folder: Path) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise NotMeasuredError(f"{what} could not be built: {done.stderr.strip()[-300:]}")


PROGRAMS = (Java("Java"), FranzGo("franz-go"))

"""Kafka's own clients, which push their metrics: see tests/java/telemetry/PushingClients.java."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_harness import KAFKA, find_java
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

SOURCE = REPOSITORY / "tests" / "java" / "telemetry" / "PushingClients.java"
OPTIONS = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SILENCE = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
PATIENCE_S = 120.0


class JavaClientError(Exception):
    """A command failed in Java."""


def class_path() -> str:
    """Return the class path with the program, which is compiled once and cached."""
    jars = KAFKA.class_path()

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "--release", "17", "-nowarn", "-cp", jars, "-d", str(folder)]
        subprocess.run([*command, str(SOURCE)], check=True)

    classes = prepared(CACHE / f"pushing-clients-{SOURCE.stat().st_mtime_ns}", compile_into)
    # The archive is valid only if the class path begins with the one for which it was made.
    return f"{jars}:{classes}"


class JavaClients:
    """A process with Kafka's own clients. It executes one command at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        path = await asyncio.to_thread(class_path)
        shared = f"-XX:SharedArchiveFile={KAFKA.archive()}"
        arguments = [*OPTIONS, shared, SILENCE, "-cp", path, SOURCE.stem]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            find_java(), *arguments, stdin=pipe, stdout=pipe
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        await process.communicate()

    async def do(self, *words: object, **options: object) -> str:
        """Execute a command, and return its result. Options have dots in place of "_"."""
        settings = [f"{name.replace('_', '.')}={value}" for name, value in options.items()]
        line = " ".join([*map(str, words), *settings])
        async with self._lock, asyncio.timeout(PATIENCE_S):
            process = self._process
            assert process is not None
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(line.encode() + b"\n")
            await process.stdin.drain()
            result = (await process.stdout.readline()).decode().strip()
        if not result or result.startswith("failed"):
            raise JavaClientError(f"{line}: {result or 'the process has ended'}")
        return result

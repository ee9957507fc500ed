"""The Java program that calls the methods of Kafka's Admin."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from kafka_harness import KAFKA
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

SOURCE = REPOSITORY / "tests" / "java" / "AdminCalls.java"
OPTIONS = (
    "-Xmx192m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)


class JavaAdmin:
    """Kafka's Admin in a process that keeps running. Its clients have names."""

    def __init__(self) -> None:
        shared = f"-XX:SharedArchiveFile={KAFKA.archive()}"
        command = [find("java"), *OPTIONS, shared, "-cp", _class_path(), "AdminCalls"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._out.close()

    def open(self, client: str, options: Mapping[str, Any]) -> None:
        answer = self._ask(open=client, options=options)
        assert "error" not in answer, answer

    def list_methods(self) -> tuple[set[str], set[str]]:
        """Return the methods that Java declares, and those that the program can call."""
        answer = self._ask(methods=True)["value"]
        return set(answer["declared"]), set(answer["callable"])

    def call(self, client: str, method: str, given: Mapping[str, Any]) -> Any:
        return self._ask(client=client, method=method, given=given)

    def _ask(self, **asked: Any) -> Any:
        self._in.write(json.dumps(asked).encode() + b"\n")
        self._in.flush()
        return json.loads(self._out.readline())


def _class_path() -> str:
    """Return the class path with the program, which is compiled once and cached."""
    jars = KAFKA.class_path()

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-Xlint:none", "-cp", jars, "-d", str(folder)]
        subprocess.run([*command, str(SOURCE)], check=True, capture_output=True)

    classes = prepared(CACHE / f"admin-calls-{SOURCE.stat().st_mtime_ns}", compile_into)
    # The archive is valid only if the class path begins with the one for which it was made.
    return f"{jars}:{classes}"

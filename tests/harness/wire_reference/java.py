"""The Java program that encodes messages with Kafka's own code."""

import base64
import hashlib
import json
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from struct import pack, unpack
from types import TracebackType
from typing import IO, Any, Self
from uuid import UUID

from kafka_harness.files import CACHE, REPOSITORY
from kafka_harness.java import find

SOURCE = REPOSITORY / "tests" / "java" / "WireOracle.java"
OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


class OracleError(Exception):
    """An encoding failed in Java. The message is the stack trace."""


def compiled(jars: Sequence[Path]) -> str:
    """Return the class path with the program. Compile the program, unless it is in the cache."""
    path = ":".join(map(str, jars))
    digest = hashlib.sha256(SOURCE.read_bytes() + path.encode()).hexdigest()[:16]
    target = CACHE / "classes" / digest
    if not (target / "WireOracle.class").exists():
        command = [find("javac"), "--release", "17", "-cp", path, "-d", str(target), str(SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OracleError(done.stderr)
    return f"{target}:{path}"


class WireOracle:
    """Kafka's encoder in a process that keeps running and answers in order.

    Requests may be sent before earlier ones are answered, so that both processes work at the same
    time.
    """

    def __init__(self, java: str, jars: Sequence[Path]) -> None:
        command = [java, *OPTIONS, "-cp", compiled(jars), "WireOracle"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin
        assert self._process.stdout
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._waiting: deque[Future[list[bytes]]] = deque()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in.close()
        self._process.wait(30)
        self._reader.join(30)
        self._out.close()

    def from_json(self, name: str, version: int, samples: list[Any]) -> Future[list[bytes]]:
        """Encode samples with Kafka's JSON converter and encoder."""
        text = json.dumps(samples, default=_as_json).encode()
        return self._ask(name, version, b"J", pack(">i", len(text)) + text)

    def again(self, name: str, version: int, encoded: list[bytes]) -> Future[list[bytes]]:
        """Decode messages and encode them again."""
        parts = [pack(">i", len(encoded))]
        for one in encoded:
            parts += [pack(">i", len(one)), one]
        return self._ask(name, version, b"B", b"".join(parts))

    def _ask(self, name: str, version: int, kind: bytes, payload: bytes) -> Future[list[bytes]]:
        answer: Future[list[bytes]] = Future()
        self._waiting.append(answer)
        head = pack(">H", len(name)) + name.encode() + pack(">h", version) + kind
        self._in.write(head + payload)
        self._in.flush()
        return answer

    def _read_answers(self) -> None:
        while status := self._out.read(1):
            answer = self._waiting.popleft()
            if status == b"\0":
                answer.set_result([self._read_bytes() for _ in range(self._read_int())])
            else:
                answer.set_exception(OracleError(self._read_bytes().decode()))
        while self._waiting:
            self._waiting.popleft().set_exception(OracleError("The Java program has ended."))

    def _read_int(self) -> int:
        value: int = unpack(">i", self._out.read(4))[0]
        return value

    def _read_bytes(self) -> bytes:
        return self._out.read(self._read_int())


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    raise TypeError(type(value))

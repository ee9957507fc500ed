"""Kafka's own assignors, in a Java program that keeps running."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription, TopicPartition

SOURCE = REPOSITORY / "tests" / "java" / "AssignorOracle.java"
OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)

Partitions = tuple[TopicPartition, ...]


class JavaError(Exception):
    """An error that the Java program returned."""


class AssignorOracle:
    """A client of the Java program, which keeps running for the session."""

    def __init__(self, java: str, jars: Sequence[Path]) -> None:
        pipe = subprocess.PIPE
        command = [java, *OPTIONS, "-cp", _compiled(jars), "AssignorOracle"]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, what: str, **arguments: object) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": what, **arguments}, default=_hex) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer

    def assign(
        self, strategy: str, cluster: AssignmentCluster, members: Mapping[str, MemberSubscription]
    ) -> dict[str, MemberAssignment]:
        racks = {
            topic: [sorted(cluster.racks(one)) for one in cluster.partitions(topic)]
            for topic in cluster.topics
        }
        given = self._ask(
            "assign",
            strategy=strategy,
            topics=racks,
            members={name: member._asdict() for name, member in members.items()},
        )
        return {name: _assignment(one) for name, one in given.items()}

    def user_data(self, strategy: str, partitions: Partitions, generation: int) -> bytes | None:
        answer = self._ask(
            "user data", strategy=strategy, partitions=partitions, generation=generation
        )
        return _bytes(answer["bytes"])

    def write_subscription(self, member: MemberSubscription, version: int = 3) -> bytes:
        answer = self._ask("write subscription", version=version, **member._asdict())
        return bytes.fromhex(answer["bytes"])

    def read_subscription(self, data: bytes) -> MemberSubscription:
        answer = self._ask("read subscription", bytes=data)
        answer["topics"] = tuple(answer["topics"])
        answer["owned"] = _partitions(answer["owned"])
        answer["user_data"] = _bytes(answer["user_data"])
        return MemberSubscription(**answer)

    def write_assignment(self, assignment: MemberAssignment) -> bytes:
        return bytes.fromhex(self._ask("write assignment", **assignment._asdict())["bytes"])

    def read_assignment(self, data: bytes) -> MemberAssignment:
        return _assignment(self._ask("read assignment", bytes=data))


def _hex(value: object) -> str:
    assert isinstance(value, bytes)
    return value.hex()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def _partitions(pairs: list[tuple[str, int]]) -> Partitions:
    return tuple(TopicPartition(*pair) for pair in pairs)


def _assignment(answer: dict[str, Any]) -> MemberAssignment:
    return MemberAssignment(_partitions(answer["partitions"]), _bytes(answer["user_data"]))


def _compiled(jars: Sequence[Path]) -> str:
    """Return the class path with the program, which is compiled once and cached."""
    path = ":".join(map(str, jars))

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", path, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    classes = prepared(CACHE / f"assignor-oracle-{SOURCE.stat().st_mtime_ns}", compile_into)
    return f"{classes}:{path}"

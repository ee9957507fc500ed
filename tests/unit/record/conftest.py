"""Fixtures: Kafka's own record code in Java, with which our results are compared."""

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_harness import MissingToolError
from kafka_harness.files import CACHE, prepared
from kafka_harness.java import find

SOURCE = Path(__file__).parents[2] / "java" / "RecordOracle.java"
DEFAULT_LEVEL = -(1 << 31)

Fields = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class JavaBatch(NamedTuple):
    """Java's description of a batch.

    `records` has tuples of (offset, timestamp, key, value, headers).
    """

    magic: int
    codec: int
    append_time: bool
    base_offset: int
    last_offset: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    transactional: bool
    control: bool
    leader_epoch: int
    count: int
    records: list[tuple[Any, ...]]


class JavaError(Exception):
    """An error that Java raised for a batch."""


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        fields = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return fields

    def nullable(self) -> bytes | None:
        (length,) = self.take("i")
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position]


def nullable(content: bytes | None) -> bytes:
    return b"\xff" * 4 if content is None else struct.pack(">i", len(content)) + content


class RecordOracle:
    """A connection to the Java program, which lives as long as the test session."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def ask(self, question: bytes) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack(">i", len(question)) + question)
        self.process.stdin.flush()
        (length,) = struct.unpack(">i", self.process.stdout.read(4))
        answer = self.process.stdout.read(length)
        if answer[0]:
            raise JavaError(answer[1:].decode())
        return answer[1:]

    def write(
        self,
        records: list[Fields],
        *,
        magic: int = 2,
        codec: int = 0,
        level: int = DEFAULT_LEVEL,
        base_offset: int = 0,
        append_time: int | None = None,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        leader_epoch: int = -1,
    ) -> bytes:
        question = b"W" + struct.pack(
            ">bbi?qqqhi?ii",
            magic,
            codec,
            level,
            append_time is not None,
            base_offset,
            -1 if append_time is None else append_time,
            *producer,
            transactional,
            leader_epoch,
            len(records),
        )
        for timestamp, key, value, headers in records:
            question += struct.pack(">q", timestamp) + nullable(key) + nullable(value)
            question += struct.pack(">i", len(headers))
            for name, content in headers:
                question += nullable(name.encode()) + nullable(content)
        return self.ask(question)

    def read(self, batches: bytes) -> list[JavaBatch]:
        reader = Reader(self.ask(b"R" + batches))
        result = []
        while reader.take("b")[0]:
            fields = reader.take("bb?qqqqhii??ii")
            records = []
            while reader.take("b")[0]:
                offset, timestamp = reader.take("qq")
                key, value = reader.nullable(), reader.nullable()
                headers = tuple(
                    ((reader.nullable() or b"").decode(), reader.nullable())
                    for _ in range(reader.take("i")[0])
                )
                records.append((offset, timestamp, key, value, headers))
            result.append(JavaBatch(*fields, records))
        return result

    def end_transaction(
        self,
        committed: bool,
        offset: int,
        timestamp: int,
        leader_epoch: int,
        producer: tuple[int, int],
        coordinator_epoch: int,
    ) -> bytes:
        fields = (committed, offset, timestamp, leader_epoch, *producer, coordinator_epoch)
        return self.ask(b"E" + struct.pack(">?qqiqhi", *fields))

    def murmur2(self, data: bytes) -> int:
        return int(struct.unpack(">i", self.ask(b"M" + data))[0])


@pytest.fixture(scope="session")
def java_records(java: str, kafka_jars: list[Path]) -> Iterator[RecordOracle]:
    """Run Kafka's reader and writer of records in one Java program."""
    class_path = ":".join(str(jar) for jar in kafka_jars)

    def compile_into(folder: Path) -> None:
        command = [find("javac"), "-nowarn", "-cp", class_path, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    try:
        name = f"record-oracle-{SOURCE.stat().st_mtime_ns}"
        classes = prepared(CACHE / name, compile_into)
    except MissingToolError as error:
        pytest.fail(str(error), pytrace=False)
    # The program runs only short calls, so a fast start is what counts (-XX:TieredStopAtLevel=1).
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    oracle = RecordOracle([java, *options, "-cp", f"{classes}:{class_path}", "RecordOracle"])
    yield oracle
    oracle.close()


@pytest.fixture(scope="session")
def java_error() -> type[JavaError]:
    """Return the exception class for errors that Java raises."""
    return JavaError

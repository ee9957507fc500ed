"""The five requests that the test harness needs, implemented over a blocking socket.

They do not use this library's protocol package, so that the harness works even if the package is
broken, and does not share its mistakes.

    Metadata v7, CreateTopics v4, ListOffsets v1, FindCoordinator v1 and v6, InitProducerId v1
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CREATE_TOPICS, DELETE_TOPICS, METADATA, LIST_OFFSETS = 19, 20, 3, 2
FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22


class KafkaProbeError(RuntimeError):
    """A request of the harness was refused or not answered."""


@dataclass
class Partition:
    leader: int
    epoch: int
    replicas: list[int]
    in_sync: list[int]


@dataclass
class Picture:
    """The cluster as one broker describes it."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    cluster_id: str | None = None
    controller: int = -1
    topics: dict[str, dict[int, Partition]] = field(default_factory=dict)


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, layout: str) -> int:
        (value,) = struct.unpack_from(">" + layout, self._data, self._at)
        self._at += struct.calcsize(">" + layout)
        return int(value)

    def string(self) -> str | None:
        length = self.number("h")
        return None if length < 0 else self.take(length).decode()

    def take(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def times(self) -> Iterator[int]:
        return iter(range(self.number("i")))

    def ints(self) -> list[int]:
        return [self.number("i") for _ in self.times()]

    def compact(self) -> bytes | None:
        length = self.number("B")  # The responses are short, so their varints have one byte.
        return None if length == 0 else self.take(length - 1)


def string(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value.encode())) + value.encode()


class Probe:
    """A client of one address, which opens a connection for each call. Raises OSError."""

    def __init__(self, host: str, port: int, timeout: float = 5.0) -> None:
        self.address, self.timeout = (host, port), timeout

    def ask(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        header = struct.pack(">hhi", key, version, 7) + string("rig") + b"\0" * flexible
        frame = header + body
        with socket.create_connection(self.address, self.timeout) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (length,) = struct.unpack(">i", self._read(connection, 4))
            reader = Reader(self._read(connection, length))
        reader.number("i")
        if flexible:
            reader.number("B")
        return reader

    def _read(self, connection: socket.socket, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = connection.recv(length - len(data))
            if not piece:
                raise ConnectionResetError("The broker closed the connection.")
            data += piece
        return data

    def metadata(self, topics: list[str] | None = None) -> Picture:
        names = [] if topics is None else topics
        count = -1 if topics is None else len(names)
        body = struct.pack(">i", count) + b"".join(map(string, names)) + b"\0"
        reader = self.ask(METADATA, 7, body)
        reader.number("i")
        picture = Picture()
        for _ in reader.times():
            node = reader.number("i")
            picture.brokers[node] = (reader.string() or "", reader.number("i"))
            reader.string()
        picture.cluster_id, picture.controller = reader.string(), reader.number("i")
        for _ in reader.times():
            error, name = reader.number("h"), reader.string() or ""
            reader.number("b")
            partitions = dict(self._partition(reader) for _ in reader.times())
            if not error:
                picture.topics[name] = partitions
        return picture

    def _partition(self, reader: Reader) -> tuple[int, Partition]:
        reader.number("h")
        index, leader, epoch = (reader.number("i") for _ in range(3))
        found = Partition(leader, epoch, reader.ints(), reader.ints())
        reader.ints()
        return index, found

    def create_topic(
        self, name: str, partitions: int, replication: int, configs: Mapping[str, str]
    ) -> None:
        body = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", partitions, replication, 0)
        body += struct.pack(">i", len(configs))
        body += b"".join(string(key) + string(value) for key, value in configs.items())
        reader = self.ask(CREATE_TOPICS, 4, body + struct.pack(">i?", 30000, False))
        reader.number("i")
        for _ in reader.times():
            reader.string()
            error, message = reader.number("h"), reader.string()
            if error:
                raise KafkaProbeError(f"Topic {name} was not created: error {error}: {message}")

    def delete_topic(self, name: str) -> None:
        body = struct.pack(">i", 1) + string(name) + struct.pack(">i", 30000)
        reader = self.ask(DELETE_TOPICS, 1, body)
        reader.number("i")
        for _ in reader.times():
            reader.string()
            if error := reader.number("h"):
                raise KafkaProbeError(f"Topic {name} was not deleted: error {error}.")

    def leads(self, topic: str, partitions: Sequence[int]) -> bool:
        """Return whether the broker already acts as the leader of these partitions."""
        body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(partitions))
        body += b"".join(struct.pack(">iq", index, -1) for index in partitions)
        reader = self.ask(LIST_OFFSETS, 1, body)
        errors = []
        for _ in reader.times():
            reader.string()
            for _ in reader.times():
                reader.number("i")
                errors.append(reader.number("h"))
                reader.number("q"), reader.number("q")
        return not any(errors)

    def coordinator_error(self, kind: int) -> int:
        """Return the error code of FindCoordinator.

        `kind` is 0 for a group, 1 for a transactional id, and 2 for a share group.
        """
        if kind < 2:
            reader = self.ask(FIND_COORDINATOR, 1, string("warm-up") + struct.pack(">b", kind))
            reader.number("i")
            return reader.number("h")
        key = b"warm-up:AAAAAAAAAAAAAAAAAAAAAQ:0"
        body = struct.pack(">bBB", kind, 2, len(key) + 1) + key + b"\0"
        reader = self.ask(FIND_COORDINATOR, 6, body, flexible=True)
        reader.number("i"), reader.number("B"), reader.compact(), reader.number("i")
        reader.compact(), reader.number("i")
        return reader.number("h")

    def producer_id_error(self) -> int:
        reader = self.ask(INIT_PRODUCER_ID, 1, string(None) + struct.pack(">i", 60000))
        reader.number("i")
        return reader.number("h")


def wait_until(what: str, check: Callable[[], bool], timeout: float, pause: float = 0.03) -> None:
    """Repeat a check until it returns true. An OSError counts as false."""
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):
            if check():
                return
        if time.monotonic() > deadline:
            raise KafkaProbeError(f"After {timeout:.0f} s, still waiting for {what}.")
        time.sleep(pause)

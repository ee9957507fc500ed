"""A ledger of all payloads, which detects lost, duplicate, and misplaced records.

A payload contains its producer, topic, partition, and a number, and ends with a checksum of these.
`check` verifies the invariants:

    A  every acknowledged record is in the log, at the acknowledged offset, and exactly once;
       every failed record is in the log at most once
    B  the records of one producer and partition are in the order of the sends
    C  every record is intact, and in the topic and partition that it was meant for
"""

import asyncio
import itertools
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

HEAD = struct.Struct(">4sHiQH")
MAGIC = b"LEDG"


class Payload(NamedTuple):
    """The contents of a payload."""

    topic: str
    partition: int
    producer: int
    sequence: int


class Record(Protocol):
    """The attributes that a consumed record of any client must have."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


class BrokenInvariantError(AssertionError):
    """A record was lost, duplicated, reordered, changed, or misplaced."""


def pack(payload: Payload, size: int = 0) -> bytes:
    """Return the payload as bytes, padded to ``size``."""
    topic = payload.topic.encode()
    head = HEAD.pack(MAGIC, payload.producer, payload.partition, payload.sequence, len(topic))
    body = head + topic
    body += bytes((payload.sequence + i) & 0xFF for i in range(size - len(body) - 4))
    return body + zlib.crc32(body).to_bytes(4, "big")


def unpack(data: bytes) -> Payload:
    """Return the payload in the bytes. Raises BrokenInvariantError if they are corrupt (C)."""
    if len(data) < HEAD.size + 4 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise BrokenInvariantError(f"C: A payload of {len(data)} bytes is corrupt: {data[:60]!r}")
    magic, producer, partition, sequence, length = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BrokenInvariantError(f"C: The bytes are not a payload: {data[:60]!r}")
    return Payload(data[HEAD.size : HEAD.size + length].decode(), partition, producer, sequence)


@dataclass
class Ledger:
    """The ledger of one test.

    With ``exactly_once`` False, duplicates are allowed, as without idempotence.
    """

    exactly_once: bool = True
    sent: dict[Payload, None] = field(default_factory=dict)
    acknowledged: dict[Payload, int] = field(default_factory=dict)
    failed: dict[Payload, str] = field(default_factory=dict)
    read: dict[tuple[str, int], dict[int, Payload]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._sequences: dict[tuple[str, int, int], itertools.count[int]] = {}

    def payload(self, producer: int, topic: str, partition: int) -> Payload:
        """Return the next payload of a producer for a partition. `pack` encodes payloads."""
        numbers = self._sequences.setdefault((topic, partition, producer), itertools.count())
        payload = Payload(topic, partition, producer, next(numbers))
        self.sent[payload] = None
        return payload

    def acknowledge(self, payload: Payload, offset: int) -> None:
        """Record that a send was acknowledged at this offset (-1: the broker did not say)."""
        self.acknowledged[payload] = offset
        self._changed()

    def fail(self, payload: Payload, error: BaseException) -> None:
        """Record that a send failed. The record may or may not be in the log."""
        self.failed[payload] = repr(error)
        self._changed()

    def consume(self, record: Record) -> None:
        """Record that a record was read. It may be read again, but must then be the same."""
        payload = unpack(bytes(record.value or b""))
        tp = (record.topic, record.partition)
        if tp != (payload.topic, payload.partition):
            raise BrokenInvariantError(f"C: {payload} was found in {tp} at {record.offset}")
        before = self.read.setdefault(tp, {}).setdefault(record.offset, payload)
        if before != payload:
            raise BrokenInvariantError(f"C: {tp} had {before} at {record.offset}, now {payload}")

    def consume_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.consume(record)

    async def until(self, count: int, of: str = "acknowledged") -> None:
        """Wait until `count` payloads are acknowledged. `of` can also be "sent" or "failed"."""
        while len(getattr(self, of)) < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    @property
    def settled(self) -> bool:
        """Whether every send has its outcome."""
        return len(self.acknowledged) + len(self.failed) >= len(self.sent)

    @property
    def missing(self) -> list[Payload]:
        """The payloads that were acknowledged and were not read yet."""
        seen = {p for records in self.read.values() for p in records.values()}
        return [payload for payload in self.acknowledged if payload not in seen]

    def check(self, *, settled: bool = True, in_order: bool = True) -> None:
        """Raise BrokenInvariantError naming the first payloads that break A, B or C.

        Without `in_order`, B is left out.
        """
        if settled and not self.settled:
            outcomes = self.acknowledged.keys() | self.failed.keys()
            self._complain("sent, without any outcome", [p for p in self.sent if p not in outcomes])
        self._complain("A: acknowledged and lost", self.missing)
        self._check_offsets()
        self._check_order(in_order and self.exactly_once)

    def _check_offsets(self) -> None:
        wrong = []
        for payload, offset in self.acknowledged.items():
            found = self.read.get((payload.topic, payload.partition), {}).get(offset)
            if offset >= 0 and found != payload:
                wrong.append((payload, offset, found))
        self._complain("A: not at the offset that was acknowledged", wrong)

    def _check_order(self, in_order: bool) -> None:
        for records in self.read.values():
            times = Counter(records.values())
            doubles = [payload for payload, count in times.items() if count > 1]
            if self.exactly_once:
                self._complain("A: there more than once", doubles)
            last: dict[int, Payload] = {}
            for offset in sorted(records):
                payload = records[offset]
                before = last.get(payload.producer)
                if in_order and before is not None and before.sequence > payload.sequence:
                    self._complain(f"B: out of order at {offset}", [(before, payload)])
                last[payload.producer] = payload
            self._complain("C: never sent", [p for p in records.values() if p not in self.sent])

    def _complain(self, what: str, found: Sequence[object]) -> None:
        if found:
            first = "\n  ".join(map(repr, found[:5]))
            raise BrokenInvariantError(f"{what}: {len(found)}\n  {first}\n{self.summary()}")

    def summary(self) -> str:
        read = sum(map(len, self.read.values()))
        failures = Counter(error.split("(")[0] for error in self.failed.values())
        return (
            f"{len(self.sent)} sent, {len(self.acknowledged)} acknowledged,"
            f" {len(self.failed)} failed {dict(failures)}, {read} read"
        )

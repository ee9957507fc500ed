"""Keeps account of every payload, so that losses, doubles and mix-ups show from the records.

A payload says who made it, for which topic and partition, as the how-manieth, and carries a
checksum over all of it. `check` holds the invariants:

    A  what was acknowledged is there, at the offset that was acknowledged, and exactly once;
       what failed is there at most once
    B  of one producer and partition, the order of the records is the order of the sends
    C  every record is whole, and in the topic and partition that it was meant for
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
    """What a payload says of itself."""

    topic: str
    partition: int
    producer: int
    sequence: int


class Record(Protocol):
    """What is asked of a consumed record, of whatever client it comes from."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


class BrokenInvariantError(AssertionError):
    """A record was lost, doubled, reordered, changed or misplaced."""


def pack(payload: Payload, size: int = 0) -> bytes:
    """The payload as bytes, filled up to ``size``."""
    topic = payload.topic.encode()
    head = HEAD.pack(MAGIC, payload.producer, payload.partition, payload.sequence, len(topic))
    body = head + topic
    body += bytes((payload.sequence + i) & 0xFF for i in range(size - len(body) - 4))
    return body + zlib.crc32(body).to_bytes(4, "big")


def unpack(data: bytes) -> Payload:
    """What the bytes say; raises BrokenInvariantError if they are not whole (C)."""
    if len(data) < HEAD.size + 4 or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise BrokenInvariantError(f"C: a corrupt payload of {len(data)} bytes: {data[:60]!r}")
    magic, producer, partition, sequence, length = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BrokenInvariantError(f"C: not a payload: {data[:60]!r}")
    return Payload(data[HEAD.size : HEAD.size + length].decode(), partition, producer, sequence)


@dataclass
class Ledger:
    """The account of one test. ``exactly_once``: False allows doubles, as without idempotence."""

    exactly_once: bool = True
    sent: dict[Payload, None] = field(default_factory=dict)
    acknowledged: dict[Payload, int] = field(default_factory=dict)
    failed: dict[Payload, str] = field(default_factory=dict)
    read: dict[tuple[str, int], dict[int, Payload]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []
        self._sequences: dict[tuple[str, int, int], itertools.count[int]] = {}

    def payload(self, producer: int, topic: str, partition: int) -> Payload:
        """The next payload of a producer for a partition; pack() makes it bytes."""
        numbers = self._sequences.setdefault((topic, partition, producer), itertools.count())
        payload = Payload(topic, partition, producer, next(numbers))
        self.sent[payload] = None
        return payload

    def acknowledge(self, payload: Payload, offset: int) -> None:
        """The send was acknowledged at this offset (-1: the broker did not say)."""
        self.acknowledged[payload] = offset
        self._changed()

    def fail(self, payload: Payload, error: BaseException) -> None:
        """The send failed: the record may be there, or not."""
        self.failed[payload] = repr(error)
        self._changed()

    def consume(self, record: Record) -> None:
        """A record was read. Reading the same one again is fine if it is still the same."""
        payload = unpack(bytes(record.value or b""))
        place = (record.topic, record.partition)
        if place != (payload.topic, payload.partition):
            raise BrokenInvariantError(f"C: {payload} was found in {place} at {record.offset}")
        before = self.read.setdefault(place, {}).setdefault(record.offset, payload)
        if before != payload:
            raise BrokenInvariantError(f"C: {place} {record.offset} was {before}, is {payload}")

    def consume_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.consume(record)

    async def until(self, count: int, of: str = "acknowledged") -> None:
        """Wait until so many payloads are acknowledged, or `of="sent"`, "failed"."""
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
        """Every send has its outcome."""
        return len(self.acknowledged) + len(self.failed) >= len(self.sent)

    @property
    def missing(self) -> list[Payload]:
        """Acknowledged and not read, yet."""
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

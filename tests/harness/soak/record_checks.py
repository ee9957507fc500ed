"""Checks of the records of idempotent producers, as they are read (promises A, B, and C).

The checks keep only what is not settled yet: records that were acknowledged and not read, or read
and not acknowledged. So their memory does not grow with the length of a run.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ledger import BrokenInvariantError, Payload, unpack

from aiokclient import TopicPartition

Breach = Callable[[str, str], None]
"""Reports a broken promise: its letter, and what happened."""


class Stream(NamedTuple):
    """The records of one producer in one partition."""

    producer: int
    tp: TopicPartition


class _Progress:
    """The known facts about a stream."""

    def __init__(self) -> None:
        self.sent = 0
        self.last_read = -1
        self.unread: dict[int, int] = {}
        """Offsets of the records that were acknowledged and not read yet, by sequence."""
        self.unsettled: dict[int, int] = {}
        """Offsets of the records that were read and have no outcome yet, by sequence."""
        self.skipped: set[int] = set()
        """Sequences without an outcome, whose records were missing when a later record was read."""
        self.failed: set[int] = set()
        """Sequences of the records that failed. Such a record may be read once or never."""


class RecordChecks:
    """Checks of the records of a topic. Their sequences begin at 0 in each stream."""

    def __init__(self, topic: str, breach: Breach) -> None:
        self.topic, self._breach = topic, breach
        self._streams: dict[Stream, _Progress] = {}
        self._offsets: dict[TopicPartition, int] = {}
        self.read = self.acknowledged = 0

    def _of(self, producer: int, tp: TopicPartition) -> _Progress:
        return self._streams.setdefault(Stream(producer, tp), _Progress())

    def sent(self, producer: int, tp: TopicPartition, sequence: int) -> None:
        self._of(producer, tp).sent = sequence + 1

    def acknowledge(self, producer: int, tp: TopicPartition, sequence: int, offset: int) -> None:
        self.acknowledged += 1
        progress, name = self._of(producer, tp), f"{tp}, producer {producer}, record {sequence}"
        if sequence in progress.skipped:
            progress.skipped.discard(sequence)
            self._breach("A", f"{name} was acknowledged at {offset}, and is not in the log.")
        elif sequence in progress.unsettled:
            self._compare(name, offset, progress.unsettled.pop(sequence))
        else:
            progress.unread[sequence] = offset

    def fail(self, producer: int, tp: TopicPartition, sequence: int, error: str) -> None:
        progress = self._of(producer, tp)
        if sequence in progress.skipped:
            progress.skipped.discard(sequence)
        elif progress.unsettled.pop(sequence, None) is None:
            progress.failed.add(sequence)
        # No fault of a soak lasts as long as `delivery_timeout_ms`.
        self._breach("E", f"{tp}, producer {producer}: record {sequence} failed: {error}")

    def consume(self, tp: TopicPartition, offset: int, value: bytes) -> Payload | None:
        """Note that a reader has received a record. Return its payload, or None if corrupt."""
        self.read += 1
        payload = payload_of(tp, offset, value, self._breach)
        if payload is None:
            return None
        self._in_sequence(tp, offset, payload)
        if offset <= self._offsets.get(tp, -1):
            self._breach("B", f"{tp}: offset {offset} was read after {self._offsets[tp]}.")
        self._offsets[tp] = offset
        return payload

    def _in_sequence(self, tp: TopicPartition, offset: int, payload: Payload) -> None:
        sequence, progress = payload.sequence, self._of(payload.producer, tp)
        name = f"{tp}, producer {payload.producer}, record {sequence}"
        if sequence >= progress.sent:
            self._breach("C", f"{name} at {offset} was never sent.")
        if sequence <= progress.last_read:
            late = sequence in progress.skipped
            letter, what = ("B", "out of order") if late else ("A", "there more than once")
            self._breach(letter, f"{name} is {what}, at {offset}, after {progress.last_read}.")
            progress.skipped.discard(sequence)
            return
        for passed in range(progress.last_read + 1, sequence):
            if passed in progress.failed:
                progress.failed.discard(passed)
            elif (where := progress.unread.pop(passed, None)) is not None:
                self._breach(
                    "A",
                    f"{tp}, producer {payload.producer}: record {passed} was acknowledged at "
                    f"{where}, and is not in the log.",
                )
            else:
                progress.skipped.add(passed)
        progress.last_read = sequence
        if (acknowledged := progress.unread.pop(sequence, None)) is not None:
            self._compare(name, acknowledged, offset)
        elif sequence in progress.failed:
            progress.failed.discard(sequence)
        else:
            progress.unsettled[sequence] = offset

    def _compare(self, name: str, acknowledged: int, found: int) -> None:
        if acknowledged not in (-1, found):
            self._breach("A", f"{name} was acknowledged at {acknowledged}, and is at {found}.")

    @property
    def open(self) -> int:
        """The number of records that are not settled yet."""
        return sum(self._open(progress) for progress in self._streams.values())

    def _open(self, progress: _Progress) -> int:
        passed = progress.last_read + 1
        failed = sum(sequence >= passed for sequence in progress.failed)
        unread = progress.sent - passed - failed
        return unread + len(progress.unsettled) + len(progress.skipped)

    def unfinished(self) -> Iterator[str]:
        """Yield a description of each stream that is not settled at the end of a run."""
        for (producer, tp), progress in self._streams.items():
            if self._open(progress):
                yield (
                    f"{tp}, producer {producer}: {progress.sent} sent, read up to "
                    f"{progress.last_read}, {len(progress.unread)} acknowledged and not read, "
                    f"{len(progress.unsettled)} read without an outcome, "
                    f"{len(progress.skipped)} skipped without an outcome"
                )


class CopyChecks:
    """Checks that transactions copied each record of a topic once and in order (promise K)."""

    def __init__(self, breach: Breach) -> None:
        self._breach = breach
        self._originals: dict[Stream, deque[int]] = {}
        self._copies: dict[Stream, deque[int]] = {}
        self.read = 0

    def original(self, payload: Payload) -> None:
        """Note that a reader has received a record of the original topic."""
        self._match(payload, self._originals, self._copies)

    def copy(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a reader has received a copy."""
        self.read += 1
        try:
            payload = unpack(value)
        except BrokenInvariantError as error:
            self._breach("C", f"{tp}@{offset}: {error}")
            return
        if payload.partition != tp.partition:
            self._breach("C", f"{tp}@{offset} is a copy of {payload}, of another partition.")
        self._match(payload, self._copies, self._originals)

    def _match(
        self,
        payload: Payload,
        mine: dict[Stream, deque[int]],
        others: dict[Stream, deque[int]],
    ) -> None:
        """Compare a record with the oldest one in the other topic that has no counterpart."""
        stream = Stream(payload.producer, TopicPartition(payload.topic, payload.partition))
        waiting = others.get(stream)
        if not waiting:
            mine.setdefault(stream, deque()).append(payload.sequence)
            return
        expected = waiting.popleft()
        if expected != payload.sequence:
            self._breach(
                "K",
                f"{stream.tp}, producer {stream.producer}: record {payload.sequence} follows where "
                f"{expected} was expected, so one of them is missing, doubled, or out of order.",
            )

    @property
    def open(self) -> int:
        """The number of records without a counterpart."""
        queues = (*self._originals.values(), *self._copies.values())
        return sum(map(len, queues))

    def unfinished(self) -> Iterator[str]:
        """Yield a description of the records that have no counterpart at the end of a run."""
        for what, queues in (("copies", self._originals), ("originals", self._copies)):
            for (producer, tp), queue in queues.items():
                if queue:
                    yield f"{tp}, producer {producer}: no {what} of {len(queue)} from {queue[0]} on"


def payload_of(tp: TopicPartition, offset: int, value: bytes, breach: Breach) -> Payload | None:
    """Return the payload of a record.

    If the record is corrupt or in the wrong partition, report it (promise C) and return None.
    """
    try:
        payload = unpack(value)
    except BrokenInvariantError as error:
        breach("C", f"{tp}@{offset}: {error}")
        return None
    if (payload.topic, payload.partition) != tp:
        breach("C", f"{tp}@{offset} is a record of {payload.topic}-{payload.partition}.")
        return None
    return payload

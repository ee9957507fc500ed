"""Checks of transactions that write one record to each partition of a topic (promise K).

The records are read with read_committed.
"""

from collections.abc import Iterator

from aiokclient import TopicPartition

from .record_checks import Breach, payload_of

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class _Transaction:
    """The known facts about a transaction."""

    def __init__(self) -> None:
        self.outcome = ""
        self.broken = False
        self.seen: set[int] = set()
        self.absent: set[int] = set()
        """Partitions that lack its record: a record of a later transaction was read there."""


class TransactionChecks:
    """Checks of transactions. Each producer numbers its transactions from 0 without gaps."""

    def __init__(self, topic: str, partitions: int, breach: Breach) -> None:
        self.topic, self._partitions, self._breach = topic, partitions, breach
        self._open: dict[tuple[int, int], _Transaction] = {}
        self._last: dict[tuple[int, int], int] = {}
        self.outcomes = {COMMITTED: 0, ABORTED: 0, UNKNOWN: 0}
        self.read = 0

    def sent(self, producer: int, sequence: int) -> None:
        """Note that a transaction has begun. This is called for each of its records."""
        self._open.setdefault((producer, sequence), _Transaction())

    def ended(self, producer: int, sequence: int, outcome: str) -> None:
        self.outcomes[outcome] += 1
        found = self._open.setdefault((producer, sequence), _Transaction())
        found.outcome = outcome
        self._judge(producer, sequence, found)

    def consume(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """Note that a reader has received a record."""
        self.read += 1
        payload = payload_of(tp, offset, value, self._breach)
        if payload is None:
            return
        producer, sequence, partition = payload.producer, payload.sequence, tp.partition
        if sequence <= self._last.get((producer, partition), -1):
            self._breach("K", f"{tp}@{offset}: transaction {sequence} is doubled or too late.")
            return
        self._last[producer, partition] = sequence
        found = self._open.get((producer, sequence))
        if found is None:
            self._breach("C", f"{tp}@{offset}: transaction {sequence} was never begun.")
        else:
            found.seen.add(partition)
            self._judge(producer, sequence, found)
        for key, earlier in list(self._open.items()):
            if key[0] == producer and key[1] < sequence and partition not in earlier.seen:
                earlier.absent.add(partition)
                self._judge(*key, earlier)

    def _judge(self, producer: int, sequence: int, found: _Transaction) -> None:
        name = f"{self.topic}: transaction {sequence} of producer {producer} ({found.outcome})"
        problem = ""
        if found.seen and found.absent:
            problem = f"is in partitions {sorted(found.seen)}, and not in {sorted(found.absent)}."
        elif found.seen and found.outcome == ABORTED:
            problem = f"is visible in partitions {sorted(found.seen)}."
        elif found.absent and found.outcome == COMMITTED:
            problem = f"is missing in partitions {sorted(found.absent)}."
        if problem and not found.broken:
            found.broken = True
            self._breach("K", f"{name} {problem}")
        if len(found.seen) + len(found.absent) == self._partitions and found.outcome:
            self._open.pop((producer, sequence), None)

    @property
    def open(self) -> int:
        """The number of transactions that `unfinished` yields."""
        return sum(1 for _ in self.unfinished())

    def unfinished(self) -> Iterator[str]:
        """Yield a description of each transaction that is not settled at the end of a run."""
        for (producer, sequence), found in self._open.items():
            # No later record can show that the last transactions of a producer are absent.
            absent = not found.seen and found.outcome in (ABORTED, UNKNOWN)
            whole = len(found.seen) == self._partitions and found.outcome
            if not absent and not whole:
                yield (
                    f"{self.topic}: transaction {sequence} of producer {producer} "
                    f"({found.outcome or 'open'}) is in partitions {sorted(found.seen)}"
                )

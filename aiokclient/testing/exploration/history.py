"""The history of a run of a service: its records, commits, and acknowledged sends, over time.

A `Simulation` has one history. The service adds to it with `sim.handled` and `sim.handling`, the
brokers with their responses (`BrokerWitness` in `running.py`), and invariants read it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokclient.record.batch import walk
from aiokclient.record.control import ControlType
from aiokclient.types import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokclient.testing.cluster import EmbeddedCluster

MOST_EVENTS: Final = 20_000
_ORIGIN: Final = "aiokclient.origin."
"""The start of the headers that say from where a worker's dead letter was read."""


class HistoryEvent(NamedTuple):
    """Something that happened at a virtual time, in seconds. `track` is what it happened to."""

    at: float
    track: str
    """A fault ("fault"), an instance of the service ("service-1"), or a broker ("broker-1")."""
    kind: str
    text: str
    task: str = ""
    """The name of the instance's task in which it happened, if that is not its first one."""


class TaskSpan(NamedTuple):
    """The time for which a task of an instance ran. Tasks that do the same have the same name."""

    track: str
    task: str
    began: float
    ended: float


class Position(NamedTuple):
    """The topic, partition, and offset of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: Any) -> Position:
        """Return the position of a ConsumerRecord, a ShareRecord, or any object like these."""
        return cls(record.topic, record.partition, record.offset)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class Commit(NamedTuple):
    """An offset that a group committed, and the lowest record before it that was not handled."""

    at: float
    group: str
    partition: TopicPartition
    offset: int
    unhandled: int | None


class Acknowledged(NamedTuple):
    """The batches whose append a broker acknowledged: their base offset and their bytes."""

    at: float
    partition: TopicPartition
    base_offset: int
    values: tuple[tuple[bytes | None, bytes | None], ...]


class History:
    """The history of one run."""

    def __init__(self, cluster: EmbeddedCluster | None = None) -> None:
        self._cluster = cluster
        self.brokers = 0
        """The number of brokers."""
        self.events: list[HistoryEvent] = []
        self.spans: list[TaskSpan] = []
        """The tasks that have ended: those of the service's own code, and those with events."""
        self._eventful: set[tuple[str, str]] = set()
        """The tracks and names of the tasks that have events."""
        self.handled: dict[Position, int] = Counter()
        """The number of times that each record was handled."""
        self.order: list[tuple[Position, bytes | None]] = []
        """The records with their keys, in the order in which they were first handled."""
        self.in_hand: Counter[str] = Counter()
        """The records that each instance of the service handles at present."""
        self.most_in_hand: tuple[int, float] = (0, 0.0)
        """The largest number of them, and its time."""
        self.commits: list[Commit] = []
        """The commits that changed an offset."""
        self._offsets: dict[tuple[str, TopicPartition], int] = {}
        self.acknowledged: list[Acknowledged] = []
        self.settled: dict[Position, float] = {}
        """The records that members of share groups accepted, with their times."""
        self.early: list[Position] = []
        """Those of them that were not handled then."""
        self.groups: set[str] = set()
        self.shared: set[str] = set()
        """The topics that share groups read."""
        self.committed_topics: set[str] = set()
        self.fed: dict[str, int] = {}
        """The number of records that were fed to each topic."""
        self.first_unhandled: dict[TopicPartition, int] = defaultdict(int)
        self.starts = 0
        self.crashes: list[tuple[float, str]] = []
        self.slow_ends: list[tuple[str, float]] = []
        """The instances that did not end in time after they were asked to."""
        self.left_tasks: list[str] = []
        """The tasks that remained after an instance had ended."""
        self.left_connections: list[str] = []
        self.loop_errors: list[str] = []

    def add_event(self, at: float, track: str, kind: str, text: str, task: str = "") -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(HistoryEvent(at, track, kind, text, task))
            if task:
                self._eventful.add((track, task))

    def add_span(self, span: TaskSpan, *, is_own: bool) -> None:
        """Note that a task has ended, if it is the service's own or something happened in it."""
        if (is_own or span[:2] in self._eventful) and len(self.spans) < MOST_EVENTS:
            self.spans.append(span)

    # -- added by the service ------------------------------------------------------------------

    def add_handled(self, at: float, instance: str, record: Any, task: str = "") -> None:
        """Note that a record was handled."""
        position = Position.of(record)
        count = self.handled[position] = self.handled[position] + 1
        if count == 1:
            self.order.append((position, record.key))
        again = f" for the {count}. time" if count > 1 else ""
        self.add_event(at, instance, "handled", f"handled {position}{again}", task)

    def begin_record(self, at: float, instance: str) -> None:
        self.in_hand[instance] += 1
        total = self.in_hand[instance]
        if total > self.most_in_hand[0]:
            self.most_in_hand = total, at

    def end_record(self, instance: str) -> None:
        self.in_hand[instance] -= 1

    def _has_handled(self, topic: str) -> bool:
        """Return whether the service says which records of a topic it has handled."""
        return topic in self.fed or any(each.topic == topic for each in self.handled)

    # -- added by the brokers ------------------------------------------------------------------

    def add_commit(
        self, at: float, group: str, partition: TopicPartition, offset: int, broker: int
    ) -> None:
        """Note a committed offset, and whether all records before it were handled by then."""
        self.groups.add(group)
        self.committed_topics.add(partition.topic)
        if self._offsets.get((group, partition)) == offset:
            return
        self._offsets[group, partition] = offset
        topic, number = partition.topic, partition.partition
        first = self.first_unhandled[partition]
        while first < offset and Position(topic, number, first) in self.handled:
            first += 1
        self.first_unhandled[partition] = first
        unhandled = None
        if first < offset and self._has_handled(topic):
            left = self.find_unhandled((topic,))
            inside = [each.offset for each in left if each.partition == number]
            unhandled = next((each for each in sorted(inside) if each < offset), None)
        self.commits.append(Commit(at, group, partition, offset, unhandled))
        text = f"{group} committed {partition} up to {offset}"
        self.add_event(at, f"broker-{broker}", "commit", text)

    def add_accepted(self, at: float, position: Position) -> None:
        """Note that a member of a share group accepted a record."""
        if position not in self.settled:
            self.settled[position] = at
            if position not in self.handled:
                self.early.append(position)

    # -- the logs of the brokers ---------------------------------------------------------------

    @property
    def cluster(self) -> EmbeddedCluster:
        """The cluster of the run."""
        assert self._cluster is not None, "The simulation has no cluster yet."
        return self._cluster

    def find_unhandled(self, topics: Collection[str] = ()) -> list[Position]:
        """Return the records that were not handled, and are no dead letters either.

        `topics` are by default those that were fed, or whose records a group has committed.
        """
        chosen = topics or sorted({*self.fed, *self.committed_topics})
        found = [
            position
            for topic in chosen
            if topic in self.cluster.topics
            for record in self.read_committed(topic)
            if (position := Position.of(record)) not in self.handled
        ]
        if not found:
            return []
        dead = self.find_dead_letters()
        return [each for each in found if each not in dead]

    def find_dead_letters(self) -> set[Position]:
        """Return the records whose dead letters, or retries by topic, are in a topic."""
        found = set()
        for topic in self.cluster.topics:
            if topic in self.fed:
                continue
            for record in self.cluster.records(topic):
                headers = dict(record.headers)
                name = headers.get(f"{_ORIGIN}topic")
                if name is not None:
                    partition = int(headers.get(f"{_ORIGIN}partition") or b"-1")
                    offset = int(headers.get(f"{_ORIGIN}offset") or b"-1")
                    found.add(Position(name.decode(), partition, offset))
        return found

    def list_written_topics(self) -> list[str]:
        """Return the topics that were not fed, which the service may have written."""
        return [topic for topic in self.cluster.topics if topic not in self.fed]

    def read_committed(self, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
        """Return the records of a topic that readers of committed data see."""
        return [record for record, _ in self.walk_committed(topic)]

    def walk_committed(self, topic: str) -> Iterator[tuple[ConsumerRecord[bytes, bytes], bool]]:
        """Yield these records with whether they were sent in a transaction."""
        for partition, data in self.cluster.batches(topic):
            pending: dict[int, list[ConsumerRecord[bytes, bytes]]] = defaultdict(list)
            for each in data:
                for batch in walk(each):
                    if batch.is_control:
                        (marker,) = batch.records(topic, partition, 0)
                        ended = pending.pop(batch.producer_id, [])
                        kind = int.from_bytes((marker.key or b"")[2:4], "big")
                        if kind == ControlType.COMMIT:
                            yield from ((record, True) for record in ended)
                    elif batch.is_transactional:
                        pending[batch.producer_id] += batch.records(topic, partition, 0)
                    else:
                        records = batch.records(topic, partition, 0)
                        yield from ((record, False) for record in records)

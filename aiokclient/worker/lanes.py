"""Which record may be handled next: the lanes of a worker. Pure, and in one thread.

A *lane* is a sequence of records of which one at a time is handled, in order:

    order         lane                                     a retry in place holds back
    "partition"   a partition                              the partition
    "key"         a key of a partition; records without    the key
                  a key have no lane
    None          none                                     only the record itself

A record is in one of these states. Only the first record of a lane, its *head*, can be in another
state than QUEUED.

    QUEUED ──▶ READY ──take_next──▶ RUNNING ──finish_run──▶ (done; the next is READY)
                 ▲                     │
                 └────release_due── HELD ◀──hold_run

`drop_partition` removes the records of a partition that are not RUNNING. A record that was dropped
stays in the chain of its lane until the chain comes to it.

A lane needs no object of its own, because very many of them have one record: each record refers to
the next one of its lane, and `_tails` has the last one of each lane that has records.

With batches, `BatchLanes` hands out the next records of a lane together. Then keys are distributed
to as many lanes as there are concurrent handlers, and a retry holds back its lane. A retry has only
the records that failed together. The records of a partition that were delivered together are one
`DeliveredList`. It is divided where its records go to several lanes or batches, and for a batch
that has failed. So an entry of a batch is a record or such a list.

The room for further records of a partition bounds the lanes: by partition, two handlers' worth of
records, once the lane is empty, because to deliver two records costs little more than to deliver
one; otherwise the records that can run at once, twice. `max_ahead` is not counted here.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal
from zlib import crc32

from aiokclient.consumer.state.partition import DeliveredList, count_delivered
from aiokclient.types import TopicPartition

Order = Literal["partition", "key"] | None
AHEAD: Final = 2
"""Records, or batches, of one lane or one place that are taken from the consumer at a time."""

FEWEST_READY: Final = 100
"""Records that are ready to run at a time, without an order by partition. Because a request for
records costs as much as some runs, they are not requested one by one."""
NO_ERRORS: Final[Mapping[Any, BaseException]] = MappingProxyType({})


class Run:
    """Records that one call of the handler gets, over all calls for them."""

    # Attributes of the class, because most records are handled once, and never change them.
    entries: Sequence[tuple[Any, Any]] | None = None
    """The partitions and entries of a batch; None for a single record."""
    following: Run | None = None
    tails: dict[Any, Run] | None = None
    """The last runs of the lanes among which its lane is; None if it has no lane."""
    is_head = is_running = is_dropped = False
    attempts = outages = 0
    failing_since: float | None = None
    """The time of the first failure, or None if no call has failed."""
    is_cancelled = is_timed_out = is_stuck = False
    began = 0.0
    task: Any = None
    timer: Any = None
    """The timer of the timeout of the present call, or None."""
    thread_id: int | None = None
    sends: list[Any] | None = None
    """The deliveries of what its handler has sent, in the present call."""
    errors: Mapping[Any, BaseException] = NO_ERRORS
    """The exceptions of the last call, by record."""

    def __init__(self, partition: Any, record: Any, now: float) -> None:
        self.partition = partition
        """The partition of the record; of the first record of a batch."""
        self.record = record
        """The record as it was fetched; the first one of a batch."""
        self.taken_at = now

    @property
    def place(self) -> str:
        """The topic, the partition, and the offset of the record, or of the first one, as text."""
        more = f" and {len(self.list_records()) - 1} more" if self.entries else ""
        return f"{self.record.topic}-{self.record.partition} offset {self.record.offset}{more}"

    def list_entries(self) -> Sequence[tuple[Any, Any]]:
        """Return what is done together, records or lists, each with its partition."""
        return ((self.partition, self.record),) if self.entries is None else self.entries

    def list_records(self) -> list[tuple[Any, Any]]:
        """Return the records with their partitions."""
        return [
            (partition, record)
            for partition, entry in self.list_entries()
            for record in (entry if isinstance(entry, DeliveredList) else (entry,))
        ]

    def copy_records(self) -> list[Any]:
        """Return the records of a batch in a new list."""
        records: list[Any] = []
        for _, entry in self.list_entries():
            if isinstance(entry, DeliveredList):
                records += entry
            else:
                records.append(entry)
        return records

    def divide_lists(self) -> None:
        """Let each record of a batch end apart."""
        records = self.list_records()
        for partition, entry in self.list_entries():
            if isinstance(entry, DeliveredList):
                partition.divide_list(entry, entry)
        self.entries = records

    def begin_call(self, now: float) -> None:
        """Record that the handler is called."""
        if self.began:  # It is not the first call.
            self.sends = None
            self.is_timed_out = self.is_cancelled = False
        self.began = now

    def set_task(self, task: Any) -> None:
        """Store the task of the call, or that of what follows it."""
        self.task = task

    def set_timer(self, timer: Any) -> None:
        """Store the timer of the timeout, and cancel the former one. None if there is none."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    def set_thread(self, thread_id: int | None) -> None:
        """Store the thread in which a synchronous handler runs; None after its end."""
        self.thread_id = thread_id

    def count_failure(self, errors: Mapping[Any, BaseException], now: float) -> None:
        """Record that a call failed."""
        self.errors = errors
        self.attempts += 1
        self.outages = 0
        if self.failing_since is None:
            self.failing_since = now

    def count_outage(self, errors: Mapping[Any, BaseException], now: float) -> None:
        """Record that a call failed because of an outage, so that it does not count."""
        self.errors = errors
        self.outages += 1
        if self.failing_since is None:
            self.failing_since = now

    def find_error(self, record: Any) -> BaseException:
        """Return the exception of the last call for one of its records."""
        return self.errors[record]

    def mark_cancelled(self) -> None:
        """Record that the worker has cancelled the call."""
        self.is_cancelled = True

    def mark_timed_out(self) -> None:
        """Record that the call has taken longer than the timeout."""
        self.is_timed_out = True

    def mark_stuck(self) -> None:
        """Record that the handler goes on although it was cancelled."""
        self.is_stuck = True

    def add_send(self, delivery: Any) -> None:
        """Make the end of the call wait for a delivery."""
        if self.sends is None:
            self.sends = []
        self.sends.append(delivery)


class Lanes:
    """The lanes of a worker whose handler takes single records."""

    def __init__(self, order: Order, concurrency: int) -> None:
        self._order = order
        self._concurrency = concurrency
        self._most_ready = max(AHEAD * concurrency, FEWEST_READY)
        self._ready: deque[Run] = deque()
        self._tails: dict[TopicPartition, Any] = {}
        """The last run of each lane: by partition, or by partition and then by key.

        By name and not by state, so that a partition that comes back waits for a handler that is
        still cancelled.
        """
        self._held: list[tuple[float, int, Run]] = []
        self._entered = 0
        self._in_hand: dict[Any, dict[Run, None]] = {}
        """The runs of each partition that are neither done nor dropped, in order."""
        self.running = 0
        """The number of runs that were taken and are neither finished nor held."""
        self.held = 0
        """The number of records that wait for a retry."""
        self._freed: dict[Any, None] | None = {} if order == "partition" else None
        """The partitions that have got room since `take_freed`. None if any record that ends makes
        room for records of all partitions."""

    # -- records

    def count_room(self, partition: Any) -> int:
        """Return how many more records of a partition can be added."""
        if self._order == "partition":
            return 0 if partition in self._in_hand else AHEAD
        return self._most_ready - len(self._ready)

    def add_records(self, partition: Any, records: Iterable[Any], now: float) -> None:
        """Add the next records of a partition."""
        runs = [Run(partition, record, now) for record in records]
        self._in_hand.setdefault(partition, {}).update(dict.fromkeys(runs))
        if self._order is None:
            self._ready.extend(runs)
        elif self._order == "partition":
            tails, name = self._tails, partition.tp
            last = tails.get(name)
            for run in runs:
                run.tails = tails
                if last is None:
                    run.is_head = True
                    self._ready.append(run)
                else:
                    last.following = run
                last = run
            if last is not None:
                tails[name] = last
        else:
            self._add_keyed(partition.tp, runs)

    def _add_keyed(self, tp: TopicPartition, runs: Sequence[Run]) -> None:
        """Add runs to the lanes of their keys."""
        tails = self._tails.get(tp, {})
        for run in runs:
            key = run.record.key
            if key is None:
                self._ready.append(run)
                continue
            run.tails = tails
            last = tails.get(key)
            if last is None:
                run.is_head = True
                self._ready.append(run)
            else:
                last.following = run
            tails[key] = run
        if tails:
            self._tails[tp] = tails

    # -- runs

    def take_next(self, now: float) -> Run | None:
        """Return the next run to begin; None if there is none, or no free place."""
        if self.running >= self._concurrency:
            return None
        ready = self._ready
        while ready:
            run = ready.popleft()
            if not run.is_dropped:
                run.is_running = True
                self.running += 1
                return run
        return None

    def take_freed(self) -> dict[Any, None] | None:
        """Return the partitions that have got room since the last call; None if all may have."""
        freed = self._freed
        if freed:
            self._freed = {}
        return freed

    def is_full(self) -> bool:
        """Return whether no partition has room."""
        return self._order != "partition" and len(self._ready) >= self._most_ready

    def finish_run(self, run: Run) -> None:
        """End a run: its records are done, or are returned to the consumer."""
        self.running -= 1
        run.is_running = False
        in_hand = self._in_hand[run.partition]
        del in_hand[run]
        if not in_hand:
            del self._in_hand[run.partition]
            if self._freed is not None:
                self._freed[run.partition] = None
        if run.tails is not None:
            self._advance_lane(run, run.tails)

    def _advance_lane(self, head: Run, tails: dict[Hashable, Run]) -> None:
        """Make the record after the head of a lane ready."""
        last, following = head, head.following
        while following is not None and following.is_dropped:
            last, following = following, following.following
        if following is not None:
            following.is_head = True
            self._ready.append(following)
            return
        has_keys = self._order == "key"
        name = head.record.key if has_keys else head.partition.tp
        if tails.get(name) is last:
            del tails[name]
            if has_keys and not tails:
                del self._tails[head.partition.tp]

    def hold_run(self, run: Run, due: float) -> None:
        """Let a run that has ended wait until `due` for its next call. Its lane waits with it."""
        self.running -= 1
        run.is_running = False
        self._entered += 1
        self.held += 1
        heappush(self._held, (due, self._entered, run))

    def release_due(self, now: float) -> None:
        """Make the runs ready whose next call is due."""
        while self._held and self._held[0][0] <= now:
            run = heappop(self._held)[2]
            if not run.is_dropped:
                self.held -= 1
                self._ready.append(run)

    def find_next_due(self) -> float | None:
        """Return the earliest time at which `release_due` has something to do, or None."""
        while self._held and self._held[0][2].is_dropped:
            heappop(self._held)
        return self._held[0][0] if self._held else None

    def free_place(self, run: Run) -> None:
        """Let another run take the place of this one, whose lane stays closed."""
        self.running -= 1

    def take_place(self, run: Run) -> None:
        """Undo `free_place`, so that the run can be finished."""
        self.running += 1

    # -- partitions

    def list_runs(self, partition: Any) -> list[Run]:
        """Return the runs of a partition in order."""
        return list(self._in_hand.get(partition, ()))

    def list_partitions(self) -> list[Any]:
        """Return the partitions that have records here."""
        return list(self._in_hand)

    def drop_partition(self, partition: Any) -> list[Any]:
        """Remove the records of a partition that are not running; return the entries."""
        in_hand = self._in_hand.get(partition)
        if in_hand is None:
            return []
        dropped = [run for run in in_hand if not run.is_running]
        waiting = {run for _, _, run in self._held} if self.held else ()
        for run in dropped:
            run.is_dropped = True
            del in_hand[run]
        for run in dropped:
            if run in waiting:
                self.held -= 1
            if run.is_head and run.tails is not None:
                self._advance_lane(run, run.tails)
        if not in_hand:
            del self._in_hand[partition]
            if self._freed is not None:
                self._freed[partition] = None
        return [run.record for run in dropped]

    def count_waiting(self) -> int:
        """Return the number of lanes with a record that is ready."""
        return sum(not run.is_dropped for run in self._ready)

    def has_records(self) -> bool:
        """Return whether records are here that are neither done nor dropped."""
        return bool(self._in_hand)


class _BatchLane:
    """A lane of batches: records in order, and whether a run or a retry makes them wait."""

    __slots__ = ("is_listed", "is_standing", "name", "queue", "size")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.queue: deque[tuple[Any, Any, float]] = deque()
        """Partition, entry, and the time at which it was added."""
        self.size = 0
        """The number of records in the queue."""
        self.is_standing = False
        self.is_listed = False
        """Whether the lane is among those that can be taken."""


class BatchLanes(Lanes):
    """The lanes of a worker whose handler takes lists of records of one lane."""

    def __init__(self, order: Order, concurrency: int, max_records: int, max_wait_s: float) -> None:
        super().__init__(order, concurrency)
        self._freed = None
        self._max_records = max_records
        self._max_wait_s = max_wait_s
        self._lanes: dict[Hashable, _BatchLane] = {}
        self._takeable: deque[_BatchLane] = deque()
        self._counts: dict[Any, int] = {}
        """The records of each partition that are neither done nor dropped."""
        self._queued = 0
        self._next_lane = 0
        self._batches: dict[Run, _BatchLane] = {}
        """The runs that are running, held, or ready again, with their lanes."""

    def count_room(self, partition: Any) -> int:
        if self._order == "partition":
            return AHEAD * self._max_records - self._counts.get(partition, 0)
        return AHEAD * self._concurrency * self._max_records - self._queued

    def is_full(self) -> bool:
        full = AHEAD * self._concurrency * self._max_records
        return self._order != "partition" and self._queued >= full

    def add_records(self, partition: Any, records: Iterable[Any], now: float) -> None:
        added: dict[Any, list[Any]] = {}
        if self._order == "partition":
            added[partition.tp] = list(records)
        elif self._order is None:
            added[None] = list(records)
        else:
            added = self._divide_by_key(partition.tp.partition, records)
        entries: dict[Any, list[Any]] = added
        if isinstance(records, DeliveredList):
            # At most a batch each, so that little is copied when a batch has no room for the rest.
            size = self._max_records
            entries = {
                name: [DeliveredList(each[at : at + size]) for at in range(0, len(each), size)]
                for name, each in added.items()
            }
            partition.divide_list(records, chain.from_iterable(entries.values()))
        for name, each in entries.items():
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _BatchLane(name)
            lane.queue.extend((partition, entry, now) for entry in each)
            lane.size += len(added[name])
            self._list_lane(lane, now)
        count = sum(map(len, added.values()))
        self._queued += count
        self._counts[partition] = self._counts.get(partition, 0) + count

    def _divide_by_key(self, partition: int, records: Iterable[Any]) -> dict[Any, list[Any]]:
        """Return the records of each lane, by its number."""
        added: dict[Any, list[Any]] = defaultdict(list)
        for record in records:
            key = record.key
            if key is None:
                self._next_lane += 1
                number = self._next_lane
            else:
                # Not `hash`, which differs from process to process.
                number = crc32(key) + partition
            added[number % self._concurrency].append(record)
        return added

    def _list_lane(self, lane: _BatchLane, now: float) -> None:
        """Let a lane be taken if it has enough records, or has waited long enough."""
        if lane.is_listed or lane.is_standing or not lane.queue:
            return
        if lane.size >= self._max_records or now >= lane.queue[0][2] + self._max_wait_s:
            lane.is_listed = True
            self._takeable.append(lane)

    def take_next(self, now: float) -> Run | None:
        if self.running >= self._concurrency:
            return None
        if (again := super().take_next(now)) is not None:
            return again
        while self._takeable:
            lane = self._takeable.popleft()
            lane.is_listed = False
            if not lane.queue or lane.is_standing:
                continue
            taken_at = lane.queue[0][2]
            entries = self._take_entries(lane)
            run = Run(entries[0][0], None, taken_at)
            self.keep_records(run, entries)
            run.is_running = True
            self.running += 1
            self._batches[run] = lane
            if self._order is None:
                self._list_lane(lane, now)
            else:
                lane.is_standing = True
            return run
        return None

    def _take_entries(self, lane: _BatchLane) -> list[tuple[Any, Any]]:
        """Take the next entries of a lane, with at most `max_records` records."""
        entries: list[tuple[Any, Any]] = []
        room, queue = self._max_records, lane.queue
        while queue and room:
            partition, entry, added_at = queue.popleft()
            if (size := count_delivered(entry)) > room:
                parts = DeliveredList(entry[:room]), DeliveredList(entry[room:])
                partition.divide_list(entry, parts)
                queue.appendleft((partition, parts[1], added_at))
                entry, size = parts[0], room
            entries.append((partition, entry))
            room -= size
        count = self._max_records - room
        lane.size -= count
        self._queued -= count
        return entries

    def finish_run(self, run: Run) -> None:
        self.finish_records(run.list_entries())
        self.running -= 1
        run.is_running = False
        self._leave_lane(run)

    def finish_records(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Count entries of a run as done, or as returned to the consumer."""
        for partition, entry in entries:
            left = self._counts[partition] - count_delivered(entry)
            if left:
                self._counts[partition] = left
            else:
                del self._counts[partition]

    def keep_records(self, run: Run, entries: Sequence[tuple[Any, Any]]) -> None:
        """Keep only these entries in a run, because the others are done or were returned."""
        run.entries = list(entries)
        run.partition, first = run.entries[0]
        run.record = first[0] if isinstance(first, DeliveredList) else first

    def _leave_lane(self, run: Run) -> None:
        lane = self._batches.pop(run)
        lane.is_standing = False
        # Its first record waited for the run, so that it need not wait for a full batch again.
        if lane.queue:
            self._list_lane(lane, lane.queue[0][2] + self._max_wait_s)
        else:
            self._forget_lane(lane)

    def _forget_lane(self, lane: _BatchLane) -> None:
        """Remove the lane of a partition that has no records, because partitions come and go."""
        if self._order == "partition" and not lane.queue and not lane.is_standing:
            del self._lanes[lane.name]

    def release_due(self, now: float) -> None:
        super().release_due(now)
        for lane in self._lanes.values():
            self._list_lane(lane, now)

    def find_next_due(self) -> float | None:
        dues = [
            lane.queue[0][2] + self._max_wait_s
            for lane in self._lanes.values()
            if lane.queue and not lane.is_listed and not lane.is_standing
        ]
        due = super().find_next_due()
        if due is not None:
            dues.append(due)
        return min(dues, default=None)

    def list_runs(self, partition: Any) -> list[Run]:
        return [
            run for run in self._batches if any(each is partition for each, _ in run.list_entries())
        ]

    def list_partitions(self) -> list[Any]:
        return list(self._counts)

    def drop_partition(self, partition: Any) -> list[Any]:
        dropped: list[Any] = []
        for lane in list(self._lanes.values()):
            gone = [entry for each, entry, _ in lane.queue if each is partition]
            if gone:
                dropped += gone
                lane.queue = deque(each for each in lane.queue if each[0] is not partition)
                count = sum(map(count_delivered, gone))
                lane.size -= count
                self._queued -= count
                self._forget_lane(lane)
        self.finish_records((partition, entry) for entry in dropped)
        waiting = {run for _, _, run in self._held if not run.is_dropped}
        for run in [run for run in self._batches if not run.is_running]:
            entries = run.list_entries()
            own = [entry for entry in entries if entry[0] is partition]
            if not own:
                continue
            dropped += [entry for _, entry in own]
            self.finish_records(own)
            if len(own) < len(entries):
                self.keep_records(run, [entry for entry in entries if entry[0] is not partition])
                continue
            run.is_dropped = True
            if run in waiting:
                self.held -= 1
            self._leave_lane(run)
        return dropped

    def count_waiting(self) -> int:
        return super().count_waiting() + len(self._takeable)

    def has_records(self) -> bool:
        return bool(self._counts)


class FailingRuns:
    """The runs that have failed and will be called again, also by partition.

    An outage makes as many of them as there are records in the lanes, so that nothing here looks at
    all of them when one of them ends.
    """

    def __init__(self) -> None:
        self.runs: dict[Run, tuple[Any, ...]] = {}
        """All runs, in the order of their first failures, with the partitions of their records."""
        self._by_partition: dict[Any, OrderedDict[Run, None]] = {}

    def add_run(self, run: Run) -> None:
        """Add a run. If it is here already, some of its records may be done."""
        partitions = tuple(dict.fromkeys(partition for partition, _ in run.list_entries()))
        former = self.runs.get(run, ())
        if partitions != former:
            self.runs[run] = partitions
            for partition in former:
                if partition not in partitions:
                    self._remove_from(partition, run)
            for partition in partitions:
                self._by_partition.setdefault(partition, OrderedDict())[run] = None

    def remove_run(self, run: Run) -> None:
        """Remove a run that has ended, if it is here."""
        for partition in self.runs.pop(run, ()):
            self._remove_from(partition, run)

    def forget_dropped(self) -> None:
        """Remove the runs whose records were dropped."""
        for run in [run for run in self.runs if run.is_dropped]:
            self.remove_run(run)

    def list_partitions(self, until: float) -> list[Any]:
        """Return the partitions with a record that has failed since `until`, or for longer."""
        found = []
        for partition, runs in self._by_partition.items():
            since = next(iter(runs)).failing_since
            if since is not None and since <= until:
                found.append(partition)
        return found

    def _remove_from(self, partition: Any, run: Run) -> None:
        runs = self._by_partition[partition]
        del runs[run]
        if not runs:
            del self._by_partition[partition]

"""Checks of what the members of a share group, and its brokers, have told.

- None is lost: a record that is finished was accepted by a handler, or rejected by one, or
  delivered as often as the group permits.
- No two handlers hold a record that both may believe to be locked for them: until `lock_deadline`,
  unless they know that the lock is lost. If the leader has moved, a member may believe for GRACE_S
  what is not so any more, or until it is no longer suspended.
- The delivery count of a record is that of the broker for this member. The count of two deliveries
  is the same only if the leader has moved in between, was suspended meanwhile, or may have
  forgotten it (`LeaderMemory`).
- A record is not acquired again after its acceptance, or rejection, was confirmed, unless by a
  leader that was suspended meanwhile.
- Dead letters say what handlers have said.

Of members with other clients, neither the locks nor the brokers' answers are known: what they
deliver late is not judged, and ours must not believe what they have.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from churn.events import Event

from .site import Change

GRACE_S = 10.0
SLACK_S = 1.0
"""The seconds by which times of different processes may be compared wrongly."""
EARLY_S = 2.0
"""The seconds that a broker may need to learn of a new leader, which acts before."""
Place = tuple[int, int]


@dataclass
class Hold:
    """A record in the hands of a handler."""

    place: Place
    member: str
    process: str
    count: int
    leader: int
    since: float
    deadline: float | None
    """The time until which its lock is certain; None for other clients."""
    acquired_at: float
    until: float = math.inf
    """The time at which it has ended, or the member learned of its loss."""

    def believes(self, time: float) -> bool:
        """Return whether the member may believe at a time that it holds the lock."""
        return self.deadline is not None and self.since <= time < min(self.until, self.deadline)


@dataclass(frozen=True)
class Acquired:
    """One record in an answer of a broker that has locked it for a member."""

    time: float
    member: str
    count: int
    leader: int
    """The node that has answered, 0 if it is not known."""


class LeaderMemory:
    """The sessions and outages of brokers, from which follows what a leader may have forgotten.

    A broker drops its state of the partitions of a group when the connection of the group's last
    session with it ends (`onGroupEmpty` of Kafka's SharePartitionManager), and reads it from the
    share coordinator at the next fetch. It releases the records of that session before, but does
    not wait until this is written. If the coordinator is away meanwhile, the read may be sooner
    than the repeated write, and the counts come again. Seen with Kafka 4.4.0 by raw requests: the
    leader stayed the same in epoch 0, the only member had offsets 0 to 2 with the counts 1 and 2,
    the broker of the coordinator was killed, and the member's connection was closed. Another member
    that came 4 s later had them with the counts 1 and 2 again; one that came after 6 s with 3. As
    long as the coordinator ran, no count came again in 190 such reads with writes in flight.

    A leader that was suspended while another one was elected answers fetches when it goes on, until
    it learns of that. Its writes are refused (FENCED_LEADER_EPOCH), so the new leader does not know
    its deliveries, and gives them the same counts. Seen by raw requests: offsets 0 to 2 came from
    the new leader with the count 1, and 3 s later, as the former one went on, from that one. Nor
    does it know what the new leader has confirmed: its own locks have ended meanwhile, and 0.1 s
    after it went on it gave a record with the count 2 that was accepted, with the count 1, at the
    new leader 2.6 s before.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, list[list[float]]] = defaultdict(list)
        """The times, by brokers, from which to which they had sessions with our members."""
        self._open: dict[tuple[str, int], list[float]] = {}
        self._outages: dict[int, list[list[float]]] = defaultdict(list)
        self._suspensions: dict[int, list[list[float]]] = defaultdict(list)

    def on_session(self, member: str, broker: int, time: float) -> None:
        self.end_session(member, broker, time)
        session = self._open[member, broker] = [time, math.inf]
        self._sessions[broker].append(session)

    def end_session(self, member: str, broker: int, time: float) -> None:
        session = self._open.pop((member, broker), None)
        if session is not None:
            session[1] = time

    def end_sessions(self, name: str, time: float) -> None:
        """End the sessions of a member, or of all members of a process."""
        for member, broker in list(self._open):
            if name in (member, member.split(".")[0]):
                self.end_session(member, broker, time)

    def on_outage(self, broker: int, time: float, *, is_suspended: bool) -> None:
        outage = [time, math.inf]
        self._outages[broker].append(outage)
        if is_suspended:
            self._suspensions[broker].append(outage)

    def end_outage(self, broker: int, time: float) -> None:
        self._outages[broker][-1][1] = time

    def may_be_lost(self, first: Acquired, second: Acquired) -> bool:
        """Return whether the leader may have forgotten the first of two deliveries."""
        was_away = any(
            broker != second.leader and begin <= second.time and first.time <= end + GRACE_S
            for broker, outages in self._outages.items()
            for begin, end in outages
        )
        leaders = {first.leader, second.leader} - {0} or set(self._sessions)
        return was_away and any(
            self._had_none(leader, first.time, second.time) for leader in leaders
        )

    def find_resumption(self, change: Change, leader: int, time: float) -> float:
        """Return when a leader that was suspended during a change went on, which it does not know.

        `time` is that of an answer of the leader. The result is minus infinity if it was awake.
        """
        leaders = [leader] if leader else list(self._suspensions)
        return max(
            (
                end
                for each in leaders
                for begin, end in self._suspensions[each]
                if begin <= change.before and change.after <= end and time <= end + GRACE_S
            ),
            default=-math.inf,
        )

    def _had_none(self, broker: int, first: float, second: float) -> bool:
        """Return whether a broker had no session at some time between two times."""
        for begin, end in sorted(self._sessions[broker]):
            if begin > first:
                break
            first = max(first, end)
        return first < second


@dataclass
class Found:
    """The counts of an audit."""

    begun: int = 0
    lateness: list[float] = field(default_factory=list)
    """The seconds after a change of the leader at which members knew, or had ended."""
    reasons: Counter[str] = field(default_factory=Counter)
    """The reasons of losses, by offset."""
    excused: int = 0
    forgotten: int = 0
    """Repeated counts, and finished records, that the leader may have forgotten, or not know."""
    undelivered: int = 0
    """Deliveries of which the brokers know and the handlers do not."""
    silent: list[Place] = field(default_factory=list)
    """Records that were archived without a dead letter."""
    outcomes: Counter[str] = field(default_factory=Counter)


class ShareAudit:
    """A replay of all events. `violations` is empty if everything holds."""

    def __init__(
        self,
        events: Iterable[Event],
        changes: Mapping[int, list[Change]],
        fates: Mapping[Place, str],
        limit: int,
    ) -> None:
        self.events = sorted(events, key=lambda event: event.time)
        self.changes, self.fates, self.limit = changes, fates, limit
        self.violations: list[str] = []
        self.found = Found()
        self.asked: dict[str, set[Place]] = defaultdict(set)
        self._acquired: dict[Place, list[Acquired]] = defaultdict(list)
        self._memory = LeaderMemory()
        self._held: dict[tuple[str, Place], Hold] = {}
        self._by_place: dict[Place, list[Hold]] = defaultdict(list)
        self._confirmed: dict[Place, tuple[float, int]] = {}
        self._away: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """The times for which a process was suspended, or its event loop was blocked."""
        self._ours: set[str] = set()
        for event in self.events:
            self._note_absence(event)
        for event in self.events:
            step = getattr(self, f"_on_{event.what}", None)
            if step is not None:
                step(event, *event.data)
        for holds in self._by_place.values():
            for hold in holds:
                self._check_lateness(hold)
        self._check_counts()

    def breach(self, text: str) -> None:
        self.violations.append(text)

    # -- events

    def _note_absence(self, event: Event) -> None:
        if event.what in ("suspends", "stalls"):
            self._away[event.who].append((event.time, math.inf))
        elif event.what in ("resumes", "stalled", "killed") and self._away[event.who]:
            begin, end = self._away[event.who][-1]
            self._away[event.who][-1] = begin, min(end, event.time)

    def _on_session(self, event: Event, member: str, broker: int) -> None:
        self._memory.on_session(member, broker, event.time)

    def _on_disconnected(self, event: Event, member: str, broker: int) -> None:
        self._memory.end_session(member, broker, event.time)

    def _on_down(self, event: Event, broker: int, is_suspended: bool) -> None:
        self._memory.on_outage(broker, event.time, is_suspended=is_suspended)

    def _on_up(self, event: Event, broker: int) -> None:
        self._memory.end_outage(broker, event.time)

    def _on_acquired(
        self,
        event: Event,
        member: str,
        partition: int,
        first: int,
        last: int,
        count: int,
        leader: int = 0,
    ) -> None:
        self._ours.add(member)
        for offset in range(first, last + 1):
            place = partition, offset
            self._acquired[place].append(Acquired(event.time, member, count, leader))
            confirmed = self._confirmed.get(place)
            if confirmed is not None and count > confirmed[1]:
                if self._was_suspended(partition, leader, confirmed[0], event.time):
                    self.found.forgotten += 1
                    continue
                self.breach(
                    f"{place} was acquired by {member} at {event.time:.3f} from {leader} with the "
                    f"count {count}, after it was confirmed at {confirmed[0]:.3f} as finished with "
                    f"the count {confirmed[1]}"
                )

    def _was_suspended(self, partition: int, leader: int, confirmed: float, time: float) -> bool:
        """Return whether a leader was suspended while another one confirmed the end of a record."""
        return any(
            change.after - EARLY_S <= confirmed
            and self._memory.find_resumption(change, leader, time) >= confirmed
            for change in self.changes.get(partition, ())
        )

    def _on_begin(
        self,
        event: Event,
        member: str,
        partition: int,
        offset: int,
        count: int,
        deadline: float | None,
        lost: bool,
    ) -> None:
        place = partition, offset
        self.found.begun += 1
        if deadline is None:
            self._on_acquired(event, member, partition, offset, offset, count)
            self._ours.discard(member)
        known = [
            each for each in self._acquired[place] if (each.member, each.count) == (member, count)
        ]
        if not known:
            self.breach(f"{place} has the count {count} for {member}, of which no broker knows")
            return
        last = known[-1]
        hold = Hold(place, member, event.who, count, last.leader, event.time, deadline, last.time)
        if deadline is not None and (lost or deadline <= event.time - SLACK_S):
            ended = "was lost" if lost else f"had ended at {deadline:.3f}"
            self.breach(
                f"{place} was delivered to {member} at {event.time:.3f}, when its lock {ended}"
            )
        for other in self._by_place[place]:
            self._compare(hold, other, event.time)
        self._by_place[place].append(hold)
        self._held[member, place] = hold

    def _compare(self, hold: Hold, other: Hold, now: float) -> None:
        """Check that the holder before does not believe what the new one may believe."""
        if not other.believes(now) or (hold.deadline is None and hold.count <= other.count):
            return
        if self._is_excused(other, now) or self._is_excused(hold, now):
            self.found.excused += 1
            return
        self.breach(
            f"{hold.place} is held by {other.member} (count {other.count}) since "
            f"{other.since:.3f} until {other.deadline:.3f}, and by {hold.member} (count "
            f"{hold.count}) at {now:.3f}"
        )

    def _is_excused(self, hold: Hold, now: float) -> bool:
        """Return whether a member need not know yet that its lock has ended early."""
        return any(
            hold.acquired_at <= change.before + SLACK_S
            and change.after - EARLY_S <= now <= self._learns_by(change, hold.process)
            for change in self._find_changes(hold.place[0], hold.leader, hold.acquired_at)
        )

    def _find_changes(self, partition: int, leader: int, time: float) -> Iterator[Change]:
        """Yield the changes of a partition, until a leader that has answered can know of them."""
        for change in self.changes.get(partition, ()):
            resumed_at = self._memory.find_resumption(change, leader, time)
            yield change._replace(before=max(change.before, resumed_at))

    def _learns_by(self, change: Change, process: str) -> float:
        """Return the time by which a process must know of a change."""
        latest = change.before + GRACE_S
        for begin, end in self._away[process]:
            if begin <= latest:
                latest = max(latest, end + GRACE_S)
        return latest

    def _on_renewed(
        self, event: Event, member: str, partition: int, first: int, last: int, deadline: float
    ) -> None:
        for offset in range(first, last + 1):
            hold = self._held.get((member, (partition, offset)))
            if hold is not None and hold.deadline is not None and hold.until == math.inf:
                hold.deadline = max(hold.deadline, deadline)

    def _on_lost(
        self, event: Event, member: str, partition: int, first: int, last: int, reason: str
    ) -> None:
        self.found.reasons[reason] += last - first + 1
        for offset in range(first, last + 1):
            self._end(member, (partition, offset), event.time)

    def _on_ask(
        self, event: Event, member: str, partition: int, offset: int, count: int, kind: str
    ) -> None:
        self.asked[kind].add((partition, offset))

    def _on_end(self, event: Event, member: str, partition: int, offset: int, count: int) -> None:
        hold = self._held.get((member, (partition, offset)))
        if hold is not None and hold.count == count:
            self._end(member, (partition, offset), event.time)

    def _end(self, member: str, place: Place, time: float) -> None:
        hold = self._held.pop((member, place), None)
        if hold is not None:
            hold.until = min(hold.until, time)

    def _on_outcome(
        self,
        event: Event,
        member: str,
        partition: int,
        offset: int,
        count: int,
        kind: str,
        error: str | None,
    ) -> None:
        self.found.outcomes["confirmed" if error is None else error.split("(")[0]] += 1
        if error is None and kind != "release":
            self._confirmed[partition, offset] = event.time, count

    def _on_killed(self, event: Event) -> None:
        self._memory.end_sessions(event.who, event.time)
        for (member, place), hold in list(self._held.items()):
            if hold.process == event.who:
                self._end(member, place, event.time)

    def _on_left(self, event: Event, member: str) -> None:
        self._memory.end_sessions(member, event.time)
        for holder, place in list(self._held):
            if holder == member:
                self._end(member, place, event.time)

    def _on_failed(self, event: Event, member: str, text: str) -> None:
        self.breach(f"{member} has failed: {text}")

    def _on_error(self, event: Event, member: str, text: str, expected: bool) -> None:
        if not expected:
            self.breach(f"{member} was told an error of another kind: {text}")

    # -- after the replay

    def _check_lateness(self, hold: Hold) -> None:
        """Check how late a member has learned that a leader moved while it held the record."""
        if hold.deadline is None:
            return
        until = min(hold.until, hold.deadline)
        for change in self.changes.get(hold.place[0], ()):
            if hold.since >= change.after or until <= change.before:
                continue
            if not any(
                begin <= until and change.after <= end for begin, end in self._away[hold.process]
            ):
                self.found.lateness.append(until - change.before)
            if until > self._learns_by(change, hold.process):
                self.breach(
                    f"{hold.member} does not know at {until:.3f} that the leader of {hold.place} "
                    f"moved at {change.before:.3f}"
                )

    def _check_counts(self) -> None:
        for place, acquired in self._acquired.items():
            begun = len(self._by_place[place])
            self.found.undelivered += max(len(acquired) - begun, 0)
            by_count: dict[int, list[Acquired]] = defaultdict(list)
            for each in acquired:
                by_count[each.count].append(each)
                if not 1 <= each.count <= self.limit:
                    self.breach(f"{place} has the delivery count {each.count}")
            for count, found in by_count.items():
                for first, second in itertools.pairwise(found):
                    if self._has_moved(place[0], first, second):
                        continue
                    if self._memory.may_be_lost(first, second):
                        self.found.forgotten += 1
                        continue
                    self.breach(
                        f"{place} was acquired twice with the count {count}, at {first.time:.3f} "
                        f"from {first.leader}, and at {second.time:.3f} from {second.leader}"
                    )

    def _has_moved(self, partition: int, first: Acquired, second: Acquired) -> bool:
        changes = list(self.changes.get(partition, ()))
        if not first.leader or first.leader != second.leader:
            for each in (first, second):
                changes += self._find_changes(partition, each.leader, each.time)
        return any(
            change.before >= first.time - SLACK_S and change.after - EARLY_S <= second.time
            for change in changes
        )

    def check_ends(self, dead: Mapping[Place, list[tuple[str, int]]]) -> None:
        """Check that each record has ended as its fate and its handlers say."""
        for place, fate in self.fates.items():
            counts = [each.count for each in self._acquired[place]]
            for message, count in dead.get(place, ()):
                if message == "Offset rejected by client.":
                    if fate != "garbage" and place not in self.asked["reject"]:
                        self.breach(f"{place} is in the dead letters, and was not rejected")
                elif count != self.limit:
                    self.breach(f"{place} was exhausted after {count} deliveries")
            if place in dead or place in self.asked["accept"]:
                continue
            exhausted = max(counts, default=0) == self.limit
            if fate == "garbage" or exhausted or place in self.asked["reject"]:
                self.found.silent.append(place)
            else:
                self.breach(f"{place}, which is to {fate}, was lost: counts {sorted(counts)}")
        wrong = sorted(p for p in self.asked["accept"] if self.fates[p] not in ("accept", "flaky"))
        if wrong:
            self.breach(f"accepted in spite of their fates: {wrong}")

    def summarize(self) -> str:
        found = self.found
        late = sorted(found.lateness)
        told = f"{late[len(late) // 2]:.2f}/{late[-1]:.2f} s" if late else "-"
        moves = sum(map(len, self.changes.values()))
        return (
            f"{len(self.fates)} records, {found.begun} deliveries (+{found.undelivered} not "
            f"delivered), {len(self._ours)} members of ours, {moves} leader changes (learned after "
            f"p50/max {told}), lost {dict(found.reasons)}, outcomes {dict(found.outcomes)}, "
            f"{found.excused} excused overlaps, {found.forgotten} forgotten counts, "
            f"{len(found.silent)} without dead letter"
        )

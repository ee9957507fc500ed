"""The health of a consumer's membership: its watches, refusals by the group, and problems.

One of the watches is over the poll interval: whether the application still requests records. If an
application hangs, its heartbeats continue, and its partitions would never be assigned to another
member. So a member leaves when the application has not requested records for
`max_poll_interval_ms`. Time in which the application waits for records does not count. With
`tracked`, the age of the oldest outstanding record counts instead.

Another one finds out which members a long rebalance waits for. In a group of the newer protocol,
ConsumerGroupDescribe shows them: members with an older epoch than the assignment have not yet
released the partitions that this member is to be assigned.

The coordinator of a classic group returns the members' partitions only while the group is stable.
So the watch requests a description of the group once in each generation, and when the consumer
starts, and remembers the members' partitions. During a long rebalance, it requests another one. The
rebalance waits for one or more of the other members that this description still lists, and the text
names them with the remembered partitions. If the coordinator refuses a description or does not
respond, the watch tries again later. Until then, the text says that it did not respond, or that no
broker has named the coordinator.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.assignors.wire import decode_assignment
from aiokclient.errors import KafkaError, error_for
from aiokclient.group.join import describe_group
from aiokclient.group.loop_watch import LoopWatch
from aiokclient.policy import Backoff, Scope
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
)
from aiokclient.types import TopicPartition
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator

SHOWN_S: Final = 3.0
"""Seconds after which a rebalance, a call of the listener, or a revocation is reported."""
LOOK_S: Final = 1.0
UNANSWERED_S: Final = 2.0
"""Seconds after which a request without a response is a reason for a long rebalance."""
ASKING: Final = Backoff(5.0, 30.0)
"""Seconds between two descriptions of the group while a rebalance lasts."""
SPREAD_S: Final = (1.0, 5.0)
"""Range of the random delay, in seconds, between the beginning of a generation and the description
of the group, so that not all members request it at the same time."""
NAMED: Final = 3

JOINING: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT})
"""The requests for whose answers a member waits during a rebalance."""

STABLE: Final = "Stable"
SYNCING: Final = "CompletingRebalance"


class MembershipHealth:
    """The watches of one membership, and the last refusal by the group."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        config = coordinator.config
        self._clock = coordinator.cluster.clock
        self._group_id = coordinator.group_id
        self._membership = coordinator.membership
        self._reconciler = coordinator.rebalancer
        self._poll_watch = PollIntervalWatch(coordinator)
        self._loop_watch = LoopWatch(
            coordinator.cluster.metrics, coordinator.group_id, config.client_id
        )
        self._rebalance_watch = RebalanceWatch(coordinator)
        self._refusal: tuple[Exception, float] | None = None

    def start_watches(self, supervisor: Supervisor) -> None:
        """Start the watches. Synchronous."""
        supervisor.spawn(self._poll_watch.run, name="poll interval")
        supervisor.spawn(self._loop_watch.run, name="event loop")
        supervisor.spawn(self._rebalance_watch.run, name="rebalances")

    def keep_refusal(self, error: Exception) -> None:
        """Record that the group refuses this consumer."""
        self._refusal = error, self._clock.monotonic()

    def find_refusal(self) -> Exception | None:
        """Return the error by which the group refuses this consumer, or None."""
        refusal = self._refusal
        if refusal is None or refusal[1] <= self._membership.answered_at:
            return None
        return refusal[0]

    def list_troubles(self) -> list[str]:
        """Return the problems of the membership as texts."""
        found = []
        refusal = self.find_refusal()
        if refusal is not None:
            found.append(f"the group refuses this consumer: {refusal}")
        silence = self._clock.monotonic() - self._membership.confirmed_until
        if self._reconciler.list_owned() and 0 <= silence < math.inf:
            found.append(
                f"the coordinator of group {self._group_id} has not answered for the session "
                f"timeout and {silence:.0f} s more; no records of the group's partitions are "
                "delivered until it does"
            )
        mine = [self._poll_watch.trouble, *self._reconciler.list_delays()]
        found += [text for text in (*mine, self._rebalance_watch.trouble) if text is not None]
        return found


class PollIntervalWatch:
    """A task that tells the coordinator once each time that the poll interval is exceeded."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        self._coordinator = coordinator
        self._read_lock = coordinator.read_lock
        self._in_progress = coordinator.in_progress
        self._interval_s = coordinator.config.max_poll_interval_ms / 1000
        self._told = -math.inf
        self._said = ""

    @property
    def trouble(self) -> str | None:
        """The excess over the interval as text, until the application requests records again."""
        return self._said if self._find_waiting_start() == self._told else None

    async def run(self) -> None:
        """Watch the poll interval. Run until the task is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            since = self._find_waiting_start()
            now = loop.time()
            due = math.inf if since is None or since == self._told else since + self._interval_s
            if now < due:
                # Sleep for at most one interval: a record that is delivered meanwhile cannot be
                # overdue before that.
                await asyncio.sleep(min(due, now + self._interval_s) - now)
                continue
            assert since is not None
            self._told = since
            self._said = self._describe_excess(now - since)
            self._coordinator.on_poll_overdue(self._said)

    def _find_waiting_start(self) -> float | None:
        oldest = self._in_progress.find_oldest_delivery()
        return self._read_lock.away_since if oldest is None else oldest

    def _describe_excess(self, seconds: float) -> str:
        oldest = self._in_progress.find_oldest_delivery()
        what = "requested records" if oldest is None else "finished a record"
        return (
            f"the application has not {what} for {seconds:.1f} s, longer than "
            "max_poll_interval_ms. Process less at a time, or increase the limit"
        )


class MemberSnapshot(NamedTuple):
    """A member: its label, the partitions that it owns, and, if known, those it still waits for."""

    label: str
    owned: Sequence[TopicPartition]
    missing: Sequence[TopicPartition] = ()
    is_late: bool = False
    """Whether the member has not taken its present assignment yet."""


class GroupSnapshot(NamedTuple):
    """A group, as its coordinator describes it."""

    state: str
    members: dict[str, MemberSnapshot]


class RebalanceWatch:
    """A task that describes the group of one consumer from time to time.

    It does not use the connection of the heartbeats, because nothing may delay heartbeats.
    """

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        config = coordinator.config
        self._cluster = coordinator.cluster
        self._group_id = coordinator.group_id
        self._membership = coordinator.membership
        self._subscription = coordinator.subscription
        self._timeout_s = config.request_timeout_ms / 1000
        self._newer = config.group_protocol != "classic"
        self._generation = -1
        self._began = math.inf
        self._stable = False
        self._asked = 0
        self._next = -math.inf
        self._owned: dict[str, Sequence[TopicPartition]] = {}
        self._waits = ""
        self._state: str | None = None
        """The state of the group in the last description."""
        self._not_found: KafkaError | None = None
        """The error of the last lookup of the coordinator; None if the lookup found it."""
        self._unanswered: KafkaError | None = None
        """The error of the last description if the coordinator was silent or not ready."""
        self._asking_since: float | None = None
        """The time at which the present request was sent, or None."""

    @property
    def trouble(self) -> str | None:
        """The duration of a rebalance and what the group waits for, as text.

        None if there is no rebalance, or if it has not lasted for SHOWN_S yet.
        """
        since = self._find_rebalance_start()
        lasted = -math.inf if since is None else self._cluster.clock.monotonic() - since
        if lasted < SHOWN_S:
            return None
        text = f"rebalancing for {lasted:.0f} s"
        if (silence := self._describe_silence()) is not None:
            text = f"{text}, as {silence}"
        elif self._waits:
            text = f"{text}, waits for {self._waits}"
        refused = self._not_found if self._find_coordinator() is None else None
        trouble = self._cluster.calls.find_trouble(Coordinator("group", self._group_id), JOINING)
        if trouble is None or refused is not None:
            return text
        text = f"{text}; {trouble}"
        known = self._state is not None
        return f"{text}; the coordinator describes the group as {self._state}" if known else text

    def _describe_silence(self) -> str | None:
        """Return, as a text, that the coordinator is not known or silent; None if it responds."""
        asked, coordinator = self._asking_since, self._find_coordinator()
        waited = -math.inf if asked is None else self._cluster.clock.monotonic() - asked
        error = self._not_found if coordinator is None else self._unanswered
        if error is None and waited < UNANSWERED_S:
            return None
        text = (
            "the coordinator of the group is not known"
            if coordinator is None
            else f"the coordinator of the group, broker {coordinator}, did not respond"
        )
        return f"{text} for {waited:.0f} s" if error is None else f"{text}: {error}"

    def _find_coordinator(self) -> int | None:
        return self._cluster.coordinators.find_cached("group", self._group_id)

    def _find_rebalance_start(self) -> float | None:
        since = self._membership.rebalancing_since
        if since is None and self._newer and self._waits:
            return self._began
        return since

    async def run(self) -> None:
        """Request a description of the group whenever one is due. Run until cancelled."""
        while True:
            if self._is_due():
                self._asking_since = self._cluster.clock.monotonic()
                await self._describe_group()
                self._asking_since = None
                clock = self._cluster.clock
                self._next = clock.monotonic() + ASKING.compute_delay_s(self._asked, clock.rng)
                self._asked += 1
            await asyncio.sleep(LOOK_S)

    async def _describe_group(self) -> None:
        try:
            if self._find_coordinator() is None:
                await self._cluster.coordinators.locate_coordinator("group", self._group_id)
        except KafkaError as error:
            self._waits, self._state, self._not_found = "", None, error
            return
        self._not_found = None
        try:
            describe = self._describe_newer if self._newer else self._describe_classic
            self._on_description(await describe())
            self._unanswered = None
        except KafkaError as error:
            # A refusal, such as a missing permission, is no reason for the rebalance.
            self._waits, self._state = "", None
            self._unanswered = error if error.retriable else None

    def _is_due(self) -> bool:
        now, rng = self._cluster.clock.monotonic(), self._cluster.clock.rng
        membership = self._membership
        since, generation = membership.rebalancing_since, membership.metadata.generation_id
        first = self._began == math.inf
        is_member = generation >= 0 or since is not None
        if not self._subscription.subscription or not (first or is_member):
            return False
        if generation != self._generation or first:
            self._generation, self._began = generation, now
            self._stable, self._asked = False, 0
            self._next = now if first else now + rng.uniform(*SPREAD_S)
        if since is None:
            if self._stable:
                return False
            if not self._newer:
                self._waits = ""
        else:
            if self._stable:
                self._stable, self._asked = False, 0
            self._next = self._next if self._asked else max(self._next, since + SHOWN_S)
            if not first and not self._asked:
                self._next = min(self._next, since + SHOWN_S)
        return now >= self._next

    def _on_description(self, group: GroupSnapshot) -> None:
        me = self._membership.metadata.member_id
        others = {key: other for key, other in group.members.items() if key != me}
        self._waits, self._state = "", group.state
        if group.state == STABLE:
            self._stable = self._membership.rebalancing_since is None
            self._owned = {key: other.owned for key, other in others.items()}
        elif self._newer:
            missing = group.members[me].missing if me in group.members else ()
            late = [other.label for other in others.values() if other.is_late and missing]
            # If several members are late, it is unknown which of them owns which partition.
            self._waits = _listed((label, missing if len(late) == 1 else ()) for label in late)
        elif group.state == SYNCING:
            self._waits = "the assignment by the leader of the group"
        else:
            held = [(other.label, self._owned.get(key, ())) for key, other in others.items()]
            self._waits = _listed([each for each in held if each[1]] or held)

    # -- requests

    async def _describe_classic(self) -> GroupSnapshot:
        group = await describe_group(self._cluster, self._group_id, self._timeout_s)
        members = {}
        for each in group.members:
            data = bytes(each.member_assignment)
            owned = decode_assignment(data).partitions if data else ()
            members[each.member_id] = MemberSnapshot(_label(each, each.group_instance_id), owned)
        return GroupSnapshot(group.group_state, members)

    async def _describe_newer(self) -> GroupSnapshot:
        response = await self._cluster.request(
            ConsumerGroupDescribeRequest(group_ids=[self._group_id]),
            Coordinator("group", self._group_id),
            timeout=self._timeout_s,
            scope=Scope.ADMIN,
            check=_refusal,
        )
        group = response.groups[0]
        members = {}
        for each in group.members:
            owned, wanted = _partitions(each.assignment), _partitions(each.target_assignment)
            missing = [tp for tp in wanted if tp not in owned]
            late = each.member_epoch < group.assignment_epoch
            label = _label(each, each.instance_id)
            members[each.member_id] = MemberSnapshot(label, list(owned), missing, late)
        return GroupSnapshot(group.group_state, members)


def _refusal(response: Any) -> KafkaError | None:
    return error_for(response.groups[0].error_code)


def _partitions(assignment: Assignment) -> dict[TopicPartition, None]:
    topics = assignment.topic_partitions
    return {TopicPartition(t.topic_name, index): None for t in topics for index in t.partitions}


def _label(member: Any, instance_id: str | None) -> str:
    """Return a readable description of a member."""
    instance = "" if instance_id is None else f"instance {instance_id}, "
    host = member.client_host.removeprefix("/")
    return f"member {member.member_id} ({instance}client {member.client_id} at {host})"


def _listed(waited_for: Iterable[tuple[str, Sequence[TopicPartition]]]) -> str:
    texts = [f"{label}, which holds {named(tps)}" if tps else label for label, tps in waited_for]
    more = f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    prefix = "one or more of: " if len(texts) > 1 else ""
    return prefix + "; ".join(texts[:NAMED]) + more


def named(tps: Sequence[TopicPartition], most: int = NAMED) -> str:
    """Return the names of the first `most` partitions, and the number of the others, as text."""
    more = f" and {len(tps) - most} more" if len(tps) > most else ""
    return ", ".join(map(str, tps[:most])) + more

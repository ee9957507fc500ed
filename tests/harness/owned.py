"""Checks that the partitions which the members of a group subscribe to are owned once, and read."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aiokclient import Consumer, State, TopicPartition
from aiokclient.consumer.assignors.wire import decode_assignment
from aiokclient.errors import ConcurrentReadError, IllegalStateError, ProtocolError
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.simulation.network import Weather

if TYPE_CHECKING:
    from world import World

RUNNING = (State.RUNNING, State.DEGRADED)
SETTLED_S = 120.0
LONGEST_SESSION_S = 2000.0
MARK = b"written when nothing changes any more"


class HasCluster(Protocol):
    """A test world with an embedded cluster."""

    cluster: EmbeddedCluster


async def until(right: Callable[[], object], timeout: float = 300.0) -> None:
    """Poll until a condition is true.

    Use this for a condition that depends on more than the calls of one listener.
    """
    for _ in range(int(timeout * 10)):
        if right():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError


def owners(world: HasCluster, group: str = "g") -> dict[TopicPartition, list[str]]:
    """Return the member ids to which each partition is assigned, by the coordinator's view."""
    found: dict[TopicPartition, list[str]] = {}
    view = world.cluster.groups.get(group)
    for member_id, member in view.members.items() if view is not None else ():
        with contextlib.suppress(ProtocolError):  # Tests with raw requests assign any bytes.
            for tp in decode_assignment(member.assignment).partitions:
                found.setdefault(tp, []).append(member_id)
    return found


class View(NamedTuple):
    """The subscription and the partitions of a member, by its own view."""

    member_id: str
    topics: frozenset[str]
    owned: frozenset[TopicPartition]


def view_of(consumer: Consumer[Any, Any]) -> View:
    """Return the view of a consumer, without the partitions that it has assigned by hand."""
    member_id = consumer.group_metadata().member_id
    owned = consumer._subscription.list_subscribed()
    return View(member_id, frozenset(consumer.subscription()), frozenset(owned))


def misowned(world: HasCluster, views: Sequence[View], group: str = "g") -> list[str]:
    """Return the partitions of the members' subscriptions that are not owned once, as texts.

    Both views are compared: the coordinator's and the members'.
    """
    told = owners(world, group)
    found = []
    for topic, count in world.cluster.topics.items():
        reads = [each.member_id for each in views if topic in each.topics]
        if topic.startswith("__") and not reads:
            continue  # Brokers may assign internal topics by a pattern, and consumers ignore them.
        for tp in (TopicPartition(topic, index) for index in range(count)):
            have = [each.member_id for each in views if tp in each.owned]
            if len(have) != min(len(reads), 1) or have != told.get(tp, []):
                found.append(f"{tp}: owned by {have}, assigned to {told.get(tp, [])}")
            elif have and have[0] not in reads:
                found.append(f"{tp}: owned by {have}, which does not subscribe to it")
    return found


async def check_owned(
    world: HasCluster, views: Callable[[], Sequence[View]], group: str, within_s: float
) -> None:
    """Check that the partitions of the members' subscriptions are owned once, or soon will be."""
    try:
        await until(lambda: not misowned(world, views(), group), within_s)
    except TimeoutError:
        raise AssertionError(f"not owned once: {misowned(world, views(), group)}") from None


def are_undisturbed(world: "World") -> bool:
    """Return whether no fault of the cluster and the network is active."""
    cluster, network = world.cluster, world.network
    state = cluster._state
    calm = network.weather == Weather() and not network._parted and not network.refusing
    return (
        calm
        and network.tamper is None
        and not any(each.left != 0 for each in state.faults._rules)
        and not state.held
        and all(cluster._nodes.find_broker(each).alive for each in cluster.brokers)
        and not any(broker.paused for broker in cluster._brokers.values())
    )


class CheckedConsumer(Consumer[Any, Any]):
    """A consumer that checks its group at the end of its `async with` block, before it closes."""

    world: "World"
    checked: bool

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None and self.checked and self.state in RUNNING:
                await self.check_group()
        except BaseException:
            await super().__aexit__(*sys.exc_info())
            raise
        await super().__aexit__(kind, error, traceback)

    async def check_group(self) -> None:
        """Check that the running members of the group own the partitions of their subscriptions.

        It neither writes nor reads, so that the test goes on as it would without it.
        """
        group = self._config.group_id
        if group is None or not self.is_member(group) or not are_undisturbed(self.world):
            return

        def views() -> list[View]:
            # Members may start, close, or exceed max_poll_interval_ms during the check.
            return [view_of(each) for each in self.world.consumers() if each.is_member(group)]

        await check_owned(self.world, views, group, SETTLED_S)

    def is_member(self, group: str) -> bool:
        """Return whether the consumer runs as a member of this group, with a subscription.

        A consumer that is being closed is no member, and neither is one that has exceeded
        max_poll_interval_ms.
        """
        if not self._usable or self.state not in RUNNING or self._config.group_id != group:
            return False
        coordinator = None if self._engine is None else self._engine.group
        late = coordinator is not None and coordinator._poll_is_overdue
        return not late and bool(self.subscription())


# Errors and logs name the class.
CheckedConsumer.__name__ = CheckedConsumer.__qualname__ = "Consumer"


async def check_owned_and_read(
    world: HasCluster,
    consumers: Sequence[Consumer[Any, Any]],
    *,
    group: str = "g",
    within_s: float = 60.0,
) -> None:
    """Check that the partitions of the members' subscriptions are owned once, and read.

    Call it when nothing changes any more. It writes a record into each of these partitions, and
    waits until the owner has read it, in another task of the program if one reads. Partitions that
    members have assigned by hand must not be among them.
    """
    marks: dict[TopicPartition, int] = {}

    async def poll(consumer: Consumer[Any, Any]) -> None:
        while True:
            try:
                records = await consumer.poll(timeout=0.2)
            except ConcurrentReadError:
                await asyncio.sleep(0.2)
                continue
            wrong_topics = {record.topic for record in records} - consumer.subscription()
            assert not wrong_topics, f"records of {wrong_topics} are delivered"

    def wrong() -> list[str]:
        return misowned(world, [view_of(each) for each in consumers], group)

    async def unread() -> list[TopicPartition]:
        ends = {}
        for consumer in consumers:
            for tp in marks.keys() & consumer.assignment():
                # A rebalance that had begun before can take a partition away during the wait.
                with contextlib.suppress(IllegalStateError):
                    ends[tp] = await consumer.position(tp)
        return [tp for tp, offset in marks.items() if ends.get(tp, -1) <= offset]

    async def all_read() -> None:
        while True:
            if not await unread():
                return
            await asyncio.sleep(0.1)

    async with asyncio.timeout(within_s + 60), asyncio.TaskGroup() as tasks:
        polls = [tasks.create_task(poll(each)) for each in consumers]
        try:
            await until(lambda: not wrong(), within_s)
            for each in consumers:
                each.resume(each.assignment())
            for topic in sorted({topic for each in consumers for topic in each.subscription()}):
                for partition in range(world.cluster.topics[topic]):
                    world.cluster.produce(topic, [MARK], partition)
                    end = world.cluster.offsets(topic, partition)[1]
                    marks[TopicPartition(topic, partition)] = end - 1
            async with asyncio.timeout(within_s):
                await all_read()
        except TimeoutError:
            states = [each.health() for each in consumers]
            raise AssertionError(
                f"not owned once: {wrong()}; not read: {await unread()}; {states}"
            ) from None
        finally:
            for task in polls:
                task.cancel()


async def check_successor(world: HasCluster, group: str, **options: Any) -> None:
    """Check that a new member owns and reads all topics of the cluster when all others have gone.

    Members that have not left must lose their sessions first.
    """
    topics = [topic for topic in world.cluster.topics if not topic.startswith("__")]
    wanted = {"auto_offset_reset": "latest", "session_timeout_ms": 45_000, **options}
    async with Consumer[Any, Any](*topics, group_id=group, **wanted) as successor:
        await check_owned_and_read(world, [successor], group=group, within_s=LONGEST_SESSION_S)

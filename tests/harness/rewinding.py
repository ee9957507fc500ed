"""A group that is rewound while its members fail, and a history of what is read again.

Each rewind request has a different offset, so that a member that goes back shows which request it
follows. In addition to F and G (see `ownership`), these rules hold for each partition:

    a member begins at the committed offset, and continues without a gap;
    it jumps only to the offset of a rewind request, and once for each request, even if members
    join and leave.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ownership import Member, Ownership
from world import World

from aiokclient import Consumer, OffsetAndMetadata, TopicPartition
from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey

COUNT, PARTITIONS = 30, 4
TPS = [TopicPartition("t", partition) for partition in range(PARTITIONS)]


@dataclass
class Order:
    """One call of `rewind_group`: when it was made, and how it ended."""

    offsets: dict[TopicPartition, int]
    called: float
    ended: float | None = None
    error: BaseException | None = None
    actual: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def returned(self) -> bool:
        return self.ended is not None and self.error is None


@dataclass
class RewindHistory(Ownership):
    """The history of a group that is rewound: its rewind requests, jumps, and reads.

    One `async for` loop reads each consumer, so its records arrive in order.
    """

    world: World = field(kw_only=True)
    calls: list[Order] = field(default_factory=list)
    due: set[tuple[TopicPartition, int]] = field(default_factory=set)
    jumps: list[tuple[TopicPartition, int]] = field(default_factory=list)
    last: dict[tuple[TopicPartition, int], float] = field(default_factory=dict)
    times: Counter[tuple[TopicPartition, int]] = field(default_factory=Counter)
    ids: rewind_requests.RewindRequests = field(default_factory=dict)

    def start(self, tp: TopicPartition) -> int:
        """Return the offset at which the next owner of the partition must begin."""
        stored = self.world.cluster.committed("g").get(tp)
        if stored is None:
            return 0
        for request in self.world.requests(ApiKey.JOIN_GROUP):
            for protocol in request.message.protocols:
                self.ids.update(rewind_requests.read(bytes(protocol.metadata)))
        for order, offsets in self.ids.items():
            if rewind_requests.noted(stored.metadata, order) and tp in offsets:
                self.due.discard((tp, offsets[tp]))
        return stored.offset

    def jumped(self, name: str, tp: TopicPartition, expected: int, offset: int) -> None:
        if (tp, offset) not in self.due:
            self.breach(f"{name} jumps in {tp} from {expected} to {offset}")
        self.due.remove((tp, offset))
        self.jumps.append((tp, offset))

    def check_calls(self) -> None:
        """Check that all records that a completed request rewound were read again.

        Requests that overlapped with another request are not checked.
        """
        for call in self.calls:
            for tp, target in call.offsets.items():
                if not call.returned or self._disputed(call, tp):
                    continue
                if call.actual[tp] != target:
                    self.breach(f"{tp} continues at {call.actual[tp]}, not at {target}")
                for offset in range(target, COUNT):
                    at = self.last.get((tp, offset), -1.0)
                    if at < call.called:
                        self.breach(f"{tp}@{offset} was not read after request {call.called}")

    def check_times(self, *all_of: Mapping[TopicPartition, int]) -> None:
        """Check that each record was read once, and once more for each request that rewound it.

        This holds only if no member was killed.
        """
        for tp in TPS:
            for offset in range(COUNT):
                due = 1 + sum(tp in each and offset >= each[tp] for each in all_of)
                if self.times[tp, offset] != due:
                    self.breach(f"{tp}@{offset} was read {self.times[tp, offset]} times, not {due}")

    def _disputed(self, call: Order, tp: TopicPartition) -> bool:
        return any(
            other is not call
            and tp in other.offsets
            # A request that failed may still take effect.
            and (not other.returned or (other.ended or 0.0) >= call.called)
            for other in self.calls
            if other.called <= (call.ended or 0.0)
        )


class Reader(Member):
    """The listener of a member, which also records the member's progress."""

    ownership: RewindHistory

    def __init__(self, name: str, history: RewindHistory) -> None:
        super().__init__(name, history)
        self.next: dict[TopicPartition, int] = {}

    def on_assigned(self, tps: Any) -> None:
        self.next.update({tp: self.ownership.start(tp) for tp in tps})
        super().on_assigned(tps)

    def delivered(self, record: Any) -> None:
        super().delivered(record)
        tp, offset = TopicPartition(record.topic, record.partition), record.offset
        if offset != self.next[tp]:
            self.ownership.jumped(self.name, tp, self.next[tp], offset)
        self.next[tp] = offset + 1
        self.ownership.last[tp, offset] = self.ownership.clock()
        self.ownership.times[tp, offset] += 1


class Herd:
    """The members of group "g". Each one reads topic "t" in a loop, with pauses."""

    def __init__(self, world: World, strategy: str, seed: int = 1, **options: Any) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.options = {"partition_assignment_strategy": strategy, **options}
        self.history = RewindHistory(lambda: world.now, world=world)
        self.members: dict[str, tuple[Consumer[Any, Any], asyncio.Task[None], Reader]] = {}
        self.ending: list[asyncio.Task[Any]] = []
        self.pause_s = 0.0
        self.says = ""
        self.made = 0
        for tp in TPS:
            world.cluster.produce("t", [b"%d" % i for i in range(COUNT)], tp.partition)

    # -- members

    def join(self, **options: Any) -> str:
        self.made += 1
        name = f"m{self.made}"
        reader = Reader(name, self.history)
        consumer = self.world.consumer(
            "t",
            group_id="g",
            connector=self.world.network.connector(name),
            listener=reader,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=20_000,
            **{"auto_commit_interval_ms": 300, **self.options, **options},
        )
        self.members[name] = consumer, asyncio.create_task(self._read(consumer, reader)), reader
        return name

    async def _read(self, consumer: Consumer[Any, Any], reader: Reader) -> None:
        async with consumer:
            async for record in consumer:
                reader.delivered(record)
                try:
                    await asyncio.sleep(self.pause_s)
                except asyncio.CancelledError:
                    reader.dropped(record)
                    raise
                reader.ended(record)
                if self.says:
                    tp = TopicPartition(record.topic, record.partition)
                    await consumer.commit({tp: OffsetAndMetadata(record.offset + 1, self.says)})

    async def leave(self, name: str) -> None:
        consumer, task, _ = self.members.pop(name)
        consumer.stop()
        await task

    def kill(self, name: str) -> None:
        """End the member's process. Brokers receive nothing more from it, not even data in transit.

        Synchronous.
        """
        _, task, reader = self.members.pop(name)
        reader.kill()
        self.world.network.part([name], self.broker_addresses)
        self.world.network.cut(name)
        task.cancel()
        self.ending.append(task)

    @property
    def broker_addresses(self) -> list[str]:
        return [self.world.address(broker) for broker in self.world.cluster.brokers]

    def owner(self, tp: TopicPartition) -> str:
        return next(name for name, (_, _, reader) in self.members.items() if tp in reader.owned)

    def id_of(self, name: str) -> str:
        return self.members[name][0].group_metadata().member_id

    def at_work(self) -> int:
        """Return the number of members that have a record in progress."""
        return sum(any(reader.at_work.values()) for _, _, reader in self.members.values())

    def leader(self) -> str:
        leader = self.world.cluster.groups["g"].leader
        return next(name for name in self.members if self.id_of(name) == leader)

    # -- rewind requests

    def order(
        self, name: str, offsets: Mapping[TopicPartition, int], timeout: float = 60.0
    ) -> asyncio.Task[Order]:
        """Let a member request a rewind. The task ends when the call does."""
        call = Order(dict(offsets), self.world.now)
        self.history.calls.append(call)
        self.history.due.update(offsets.items())
        consumer = self.members[name][0]

        async def run() -> Order:
            try:
                call.actual = await consumer.rewind_group(offsets, timeout)
            except (KafkaError, asyncio.CancelledError) as error:
                call.error = error
            call.ended = self.world.now
            return call

        return asyncio.create_task(run())

    async def group_is(self, state: str) -> None:
        await self.world.cluster.until(lambda: self.world.cluster.groups["g"].state == state)

    # -- results

    async def whole(self) -> None:
        """Wait until all partitions are owned, read to the end, and committed."""
        complete = dict.fromkeys(TPS, COUNT)
        async with asyncio.timeout(600):
            while True:
                self.check()
                stored = self.world.cluster.committed("g")
                live = [tp for _, _, reader in self.members.values() for tp in reader.owned]
                if {tp: s.offset for tp, s in stored.items()} == complete and set(live) == set(TPS):
                    return
                await asyncio.sleep(0.25)

    async def end(self) -> None:
        """Check that all records were read, also those that were rewound. Then end all members."""
        await self.whole()
        assert self.history.count() == COUNT * PARTITIONS
        self.history.check_calls()
        for name in list(self.members):
            await self.leave(name)
        self.check()
        await asyncio.gather(*self.ending, return_exceptions=True)

    def check(self) -> None:
        self.history.check_committed(self.world.cluster.committed("g"))
        self.history.check()
        for _, task, _ in self.members.values():
            if task.done():
                task.result()


async def herd(
    world: World, strategy: str, count: int = 3, *, says: str = "", **options: Any
) -> Herd:
    """Return a group of `count` members that has read everything.

    With `says`, the members commit each record explicitly, with that text as metadata.
    """
    group = Herd(world, strategy, **options)
    group.says = says
    for _ in range(count):
        group.join()
    await group.whole()
    return group


def fail_over(world: World) -> None:
    """Move the coordinator to another broker, which knows only the persisted state of the group."""
    coordinator = world.cluster.coordinator("g")
    world.cluster.move_coordinator("g")
    world.cluster.disconnect(coordinator)


def rewinds(request: Any) -> bool:
    """Return whether an OffsetCommit commits a rewound offset."""
    return any(
        each.committed_offset < COUNT
        and (each.committed_metadata or "").startswith(rewind_requests.NOTE)
        for topic in request.topics
        for each in topic.partitions
    )


def noted(request: Any) -> bool:
    """Return whether an OffsetCommit reports a completed rewind request in its metadata."""
    return any(
        rewind_requests.note_in(each.committed_metadata or "")
        for topic in request.topics
        for each in topic.partitions
    )


def orders_in(request: Any) -> bool:
    """Return whether a JoinGroup, or the leader's SyncGroup, contains rewind requests."""
    parts = [p.metadata for p in getattr(request, "protocols", ())]
    parts += [a.assignment for a in getattr(request, "assignments", ())]
    return any(rewind_requests.read(bytes(part)) for part in parts)


def at(
    world: World,
    api: ApiKey,
    when: str,
    which: Callable[[Any], bool],
    then: Callable[[], object],
) -> None:
    """Call `then` at the first request of `api` for which `which` is true, and disconnect.

    `when` says whether the connection is cut before or after the broker handles the request.
    """

    def where(request: Any) -> bool:
        if not which(request):
            return False
        asyncio.get_running_loop().call_soon(then)
        return True

    world.cluster.drop(api, when=when, times=1, where=where)  # type: ignore[arg-type]

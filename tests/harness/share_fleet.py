"""A share group under faults, with a record of what each handler and each leader did.

Each record has a fate, which the seed determines: its handler accepts it, fails a few times before
that, always fails, rejects it, or never sees it, because it cannot be deserialized. `Tape` has what
the leaders of the embedded cluster acquired and applied, and dead letters say why a record ended.

- A handler begins only if no other handler believes that it holds the record, and only with a
  delivery that the leader knows, by member and count. Leaders that move end locks at once; their
  handlers learn of it within a second, unless they cannot reach the brokers.
- What a leader applied is what a handler has asked for; what a member had confirmed was applied.
- In the end, each record was accepted, rejected, or delivered as often as the group permits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from world import World

from aiokclient import REJECT as REFUSE
from aiokclient import RELEASE, Admin, ShareConsumer, ShareRecord
from aiokclient.admin import ConfigResource
from aiokclient.errors import (
    AcknowledgeError,
    ApiTimeoutError,
    KafkaError,
    LockLostError,
    RecordError,
)
from aiokclient.share.locks import AcknowledgeType
from aiokclient.testing.broker.share.partition import SharePartition

GROUP, DEAD = "g", "dlq.g"
PARTITIONS = 3
LIMIT = 10
"""The largest number of deliveries of a record."""
LOCK_S = 15.0
FATES = ("accept", "flaky", "poison", "reject", "garbage")
WEIGHTS = (70, 15, 4, 6, 5)
KINDS = ("processing", "processing", "manual", "loop", "batches")
ACTIONS = {
    "join": 5,
    "leave": 2,
    "kill": 3,
    "cancel": 2,
    "cancel handlers": 2,
    "part": 2,
    "cut": 2,
    "stall": 1,
    "move": 4,
    "broker": 2,
    "coordinator": 1,
}
Place = tuple[int, int]


class Tape:
    """What leaders acquired for members and applied for them, by partition and offset."""

    def __init__(self) -> None:
        self.acquired: dict[Place, list[tuple[str, int]]] = defaultdict(list)
        """The members and delivery counts of each record."""
        self.settled_by: dict[Place, str] = {}
        """The member whose settlement was accepted last."""
        self.applied: dict[AcknowledgeType, set[Place]] = defaultdict(set)
        self.violations: list[str] = []

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the leaders of share partitions do within the block."""
        tape, acquire, settle = self, SharePartition.acquire, SharePartition.settle
        check = SharePartition.check_acknowledgements

        def acquire_recorded(self: SharePartition, member: str, *args: Any) -> Any:
            found = acquire(self, member, *args)
            for first, last, count in found:
                tape.note_acquired(self.partition.index, range(first, last + 1), member, count)
            return found

        def check_recorded(self: SharePartition, member: str, batches: Any) -> Any:
            settled = check(self, member, batches)
            for first, last, _ in settled:
                for offset in range(first, last + 1):
                    tape.settled_by[self.partition.index, offset] = member
            return settled

        def settle_recorded(self: SharePartition, settled: Any) -> None:
            settle(self, settled)
            for first, last, kind in settled:
                places = {(self.partition.index, offset) for offset in range(first, last + 1)}
                tape.applied[AcknowledgeType(kind)] |= places

        with (
            mock.patch.object(SharePartition, "acquire", acquire_recorded),
            mock.patch.object(SharePartition, "check_acknowledgements", check_recorded),
            mock.patch.object(SharePartition, "settle", settle_recorded),
        ):
            yield

    def note_acquired(self, partition: int, offsets: range, member: str, count: int) -> None:
        for offset in offsets:
            place = partition, offset
            self.acquired[place].append((member, count))
            if place in self.applied[AcknowledgeType.ACCEPT]:
                self.violations.append(f"{place} was acquired after it was accepted")


@dataclass(eq=False)
class Member:
    """A consumer, its task, and its handlers."""

    name: str
    kind: str
    consumer: ShareConsumer[Any, Any]
    outstanding: int
    task: asyncio.Task[None] | None = None
    handlers: set[asyncio.Task[None]] = field(default_factory=set)
    unreachable_at: float = -math.inf
    """The time at which it last could not reach a broker."""
    is_cut_off: bool = False

    @property
    def member_id(self) -> str:
        engine = self.consumer._engine
        return "" if engine is None else engine.member_id


class ShareFleet:
    """Members of a share group that come, go, are killed, and are cut off, as the seed says.

    With `broken`, members are wrong on purpose: "believing" ones accept what they have lost.
    """

    def __init__(self, world: World, seed: int, *, most: int = 20, broken: str = "") -> None:
        self.world, self.most, self.broken = world, most, broken
        self.rng = random.Random(seed)
        self.tape = Tape()
        self.fates: dict[Place, str] = {}
        self.flaky: dict[Place, int] = {}
        self.members: dict[str, Member] = {}
        self.made = itertools.count(1)
        self.holders: dict[Place, list[tuple[ShareRecord[Any, Any], Member, float]]] = defaultdict(
            list
        )
        self.asked: dict[AcknowledgeType, set[Place]] = defaultdict(set)
        """What handlers have decided."""
        self.confirmed: dict[AcknowledgeType, set[Place]] = defaultdict(set)
        """What members were told to be applied."""
        self.epochs: dict[int, int] = {}
        self.moved_at: dict[int, float] = {}
        self.broker_away_at = -math.inf
        self.errors: list[KafkaError] = []
        self.violations = self.tape.violations

    # -- records

    async def fill(self, count: int) -> None:
        """Create the group, write `count` records to each partition, and choose their fates."""
        configs = {
            "share.record.lock.duration.ms": str(int(LOCK_S * 1000)),
            "share.delivery.count.limit": str(LIMIT),
            "errors.deadletterqueue.topic.name": DEAD,
        }
        async with Admin(**self.world.options()) as admin:
            enabled = {"errors.deadletterqueue.group.enable": "true"}
            await admin.alter_configs({ConfigResource.topic(DEAD): enabled})
            await admin.create_share_group(GROUP, ["t"], start="earliest")
            altered = await admin.alter_configs({ConfigResource.group(GROUP): configs})
            altered.raise_for_errors()
        for partition in range(PARTITIONS):
            for offset in range(count):
                (fate,) = self.rng.choices(FATES, WEIGHTS)
                self.fates[partition, offset] = fate
                self.flaky[partition, offset] = self.rng.choice((1, 1, 2))
        for partition in range(PARTITIONS):
            first = 0
            while first < count:
                last = min(first + self.rng.choice((1, 4, 20)), count)
                values = [self.fates[partition, offset].encode() for offset in range(first, last)]
                self.world.cluster.produce("t", values, partition)
                first = last

    def read_value(self, value: bytes) -> str:
        if value == b"garbage":
            raise ValueError("garbage")
        return value.decode()

    # -- handlers

    def begin(self, member: Member, record: ShareRecord[Any, Any]) -> None:
        """Check that nobody else holds the record, and that its leader knows the delivery."""
        place, now = (record.partition, record.offset), self.world.now
        if (member.member_id, record.delivery_count) not in self.tape.acquired[place]:
            self.violations.append(f"{place} has the count {record.delivery_count} at {now:.3f}")
        for other, owner, since in self.holders[place]:
            believes = not other.lock_lost and other.lock_deadline > now
            if believes and not self.is_excused(place, owner, since):
                self.violations.append(
                    f"{place} is held by {owner.name} since {since:.3f} until "
                    f"{other.lock_deadline:.3f}, and by {member.name} at {now:.3f}"
                )
        self.holders[place].append((record, member, now))
        if self.broken == "believing":
            assert record._acquisition is not None
            record._acquisition.deadline += 1000.0

    def is_excused(self, place: Place, owner: Member, since: float) -> bool:
        """Return whether a member need not know yet that its lock has ended early."""
        moved_at, now = self.moved_at.get(place[0], -math.inf), self.world.now
        if owner.unreachable_at >= now - 0.5:  # The brokers may know of it first.
            return True
        if moved_at < since - 1.0:
            return False
        reachable = max(owner.unreachable_at, self.broker_away_at) < moved_at - 1.0
        return not reachable or now <= moved_at + 1.0

    def end(self, record: ShareRecord[Any, Any]) -> None:
        held = self.holders[record.partition, record.offset]
        held[:] = [each for each in held if each[0] is not record]

    def decide(self, record: ShareRecord[Any, Any]) -> AcknowledgeType:
        """Return what the handler of a record does with it this time."""
        place = record.partition, record.offset
        fate = self.fates[place]
        if fate == "poison" or (fate == "flaky" and record.delivery_count <= self.flaky[place]):
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT if fate == "reject" else AcknowledgeType.ACCEPT

    def draw_duration(self) -> float:
        draw = self.rng.random()
        if draw < (0.3 if self.broken else 0.03):
            return self.rng.uniform(1.0, 3.0) * LOCK_S
        return self.rng.uniform(0.0, 1.5) if draw < 0.5 else self.rng.uniform(0.0, 0.1)

    async def handle(self, member: Member, record: ShareRecord[Any, Any]) -> None:
        self.begin(member, record)
        try:
            if member.kind == "processing":
                await self.process(member, record)
            else:
                await self.settle(member, record)
        except LockLostError:
            pass
        finally:
            self.end(record)

    async def process(self, member: Member, record: ShareRecord[Any, Any]) -> None:
        place, kind = (record.partition, record.offset), self.decide(record)
        with contextlib.suppress(ZeroDivisionError):
            on_lost: Any = self.rng.choice(("raise", "return"))
            async with member.consumer.processing(record, on_lost=on_lost):
                await asyncio.sleep(self.draw_duration())
                self.asked[kind].add(place)
                if kind is AcknowledgeType.RELEASE:
                    raise ZeroDivisionError
                if kind is AcknowledgeType.REJECT:
                    member.consumer.reject(record)
        self.end(record)
        await self.confirm(member, record, kind)

    async def settle(self, member: Member, record: ShareRecord[Any, Any]) -> None:
        place, kind = (record.partition, record.offset), self.decide(record)
        await asyncio.sleep(self.draw_duration())
        consumer = member.consumer
        settle = {
            AcknowledgeType.ACCEPT: consumer.done,
            AcknowledgeType.RELEASE: consumer.release,
            AcknowledgeType.REJECT: consumer.reject,
        }[kind]
        self.asked[kind].add(place)
        held = settle(record)
        self.end(record)
        if held:
            await self.confirm(member, record, kind)

    async def confirm(
        self, member: Member, record: ShareRecord[Any, Any], kind: AcknowledgeType
    ) -> None:
        with contextlib.suppress(ApiTimeoutError):
            outcomes = await member.consumer.commit(record, 60.0, return_exceptions=True)
            place = record.partition, record.offset
            if outcomes[record] is None and kind is not AcknowledgeType.RELEASE:
                self.confirmed[kind].add(place)
                if self.tape.settled_by.get(place) != member.member_id:
                    self.violations.append(f"{place} was not settled by {member.name}, as it says")

    # -- members

    def join(self) -> None:
        name = f"m{next(self.made)}"
        rng = self.rng
        hook: dict[str, Any] = {}
        if rng.random() < 0.6:
            choice = rng.choice((REFUSE, RELEASE))
            hook = {"on_record_error": lambda error: choice}
        consumer: ShareConsumer[Any, Any] = ShareConsumer(
            "t",
            group_id=GROUP,
            client_id=name,
            value_deserializer=self.read_value,
            on_acknowledge_error=self.errors.append,
            max_poll_records=rng.choice((1, 5, 50, 500)),
            fetch_max_wait_ms=rng.choice((100, 500)),
            renew_locks=rng.random() < 0.7 and not self.broken,
            share_acquire_mode=rng.choice(("auto", "record_limit", "batch_optimized")),
            request_timeout_ms=4000,
            default_api_timeout_ms=8000,
            **{**self.world.options(), "connector": self.world.network.connector(name)},
            **hook,
        )
        member = Member(name, rng.choice(KINDS), consumer, rng.choice((1, 3, 10)))
        self.members[name] = member
        member.task = asyncio.create_task(self.run_member(member))

    async def run_member(self, member: Member) -> None:
        try:
            async with member.consumer:
                try:
                    await self.read(member)
                finally:
                    for task in member.handlers:
                        task.cancel()
                    if member.handlers:
                        await asyncio.wait(member.handlers)
        finally:
            self.forget(member)

    def forget(self, member: Member) -> None:
        for held in self.holders.values():
            held[:] = [each for each in held if each[1] is not member]

    async def read(self, member: Member) -> None:
        while True:
            try:
                if member.kind in ("processing", "manual"):
                    async for record in member.consumer.tracked(member.outstanding):
                        task = asyncio.create_task(self.handle(member, record))
                        member.handlers.add(task)
                        task.add_done_callback(lambda ended: self.end_handler(member, ended))
                elif member.kind == "loop":
                    async for record in member.consumer:
                        await self.handle_list(member, [record])
                else:
                    async for records in member.consumer.batches(member.outstanding):
                        await self.handle_list(member, records)
            except RecordError:
                continue
            if member.handlers:
                await asyncio.wait(member.handlers)
            return

    def end_handler(self, member: Member, task: asyncio.Task[None]) -> None:
        member.handlers.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.violations.append(f"a handler of {member.name} failed: {task.exception()!r}")

    async def handle_list(self, member: Member, records: list[ShareRecord[Any, Any]]) -> None:
        """Handle records that the next request accepts."""
        for record in records:
            self.begin(member, record)
        try:
            for record in records:
                place, kind = (record.partition, record.offset), self.decide(record)
                await asyncio.sleep(self.draw_duration() / len(records))
                self.asked[kind].add(place)
                if kind is AcknowledgeType.RELEASE:
                    member.consumer.release(record)
                    self.end(record)
                elif kind is AcknowledgeType.REJECT:
                    member.consumer.reject(record)
                    self.end(record)
        finally:  # The close of a member that is cancelled releases them.
            for record in records:
                self.end(record)

    def take(self) -> Member:
        return self.members.pop(self.rng.choice(list(self.members)))

    async def finish(self, member: Member) -> None:
        assert member.task is not None
        await asyncio.wait([member.task])
        if not member.task.cancelled() and (error := member.task.exception()) is not None:
            self.violations.append(f"{member.name} failed: {error!r}")

    # -- faults

    @property
    def addresses(self) -> list[str]:
        return [self.world.address(broker) for broker in self.world.cluster.brokers]

    def note_moves(self) -> None:
        for partition in range(PARTITIONS):
            epoch = self.world.cluster.leader_epoch("t", partition)
            if self.epochs.get(partition) != epoch:
                self.epochs[partition] = epoch
                self.moved_at[partition] = self.world.now

    async def disturb(self) -> None:
        """Do to the fleet, or to its brokers, what the seed says."""
        rng, world = self.rng, self.world
        (action,) = rng.choices(list(ACTIONS), list(ACTIONS.values()))
        if action == "join" or not self.members:
            for _ in range(rng.randint(1, 5)):
                if len(self.members) < self.most:
                    self.join()
        elif action == "leave":
            member = self.take()
            member.consumer.stop()
            await self.finish(member)
        elif action == "cancel":
            member = self.take()
            assert member.task is not None
            member.task.cancel()
            await self.finish(member)
        elif action == "kill":
            member = self.take()
            self.forget(member)
            world.network.kill(member.name)
            assert member.task is not None
            member.task.cancel()
            await asyncio.wait([member.task])
        elif action == "cancel handlers":
            for task in list(rng.choice(list(self.members.values())).handlers):
                task.cancel()
        elif action == "part":
            await self.part(rng.choice(list(self.members.values())))
        elif action == "cut":
            member = rng.choice(list(self.members.values()))
            member.unreachable_at = world.now
            world.network.cut(member.name)
        elif action == "stall":
            world.sim.loop.leap(rng.uniform(0.1, 3.0 * LOCK_S))
        elif action == "coordinator":
            world.cluster.move_coordinator(GROUP)
        elif action == "move":
            world.cluster.move_leader("t", rng.randrange(PARTITIONS))
            self.note_moves()
        else:
            await self.stop_broker()

    async def part(self, member: Member) -> None:
        self.world.network.part([member.name], self.addresses)
        member.is_cut_off = True
        await asyncio.sleep(self.rng.uniform(0.5, 2.0 * LOCK_S))
        self.world.network.heal()
        member.is_cut_off = False
        member.unreachable_at = self.world.now

    async def stop_broker(self) -> None:
        cluster = self.world.cluster
        broker = self.rng.choice(cluster.brokers)
        cluster.stop(broker)
        self.note_moves()
        until = self.world.now + self.rng.uniform(0.5, 8.0)
        while self.world.now < until:
            self.broker_away_at = self.world.now
            await asyncio.sleep(0.25)
        cluster.start(broker)
        self.note_moves()
        self.broker_away_at = self.world.now

    # -- the run

    async def watch(self) -> None:
        """Check that handlers know within a second that the leader of their record has moved."""
        while True:
            self.note_moves()
            for member in self.members.values():
                if member.is_cut_off:
                    member.unreachable_at = self.world.now
            for place, held in self.holders.items():
                moved_at = self.moved_at.get(place[0], -math.inf)
                for record, owner, since in held:
                    believes = since < moved_at and not record.lock_lost
                    if believes and not self.is_excused(place, owner, since):
                        self.violations.append(
                            f"{owner.name} does not know at {self.world.now:.3f} that the "
                            f"leader of {place} moved at {moved_at:.3f}"
                        )
            await asyncio.sleep(0.25)

    async def run(self, disturbances: int, pause_s: float) -> None:
        """Disturb the fleet, and check it when all records are finished."""
        self.note_moves()
        self.moved_at.clear()
        with self.tape.recording():
            watching = asyncio.create_task(self.watch())
            for _ in range(self.rng.randint(1, 4)):
                self.join()
            for _ in range(disturbances):
                await asyncio.sleep(self.rng.uniform(0.1, pause_s))
                await self.disturb()
                self.raise_failures(watching)
            self.world.network.heal()
            if not self.members:
                self.join()
            await self.wait_until_finished(watching)
            (dead, lags) = self.read_dead_letters(), await self.find_lags()
            while self.members:
                member = self.take()
                member.consumer.stop()
                await self.finish(member)
            watching.cancel()
            await asyncio.wait([watching])
        self.check(dead)
        assert set(lags) == {0}, lags
        for error in self.errors:
            assert isinstance(error, LockLostError | AcknowledgeError), error
        assert not self.violations, self.violations[:5]

    async def wait_until_finished(self, watching: asyncio.Task[None]) -> None:
        accepted = self.tape.applied[AcknowledgeType.ACCEPT]
        until = self.world.now + 2000.0
        while missing := self.fates.keys() - accepted - self.read_dead_letters().keys():
            assert self.world.now < until, f"not finished: {sorted(missing)[:5]}"
            await asyncio.sleep(0.5)
            self.raise_failures(watching)

    async def find_lags(self) -> list[int | None]:
        for _ in range(20):
            consumer = next(iter(self.members.values())).consumer
            with contextlib.suppress(KafkaError):
                lags = list((await consumer.lag(4.0)).values())
                if set(lags) == {0}:
                    break
            await asyncio.sleep(0.5)
        return lags

    def read_dead_letters(self) -> dict[Place, tuple[str, int]]:
        """Return why the records in the dead letters are there, and their delivery counts."""
        found = {}
        for record in self.world.cluster.records(DEAD):
            headers = {
                name.removeprefix("__dlq.errors."): (value or b"").decode()
                for name, value in record.headers
            }
            place = int(headers["partition"]), int(headers["offset"])
            assert place not in found, f"{place} is in the dead letters twice"
            found[place] = headers["message"], int(headers["delivery.count"])
        return found

    def raise_failures(self, watching: asyncio.Task[None]) -> None:
        assert not self.violations, self.violations[:5]
        for task in [watching, *(each.task for each in self.members.values())]:
            if task is not None and task.done():
                task.result()
                raise AssertionError("a member has ended by itself")

    def check(self, dead: dict[Place, tuple[str, int]]) -> None:
        """Check that each record has ended as its fate and its handlers say."""
        accepted = self.tape.applied[AcknowledgeType.ACCEPT]
        rejected = self.tape.applied[AcknowledgeType.REJECT]
        assert self.fates.keys() == accepted | dead.keys()
        assert not accepted & dead.keys()
        assert accepted <= self.asked[AcknowledgeType.ACCEPT]
        assert self.confirmed[AcknowledgeType.ACCEPT] <= accepted
        assert self.confirmed[AcknowledgeType.REJECT] <= dead.keys()
        for place, (message, count) in dead.items():
            fate = self.fates[place]
            if message == "Offset rejected by client.":
                assert place in rejected, place
                assert fate == "garbage" or place in self.asked[AcknowledgeType.REJECT], place
            else:
                counts = [count for _, count in self.tape.acquired[place]]
                assert count == LIMIT == max(counts), (place, count, counts)
        for place in accepted:
            assert self.fates[place] in ("accept", "flaky"), place

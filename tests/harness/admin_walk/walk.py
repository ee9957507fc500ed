"""The walk: calls and faults that a seed chooses, and comparisons with the state of the cluster."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiokclient import Producer, TopicPartition
from aiokclient.admin import Admin
from aiokclient.errors import KafkaError

from .call import AdminCall, CallMaker, Surroundings
from .group_calls import GroupCalls
from .model import BrokenModelError, Model, TopicState, describe_result
from .picture import INTERNAL, find_misplaced, read_held, read_picture
from .replica_calls import ReplicaCalls
from .security_calls import SecurityCalls
from .share_calls import ShareCalls
from .topic_calls import TopicCalls, replace_partition

PERIOD = 20
"""The number of calls between two comparisons."""
CALM = 8
"""The number of calls after a comparison before which nothing fails."""
WAIT_S = 60.0
"""Seconds within which the brokers must agree with the model, once all of them run again."""
PAUSE_S = 0.2


class Site(Protocol):
    """A cluster on which a walk takes place, and the faults that are possible there."""

    brokers: tuple[int, ...]
    log_dirs: dict[int, Sequence[str]]
    reuses_names: bool
    deletes_credentials: bool
    learns_tokens_late: bool
    forgets_deletions: bool
    """Whether a broker that is killed may have its deleted records again."""

    async def stop(self, broker: int) -> None: ...

    async def start(self, broker: int) -> None: ...

    def list_faults(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return the faults besides stopped brokers. They are over at the end of the call."""
        ...


@dataclass
class Clients:
    """The clients of a walk: one for its calls, and others for what it needs besides."""

    admin: Admin
    reader: Admin
    producer: Producer[Any, Any]
    tokens: Admin | None = None


@dataclass
class WalkReport:
    """The calls and the faults of a walk, and its lines to be printed."""

    calls: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{sum(self.calls.values())} calls of {len(self.calls)} kinds, "
            f"{sum(self.faults.values())} faults; {dict(self.results)}"
        )


class Walk:
    """One walk."""

    def __init__(
        self, rng: random.Random, site: Site, clients: Clients, say: Callable[[str], None]
    ) -> None:
        self.rng, self._site, self._clients, self._say = rng, site, clients, say
        self.model, self.report = Model(), WalkReport()
        self._around = Surroundings(
            site.brokers,
            log_dirs=site.log_dirs,
            reuses_names=site.reuses_names,
            deletes_credentials=site.deletes_credentials,
            learns_tokens_late=site.learns_tokens_late,
        )
        kinds: list[type[CallMaker]] = [
            TopicCalls,
            GroupCalls,
            ShareCalls,
            SecurityCalls,
            ReplicaCalls,
        ]
        makers = [kind(rng, self.model, self._around) for kind in kinds]
        pairs = [pair for maker in makers for pair in maker.list_makers()]
        self._makers = [maker for maker, _ in pairs]
        self._weights = [weight for _, weight in pairs]
        self._is_disturbed = False
        self._restart_in = 0

    async def run(self, calls: int) -> WalkReport:
        """Perform the calls, and compare the cluster with their results from time to time."""
        self.model.settle(await read_picture(self._clients.reader, self._clients.tokens))
        for number in range(calls):
            if number % PERIOD == 0 and number:
                await self._compare()
            is_calm = number % PERIOD < CALM
            await self._take_step(is_calm)
        await self._compare()
        return self.report

    # -- calls

    async def _take_step(self, is_calm: bool) -> None:
        await self._restart_brokers()
        fault = None
        if not is_calm and not self._around.stopped and self.rng.random() < 0.3:
            fault = self._choose_fault()
        if fault is not None and self.rng.random() < 0.3:
            await fault()
            fault = None
        call = self._choose_call()
        self._log(f"call   {call.text}")
        result, disturbed = await self._perform(call, fault)
        self.report.calls[call.text.split()[0]] += 1
        self._log(f"       {_describe(result)}{' (disturbed)' if disturbed else ''}")
        call.judge(self.model, result, disturbed)
        if self._around.stopped and self._site.forgets_deletions:
            self._lose_starts()
        self.report.results[type(result).__name__] += 1
        if call.verify is not None and not disturbed and not isinstance(result, KafkaError):
            await self._verify(call, result)

    def _choose_call(self) -> AdminCall:
        while True:
            (make,) = self.rng.choices(self._makers, self._weights)
            call = make()
            if call is None or not self.model.uncertain.isdisjoint(call.keys):
                continue
            if call.needs_login and self._clients.tokens is None:
                continue
            return call

    async def _perform(
        self, call: AdminCall, fault: Callable[[], Awaitable[None]] | None
    ) -> tuple[Any, bool]:
        admin = self._clients.tokens if call.needs_login else self._clients.admin
        assert admin is not None
        disturbed = self._is_disturbed or fault is not None
        task = asyncio.ensure_future(call.send(admin))
        if fault is not None:
            await asyncio.sleep(self.rng.choice([0.0, 0.001, 0.004, 0.02]))
            await fault()
        try:
            return await task, disturbed
        except KafkaError as error:
            return error, disturbed

    async def _verify(self, call: AdminCall, result: Any) -> None:
        """Wait until the cluster is as the result of a call says."""
        assert call.verify is not None
        problem: str | None = "Nothing was read."
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while problem is not None:
            if asyncio.get_running_loop().time() > deadline:
                raise BrokenModelError(f"{call.text}: {problem}")
            problem = await call.verify(self._clients.reader, result)
            if problem is not None:
                await asyncio.sleep(PAUSE_S)

    # -- faults

    def _choose_fault(self) -> Callable[[], Awaitable[None]]:
        others = self._site.list_faults()
        if others and self.rng.random() < 0.4:
            chosen = self.rng.choice(others)

            async def disturb() -> None:
                self._note_fault(chosen.__name__)
                await chosen()

            return disturb
        broker = self.rng.choice(self._site.brokers)

        async def kill() -> None:
            self._note_fault(f"kill broker {broker}")
            self._is_disturbed = True
            self._around.stopped.add(broker)
            self._restart_in = self.rng.randint(1, 6)
            await self._site.stop(broker)

        return kill

    def _lose_starts(self) -> None:
        """Take in that partitions with one replica may have their deleted records again."""
        for key in self.model.list_keys("topic", existing=True):
            state = self.model.get_state(key)
            for index, part in enumerate(state.partitions if state is not None else ()):
                if part.replica_count == 1 and part.start:
                    self.model.lose_start(key, index)

    def _note_fault(self, what: str) -> None:
        self.report.faults[what] += 1
        self._log(f"fault  {what}")

    async def _restart_brokers(self, at_once: bool = False) -> None:
        self._restart_in -= 1
        if self._around.stopped and (at_once or self._restart_in <= 0):
            for broker in sorted(self._around.stopped):
                self._log(f"start  broker {broker}")
                await self._site.start(broker)
            self._around.stopped.clear()

    # -- comparisons

    async def _compare(self) -> None:
        """Start all brokers, and wait until the cluster is as the results of the calls say."""
        await self._restart_brokers(at_once=True)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        while problems := await self._find_problems():
            if loop.time() > deadline:
                raise BrokenModelError("\n".join(["The cluster differs.", *problems]))
            await asyncio.sleep(PAUSE_S)
        self._is_disturbed = False
        self._log(f"equal  {len(self.model.list_keys('topic', existing=True))} topics")
        await self._write_records()

    async def _find_problems(self) -> list[str]:
        reader, tokens = self._clients.reader, self._clients.tokens
        try:
            if self._around.must_remove_throttle:
                (await reader.throttle_reassignments(None)).raise_for_errors()
                self._around.must_remove_throttle = False
            if lagging := await self._find_lagging():
                return lagging
            picture = await read_picture(reader, tokens)
            held = await read_held(reader)
        except KafkaError as error:
            return [f"The cluster cannot be read: {describe_result(error)}"]
        known = set(self.model.list_keys("token"))
        unknown = [key for key in picture if key[0] == "token" and key not in known]
        if len(unknown) <= self._around.lost_tokens:
            self._around.lost_tokens -= len(unknown)
            for key in unknown:
                self.model.change(key, True)
        problems = self.model.compare(picture) + find_misplaced(picture, held)
        if not problems:
            self.model.settle(picture)
        return problems

    async def _find_lagging(self) -> list[str]:
        """Return descriptions of the partitions that are not whole again."""
        reader = self._clients.reader
        moving = await reader.list_partition_reassignments()
        lagging = [f"{tp} is being moved: {each}" for tp, each in moving.items()]
        names = await reader.list_topics(internal=True)
        for topic in (await reader.describe_topics(names)).raise_for_errors().values():
            lagging += [
                f"{topic.name}-{each.index} lacks replicas: {each}"
                for each in topic.partitions
                if each.leader is None or set(each.isr) != set(each.replicas)
            ]
        return lagging

    async def _write_records(self) -> None:
        """Write records to some partitions, so that there is something to delete."""
        keys = [
            key
            for key in self.model.list_keys("topic", existing=True)
            if not key[1].startswith(INTERNAL)
        ]
        for key in self.rng.sample(keys, min(3, len(keys))):
            state: TopicState = self.model.get_state(key)
            index, count = self.rng.randrange(len(state.partitions)), self.rng.randint(1, 12)
            tp = TopicPartition(key[1], index)
            for number in range(count):
                await self._clients.producer.send_and_wait(
                    tp.topic, b"walk", key=b"%d" % number, partition=tp.partition
                )
            end = state.partitions[index].end + count
            self.model.change(key, replace_partition(state, index, end=end))
            self._log(f"write  {count} records to {tp}")

    def _log(self, line: str) -> None:
        self.report.lines.append(line)
        self._say(line)


def _describe(result: Any) -> str:
    if isinstance(result, KafkaError):
        return describe_result(result)
    return (
        ", ".join(
            f"{key}: {describe_result(each)}" for key, each in getattr(result, "errors", {}).items()
        )
        or "success"
    )

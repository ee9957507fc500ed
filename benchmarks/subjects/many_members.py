"""Many members of one group in one process: joining, and then only heartbeats."""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from measuring.spec import Counts, Spec
from measuring.subject import Meter, PythonSubject

from subjects import group_members
from subjects.group_members import COOPERATIVE, EAGER, KIP_848
from subjects.starting import resident_mib

LIMIT_S = 90.0
STEP_S = 0.1
QUIET_S = 2.0


class ManyMembers(PythonSubject):
    """A group of `spec.count` members. `spec.mode` is the group protocol."""

    protocols: ClassVar[tuple[str, ...]] = (COOPERATIVE, KIP_848)
    warming: ClassVar[float] = 0.0

    def run(self, spec: Spec) -> Counts:
        self.bring_in()
        meter = Meter()
        self._figures = meter.counts.figures
        self._before = resident_mib()
        with meter:
            self._began, self._cpu = time.perf_counter(), time.process_time()
            self.work(spec, meter)
        meter.counts.messages = spec.count
        return meter.counts

    @abstractmethod
    def bring_in(self) -> None:
        """Import the modules of a consumer."""

    def settled(self) -> None:
        figures = self._figures
        figures["settled_s"] = time.perf_counter() - self._began
        figures["settled_cpu_s"] = time.process_time() - self._cpu
        figures["more_mib"] = resident_mib() - self._before
        self._quiet, self._quiet_cpu = time.perf_counter(), time.process_time()

    def rested(self) -> None:
        cpu, wall = time.process_time() - self._quiet_cpu, time.perf_counter() - self._quiet
        self._figures["quiet_ms"] = cpu / wall * 1e3

    async def live(
        self,
        owned: Callable[[], list[list[int]]],
        spec: Spec,
        step: Callable[[], Awaitable[object]],
    ) -> None:
        """Run until each partition is assigned to one member, and then QUIET_S longer.

        `step` lets the members run.
        """
        until = time.perf_counter() + LIMIT_S
        while not is_shared(owned(), spec.partitions):
            if time.perf_counter() > until:
                raise TimeoutError(f"The group was not settled after {LIMIT_S:.0f} s.")
            await step()
        self.settled()
        until = time.perf_counter() + QUIET_S
        while time.perf_counter() < until:
            await step()
        self.rested()


def is_shared(owned: Sequence[Sequence[int]], partitions: int) -> bool:
    """Return whether each partition has one member, and all members have equally many."""
    shares = {len(one) for one in owned}
    return len(shares) == 1 and sorted(itertools.chain(*owned)) == list(range(partitions))


class OneClient(ManyMembers):
    name = "aiokclient, one Client"
    family = "aiokclient"
    requires = "aiokclient"
    protocols = (EAGER, COOPERATIVE, KIP_848)

    def bring_in(self) -> None:
        from aiokclient import Client, Consumer  # noqa: F401  (only its cost)

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self._work(spec))

    async def _work(self, spec: Spec) -> None:
        async with AsyncExitStack() as stack:
            connection = await self.connection(spec, stack)
            options = {**connection, **group_members.Own.options[spec.mode]}
            options |= {"group_id": spec.group, "auto_offset_reset": "earliest"}
            members = [self.member(spec, options) for _ in range(spec.count)]
            await asyncio.gather(*(stack.enter_async_context(member) for member in members))
            await self.live(
                lambda: [[tp.partition for tp in member.assignment()] for member in members],
                spec,
                lambda: asyncio.sleep(STEP_S),
            )

    def member(self, spec: Spec, options: dict[str, Any]) -> Any:
        from aiokclient import Consumer

        return Consumer(spec.topic, **options)

    async def connection(self, spec: Spec, stack: AsyncExitStack) -> dict[str, Any]:
        from aiokclient import Client

        client = Client(bootstrap_servers=spec.bootstrap)
        return {"client": await stack.enter_async_context(client)}


class OwnClients(OneClient):
    name = "aiokclient, a client each"
    protocols = (COOPERATIVE, KIP_848)

    async def connection(self, spec: Spec, stack: AsyncExitStack) -> dict[str, Any]:
        return {"bootstrap_servers": spec.bootstrap}


class Confluent(ManyMembers):
    name = "confluent-kafka"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def bring_in(self) -> None:
        import confluent_kafka  # noqa: F401  (only its cost)

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": spec.bootstrap, "group.id": spec.group, "log_level": 2}
        settings |= group_members.Confluent.settings[spec.mode]
        settings |= {"auto.offset.reset": "earliest"}
        members = [Consumer(settings) for _ in range(spec.count)]
        for member in members:
            member.subscribe([spec.topic])

        async def step() -> None:
            for member in members:
                member.poll(0)
            await asyncio.sleep(STEP_S)

        def owned() -> list[list[int]]:
            return [[tp.partition for tp in member.assignment()] for member in members]

        asyncio.run(self.live(owned, spec, step))
        # If the members left one by one, each of them would cause a rebalance.
        with ThreadPoolExecutor(spec.count) as threads:
            list(threads.map(lambda member: member.close(), members))


class Aiokafka(ManyMembers):
    name = "aiokafka"
    family = "aiokafka"
    requires = "aiokafka"
    protocols = (EAGER,)

    def bring_in(self) -> None:
        import aiokafka  # noqa: F401  (only its cost)

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self._work(spec))

    async def _work(self, spec: Spec) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        options = {"bootstrap_servers": spec.bootstrap, "group_id": spec.group}
        options |= {"partition_assignment_strategy": (RangePartitionAssignor,)}
        options |= {"auto_offset_reset": "earliest", "session_timeout_ms": 45_000}
        members = [AIOKafkaConsumer(spec.topic, **options) for _ in range(spec.count)]
        await asyncio.gather(*(member.start() for member in members))
        await self.live(
            lambda: [[tp.partition for tp in member.assignment()] for member in members],
            spec,
            lambda: asyncio.sleep(STEP_S),
        )
        await asyncio.gather(*(member.stop() for member in members))


MANY = (OneClient(), OwnClients(), Confluent(), Aiokafka())

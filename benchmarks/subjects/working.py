"""Handlers that are called for each record: those of workers, of FastStream, and by hand.

The handler takes the length of the value. All subjects process records at least once: an offset is
committed after the handlers of all records before it have returned.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject, Subject

from subjects import own


class Handling(PythonSubject):
    """A consumer group with one member, whose handlers run until `count` records are done."""

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        seen = size = 0

        async def handle(value: bytes) -> None:
            nonlocal seen, size
            size += len(value)
            seen += 1
            if seen == 1:
                meter.arrived(1)
            if seen == spec.count:
                meter.complete(seen, size)
                self.end()

        with meter:
            await self.run_handlers(spec, handle)

    def end(self) -> None:
        """Stop `run_handlers`, because the last record was handled. Set by it."""

    @abstractmethod
    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        """Call the handler for each record, with `spec.tasks` of them at a time."""


class Own(Handling):
    family = "aiokclient"
    requires = "aiokclient"

    def make_consumer(self, spec: Spec) -> Any:
        from aiokclient import Consumer

        return Consumer(
            spec.topic,
            group_id=spec.group,
            auto_offset_reset="earliest",
            **own.connection_options(spec),
        )


class ByHand(Own):
    """A task for each record of `tracked`, as users write it without a worker."""

    name = "aiokclient tasks by hand"

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        async with self.make_consumer(spec) as consumer, asyncio.TaskGroup() as group:
            self.end = consumer.stop

            async def work(record: Any) -> None:
                await handle(record.value)
                consumer.done(record)

            async for record in consumer.tracked(max_outstanding=spec.tasks):
                group.create_task(work(record))


class ByWorker(Own):
    name = "aiokclient worker, no order"
    order: ClassVar[str | None] = None

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        from aiokclient.worker import Worker

        async def work(record: Any) -> None:
            await handle(record.value)

        async with self.make_consumer(spec) as consumer:
            worker = Worker(consumer, work, concurrency=spec.tasks, order=self.order)
            self.end = worker.stop
            await worker.run()


class ByKey(ByWorker):
    name = "aiokclient worker, by key"
    order = "key"


class ByPartition(ByWorker):
    name = "aiokclient worker, by partition"
    order = "partition"


class FastStream(Handling):
    """FastStream with acknowledgements after the handler, in which it commits after each record.

    Its workers are consumers of the group, so there are at most as many as partitions. Types are
    not checked, because that would cost more than all other work.
    """

    name = "FastStream"
    family = "FastStream"
    requires = "faststream"
    share = 0.05

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        from faststream import AckPolicy
        from faststream.kafka import KafkaBroker

        ended = asyncio.Event()
        self.end = ended.set
        broker: Any = KafkaBroker(spec.bootstrap, apply_types=False, logger=None)

        subscribe = broker.subscriber(
            spec.topic,
            group_id=spec.group,
            auto_offset_reset="earliest",
            ack_policy=AckPolicy.NACK_ON_ERROR,
            max_workers=min(spec.tasks, spec.partitions),
        )
        subscribe(handle)
        await broker.start()
        await ended.wait()
        await broker.stop()


SUBJECTS: tuple[Subject, ...] = (ByHand(), ByWorker(), ByKey(), ByPartition(), FastStream())

"""Handlers that are called for each record or list: those of workers, of FastStream, and by hand.

The handler takes the length of the values. All subjects process records at least once: an offset is
committed after the handlers of all records before it have returned.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject, Subject

from subjects import own

LIST = 500
"""The records of a list, at most."""


class Handling(PythonSubject):
    """A consumer group with one member, whose handlers run until `count` records are done."""

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        seen = size = 0

        def count(number: int) -> None:
            nonlocal seen
            if not seen:
                meter.arrived(number)
                meter.end_start()
            seen += number
            if seen == spec.count:
                meter.complete(seen, size)
                self.end()

        async def handle(value: bytes) -> None:
            nonlocal size
            size += len(value)
            count(1)

        async def handle_list(records: Sequence[Any]) -> None:
            nonlocal size
            for record in records:
                size += len(record.value)
            count(len(records))

        self.handle_list = handle_list
        with meter:
            await self.run_handlers(spec, handle)

    def end(self) -> None:
        """Stop `run_handlers`, because the last record was handled. Set by it."""

    async def handle_list(self, records: Sequence[Any]) -> None:
        """Handle a list of records. Set by `consume`."""

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


class ByHandInKeys(Own):
    """A task for each key with records that are not done, which handles them in order.

    A handler is not isolated from those before it, as in a task for each record: they share the
    context, and one that is cancelled ends the others.
    """

    name = "aiokclient tasks by hand, by key"
    fields: ClassVar[Sequence[str]] = ("topic", "partition", "key")

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        name_lane = attrgetter(*self.fields)
        lanes: dict[Any, deque[Any]] = {}
        async with self.make_consumer(spec) as consumer, asyncio.TaskGroup() as group:
            self.end = consumer.stop

            async def work(name: Any, lane: deque[Any]) -> None:
                while lane:
                    record = lane.popleft()
                    await handle(record.value)
                    consumer.done(record)
                del lanes[name]

            async for record in consumer.tracked(max_outstanding=spec.tasks):
                name = name_lane(record)
                if (lane := lanes.get(name)) is not None:
                    lane.append(record)
                    continue
                lanes[name] = deque([record])
                group.create_task(work(name, lanes[name]))


class ByHandInPartitions(ByHandInKeys):
    """A task for each partition with records that are not done."""

    name = "aiokclient tasks by hand, by partition"
    fields = ("topic", "partition")


class ByWorker(Own):
    name = "aiokclient worker, no order"
    order: ClassVar[str | None] = None
    lists: ClassVar[bool] = False

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        from aiokclient.worker import Batch, Worker

        async def work(record: Any) -> None:
            await handle(record.value)

        batch = Batch(max_records=LIST) if self.lists else None
        async with self.make_consumer(spec) as consumer:
            worker = Worker(
                consumer,
                self.handle_list if self.lists else work,
                concurrency=spec.tasks,
                order=self.order,
                batch=batch,
            )
            self.end = worker.stop
            await worker.run()


class ByKey(ByWorker):
    name = "aiokclient worker, by key"
    order = "key"


class ByPartition(ByWorker):
    name = "aiokclient worker, by partition"
    order = "partition"


class Polls(Own):
    """A loop of `poll`, with a commit after each list, as in programs for other clients."""

    name = "aiokclient poll and commit"

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        async with self.make_consumer(spec) as consumer:
            self.end = consumer.stop
            while records := await consumer.poll(timeout=60, max_records=LIST):
                await self.handle_list(records)
                await consumer.commit()


class Lists(Own):
    """A loop over `batches`, whose lists are committed every few seconds, when they are done."""

    name = "aiokclient loop over batches"

    async def run_handlers(self, spec: Spec, handle: Callable[[bytes], Any]) -> None:
        async with self.make_consumer(spec) as consumer:
            self.end = consumer.stop
            async for records in consumer.batches(max_records=LIST):
                await self.handle_list(records)


class ListsByWorker(ByWorker):
    name = "aiokclient worker, lists, no order"
    lists = True


class ListsByKey(ByKey):
    name = "aiokclient worker, lists, by key"
    lists = True


class ListsByPartition(ByPartition):
    name = "aiokclient worker, lists, by partition"
    lists = True


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


SUBJECTS: tuple[Subject, ...] = (
    ByHand(),
    ByHandInKeys(),
    ByHandInPartitions(),
    ByWorker(),
    ByKey(),
    ByPartition(),
    FastStream(),
)
OF_LISTS: tuple[Subject, ...] = (
    Polls(),
    Lists(),
    ListsByWorker(),
    ListsByKey(),
    ListsByPartition(),
)

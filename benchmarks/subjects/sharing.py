"""The members of share groups: this library's, confluent-kafka's, and those of other languages.

All of them accept each record, and wait until the last acceptance is confirmed. The plain consumer
gets as many records in each response, so that both have the same to do for a record.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from measuring.spec import Spec
from measuring.subject import Meter, PythonSubject, Subject, read_one_by_one

from subjects import confluent, own
from subjects.one_by_one import tell

RECORDS = 2_000
"""The largest number of records in a response: Kafka's limit for the locks of a partition."""
OVERHEAD = 12
"""About how many bytes a record has besides its value."""
MEMBERS = 20
WAIT_S = 10.0


class Counted:
    """The records that were read, of which there are `spec.count`."""

    def __init__(self, spec: Spec, meter: Meter) -> None:
        self._count, self.meter = spec.count, meter
        self.seen = self._size = 0

    def add(self, values: Iterable[bytes]) -> bool:
        """Count these values; return whether they were the last ones."""
        is_first = not self.seen
        for value in values:
            self.seen += 1
            self._size += len(value)
        if is_first and self.seen:
            self.meter.arrived(self.seen)
        if self.seen < self._count:
            return False
        self.meter.complete(self.seen, self._size)
        return True


class Own(PythonSubject):
    family = "aiokclient"
    requires = "aiokclient"

    def work(self, spec: Spec, meter: Meter) -> None:
        asyncio.run(self.consume(spec, meter))

    async def consume(self, spec: Spec, meter: Meter) -> None:
        with meter:
            async with self.make_consumer(spec) as consumer:
                await self.read(consumer, spec, Counted(spec, meter))

    def make_consumer(self, spec: Spec, most: int = RECORDS) -> Any:
        from aiokclient import ShareConsumer

        options = own.connection_options(spec)
        return ShareConsumer(spec.topic, group_id=spec.group, max_poll_records=most, **options)

    @abstractmethod
    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        """Read and accept all records."""


class PlainConsumer(Own):
    """A Consumer, whose responses have as many records as those of the share consumers."""

    name = "aiokclient Consumer, poll"

    def make_consumer(self, spec: Spec, most: int = RECORDS) -> Any:
        from aiokclient import Consumer

        return Consumer(
            spec.topic,
            auto_offset_reset="earliest",
            max_poll_records=most,
            max_partition_fetch_bytes=most * (spec.size + OVERHEAD),
            **own.connection_options(spec),
        )

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        while True:
            records = await consumer.poll(WAIT_S, RECORDS)
            if counted.add(record.value for record in records):
                return


class PlainIterated(PlainConsumer):
    name = "aiokclient Consumer, async for"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        first = await consumer.get(WAIT_S)
        await read_one_by_one(consumer, first, spec.count, counted.meter)


class Polled(Own):
    """Records accepted in batches: the next request accepts those of the last one."""

    name = "aiokclient poll"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        while True:
            records = await consumer.poll(WAIT_S, RECORDS)
            if counted.add(record.value for record in records):
                break
        consumer.mark_processed()
        await consumer.commit()


class Iterated(Own):
    name = "aiokclient async for"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        first = await consumer.get(WAIT_S)
        await read_one_by_one(consumer, first, spec.count, counted.meter)
        consumer.mark_processed()
        await consumer.commit()


class OneByOne(Own):
    name = "aiokclient tracked, done"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        async for record in consumer.tracked(max_outstanding=RECORDS):
            is_last = counted.add((record.value,))
            consumer.done(record)
            if is_last:
                break
        await consumer.commit()


class Handlers(Own):
    """A task for each record of `tracked`, with `spec.tasks` of them at a time."""

    name = "aiokclient tracked, processing"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        async def work(record: Any) -> None:
            async with consumer.processing(record):
                await asyncio.sleep(0)
                if counted.add((record.value,)):
                    consumer.stop()

        async with asyncio.TaskGroup() as group:
            async for record in consumer.tracked(max_outstanding=spec.tasks):
                group.create_task(work(record))
        await consumer.commit()


class Worked(Own):
    """The handler of a worker, of which `spec.tasks` calls run at a time."""

    name = "aiokclient run"

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        async def handle(record: Any) -> None:
            await asyncio.sleep(0)
            if counted.add((record.value,)):
                consumer.stop()

        await consumer.run(handle, concurrency=spec.tasks)


class ManyMembers(Own):
    """Twenty consumers of one group in one process."""

    name = f"aiokclient, {MEMBERS} consumers"

    async def consume(self, spec: Spec, meter: Meter) -> None:
        counted = Counted(spec, meter)
        consumers = [self.make_consumer(spec, 100) for _ in range(MEMBERS)]

        async def work(consumer: Any) -> None:
            async with consumer:
                async for records in consumer.batches():
                    if counted.add(record.value for record in records):
                        for each in consumers:
                            each.stop()
                consumer.mark_processed()
                await consumer.commit()

        with meter:
            await asyncio.gather(*map(work, consumers))

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        raise NotImplementedError  # Each member reads by itself.


class Released(Own):
    """Each record is released once; its time is that until it comes again. Then it is done."""

    name = "aiokclient"

    def make_consumer(self, spec: Spec, most: int = 1) -> Any:
        return super().make_consumer(spec, most)

    async def consume(self, spec: Spec, meter: Meter) -> None:
        times: list[int] = []
        with meter:
            async with self.make_consumer(spec) as consumer:
                while len(times) < spec.count:
                    for record in await consumer.poll(WAIT_S, 1, tracked=True):
                        times.append(await self.find_next(consumer, record))
                await consumer.commit()
            meter.complete(len(times), 0)
        tell(meter, times)

    async def find_next(self, consumer: Any, record: Any) -> int:
        """Release a record; return the nanoseconds until it is delivered again."""
        began = time.perf_counter_ns()
        consumer.release(record)
        while True:
            for found in await consumer.poll(WAIT_S, 1, tracked=True):
                consumer.done(found)
                if found.offset == record.offset:
                    return time.perf_counter_ns() - began

    async def read(self, consumer: Any, spec: Spec, counted: Counted) -> None:
        raise NotImplementedError  # A record is read twice.


class Confluent(PythonSubject):
    """confluent-kafka's, of which each poll accepts the records of the last one."""

    name = "confluent-kafka ShareConsumer"
    family = "confluent-kafka"
    requires = "confluent_kafka"

    def settings(self, spec: Spec) -> dict[str, Any]:
        settings = {"group.id": spec.group, "max.poll.records": RECORDS}
        return {**confluent.connection_settings(spec), **settings}

    def work(self, spec: Spec, meter: Meter) -> None:
        from confluent_kafka import ShareConsumer

        with meter:
            consumer = ShareConsumer(self.settings(spec))
            consumer.subscribe([spec.topic])
            self.read(consumer, Counted(spec, meter))
            consumer.commit_sync(timeout=WAIT_S)
            consumer.close()

    def read(self, consumer: Any, counted: Counted) -> None:
        while not counted.add(message.value() for message in consumer.poll(timeout=WAIT_S)):
            pass


class ConfluentOneByOne(Confluent):
    name = "confluent-kafka ShareConsumer, acknowledge"

    def settings(self, spec: Spec) -> dict[str, Any]:
        return {**super().settings(spec), "share.acknowledgement.mode": "explicit"}

    def read(self, consumer: Any, counted: Counted) -> None:
        from confluent_kafka import AcknowledgeType

        is_last = False
        while not is_last:
            for message in consumer.poll(timeout=WAIT_S):
                is_last = counted.add((message.value(),))
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)


BATCHES: tuple[Subject, ...] = (
    PlainConsumer(),
    PlainIterated(),
    Polled(),
    Iterated(),
    Confluent(),
)
SINGLE: tuple[Subject, ...] = (OneByOne(), ConfluentOneByOne())
HANDLERS: tuple[Subject, ...] = (Handlers(), Worked())
MEMBERS_OF_ONE: tuple[Subject, ...] = (ManyMembers(),)
RELEASES: tuple[Subject, ...] = (Released(),)

"""Writers and readers that record everything in a ledger, for real and simulated brokers."""

import asyncio
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ledger import Ledger, Payload, pack

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import KafkaError


class Writer:
    """A task that sends payloads to partitions in turn, `pause` seconds apart."""

    def __init__(
        self,
        producer: Producer[Any, Any],
        ledger: Ledger,
        partitions: Sequence[tuple[str, int]],
        *,
        number: int = 0,
        pause: float = 0.0,
        size: int = 100,
    ) -> None:
        self.producer, self.ledger, self.partitions = producer, ledger, partitions
        self.number, self.pause, self.size = number, pause, size
        self.stopped = False

    async def run(self, count: int | None = None) -> None:
        """Send `count` payloads, or send until `stopped` is set.

        This does not wait for the outcomes of the last payloads.
        """
        turns = itertools.cycle(self.partitions)
        for sent in itertools.count():
            if self.stopped or sent == count:
                return
            self.send(*next(turns))
            if self.producer.full:
                await self.producer.drain()
            if self.pause or sent % 20 == 0:
                await asyncio.sleep(self.pause)

    def send(self, topic: str, partition: int) -> None:
        """Send the next payload, whose outcome is recorded in the ledger later."""
        payload = self.ledger.payload(self.number, topic, partition)
        try:
            delivery = self.producer.send(topic, pack(payload, self.size), partition=partition)
        except KafkaError as error:
            self.ledger.fail(payload, error)
        else:
            delivery.add_done_callback(functools.partial(self._done, payload))

    def _done(self, payload: Payload, delivery: Any) -> None:
        error = delivery.exception()
        if error is None:
            self.ledger.acknowledge(payload, delivery.offset)
        else:
            self.ledger.fail(payload, error)


def partitions_of(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the (topic, partition) pairs of topics, given their numbers of partitions."""
    return [(topic, index) for topic, count in topics.items() for index in range(count)]


async def read_to_the_end(
    ledger: Ledger, bootstrap: str, wanted: Sequence[tuple[str, int]], **options: Any
) -> None:
    """Read the partitions from the beginning to their current end into the ledger."""
    options.setdefault("auto_offset_reset", "earliest")
    async with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(*each) for each in wanted])
        async for record in consumer.until_end():
            ledger.consume(record)

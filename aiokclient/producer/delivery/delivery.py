"""The deliveries and the state that every send uses, native or in Python."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from aiokclient._native import twin
from aiokclient.errors import KafkaError
from aiokclient.producer._pure.delivery import (
    BatchState,
    Delivery,
    DeliveryBatch,
    DeliveryHooks,
    QueueState,
    TopicState,
    WakeQueue,
)

__all__ = [
    "BatchState",
    "Delivery",
    "DeliveryBatch",
    "DeliveryHooks",
    "QueueState",
    "TopicState",
    "WakeQueue",
    "failed_delivery",
    "settled",
]

if not TYPE_CHECKING:
    Delivery, DeliveryBatch, BatchState, QueueState, TopicState, WakeQueue = map(
        twin("producer"), (Delivery, DeliveryBatch, BatchState, QueueState, TopicState, WakeQueue)
    )


async def settled(batch: DeliveryBatch) -> None:
    """Wait until all records that are, or were, in the batch have their outcome."""
    while not batch.done:
        batch.skip_linger()
        await batch.wait_for_change()
    if batch.has_callbacks:
        await batch.wait_for_change()  # Callbacks that were added earlier must run first.
    for target in batch.targets:
        await settled(target)


class NoProducer:
    """The hooks of a batch that belongs to no producer."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.calling: dict[Any, None] = {}
        self.wakes = WakeQueue(self.loop)

    def skip_linger(self, batch: DeliveryBatch) -> None:
        """Do nothing: there is nothing to send."""

    def count_retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Do nothing: the failure is reported elsewhere."""


def failed_delivery(topic: str, partition: int | None, error: KafkaError) -> Delivery:
    """Return a delivery that raises this error. This must be called in an event loop."""
    batch = DeliveryBatch(topic, partition, NoProducer())
    batch.count = 1
    batch.fail(error)
    return Delivery(batch, 0, -1)

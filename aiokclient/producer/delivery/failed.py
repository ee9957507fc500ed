"""Deliveries that have failed without a record being sent."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiokclient.errors import KafkaError
from aiokclient.producer.delivery.delivery import Delivery, DeliveryBatch

__all__ = ["failed_delivery"]


class NoProducer:
    """The hooks of a batch that belongs to no producer."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.thread = threading.get_ident()
        self.calling: dict[Any, None] = {}

    def demand(self, batch: DeliveryBatch) -> None:
        """Do nothing: there is nothing to send."""

    def retrieved(self, batch: DeliveryBatch, count: int) -> None:
        """Do nothing: the failure is reported elsewhere."""


def failed_delivery(topic: str, partition: int | None, error: KafkaError) -> Delivery:
    """Return a delivery that raises this error. This must be called in an event loop."""
    batch = DeliveryBatch(topic, partition, NoProducer())
    batch.count = 1
    batch.fail(error)
    return Delivery(batch, 0, -1)

"""Deliveries, native or in Python, and a wait for all records of a batch."""

from __future__ import annotations

from aiokclient.producer._pure.delivery import DeliveryHooks
from aiokclient.producer.state import Delivery, DeliveryBatch

__all__ = ["Delivery", "DeliveryBatch", "DeliveryHooks", "settled"]


async def settled(batch: DeliveryBatch) -> None:
    """Wait until all records that are, or were, in the batch have their outcome."""
    while not batch.done:
        batch.demand()
        await batch.changed()
    if batch.calling:
        await batch.changed()  # Callbacks that were added earlier must run first.
    for target in batch.targets:
        await settled(target)

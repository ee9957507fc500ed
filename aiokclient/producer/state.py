"""The classes that every send uses: the delivery, its batch, and the state that a send reads.

They are the native classes if these are in use, and otherwise the Python ones of `_pure`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient._native import twin
from aiokclient.producer._pure.delivery import Delivery, DeliveryBatch
from aiokclient.producer._pure.state import BatchState, QueueState, TopicState

__all__ = ["BatchState", "Delivery", "DeliveryBatch", "QueueState", "TopicState"]

if not TYPE_CHECKING:
    Delivery, DeliveryBatch, BatchState, QueueState, TopicState = map(
        twin("producer"), (Delivery, DeliveryBatch, BatchState, QueueState, TopicState)
    )

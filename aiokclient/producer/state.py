"""The path of a record, native or in Python: picked here, once, at import.

`IMPLEMENTATION` tells which: "native" if that was built and the records are native as well, "pure"
otherwise. What is picked: the delivery and its batch, and the state that a send looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokclient.producer._delivery_py import Delivery, DeliveryBatch
from aiokclient.producer._state_py import BatchState, QueueState, TopicState
from aiokclient.record import batch

__all__ = [
    "IMPLEMENTATION",
    "BatchState",
    "Delivery",
    "DeliveryBatch",
    "QueueState",
    "TopicState",
]

IMPLEMENTATION = "pure"
if not TYPE_CHECKING and batch.IMPLEMENTATION == "native":
    try:
        from aiokclient.producer import _delivery_cy, _gather_cy, _send_cy, _state_cy
    except ImportError:
        pass
    else:
        IMPLEMENTATION = "native"
        Delivery, DeliveryBatch = _delivery_cy.Delivery, _state_cy.DeliveryBatch
        BatchState, QueueState = _state_cy.BatchState, _state_cy.QueueState
        TopicState = _state_cy.TopicState
        del _gather_cy, _send_cy

"""The deliveries of many records, and `gather`, which waits for them. Native or in Python.

`send_many` returns a `Deliveries`: a sequence that knows runs of records in batches and makes a
handle only when it is requested. `gather` yields to the event loop every few milliseconds.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient._native import twin
from aiokclient.clock import Clock
from aiokclient.producer._pure.deliveries import DeliveryRuns, Gathering, Run, gathered, runs_of
from aiokclient.producer.delivery.delivery import Delivery

__all__ = ["Deliveries", "Run", "gather", "runs_of"]

if not TYPE_CHECKING:
    DeliveryRuns, Gathering = map(twin("producer"), (DeliveryRuns, Gathering))


class Deliveries(DeliveryRuns, Sequence[Delivery]):
    """The deliveries of one `send_many` call, in order. Each delivery is created on access."""

    __slots__ = ()


def gather(
    deliveries: Iterable[Delivery], clock: Clock, *, return_exceptions: bool
) -> Coroutine[Any, Any, list[Any]]:
    """Wait for the deliveries and return their outcomes in order; see `Producer.gather`."""
    return gathered(Gathering(deliveries), clock, return_exceptions=return_exceptions)

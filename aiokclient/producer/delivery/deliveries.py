"""The deliveries of many records, and `gather`, which waits for them. Native or in Python.

`send_many` returns a `Deliveries`: a sequence that knows runs of records in batches and makes a
handle only when it is requested. `gather` yields to the event loop every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient import _native
from aiokclient.clock import Clock
from aiokclient.producer._pure import deliveries as pure
from aiokclient.producer._pure.deliveries import STRIDE, DeliveryRuns, Run, runs_of
from aiokclient.producer.delivery.delivery import Delivery
from aiokclient.producer.fairness import SLICE_S

__all__ = ["Deliveries", "Run", "gather", "runs_of"]

SLICE_STRIDES = 16
"""Number of strides after which `gather` yields even if little time has passed."""

Gathering: Any = None
if not TYPE_CHECKING and _native.in_use():
    from aiokclient._native.producer import DeliveryRuns, Gathering


class Deliveries(DeliveryRuns, Sequence[Delivery]):
    """The deliveries of one `send_many` call, in order. Each one is created on access."""

    __slots__ = ()


async def gather(
    deliveries: Iterable[Delivery], clock: Clock, *, return_exceptions: bool
) -> list[Any]:
    """Wait for the deliveries and return their outcomes in order; see `Producer.gather`."""
    if Gathering is None:
        return await pure.gather(deliveries, clock, return_exceptions=return_exceptions)
    work = Gathering(deliveries)
    for step in (work.demand, work.collect):
        strides, until = 0, clock.monotonic() + SLICE_S
        while (found := step(STRIDE)) is not None:
            strides += 1
            if found is not True:
                await found.changed()
            elif strides % SLICE_STRIDES == 0 or clock.monotonic() >= until:
                await asyncio.sleep(0)
                until = clock.monotonic() + SLICE_S
    if work.failure is not None and not return_exceptions:
        raise work.failure.with_traceback(None)
    results: list[Any] = work.results
    return results

"""The deliveries of many records, and `gather`, which waits for them. Native or in Python.

`send_many` returns a `Deliveries`: a sequence that knows runs of records in batches and makes a
handle only when it is requested. `gather` yields to the event loop every few milliseconds, and
returns an `Outcomes`, which makes a `RecordMetadata` only when it is requested.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from aiokclient._native import twin
from aiokclient.clock import Clock
from aiokclient.producer._pure.deliveries import (
    DeliveryRuns,
    Gathering,
    OutcomeRuns,
    Run,
    gathered,
    runs_of,
)
from aiokclient.producer.delivery.delivery import Delivery

__all__ = ["Deliveries", "Outcomes", "Run", "gather", "runs_of"]

if not TYPE_CHECKING:
    twins = map(twin("producer"), (DeliveryRuns, Gathering, OutcomeRuns))
    DeliveryRuns, Gathering, OutcomeRuns = twins


class Deliveries(DeliveryRuns, Sequence[Delivery]):
    """The deliveries of one `send_many` call, in order. Each delivery is created on access."""

    __slots__ = ()


class Outcomes(OutcomeRuns, Sequence[Any]):
    """The outcomes that `gather` returns, in order. Each metadata is created on access."""

    __slots__ = ()


def gather(
    deliveries: Iterable[Delivery], clock: Clock, *, return_exceptions: bool
) -> Coroutine[Any, Any, Outcomes]:
    """Wait for the deliveries and return their outcomes in order; see `Producer.gather`."""
    work = Gathering(deliveries, Outcomes())
    waiting = gathered(work, clock, return_exceptions=return_exceptions)
    return cast("Coroutine[Any, Any, Outcomes]", waiting)

"""The scope of a handler, `async with consumer.processing(record)`: it binds a lock to its body."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from aiokclient.share.delivery.record import ShareRecord
from aiokclient.share.locks import AcknowledgeType, Reason

if TYPE_CHECKING:
    from aiokclient.share.settlements import Settlements

OnLost: TypeAlias = Literal["raise", "return", "ignore"]


class Processing:
    """The body of one handler. A loss of the lock cancels it, once, unless losses are ignored.

    The cancellation is that of `asyncio.timeout`: it is taken back when the body ends, and one from
    outside at the same time is not swallowed.
    """

    __slots__ = (
        "_cancelling",
        "_is_cancelled",
        "_on_lost",
        "_reason",
        "_record",
        "_settlements",
        "_task",
    )

    def __init__(
        self, settlements: Settlements, record: ShareRecord[Any, Any], on_lost: OnLost
    ) -> None:
        self._settlements = settlements
        self._record = record
        self._on_lost = on_lost
        self._reason: Reason | None = None
        """The reason for the loss of the lock, None if it is not lost."""
        self._is_cancelled = False
        """Whether the body was cancelled because of a loss."""

    async def __aenter__(self) -> Self:
        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        record = self._record
        acquisition, offset = record._acquisition, record.offset
        if acquisition is None:
            self.on_lost("expired")
            return self
        acquisition.scopes[offset] = self
        if acquisition.is_lost(offset, self._settlements.get_time()):
            self.on_lost(acquisition.find_reason(offset))
        return self

    def on_lost(self, reason: Reason) -> None:
        """Cancel the body, because the lock was lost. Synchronous."""
        if self._reason is not None:
            return
        self._reason = reason
        if self._on_lost != "ignore":
            self._is_cancelled = True
            self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        record = self._record
        acquisition = record._acquisition
        if acquisition is not None:
            acquisition.scopes.pop(record.offset, None)
        if self._reason is not None:
            return self._end_lost(error, self._reason)
        settlements = self._settlements
        kind_of = AcknowledgeType.ACCEPT if error is None else AcknowledgeType.RELEASE
        # Most records are held at the end, which saves a call.
        if not settlements.settle_held(record, kind_of):
            settlements.end_handling(record, kind_of)
        return False

    def _end_lost(self, error: BaseException | None, reason: Reason) -> bool:
        """End a body whose lock was lost. Return whether its error ends here."""
        is_own = self._is_cancelled and self._task.uncancel() <= self._cancelling
        lost = self._settlements.take_lost_error(self._record, reason)
        by_loss = is_own and (error is None or isinstance(error, asyncio.CancelledError))
        if self._on_lost == "raise" and by_loss:
            raise lost from None
        self._settlements.report_lost(self._record, lost)
        return by_loss

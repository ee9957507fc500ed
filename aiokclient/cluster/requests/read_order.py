"""The order of requests for records and of transactions in one thread.

An abort takes back what a consumer has delivered in the transaction, if it was added before. So
`tx.add(consumer)` must know whether records were requested since the transaction began. Times do
not tell that: several calls have the same time on a coarse clock, and in virtual time. Therefore
transactions are numbered, and a consumer keeps the number of the last one at its last request.

An iteration takes records for some milliseconds without a request. When a transaction begins, each
iteration is interrupted, so that its next record is a request.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Interruptible(Protocol):
    """An object whose iterations can be interrupted."""

    def interrupt_iteration(self) -> None:
        """Make the present iteration request its next record."""


class ReadOrder:
    """The number of the last transaction in this thread, and the readers that observe it."""

    __slots__ = ("_readers", "transactions")

    def __init__(self) -> None:
        self.transactions = 0
        """The number of transactions that have begun."""
        self._readers: weakref.WeakSet[Interruptible] = weakref.WeakSet()

    def add_reader(self, reader: Interruptible) -> None:
        """Interrupt the iterations of this reader whenever a transaction begins."""
        self._readers.add(reader)

    def begin_transaction(self) -> int:
        """Return the number of a transaction that has just begun."""
        self.transactions += 1
        for reader in self._readers:
            reader.interrupt_iteration()
        return self.transactions


class _OfThread(threading.local):
    """The order of each thread."""

    def __init__(self) -> None:
        self.order = ReadOrder()


_of_thread = _OfThread()


def read_order() -> ReadOrder:
    """Return the order of the current thread."""
    return _of_thread.order

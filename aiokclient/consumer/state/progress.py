"""The steps of a record: delivered, in progress, processed, and committed.

A record takes these steps. The offsets below are attributes of `PartitionState`.

    buffered     It was fetched. The application has not received it.
    delivered    The application has received it, and the *position* has moved past it. Both happen
                 in one step without an await, when a list is returned or when an iteration takes
                 the record. So a cancellation before this step loses no record, and one after it
                 causes no duplicate.
    in progress  It was delivered, and the application has not requested the next record. The
                 application may still be writing to other systems, so a revocation, a rewind, and
                 `close()` wait for it.
    processed    The application has requested the next record, called `mark_processed()`, or, for a
                 record of `tracked`, called `done()`. When a loop ends by a break, an exception, or
                 a cancellation, its last records do not become processed.
    committed    The group has stored an offset after it.

The offsets that are committed:

- An automatic commit uses `processed`. It never includes records in progress, and never goes below
  the group's committed offset, except after a seek.
- `commit()` uses `consumed`, which includes all delivered records, even those in progress; with
  `tracked`, it ends before the lowest record that is not done.

A seek, a reset, and a truncation move position, processed, and consumed to the same offset.

An iteration takes records from a list iterator without calling `Reader`. The progress of the
iteration is read from that iterator when it is needed, so `settle` must be called before positions
are read or moved. `Reader` is the only implementation of `Progress`. `InProgress` knows which
records are in progress, and `ReadLock` knows which task reads. These objects are passed to the
constructors of the classes that need them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiokclient.consumer.state.partition import PartitionState
from aiokclient.types import TopicPartition

__all__ = ["Progress"]


class Progress(Protocol):
    """The interface of `Reader` for the subscription state, which does not depend on `Reader`."""

    def settle(self) -> None:
        """Move positions to the offsets after the records that the iteration has taken."""
        ...

    def revalidate(self) -> None:
        """Take back the records that the iteration has not taken yet and must not take any more."""
        ...

    def seek_buffered(self, state: PartitionState, offset: int, epoch: int) -> bool:
        """Move a position to an offset that is buffered; return False if it is not buffered.

        To be called after `settle`.
        """
        ...

    def logs_replaced(self, tps: Iterable[TopicPartition] | None) -> None:
        """Handle the replacement of the logs of these partitions, or of all for None.

        Known end offsets are those of the former logs, so they must be looked up again.
        """
        ...

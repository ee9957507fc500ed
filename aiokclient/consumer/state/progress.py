"""What is delivered, in progress, processed and committed.

Theory of operation. A record takes these steps; the offsets are those of `PartitionState`.

    buffered     It was fetched. Nothing of it has reached the application.
    delivered    The application has it: the *position* has moved past it. That happens in one go,
                 without an await, when a list is returned or when an iteration takes the record. So
                 a cancellation before it loses nothing, and one after it delivers nothing twice.
    in progress  It was delivered, and the application has not requested the next record. It may
                 still write to the outside: a revocation, a rewind and `close()` wait for it.
    processed    The application has requested the next record, called `mark_processed()`, or, for a
                 record of `tracked`, called `done()`. Leaving a loop by break, exception or
                 cancellation processes nothing.
    committed    The group has stored an offset after it.

What commits take:

- An automatic commit takes `processed`: never what is in progress, and never less than the group
  has, except after a seek.
- `commit()` takes `consumed`: everything that was delivered, what is in progress included; of
  `tracked` up to the lowest record that is not done.

A seek, a reset and a truncation move position, processed and consumed to the same offset.

An iteration takes records from a list iterator without telling anyone. How far it went is read off
that iterator when it matters: `settle` must be called before positions are read or moved. The
reader is the only `Progress`; `InProgress` keeps the account of what is in progress, and `ReadLock`
knows which task reads. Each of them is given to the constructors of what needs it.
"""

from __future__ import annotations

from typing import Protocol

from aiokclient.consumer.state.partition import PartitionState

__all__ = ["Progress"]


class Progress(Protocol):
    """How far the application is, for the subscription, which knows nothing else of the reader."""

    def settle(self) -> None:
        """Write down how far the iteration went through the records that it was given."""
        ...

    def revalidate(self) -> None:
        """Take back the records that the iteration was given if they must not be delivered."""
        ...

    def seek_buffered(self, state: PartitionState, offset: int, epoch: int) -> bool:
        """Move a position to an offset that is buffered; return False if the offset is not there.

        To be called after `settle`.
        """
        ...

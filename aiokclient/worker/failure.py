"""The last failure of a record that is not run again in place."""

from __future__ import annotations

from dataclasses import dataclass

from aiokclient.types import public_in


@public_in("aiokclient.worker")
@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a record, for its retry record or its dead letter."""

    error: BaseException
    """The exception of the last run."""
    attempts: int
    """The number of runs, over retry topics, too."""
    failed_at_ms: int
    """The time of the last failure, in ms since the epoch, by the clock of this process."""
    group_id: str | None
    """The group of the consumer, or None if it has no group."""

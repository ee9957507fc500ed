"""Errors of background work that are raised at the next requests for records."""

from __future__ import annotations

from collections.abc import Callable

from aiokclient.errors import KafkaError

__all__ = ["Reports"]


class Reports:
    """The errors of one consumer, each raised once. `arrived` wakes a waiting request."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self.errors: dict[tuple[object, ...], Exception] = {}
        """The errors that no request has raised yet."""

    def add(self, error: Exception) -> None:
        """Make the next request raise an error, which replaces an earlier one of the same kind."""
        subject = (error.topic_partition, error.broker) if isinstance(error, KafkaError) else ()
        self.errors[(type(error), *subject)] = error
        self._arrived()

    def take(self) -> Exception:
        """Remove the oldest error and return it."""
        return self.errors.pop(next(iter(self.errors)))

    def clear(self) -> None:
        """Remove all errors."""
        self.errors.clear()

"""Errors of background work that are raised at the next requests for records."""

from __future__ import annotations

from collections.abc import Callable

from aiokclient.errors import KafkaError

__all__ = ["Reports"]


class Reports:
    """The errors of one consumer, each raised once. `arrived` wakes a request that waits."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived
        self._errors: dict[tuple[object, ...], Exception] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: Exception) -> None:
        """Have an error raised at the next request, instead of an earlier one of its kind."""
        subject = (error.topic_partition, error.broker) if isinstance(error, KafkaError) else ()
        self._errors[(type(error), *subject)] = error
        self._arrived()

    def take(self) -> Exception:
        """Remove the oldest error and return it."""
        return self._errors.pop(next(iter(self._errors)))

    def clear(self) -> None:
        """Remove all errors."""
        self._errors.clear()

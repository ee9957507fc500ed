"""A rate limit for log lines that a broker can cause repeatedly.

The first line for a key is logged immediately. Lines for the same key within the interval are
counted instead, and the next line that is logged states their number:

    limited = LimitedLog(logger, clock)
    limited.write(logging.WARNING, ("diverging epoch", tp), "%s: the epochs diverge", tp)
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from typing import Any, Final

from aiokclient.clock import Clock
from aiokclient.log.client_log import ClientLog

EVERY_S: Final = 30.0
"""Seconds between two lines for the same key."""

KEYS: Final = 1000
"""Largest number of keys that are stored. Above it, the least recently logged key is dropped."""


class LimitedLog:
    """A logger that logs each key at most once per interval.

    A key is any hashable object. It should contain the kind of
    the line, and the topic, partition, or broker that the line is about. Not thread-safe: use it in
    the thread of the event loop.
    """

    def __init__(
        self,
        logger: logging.Logger | ClientLog,
        clock: Clock,
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._every_s = every_s
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def write(
        self,
        level: int,
        key: Hashable,
        text: str,
        *args: object,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Log `text % args`, unless a line for `key` was logged within the interval.

        Lines below the logger's level are not counted.
        """
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock.monotonic()
        last, held_back = self._seen.get(key, (None, 0))
        if last is not None and now - last < self._every_s:
            self._seen[key] = (last, held_back + 1)
            return
        self._seen.pop(key, None)  # The dict stays ordered by the time of the last line.
        self._seen[key] = (now, 0)
        if len(self._seen) > KEYS:
            del self._seen[next(iter(self._seen))]
        if held_back:
            text, args = f"{text} (and %d more such lines before)", (*args, held_back)
        self._logger.log(level, text, *args, extra=extra, stacklevel=2)

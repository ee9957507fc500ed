"""The decision whether a member shall be in its group."""

from __future__ import annotations

import asyncio

__all__ = ["Participation"]


class Participation:
    """The decision whether the member shall be in its group.

    `reason` says why it shall not be. After `close`, the member never joins again.
    """

    __slots__ = ("_changed", "closed", "reason", "wanted")

    def __init__(self) -> None:
        self.wanted = True
        self.reason = ""
        self.closed = False
        self._changed = asyncio.Event()

    def pause(self, reason: str) -> None:
        """Keep the member out of the group until `resume`."""
        self.wanted = False
        self.reason = reason

    def resume(self) -> None:
        """Let the member join again, unless it is closed."""
        if not self.closed:
            self.wanted = True
            self._changed.set()

    def close(self) -> None:
        """Ignore `resume` from now on."""
        self.closed = True

    async def until_wanted(self) -> None:
        """Wait until the member shall be in its group."""
        while not self.wanted:
            self._changed.clear()
            await self._changed.wait()

"""The decision of the application that a member is in its group, or is not."""

from __future__ import annotations

import asyncio

__all__ = ["Participation"]


class Participation:
    """The decision of the application that the member is in its group, or is not.

    `reason` says why the member is not in its group. After `close`, the member never joins again.
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
        """Wait until the application wants the member in its group."""
        while not self.wanted:
            self._changed.clear()
            await self._changed.wait()

"""The reporter of a client whose option `enable_metrics_push` is False."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from aiokclient.errors import IllegalStateError


class DisabledReporter:
    """A reporter that reports nothing, with the methods that a client calls."""

    status: Final = "disabled"

    def on_open(self) -> None:
        """Ignore the start of the client. Synchronous."""

    def on_connection(self) -> None:
        """Ignore a connection. Synchronous."""

    async def get_instance_id(self, timeout: float) -> UUID:
        """Raise IllegalStateError."""
        raise IllegalStateError(
            "This client has no instance id, because enable_metrics_push is False."
        )

    def begin_close(self) -> None:
        """Ignore that the client is being closed. Synchronous."""

    async def close(self, limit_s: float = 0.0) -> None:
        """Ignore the close of the client."""

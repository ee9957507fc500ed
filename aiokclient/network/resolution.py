"""The resolution of a host name, with a deadline. The errors contain the host name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiokclient.network.diagnosis as diagnosis
from aiokclient.config.kinds import LONGEST_HOST, written
from aiokclient.log.texts import bounded
from aiokclient.network.transport import TcpConnector

if TYPE_CHECKING:
    from aiokclient.network.transport import Address, Connector

__all__ = ["delayed_by", "resolve"]


async def resolve(connector: Connector, host: str, port: int, timeout_s: float) -> list[Address]:
    """Return the addresses of a host, at least one.

    Raises UnresolvedError if it has none, and ResolutionTimeoutError after `timeout_s` seconds.
    """
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await connector.resolve(host, port)
    except TimeoutError:
        raise diagnosis.ResolutionTimeoutError(
            f"Resolving {written((host, port))} took over {timeout_s:.1f} s"
            f"{delayed_by(connector, host)}."
        ) from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        text = f"The name {bounded(host, LONGEST_HOST)} cannot be resolved ({text})."
        raise diagnosis.UnresolvedError(text) from error
    if not addresses:
        raise diagnosis.UnresolvedError(f"The name {bounded(host, LONGEST_HOST)} has no address.")
    return addresses


def delayed_by(connector: Connector, host: str) -> str:
    """Return the end of a sentence about a resolution that takes long. It may be empty."""
    queued = isinstance(connector, TcpConnector) and connector.queued(host)
    return " because no thread was free for it" if queued else ""

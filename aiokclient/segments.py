"""Writing a frame of several segments to a transport, so that the transport's limit holds.

The selector transport of Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never calls `pause_writing`
from `writelines` (CVE-2024-12254): what it cannot send is buffered without a limit. There, once
something is buffered, the last segment goes through `write`, which checks the limit for all of it.
This needs no private function and is right for every other transport as well (TLS, uvloop, the
simulation's).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["JOINED", "write_segments"]

Segment: TypeAlias = bytes | bytearray | memoryview

JOINED = 16 * 1024
PIECE = 4 * 1024
"""Segments of this many bytes in total, or on average, are copied into one: that is cheaper than
writing them one by one."""


def _never_pauses(version: tuple[int, int, int]) -> bool:
    """Return whether `writelines` of this Python ignores the transport's limit."""
    return (3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2)


NEVER_PAUSES = _never_pauses(sys.version_info[:3])


def write_segments(
    transport: asyncio.WriteTransport, segments: Sequence[Segment], size: int
) -> None:
    """Write segments of `size` bytes in total, in their order; large ones are not copied.

    The segments must not be changed until the transport has sent them. If more is buffered than
    the transport's limit allows, the protocol's `pause_writing` is called by the next call at the
    latest.
    """
    if len(segments) == 1:
        transport.write(segments[0])
    elif size <= JOINED or size <= len(segments) * PIECE:
        transport.write(b"".join(segments))
    elif NEVER_PAUSES and transport.get_write_buffer_size():
        _write_with_limit(transport, segments)
    else:
        transport.writelines(segments)


def _write_with_limit(transport: asyncio.WriteTransport, segments: Sequence[Segment]) -> None:
    """Write the last segment by `write`, which returns early for an empty one."""
    filled = [segment for segment in segments if len(segment)]
    if len(filled) > 1:
        transport.writelines(filled[:-1])
    if filled:
        transport.write(filled[-1])

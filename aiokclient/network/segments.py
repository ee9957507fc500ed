"""Writing the segments of a frame to a transport, within the transport's buffer limit.

The selector transport of Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1 never calls `pause_writing`
from `writelines` (CVE-2024-12254), so that it buffers unsent data without a limit. In these
versions, if data is buffered, the last segment is written by `write`, which checks the limit for
all buffered data. This needs no private function, and also works with every other transport (TLS,
uvloop, the simulation's).
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
"""Segments with at most this many bytes in total, or on average, are copied into one, because that
is cheaper than writing them one by one."""


def _never_pauses(version: tuple[int, int, int]) -> bool:
    """Return whether `writelines` of this Python ignores the transport's limit."""
    return (3, 12, 0) <= version < (3, 12, 9) or (3, 13, 0) <= version < (3, 13, 2)


NEVER_PAUSES = _never_pauses(sys.version_info[:3])


def write_segments(
    transport: asyncio.WriteTransport, segments: Sequence[Segment], size: int
) -> None:
    """Write segments of `size` bytes in total, in order. Large segments are not copied.

    The segments must not be changed until the transport has sent them. If the transport's buffer
    exceeds its limit, the protocol's `pause_writing` is called in this call or in the next one.
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
    """Write the last nonempty segment by `write`, so that the transport checks its limit."""
    filled = [segment for segment in segments if len(segment)]
    if len(filled) > 1:
        transport.writelines(filled[:-1])
    if filled:
        transport.write(filled[-1])

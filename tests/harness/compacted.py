"""Batches as log compaction leaves them."""

import struct

from aiokclient.record.batch import RecordBatchBuilder
from aiokclient.record.crc import crc32c

__all__ = ["hollow"]


def hollow(count: int) -> bytes:
    """Return the empty batch that compaction leaves when it removes all `count` records."""
    builder = RecordBatchBuilder(limit=1 << 20)
    for _ in range(count):
        builder.append(1, b"k", b"v")
    builder.close()
    head = bytearray(builder.seal()[:61])
    struct.pack_into(">i", head, 8, 61 - 12)
    struct.pack_into(">i", head, 57, 0)
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:])))
    return bytes(head)

"""CRC-32C (Castagnoli), the checksum of v2 record batches.

The `crc32c` package computes it in hardware. Without that package the table below serves: it gives
the same values at a few megabytes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

__all__ = ["Buffer", "crc32c"]

Buffer: TypeAlias = "bytes | bytearray | memoryview"

_POLYNOMIAL = 0x82F63B78  # reversed


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


_TABLE = tuple(_entry(byte) for byte in range(256))


def _crc32c(data: Buffer, value: int = 0) -> int:
    """The checksum of `data`, continuing from `value`, the checksum of what came before it."""
    table = _TABLE
    crc = value ^ 0xFFFFFFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


crc32c: Callable[..., int]
try:
    from crc32c import crc32c
except ImportError:
    crc32c = _crc32c

"""CRC-32C (Castagnoli), the checksum of v2 record batches.

The `crc32c` package computes it in hardware. Without that package, the table below is used, which
handles a few megabytes a second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TypeAlias, cast

Buffer: TypeAlias = "bytes | bytearray | memoryview"

_POLYNOMIAL = 0x82F63B78  # The polynomial with its bits reversed.


def _entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
    return byte


@cache
def _table() -> tuple[int, ...]:
    return tuple(_entry(byte) for byte in range(256))


def _crc32c(data: Buffer, value: int = 0) -> int:
    """Return the checksum of `data` after data whose checksum is `value`."""
    table = _table()
    crc = value ^ 0xFFFFFFFF
    for byte in bytes(data):
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _from_package() -> Callable[..., int]:
    """Return the function `crc32c` of the package.

    Only its extension module is loaded. The package itself also imports a command line and
    `importlib.metadata`, which would take a quarter of the import time of this library.
    """
    package = PathFinder.find_spec("crc32c")
    locations = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", locations) if locations else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as whole

        return cast(Callable[..., int], whole)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Callable[..., int], module.crc32c)


crc32c: Callable[..., int]
try:
    crc32c = _from_package()
except ImportError:
    crc32c = _crc32c

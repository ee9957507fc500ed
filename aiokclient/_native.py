"""Whether native modules are wanted, and whether they are in use.

Some Python modules have native twins (Cython) that do the same faster. The Python ones serve
where those were not built, and everywhere with `AIOKCLIENT_PURE=1` in the environment. Each module
chooses once, at its import.
"""

from __future__ import annotations

import os
from importlib import import_module

__all__ = ["MODULES", "WANTED", "in_use"]

MODULES = (
    "_buffers_cy",
    "_plain_tuple_cy",
    "_types_cy",
    "_untrack_cy",
    "consumer._cursor_cy",
    "producer._delivery_cy",
    "producer._gather_cy",
    "producer._send_cy",
    "producer._state_cy",
    "producer._waiter_cy",
    "record._arrow_cy",
    "record._batch_cy",
    "record._builder_cy",
    "record._decode_cy",
    "record._murmur2_cy",
)

WANTED = os.environ.get("AIOKCLIENT_PURE", "0") in ("", "0")


def in_use() -> bool:
    """Return whether the native modules are in use, all of them."""
    if not WANTED:
        return False
    try:
        for name in MODULES:
            import_module(f"aiokclient.{name}")
    except ImportError:
        return False
    return True

"""The hash by which a key determines its partition or its coordinator."""

from __future__ import annotations


def string_hash(key: str) -> int:
    """Return Java's hash code of a string, made positive. It is the same in every process."""
    value = 0
    for unit in key:
        value = (31 * value + ord(unit)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF

"""A reader of the names of methods in the class files of Java."""

from __future__ import annotations

import struct

_TEXT, _LONG, _DOUBLE = 1, 5, 6
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4}
_SIZES |= {15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
"""The sizes of the constants of each kind, except those of texts."""


def method_names(data: bytes) -> set[str]:
    """Return the names of the methods that a class or an interface declares."""
    texts, position = _read_constants(data)
    position += 6
    (interfaces,) = struct.unpack_from(">H", data, position)
    _, position = _read_members(data, position + 2 + 2 * interfaces)
    methods, _ = _read_members(data, position)
    return {texts[each] for each in methods}


def _read_constants(data: bytes) -> tuple[dict[int, str], int]:
    """Return the texts by their indexes, and the position after the constants."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    index, position = 1, 10
    while index < count:
        kind = data[position]
        position += 1
        if kind == _TEXT:
            (size,) = struct.unpack_from(">H", data, position)
            texts[index] = data[position + 2 : position + 2 + size].decode(errors="replace")
            position += 2 + size
        else:
            position += _SIZES[kind]
        # A number of 64 bits counts as two constants.
        index += 2 if kind in (_LONG, _DOUBLE) else 1
    return texts, position


def _read_members(data: bytes, position: int) -> tuple[list[int], int]:
    """Return the indexes of the names of fields or methods, and the position after them."""
    (count,) = struct.unpack_from(">H", data, position)
    position += 2
    names: list[int] = []
    for _ in range(count):
        _, name, _, attributes = struct.unpack_from(">4H", data, position)
        names.append(name)
        position += 8
        for _ in range(attributes):
            (size,) = struct.unpack_from(">I", data, position + 2)
            position += 6 + size
    return names, position

"""Finds the value for which a message could not be encoded, to name it in the error."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

from aiokclient.protocol.fields import Field, Scalar

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview, list, tuple),
}


def misfit(message: Any, version: int) -> str | None:
    """The path of the first value that does not fit its field, and the value.

    None where every value fits, so that something else is wrong.
    """
    for field in message._fields:
        if not field.present_in(version):
            continue
        value = getattr(message, field.name, None)
        if value is None and field.nullable_in(version):
            continue
        found = _in_field(field, value, version)
        if found is not None:
            return f"{field.name}{found}"
    return None


def _in_field(field: Field, value: Any, version: int) -> str | None:
    if field.kind != "array":
        return _in_element(field.element, value, version)
    if not isinstance(value, Collection):
        return f" is {value!r}, not a list"
    for index, element in enumerate(value):
        found = _in_element(field.element, element, version)
        if found is not None:
            return f"[{index}]{found}"
    return None


def _in_element(element: Any, value: Any, version: int) -> str | None:
    if not isinstance(element, Scalar):
        if not isinstance(value, element):
            return f" is {value!r}, not of {element.__name__}"
        inner = misfit(value, version)
        return None if inner is None else f".{inner}"
    return None if _fits(element, value) else f" is {value!r}, which is no {element.kind}"


def _fits(kind: Scalar, value: Any) -> bool:
    try:
        if kind.kind == "uuid":
            return len(value.bytes) == kind.size
        if kind.code:
            struct.pack(">" + kind.code, value)
        elif kind.kind == "string":
            value.encode()
    except (struct.error, AttributeError, TypeError, ValueError):
        return False
    return isinstance(value, _TYPES.get(kind.kind, object))

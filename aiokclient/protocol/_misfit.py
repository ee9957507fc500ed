"""The search for the value that could not be encoded, for the error message."""

from __future__ import annotations

import struct
from collections.abc import Collection
from reprlib import Repr
from typing import Any

from aiokclient.protocol.fields import Field, Scalar

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview, list, tuple),
}


def misfit(message: Any, version: int) -> str | None:
    """Describe the first value that does not fit its field: its path and the value.

    For a secret value, only its type is shown. Returns None if every value fits: the error then has
    another cause.
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
        return _in_element(field, value, version)
    if not isinstance(value, Collection):
        return f" is {_shown(field, value)}, not a list"
    for index, element in enumerate(value):
        found = _in_element(field, element, version)
        if found is not None:
            return f"[{index}]{found}"
    return None


def _in_element(field: Field, value: Any, version: int) -> str | None:
    element = field.element
    if not isinstance(element, Scalar):
        if not isinstance(value, element):
            return f" is {_shown(field, value)}, not a {element.__name__}"
        inner = misfit(value, version)
        return None if inner is None else f".{inner}"
    if _fits(element, value):
        return None
    return f" is {_shown(field, value)}, which does not fit the type {element.kind}"


def _shown(field: Field, value: Any) -> str:
    """Format a value for an error message. Secrets are hidden and long values are shortened."""
    if not field.shows:
        return f"a hidden value of type {type(value).__name__}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    return _SHORT.repr(value)


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

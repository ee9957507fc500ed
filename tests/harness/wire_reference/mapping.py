"""The mapping of Kafka's field names to Python names, and of values to messages."""

import re
from functools import cache
from importlib import import_module
from typing import Any

from aiokclient.protocol import messages
from aiokclient.protocol.schema import Message, Struct


@cache
def snake(name: str) -> str:
    """Convert ``TimeoutMs`` or ``timeoutMs`` to ``timeout_ms``."""
    whole = name.replace("KRaft", "Kraft").replace("kRaft", "kraft")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", whole).lower()


@cache
def camel(name: str) -> str:
    """Return a name as Kafka's JSON converters write it."""
    return name[0].lower() + name[1:]


def message_class(name: str) -> type[Message]:
    """Return the class of a message by Kafka's name for it."""
    module = import_module(f"aiokclient.protocol.messages.{messages.module_of(name)}")
    cls: type[Message] = getattr(module, name)
    return cls


@cache
def _keys(cls: type[Struct]) -> dict[str, tuple[str, type[Struct] | None, bool]]:
    rows = {}
    for field in cls._fields:
        inner = field.element if isinstance(field.element, type) else None
        rows[field.name] = (field.name, inner, field.kind == "array")
    return rows


def to_object(cls: type[Struct], values: dict[str, Any]) -> Any:
    """Return a message with the values of a sample, whose names are those of Kafka's JSON."""
    made = cls()
    keys = _keys(cls)
    for name, value in values.items():
        if name == "_tags":
            made.unknown_tags = value
            continue
        attribute, inner, many = keys[snake(name)]
        if inner is not None and value is not None:
            value = [to_object(inner, one) for one in value] if many else to_object(inner, value)
        setattr(made, attribute, value)
    return made

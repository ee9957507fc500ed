"""The declaration of one option: its allowed values, its default, and its text.

The fields of `ClientConfig` and its subclasses are declared with `option`. Checks, properties
files, error messages, the reference (`reference.py`), and the types of keyword arguments all follow
from this one declaration.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar

from aiokclient.config.kinds import Kind

__all__ = ["ABSENT", "REQUIRED", "Option", "declared", "option"]

T = TypeVar("T")

ABSENT: Final = "absent"
"""The value of `Option.java` for an option that Kafka's Java clients do not have."""
REQUIRED: Final = "required"
"""The value of `Option.java` for an option that Kafka's Java clients require."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """The parts of a declaration in addition to name, type, and default."""

    kind: Kind
    text: str
    accepts: str | None = None
    """The type of the keyword argument if it is wider than that of the field."""
    shown: str | None = None
    """The text that the reference shows for the default, if the default's repr is not clear."""
    java: str | None = None
    """The default of Kafka's Java clients if it differs, or `REQUIRED` or `ABSENT`."""
    secret: bool = False
    per_child: bool = False
    """Whether clients that share connections may set the option differently."""
    keyword: bool = True
    """Whether the constructor takes the option in `**options`. If not, the option is a parameter of
    its own, such as `group_id` of a group member.
    """


def option(kind: Kind, default: T, text: str, **more: Any) -> T:
    """Return a dataclass field for an option; `more` are attributes of `Option`."""
    field = dataclasses.field(default=default, metadata={"option": Option(kind, text, **more)})
    return field


def declared(field: dataclasses.Field[Any]) -> Option:
    """Return the declaration of an option."""
    found: Option = field.metadata["option"]
    return found

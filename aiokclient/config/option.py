"""The declaration of an option, and the values of the options of one client.

The fields of `ClientConfig` and its subclasses are declared with `option`. Checks, properties
files, error messages, the reference (`reference.py`), and the types of keyword arguments all follow
from this one declaration.

The values of the options of one client are checked, immutable, and comparable. They are the fields
of a dataclass, but its methods are not generated: generated ones with a hundred parameters would
make each import several milliseconds slower.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, TypeVar

from aiokclient.config.kinds import Kind
from aiokclient.config.problems import Problems
from aiokclient.config.rules import settle
from aiokclient.config.secret import Secret
from aiokclient.errors import ConfigError
from aiokclient.types import shortened

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


class OptionValues:
    """The base of dataclasses whose fields are options.

    Raises ConfigError, which lists all values that are not allowed.
    """

    __slots__ = ()

    def __init__(self, **options: Any) -> None:
        problems = Problems()
        for field in _fields(self):
            with problems:
                value = options.pop(field.name, field.default)
                settle(self, field.name, checked(field, value, field.name))
        if options:
            raise TypeError(f"{type(self).__name__} has no field {next(iter(options))!r}.")
        problems.raise_any()
        self._check_together()

    def _check_together(self) -> None:
        """Check combinations of options."""

    def given_options(self, other: OptionValues | None = None) -> dict[str, Any]:
        """Return the options that differ from their defaults and from the values in `other`."""
        return {
            field.name: value
            for field in _fields(self)
            if (value := getattr(self, field.name)) != field.default
            and (other is None or value != getattr(other, field.name, None))
        }

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in _fields(self))

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in _fields(self)))

    def __repr__(self) -> str:
        secrets = {field.name for field in _fields(self) if declared(field).secret}
        shown = (
            f"{name}={'***' if name in secrets else repr(value)}"
            for name, value in self.given_options().items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _fields(values: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(values)


def checked(field: dataclasses.Field[Any], value: Any, name: str, *, reading: bool = False) -> Any:
    """Return the value of an option in its normal form. If `reading`, `value` may be a text.

    Raises ConfigError if the value is not allowed.
    """
    declaration = declared(field)
    try:
        if reading and isinstance(value, str):
            return declaration.kind.parse_text(value.strip())
        if reading and isinstance(value, Secret):
            value = value.stripped()
        return declaration.kind.check_value(value)
    except ValueError as error:
        shown = "this value" if declaration.secret else shortened(value)
        reason = str(error) or f"It must be {declaration.kind.allowed}."
        raise ConfigError(f"{name}: {shown} is not allowed. {reason}") from None

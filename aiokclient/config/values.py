"""The values of the options of one client: checked, immutable, and comparable.

The fields are those of a dataclass, but its methods are not generated: generated ones with a
hundred parameters would make each import several milliseconds slower.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from aiokclient.config.option import declared
from aiokclient.config.problems import Problems
from aiokclient.config.rules import settle
from aiokclient.config.secret import Secret
from aiokclient.errors import ConfigError
from aiokclient.types import shortened

__all__ = ["OptionValues", "checked"]


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

"""The declaration of an option, and the values of the options of one client.

The options of `ClientConfig` and its subclasses are declared with `option`. Checks, properties
files, error messages, the reference (`reference.py`), and the types of keyword arguments all follow
from this one declaration.

The values of the options of one client are checked, immutable, and comparable. The classes are no
dataclasses: with a hundred options, these would make each import several milliseconds slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from aiokclient.config.kinds import Kind
from aiokclient.config.problems import Problems
from aiokclient.config.rules import settle
from aiokclient.config.secret import Secret
from aiokclient.errors import ConfigError
from aiokclient.types import shortened

if TYPE_CHECKING:
    from typing import TypedDict as TypedDict
else:

    class TypedDict:
        """The base of the types of keyword arguments.

        It is `typing.TypedDict` for type checkers, which would compile each annotation at run time.
        """

        def __init_subclass__(cls, total: bool = True) -> None:
            super().__init_subclass__()
            merged = {}
            for each in (*cls.__bases__, cls):
                merged |= getattr(each, "__annotations__", {})
            cls.__annotations__ = merged
            cls.__total__ = total


T = TypeVar("T")

ABSENT: Final = "absent"
"""The value of `Option.java` for an option that Kafka's Java clients do not have."""
REQUIRED: Final = "required"
"""The value of `Option.java` for an option that Kafka's Java clients require."""


class Option:
    """The declaration of an option: an attribute of the class, which each object hides by a value.

    `type` is the annotation. `accepts` is the type of the keyword argument if it is wider.
    """

    __slots__ = (
        "accepts",
        "default",
        "java",
        "keyword",
        "kind",
        "name",
        "per_child",
        "secret",
        "shown",
        "text",
        "type",
    )

    def __init__(
        self,
        kind: Kind,
        default: Any,
        text: str,
        *,
        accepts: str | None = None,
        shown: str | None = None,
        java: str | None = None,
        secret: bool = False,
        per_child: bool = False,
        keyword: bool = True,
    ) -> None:
        self.name = self.type = ""
        self.kind = kind
        self.default = default
        self.text = text
        self.accepts = accepts
        self.shown = shown
        """The text that the reference shows for the default, if the default's repr is not clear."""
        self.java = java
        """The default of Kafka's Java clients if it differs, or `REQUIRED` or `ABSENT`."""
        self.secret = secret
        self.per_child = per_child
        """Whether clients that share connections may set the option differently."""
        self.keyword = keyword
        """Whether the constructor takes the option in `**options`. If not, the option is a
        parameter of its own, such as `group_id` of a group member."""


def option(kind: Kind, default: T, text: str, **more: Any) -> T:
    """Return the declaration of an option; `more` are attributes of `Option`."""
    return cast(T, Option(kind, default, text, **more))


class OptionValues:
    """The base of classes whose attributes are options.

    Raises ConfigError, which lists all values that are not allowed.
    """

    declarations: ClassVar[Mapping[str, Option]] = {}
    """The options by their names, those of the base class first."""

    def __init_subclass__(cls) -> None:
        own = {name: each for name, each in vars(cls).items() if isinstance(each, Option)}
        for name, each in own.items():
            each.name, each.type = name, cls.__annotations__[name]
        cls.declarations = {**cls.declarations, **own}

    def __init__(self, **options: Any) -> None:
        problems = Problems()
        for name, each in self.declarations.items():
            with problems:
                value = options.pop(name, each.default)
                settle(self, name, checked(each, value, name))
        if options:
            raise TypeError(f"{type(self).__name__} has no option {next(iter(options))!r}.")
        problems.raise_any()
        self._check_together()

    def _check_together(self) -> None:
        """Check combinations of options."""

    def replace(self, **changes: Any) -> Self:
        """Return the options with other values for some of them."""
        return type(self)(**{**vars(self), **changes})

    def given_options(self, other: OptionValues | None = None) -> dict[str, Any]:
        """Return the options that differ from their defaults and from the values in `other`."""
        return {
            name: value
            for name, each in self.declarations.items()
            if (value := getattr(self, name)) != each.default
            and (other is None or value != getattr(other, name, None))
        }

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed.")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.declarations)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.declarations))

    def __repr__(self) -> str:
        shown = (
            f"{name}={'***' if self.declarations[name].secret else repr(value)}"
            for name, value in self.given_options().items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def checked(declaration: Option, value: Any, name: str, *, reading: bool = False) -> Any:
    """Return the value of an option in its normal form. If `reading`, `value` may be a text.

    Raises ConfigError if the value is not allowed.
    """
    try:
        if reading and isinstance(value, str):
            return declaration.kind.parse_text(value.strip())
        if reading and isinstance(value, Secret):
            value = value.strip_space()
        return declaration.kind.check_value(value)
    except ValueError as error:
        shown = "this value" if declaration.secret else shortened(value)
        reason = str(error) or f"It must be {declaration.kind.allowed}."
        raise ConfigError(f"{name}: {shown} is not allowed. {reason}") from None

"""Frozen classes that cost an import a tenth of what those of `dataclasses` cost.

`frozen` is `dataclass(frozen=True, slots=True)` for type checkers. At run time, it makes the same
classes without generating and compiling their methods: what `dataclasses` would know of a class,
such as its fields, is made when somebody asks for it.

The module of such a class needs `from __future__ import annotations`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NoReturn, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)


class Fresh:
    """The default of a field that has a new object in each instance."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __repr__(self) -> str:
        return "<factory>"


def fresh(*, default_factory: Callable[[], Any]) -> Any:
    """Return the default of a field that has a new object in each instance."""
    return Fresh(default_factory)


def _set(self: Any, values: Sequence[Any]) -> None:
    for name, value in zip(self.__match_args__, values, strict=True):
        object.__setattr__(self, name, value.make() if type(value) is Fresh else value)


# The code of a constructor by the number of its fields. Only their names change.
_CONSTRUCTORS = (
    lambda self: _set(self, ()),
    lambda self, a: _set(self, (a,)),
    lambda self, a, b: _set(self, (a, b)),
    lambda self, a, b, c: _set(self, (a, b, c)),
    lambda self, a, b, c, d: _set(self, (a, b, c, d)),
    lambda self, a, b, c, d, e: _set(self, (a, b, c, d, e)),
    lambda self, a, b, c, d, e, f: _set(self, (a, b, c, d, e, f)),
    lambda self, a, b, c, d, e, f, g: _set(self, (a, b, c, d, e, f, g)),
    lambda self, a, b, c, d, e, f, g, h: _set(self, (a, b, c, d, e, f, g, h)),
    lambda self, a, b, c, d, e, f, g, h, i: _set(self, (a, b, c, d, e, f, g, h, i)),
    lambda self, a, b, c, d, e, f, g, h, i, j: _set(self, (a, b, c, d, e, f, g, h, i, j)),
    lambda self, a, b, c, d, e, f, g, h, i, j, k: _set(self, (a, b, c, d, e, f, g, h, i, j, k)),
)


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def __repr__(self: Any) -> str:
    shown = ", ".join(map("%s=%r".__mod__, zip(self.__match_args__, _values(self), strict=True)))
    return f"{type(self).__qualname__}({shown})"


def __eq__(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def __hash__(self: Any) -> int:
    return hash(_values(self))


def __setattr__(self: Any, name: str, value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def __getstate__(self: Any) -> list[Any]:
    return list(_values(self))


def __setstate__(self: Any, state: Sequence[Any]) -> None:
    _set(self, state)


def __replace__(self: Any, /, **changes: Any) -> Any:
    return type(self)(**{**dict(zip(self.__match_args__, _values(self), strict=True)), **changes})


_METHODS = {
    method.__name__: method
    for method in (
        __repr__,
        __eq__,
        __hash__,
        __setattr__,
        __delattr__,
        __getstate__,
        __setstate__,
        __replace__,
    )
}


class _Described:
    """An attribute of a class that `dataclasses` would have set, which is made on first use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: Any) -> Any:
        import dataclasses

        fields = []
        for name in owner.__match_args__:
            default: Any = owner._field_defaults.get(name, dataclasses.MISSING)
            factory: Any = dataclasses.MISSING
            if type(default) is Fresh:
                default, factory = dataclasses.MISSING, default.make
            made: Any = dataclasses.field(default=default, default_factory=factory)
            fields.append((name, owner.__annotations__[name], made))
        twin = dataclasses.make_dataclass(owner.__name__, fields, frozen=True, slots=True)
        value = getattr(twin, self._name)
        setattr(owner, self._name, value)
        return value


def _constructor_of(owner: type, fields: Sequence[str], defaults: Sequence[Any]) -> Any:
    code = _CONSTRUCTORS[len(fields)].__code__.replace(
        co_varnames=("self", *fields),
        co_name="__init__",
        co_qualname=f"{owner.__qualname__}.__init__",
        co_filename="<frozen class>",
    )
    made = FunctionType(code, globals(), "__init__", tuple(defaults))
    made.__annotations__ = {**owner.__annotations__, "return": None}
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(fresh,))
def frozen(owner: C) -> C:
    """Make a frozen class with slots, whose fields are the annotations of `owner`."""
    fields = tuple(owner.__annotations__)
    body = dict(vars(owner))
    defaults = {name: body.pop(name) for name in fields if name in body}
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    made: Any = type(owner)(
        owner.__name__,
        owner.__bases__,
        {
            **_METHODS,
            **{name: value for name, value in body.items() if name != "__hash__"},
            "__slots__": fields,
            "__match_args__": fields,
            "__init__": _constructor_of(owner, fields, tuple(defaults.values())),
            "_field_defaults": defaults,
            "__dataclass_fields__": _Described("__dataclass_fields__"),
            "__dataclass_params__": _Described("__dataclass_params__"),
        },
    )
    made.__qualname__ = owner.__qualname__
    made.__annotations__ = owner.__annotations__
    return made  # type: ignore[no-any-return]

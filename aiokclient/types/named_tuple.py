"""Named tuples that cost an import a tenth of what those of the standard library cost.

`NamedTuple` is `typing.NamedTuple` for type checkers. At run time, it creates the same classes
without generating and compiling their constructors, and without compiling the annotations, which
stay texts. A program imports about fifty of these classes before it can send its first message.

The module of such a class needs `from __future__ import annotations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter
    from types import FunctionType

    _new = tuple.__new__
    _CONSTRUCTORS = (
        lambda _cls: _new(_cls, ()),
        lambda _cls, a: _new(_cls, (a,)),
        lambda _cls, a, b: _new(_cls, (a, b)),
        lambda _cls, a, b, c: _new(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
        lambda _cls, a, b, c, d, e, f, g, h: _new(_cls, (a, b, c, d, e, f, g, h)),
        lambda _cls, a, b, c, d, e, f, g, h, i: _new(_cls, (a, b, c, d, e, f, g, h, i)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j: _new(_cls, (a, b, c, d, e, f, g, h, i, j)),
        lambda _cls, a, b, c, d, e, f, g, h, i, j, k: _new(_cls, (a, b, c, d, e, f, g, h, i, j, k)),
    )
    """The code of a constructor by the number of its fields. Only their names change."""

    def _make(cls: Any, iterable: Iterable[Any]) -> Any:
        """Make a new tuple from a sequence or an iterable."""
        made = _new(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, /, **changes: Any) -> Any:
        """Return a tuple with other values in some fields."""
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise TypeError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        """Return the values by the names of the fields."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self: Any) -> str:
        shown = ", ".join(map("%s=%r".__mod__, zip(self._fields, self, strict=True)))
        return f"{type(self).__name__}({shown})"

    def __getnewargs__(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    def _constructor_of(
        name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]
    ) -> Callable[..., Any]:
        code = _CONSTRUCTORS[len(fields)].__code__
        code = code.replace(
            co_varnames=("_cls", *fields),
            co_name="__new__",
            co_qualname=f"{name}.__new__",
            co_filename="<named tuple>",
        )
        return FunctionType(code, globals(), "__new__", defaults)

    class _NamedTuples(type):
        """The type of `NamedTuple` alone: the classes that are derived from it are plain tuples."""

        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = tuple(annotations := body.get("__annotations__", {}))
            defaults = {field: body[field] for field in fields if field in body}
            new = _constructor_of(body["__qualname__"], fields, tuple(defaults.values()))
            new.__annotations__ = annotations.copy()
            made = {
                "__doc__": f"{name}({', '.join(fields)})",
                "__slots__": (),
                "__match_args__": fields,
                "__new__": new,
                "__repr__": __repr__,
                "__getnewargs__": __getnewargs__,
                "__replace__": _replace,
                "__orig_bases__": bases,
                "_fields": fields,
                "_field_defaults": defaults,
                "_make": classmethod(_make),
                "_replace": _replace,
                "_asdict": _asdict,
                **body,
                **{
                    field: _tuplegetter(i, f"Alias for field number {i}")
                    for i, field in enumerate(fields)
                },
            }
            return type(name, (tuple,), made)

    class NamedTuple(metaclass=_NamedTuples):
        """The base of named tuples."""

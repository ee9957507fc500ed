"""The common parts of the generators of decoders and encoders."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from aiokclient.protocol import primitives
from aiokclient.protocol.fields import Scalar

LENGTHS: Final = {"string": "h", "bytes": "i", "records": "i", "array": "i"}
INTEGER_SIZES: Final = {"b": 1, "h": 2, "i": 4, "q": 8}


def is_struct(element: Any) -> bool:
    """Return whether `element`, the type of a field or of an array's elements, is a struct."""
    return not isinstance(element, Scalar)


class Source:
    """The generated source lines of a function, and the objects that they use.

    pending: consecutive fields of fixed size, to be read or written together
    """

    head = ""
    tail: tuple[str, ...] = ()

    def __init__(self, cls: Any, version: int) -> None:
        self.cls = cls
        self.version = version
        self.flexible = cls.is_flexible(version)
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[str, Any] = {}
        self.numbers = 0
        self.pending: list[tuple[str, str]] = []

    def write_line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def write_block(self, head: str) -> Iterator[None]:
        self.write_line(head)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def write_unless(self, condition: str, otherwise: str, null: bool) -> Iterator[None]:
        """Write the lines of the body, which `null` makes the alternative to another line."""
        if not null:
            yield
            return
        with self.write_block(f"if {condition}:"):
            self.write_line(otherwise)
        with self.write_block("else:"):
            yield

    def new_variable(self, letter: str) -> str:
        """Return a new variable name."""
        self.numbers += 1
        return f"{letter}{self.numbers}"

    def name_constant(self, prefix: str, value: Any) -> str:
        """Return the name of an object in the generated code: the same name at each call."""
        for name, known in self.names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def make_literal(self, value: Any) -> str:
        """Return the source of an expression for an immutable default value."""
        if value is None or isinstance(value, (bool, int, float, str, bytes)):
            return repr(value)
        return self.name_constant("default", value)

    def make_layout(self) -> tuple[str, struct.Struct]:
        """Return the name of the `Struct` for the pending fields."""
        layout = ">" + "".join(code for code, _ in self.pending)
        return "_" + layout[1:].replace("?", "t"), struct.Struct(layout)

    def compile_function(self, function: str, parameters: str) -> Any:
        """Compile the lines and return the function."""
        label = f"{self.cls.__name__} v{self.version}"
        before = [f"def {function}({parameters}):", *self.make_first_lines()]
        source = "\n".join([*before, "    try:", *self.lines, *self.make_handlers(label)])
        scope = {
            **vars(primitives),
            **self.names,
            "StructError": struct.error,
            "new": object.__new__,
            "pack": struct.pack,
        }
        exec(compile(source, f"<{function} {label}>", "exec"), scope)
        return scope[function]

    def make_first_lines(self) -> list[str]:
        return []

    def make_handlers(self, label: str) -> list[str]:
        raise NotImplementedError

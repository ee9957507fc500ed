"""The generator of the source code of encoders; ``codec`` defines what an encoder is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiokclient.protocol._source import INTEGER_SIZES, LENGTHS, Source, is_struct
from aiokclient.protocol.fields import Field, Scalar
from aiokclient.protocol.primitives import MAX_STRING, integer_writers

Encoder = Callable[[Any, bytearray, list[Any]], bytearray]

_PACKERS = {code: integer_writers(code) for code in INTEGER_SIZES}


class EncoderSource(Source):
    def compile(self) -> Encoder:
        self.struct(self.cls, "message", self.cls.__name__)
        self.line("return out")
        encoder: Encoder = self.assemble("encode", "message, out, segments")
        return encoder

    def make_handlers(self, label: str) -> list[str]:
        return [
            "    except (StructError, TypeError, AttributeError, ValueError) as error:",
            f"        cannot_encode({label!r}, message, {self.version}, error)",
        ]

    def flush(self) -> None:
        if not self.pending:
            return
        name, layout = self.layout()
        self.names[name] = layout.pack
        values = ", ".join(value for _, value in self.pending)
        self.line(f"out += {name}({values})")
        self.pending.clear()

    def struct(self, cls: Any, source: str, path: str) -> None:
        tagged = []
        for field in cls._fields:
            value = f"{source}.{field.name}"
            if not field.present_in(self.version):
                self.absent(field, value, path)
            elif field.tagged_in(self.version):
                tagged.append(field)
            else:
                self.field(field, value, path)
        self.flush()
        if self.flexible:
            self.tags(source, tagged, path)
        else:
            with self.block(f"if {source}._tags:"):
                self.line(f"tags_in_version({path!r}, {self.version})")

    def absent(self, field: Field, value: str, path: str) -> None:
        if field.ignorable:
            return
        with self.block(f"if {self.differs(field, value)}:"):
            self.line(f"not_in_version('{path}.{field.name}', {self.version})")

    def differs(self, field: Field, value: str) -> str:
        """Return the source of an expression that is true if a field differs from its default."""
        default = field.new_default()
        if default is None:
            return f"{value} is not None"
        if isinstance(default, list):
            return f"({value} is None or {value})"
        if field.kind == "struct":
            inner = [self.differs(part, f"{value}.{part.name}") for part in field.element._fields]
            return f"({' or '.join([f'{value} is None', f'{value}._tags', *inner])})"
        return f"{value} != {self.literal(default)}"

    def field(self, field: Field, value: str, path: str) -> None:
        path = f"{path}.{field.name}"
        null = field.nullable_in(self.version)
        if field.null is not None and not null:
            with self.block(f"if {value} is None:"):
                self.line(f"null_in_version({path!r}, {self.version})")
        if field.kind == "array":
            self.array(field.element, value, null, path)
        elif field.kind != "struct":
            flexible = field.flexible_in(self.version, self.flexible)
            self.scalar(field.element, value, null, flexible, path)
        elif null:
            self.nullable_struct(field, value, path)
        else:
            inner = self.fresh("o")
            self.line(f"{inner} = {value}")
            self.struct(field.element, inner, path)

    def nullable_struct(self, field: Field, value: str, path: str) -> None:
        self.flush()
        inner = self.fresh("o")
        self.line(f"{inner} = {value}")
        with self.block(f"if {inner} is None:"):
            self.line("out.append(255)")
        with self.block("else:"):
            self.line("out.append(1)")
            self.struct(field.element, inner, path)

    def scalar(self, kind: Scalar, value: str, null: bool, flexible: bool, path: str) -> None:
        if kind.code:
            self.pending.append((kind.code, f"{value}.bytes" if kind.kind == "uuid" else value))
            return
        data, length = self.fresh("b"), self.fresh("n")
        self.line(f"{data} = {value}")
        with self.unless(f"{data} is None", f"{length} = -1", null):
            self.measure(kind.kind, data, length, path)
        self.write_length(kind.kind, length, flexible)
        if kind.kind == "records":
            with self.block(f"if {length} > 0:"):
                self.line("segments.append(out)")
                self.line(f"add_segments(segments, {data})")
                self.line("out = bytearray()")
        elif null:
            with self.block(f"if {length} > 0:"):
                self.line(f"out += {data}")
        else:
            self.line(f"out += {data}")

    def measure(self, kind: str, data: str, length: str, path: str) -> None:
        if kind == "records":
            self.line(f"{length} = records_size({data})")
            return
        if kind == "string":
            self.line(f"{data} = {data}.encode()")
        self.line(f"{length} = len({data})")
        if kind == "string":
            with self.block(f"if {length} > {MAX_STRING}:"):
                self.line(f"too_long({path!r}, {length})")

    def write_length(self, kind: str, length: str, flexible: bool) -> None:
        if not flexible:
            self.pending.append((LENGTHS[kind], length))
            self.flush()
            return
        self.flush()
        with self.block(f"if {length} < 127:"):
            self.line(f"out.append({length} + 1)")
        with self.block("else:"):
            self.line(f"write_uvarint(out, {length} + 1)")

    def array(self, element: Any, value: str, null: bool, path: str) -> None:
        items, count = self.fresh("items"), self.fresh("n")
        self.line(f"{items} = {value}")
        with self.unless(f"{items} is None", f"{count} = -1", null):
            self.line(f"{count} = len({items})")
        self.write_length("array", count, self.flexible)
        if null:
            with self.block(f"if {count} > 0:"):
                self.elements(element, items, count, path)
        else:
            self.elements(element, items, count, path)

    def elements(self, element: Any, items: str, count: str, path: str) -> None:
        if isinstance(element, Scalar) and element.code in _PACKERS:
            packers = self.constant("write_" + element.code, _PACKERS[element.code])
            with self.block(f"if {count} < {len(_PACKERS[element.code])}:"):
                self.line(f"out += {packers}[{count}](*{items})")
            with self.block("else:"):
                self.line(f"out += pack(f'>{{{count}}}{element.code}', *{items})")
            return
        item = self.fresh("item")
        with self.block(f"for {item} in {items}:"):
            if is_struct(element):
                self.struct(element, item, path)
            else:
                self.scalar(element, item, False, self.flexible, path)
                self.flush()

    def tags(self, source: str, tagged: list[Field], path: str) -> None:
        if not tagged:
            with self.block(f"if {source}._tags:"):
                self.line(f"write_tags(out, None, {source}._tags, {path!r})")
            with self.block("else:"):
                self.line("out.append(0)")
            return
        known = self.fresh("known")
        self.line(f"{known} = None")
        for field in tagged:
            with self.block(f"if {self.differs(field, f'{source}.{field.name}')}:"):
                self.tagged(field, source, known, path)
        with self.block(f"if {known} or {source}._tags:"):
            self.line(f"write_tags(out, {known}, {source}._tags, {path!r})")
        with self.block("else:"):
            self.line("out.append(0)")

    def tagged(self, field: Field, source: str, known: str, path: str) -> None:
        """Write the code that encodes a tagged field.

        The field gets its own buffer, because its size must be written before it.
        """
        outer = self.fresh("out")
        self.line(f"{outer} = out")
        self.line("out = bytearray()")
        self.field(field, f"{source}.{field.name}", path)
        self.flush()
        with self.block(f"if {known} is None:"):
            self.line(f"{known} = {{}}")
        self.line(f"{known}[{field.tag}] = out")
        self.line(f"out = {outer}")

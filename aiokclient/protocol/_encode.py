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
        self.write_struct(self.cls, "message", self.cls.__name__)
        self.write_line("return out")
        encoder: Encoder = self.compile_function("encode", "message, out, segments")
        return encoder

    def make_handlers(self, label: str) -> list[str]:
        return [
            "    except (StructError, TypeError, AttributeError, ValueError) as error:",
            f"        cannot_encode({label!r}, message, {self.version}, error)",
        ]

    def write_pending(self) -> None:
        if not self.pending:
            return
        name, layout = self.make_layout()
        self.names[name] = layout.pack
        values = ", ".join(value for _, value in self.pending)
        self.write_line(f"out += {name}({values})")
        self.pending.clear()

    def write_struct(self, cls: Any, source: str, path: str) -> None:
        tagged = []
        for field in cls._fields:
            value = f"{source}.{field.name}"
            if not field.present_in(self.version):
                self.write_absent_check(field, value, path)
            elif field.tagged_in(self.version):
                tagged.append(field)
            else:
                self.write_field(field, value, path)
        self.write_pending()
        if self.flexible:
            self.write_tags(source, tagged, path)
        else:
            with self.write_block(f"if {source}._tags:"):
                self.write_line(f"tags_in_version({path!r}, {self.version})")

    def write_absent_check(self, field: Field, value: str, path: str) -> None:
        if field.ignorable:
            return
        with self.write_block(f"if {self.make_difference(field, value)}:"):
            self.write_line(f"not_in_version('{path}.{field.name}', {self.version})")

    def make_difference(self, field: Field, value: str) -> str:
        """Return the source of an expression that is true if a field differs from its default."""
        default = field.new_default()
        if default is None:
            return f"{value} is not None"
        if isinstance(default, list):
            return f"({value} is None or {value})"
        if field.kind == "struct":
            inner = [
                self.make_difference(part, f"{value}.{part.name}") for part in field.element._fields
            ]
            return f"({' or '.join([f'{value} is None', f'{value}._tags', *inner])})"
        return f"{value} != {self.make_literal(default)}"

    def write_field(self, field: Field, value: str, path: str) -> None:
        path = f"{path}.{field.name}"
        null = field.nullable_in(self.version)
        if field.null is not None and not null:
            with self.write_block(f"if {value} is None:"):
                self.write_line(f"null_in_version({path!r}, {self.version})")
        if field.kind == "array":
            self.write_array(field.element, value, null, path)
        elif field.kind != "struct":
            flexible = field.flexible_in(self.version, self.flexible)
            self.write_scalar(field.element, value, null, flexible, path)
        elif null:
            self.write_nullable_struct(field, value, path)
        else:
            inner = self.new_variable("o")
            self.write_line(f"{inner} = {value}")
            self.write_struct(field.element, inner, path)

    def write_nullable_struct(self, field: Field, value: str, path: str) -> None:
        self.write_pending()
        inner = self.new_variable("o")
        self.write_line(f"{inner} = {value}")
        with self.write_block(f"if {inner} is None:"):
            self.write_line("out.append(255)")
        with self.write_block("else:"):
            self.write_line("out.append(1)")
            self.write_struct(field.element, inner, path)

    def write_scalar(self, kind: Scalar, value: str, null: bool, flexible: bool, path: str) -> None:
        if kind.code:
            self.pending.append((kind.code, f"{value}.bytes" if kind.kind == "uuid" else value))
            return
        data, length = self.new_variable("b"), self.new_variable("n")
        self.write_line(f"{data} = {value}")
        with self.write_unless(f"{data} is None", f"{length} = -1", null):
            self.write_measurement(kind.kind, data, length, path)
        self.write_length(kind.kind, length, flexible)
        if kind.kind == "records":
            with self.write_block(f"if {length} > 0:"):
                self.write_line("segments.append(out)")
                self.write_line(f"add_segments(segments, {data})")
                self.write_line("out = bytearray()")
        elif null:
            with self.write_block(f"if {length} > 0:"):
                self.write_line(f"out += {data}")
        else:
            self.write_line(f"out += {data}")

    def write_measurement(self, kind: str, data: str, length: str, path: str) -> None:
        if kind == "records":
            self.write_line(f"{length} = records_size({data})")
            return
        if kind == "string":
            self.write_line(f"{data} = {data}.encode()")
        self.write_line(f"{length} = len({data})")
        if kind == "string":
            with self.write_block(f"if {length} > {MAX_STRING}:"):
                self.write_line(f"too_long({path!r}, {length})")

    def write_length(self, kind: str, length: str, flexible: bool) -> None:
        if not flexible:
            self.pending.append((LENGTHS[kind], length))
            self.write_pending()
            return
        self.write_pending()
        with self.write_block(f"if {length} < 127:"):
            self.write_line(f"out.append({length} + 1)")
        with self.write_block("else:"):
            self.write_line(f"write_uvarint(out, {length} + 1)")

    def write_array(self, element: Any, value: str, null: bool, path: str) -> None:
        items, count = self.new_variable("items"), self.new_variable("n")
        self.write_line(f"{items} = {value}")
        with self.write_unless(f"{items} is None", f"{count} = -1", null):
            self.write_line(f"{count} = len({items})")
        self.write_length("array", count, self.flexible)
        if null:
            with self.write_block(f"if {count} > 0:"):
                self.write_elements(element, items, count, path)
        else:
            self.write_elements(element, items, count, path)

    def write_elements(self, element: Any, items: str, count: str, path: str) -> None:
        if isinstance(element, Scalar) and element.code in _PACKERS:
            packers = self.name_constant("write_" + element.code, _PACKERS[element.code])
            with self.write_block(f"if {count} < {len(_PACKERS[element.code])}:"):
                self.write_line(f"out += {packers}[{count}](*{items})")
            with self.write_block("else:"):
                self.write_line(f"out += pack(f'>{{{count}}}{element.code}', *{items})")
            return
        item = self.new_variable("item")
        with self.write_block(f"for {item} in {items}:"):
            if is_struct(element):
                self.write_struct(element, item, path)
            else:
                self.write_scalar(element, item, False, self.flexible, path)
                self.write_pending()

    def write_tags(self, source: str, tagged: list[Field], path: str) -> None:
        if not tagged:
            with self.write_block(f"if {source}._tags:"):
                self.write_line(f"write_tags(out, None, {source}._tags, {path!r})")
            with self.write_block("else:"):
                self.write_line("out.append(0)")
            return
        known = self.new_variable("known")
        self.write_line(f"{known} = None")
        for field in tagged:
            with self.write_block(f"if {self.make_difference(field, f'{source}.{field.name}')}:"):
                self.write_tagged_field(field, source, known, path)
        with self.write_block(f"if {known} or {source}._tags:"):
            self.write_line(f"write_tags(out, {known}, {source}._tags, {path!r})")
        with self.write_block("else:"):
            self.write_line("out.append(0)")

    def write_tagged_field(self, field: Field, source: str, known: str, path: str) -> None:
        """Write the code that encodes a tagged field.

        The field gets its own buffer, because its size must be written before it.
        """
        outer = self.new_variable("out")
        self.write_line(f"{outer} = out")
        self.write_line("out = bytearray()")
        self.write_field(field, f"{source}.{field.name}", path)
        self.write_pending()
        with self.write_block(f"if {known} is None:"):
            self.write_line(f"{known} = {{}}")
        self.write_line(f"{known}[{field.tag}] = out")
        self.write_line(f"out = {outer}")

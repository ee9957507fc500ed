"""The generator of the source code of decoders; ``codec`` defines what a decoder is."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from aiokclient.memory import MANY, untrack, untrack_whole
from aiokclient.protocol._source import INTEGER_SIZES, LENGTHS, Source, is_struct
from aiokclient.protocol.fields import Field, Scalar
from aiokclient.protocol.primitives import MAX_STRING, integer_readers

Decoder = Callable[[Any, int], tuple[Any, int]]
Sieve = Callable[[Any, int, Callable[[Any], bool]], tuple[Any, int]]

_INTEGERS = {code: integer_readers(code) for code in INTEGER_SIZES}


def holds_records(cls: Any) -> bool:
    """Return whether a struct, or a struct inside of it, has a field of records."""
    return any(
        field.kind == "records" or (is_struct(field.element) and holds_records(field.element))
        for field in cls._fields
    )


def smallest_size(element: Any, version: int, flexible: bool) -> int:
    """Return the smallest possible size of an array element in bytes."""
    if isinstance(element, Scalar):
        if element.code:
            return element.size
        return 1 if flexible else struct.calcsize(LENGTHS[element.kind])
    size = 1 if flexible else 0
    for field in element._fields:
        if not field.present_in(version) or field.tagged_in(version):
            continue
        if field.kind == "array":
            size += 1 if flexible else 4
        elif field.kind == "struct" and field.nullable_in(version):
            size += 1
        else:
            size += smallest_size(field.element, version, field.flexible_in(version, flexible))
    if size == 0:
        raise TypeError(
            f"The elements of an array of {element.__name__} have no bytes in version {version}."
        )
    return size


class DecoderSource(Source):
    sifted: Field | None = None
    """The array whose structs are dropped unless the decoder's argument `keep` accepts them.

    It is None for a decoder without that argument, which keeps all.
    """

    def __init__(self, cls: Any, version: int) -> None:
        super().__init__(cls, version)
        self.names |= {"MANY": MANY, "untrack": untrack, "untrack_whole": untrack_whole}

    def compile(self, sifted: Field | None = None) -> Any:
        """Return the decoder, or with a field of an array, the sieve of its elements."""
        self.sifted = sifted
        self.view = self.cls._reads_views
        message = self.write_struct(self.cls, self.cls.__name__)
        self.write_line(f"return {message}, pos")
        return self.compile_function("decode", "buf, pos" if sifted is None else "buf, pos, keep")

    def make_first_lines(self) -> list[str]:
        return ["    end = len(buf)"]

    def make_handlers(self, label: str) -> list[str]:
        return [
            "    except (StructError, IndexError):",
            f"        too_short({label!r}, buf)",
            "    except UnicodeDecodeError as error:",
            f"        bad_text({label!r}, error)",
        ]

    def write_pending(self) -> None:
        if not self.pending:
            return
        name, layout = self.make_layout()
        targets = ", ".join(target for _, target in self.pending)
        if name == "_B":
            self.write_line(f"{targets} = buf[pos]")
        else:
            self.names[name] = layout.unpack_from
            comma = "," if len(self.pending) == 1 else ""
            self.write_line(f"{targets}{comma} = {name}(buf, pos)")
        self.write_line(f"pos += {layout.size}")
        for code, target in self.pending:
            if code == "16s":
                self.write_line(f"{target} = uuid_from({target})")
        self.pending.clear()

    def write_struct(self, cls: Any, path: str) -> str:
        """Write the code that reads a struct into a new variable. Return the variable's name."""
        target = self.new_variable("o")
        self.write_line(f"{target} = new({self.name_constant(cls.__name__, cls)})")
        self.write_fields(cls, target, path)
        return target

    def write_fields(self, cls: Any, target: str, path: str) -> None:
        tagged = []
        for field in cls._fields:
            attribute = f"{target}.{field.name}"
            if not field.present_in(self.version):
                self.write_default(field, attribute)
            elif field.tagged_in(self.version):
                self.write_default(field, attribute)
                tagged.append(field)
            else:
                self.write_field(field, attribute, path)
        if self.flexible:
            self.write_tags(target, tagged, path)
        else:
            self.write_line(f"{target}._tags = None")
        self.write_pending()

    def write_default(self, field: Field, target: str) -> None:
        value = field.new_default()
        if isinstance(value, list):
            self.write_line(f"{target} = []")
        elif is_struct(field.element) and value is not None:
            self.write_line(
                f"{target} = {self.name_constant(field.element.__name__, field.element)}()"
            )
        else:
            self.write_line(f"{target} = {self.make_literal(value)}")

    def write_field(self, field: Field, target: str, path: str) -> None:
        path = f"{path}.{field.name}"
        null = field.nullable_in(self.version)
        if field.kind == "array":
            self.write_array(field, target, null, path)
        elif field.kind != "struct":
            flexible = field.flexible_in(self.version, self.flexible)
            self.write_scalar(field.element, target, null, flexible, path)
        elif null:
            self.write_nullable_struct(field, target, path)
        else:
            self.write_line(f"{target} = {self.write_struct(field.element, path)}")

    def write_nullable_struct(self, field: Field, target: str, path: str) -> None:
        mark = self.new_variable("n")
        self.pending.append(("b", mark))
        self.write_pending()
        with self.write_block(f"if {mark} < 0:"):
            self.write_line(f"{target} = None")
        with self.write_block("else:"):
            self.write_line(f"{target} = {self.write_struct(field.element, path)}")

    def write_length(self, kind: str, flexible: bool) -> str:
        """Write the code that reads a length or a count into a new variable. Null becomes -1."""
        length = self.new_variable("n")
        self.pending.append(("B" if flexible else LENGTHS[kind], length))
        self.write_pending()
        if flexible:
            with self.write_block(f"if {length} > 127:"):
                self.write_line(f"{length}, pos = continue_uvarint(buf, pos, {length})")
            self.write_line(f"{length} -= 1")
        return length

    def write_scalar(
        self, kind: Scalar, target: str, null: bool, flexible: bool, path: str
    ) -> None:
        if kind.code:
            self.pending.append((kind.code, target))
            return
        length = self.write_length(kind.kind, flexible)
        most = f" or {length} > {MAX_STRING}" if kind.kind == "string" and flexible else ""
        with self.write_unless(f"{length} == -1", f"{target} = None", null):
            self.write_line(f"stop = pos + {length}")
            with self.write_block(f"if {length} < 0 or stop > end{most}:"):
                self.write_line(f"bad_length({path!r}, {length}, buf, pos)")
            self.write_line(f"{target} = {self.make_slice(kind.kind)}")
            self.write_line("pos = stop")

    def make_slice(self, kind: str) -> str:
        if kind == "string":
            return 'str(buf[pos:stop], "utf-8")' if self.view else "buf[pos:stop].decode()"
        if kind == "bytes" and self.view:
            return "bytes(buf[pos:stop])"
        return "buf[pos:stop]"

    def write_array(self, field: Field, target: str, null: bool, path: str) -> None:
        element, count = field.element, self.write_length("array", self.flexible)
        with self.write_unless(f"{count} == -1", f"{target} = None", null):
            if isinstance(element, Scalar) and element.code in _INTEGERS:
                self.write_integers(element.code, count, target, path)
            else:
                self.write_elements(element, count, target, path, sifted=field is self.sifted)

    def write_integers(self, code: str, count: str, target: str, path: str) -> None:
        readers = self.name_constant("read_" + code, _INTEGERS[code])
        size = f"{count} * {INTEGER_SIZES[code]}"
        with self.write_block(f"if 0 <= {count} < {len(_INTEGERS[code])}:"):
            self.write_line(f"{target} = [*{readers}[{count}](buf, pos)]")
        with self.write_block("else:"):
            self.write_count_check(count, INTEGER_SIZES[code], path)
            self.write_line(f"{target} = integers(buf, pos, {count}, {code!r})")
        self.write_line(f"pos += {size}")

    def write_elements(
        self, element: Any, count: str, target: str, path: str, *, sifted: bool
    ) -> None:
        self.write_count_check(count, smallest_size(element, self.version, self.flexible), path)
        items = self.new_variable("items")
        self.write_line(f"{items} = []")
        many = self.write_hide_array(items, count) if is_struct(element) else ""
        with self.write_block(f"for _ in range({count}):"):
            if not is_struct(element):
                item = self.new_variable("item")
                self.write_scalar(element, item, False, self.flexible, path)
                self.write_pending()
                self.write_line(f"{items}.append({item})")
            else:
                item = self.write_struct(element, path)
                # A struct that is not kept is freed before the next one is decoded, so that a very
                # long array takes time but no memory.
                with self.write_block(f"if keep({item}):") if sifted else nullcontext():
                    self.write_line(f"{items}.append({item})")
                    self.write_hide_struct(item, many)
        self.write_line(f"{target} = {items}")

    def write_hide_array(self, items: str, count: str) -> str:
        """Write the code that hides an array from the garbage collector if the array is long.

        Return the name of the variable that stores whether it is long.
        """
        many = self.new_variable("many")
        self.write_line(f"{many} = {count} >= MANY")
        with self.write_block(f"if {many}:"):
            self.write_line(f"untrack({items})")
        return many

    def write_hide_struct(self, item: str, many: str) -> None:
        """Write the code that hides a struct from the garbage collector if its array is long.

        `many` is the name of the variable that stores whether it is long.
        """
        with self.write_block(f"if {many}:"):
            self.write_line(f"untrack_whole({item})")

    def write_count_check(self, count: str, size: int, path: str) -> None:
        """Write the code that refuses an impossible count before anything is allocated."""
        needed = count if size == 1 else f"{count} * {size}"
        with self.write_block(f"if {count} < 0 or {needed} > end - pos:"):
            self.write_line(f"bad_length({path!r}, {count}, buf, pos)")

    def write_tags(self, target: str, tagged: list[Field], path: str) -> None:
        count = self.new_variable("n")
        self.pending.append(("B", count))
        self.write_pending()
        self.write_line(f"{target}._tags = None")
        with self.write_block(f"if {count}:"):
            if tagged:
                self.write_known_tags(target, tagged, count, path)
            else:
                self.write_line(f"{target}._tags, pos = read_tags(buf, pos, {count})")

    def write_known_tags(self, target: str, tagged: list[Field], count: str, path: str) -> None:
        tag, stop = self.new_variable("tag"), self.new_variable("stop")
        self.write_line(f"{count}, pos = tag_count(buf, pos, {count})")
        self.write_line(f"{tag} = -1")
        with self.write_block(f"for _ in range({count}):"):
            self.write_line(f"{tag}, {stop}, pos = read_tag(buf, pos, {tag})")
            word = "if"
            for field in tagged:
                with self.write_block(f"{word} {tag} == {field.tag}:"):
                    self.write_field(field, f"{target}.{field.name}", path)
                    self.write_pending()
                word = "elif"
            with self.write_block("else:"):
                with self.write_block(f"if {target}._tags is None:"):
                    self.write_line(f"{target}._tags = {{}}")
                self.write_line(f"{target}._tags[{tag}] = bytes(buf[pos:{stop}])")
                self.write_line(f"pos = {stop}")
            with self.write_block(f"if pos != {stop}:"):
                self.write_line(f"bad_tag_size({path!r}, {tag}, {stop}, pos)")

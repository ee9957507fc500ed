"""Random messages that follow Kafka's definitions.

A sample is a dict with the names of Kafka's JSON. Its values are Python objects, such as bytes and
UUIDs. Fields that a version does not have are omitted.
"""

from __future__ import annotations

import struct
from enum import Enum
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from wire_reference.definitions import Definition, Json, span
from wire_reference.mapping import camel

TEXTS = ("a", "orders", "ünïcödé", "日本語", "😀", "x" * 127, "y" * 126, "z" * 300, "")
INTEGERS = {
    "int8": (-0x80, 0x7F),
    "int16": (-0x8000, 0x7FFF),
    "uint16": (0, 0xFFFF),
    "int32": (-0x80000000, 0x7FFFFFFF),
    "uint32": (0, 0xFFFFFFFF),
    "int64": (-(1 << 63), (1 << 63) - 1),
}


class Mode(Enum):
    DEFAULT = "every field as if nothing had been set"
    FULL = "no field is at its default"
    NULL_LEAVES = "what may be null is, where nothing is below it"
    NULL_ARRAYS = "arrays that may be null are, structs are not"
    NULL = "what may be null is"
    RANDOM = "anything"


COUNTS = dict.fromkeys(Mode, (1,)) | {Mode.DEFAULT: (0,), Mode.RANDOM: (0, 1, 1, 2)}
FIRST = (Mode.DEFAULT, Mode.FULL, Mode.NULL_LEAVES, Mode.NULL_ARRAYS, Mode.NULL)


def default_of(field: Json) -> Any:
    """Return the default of a field; {} for a struct that cannot be null."""
    kind, default = field["type"], field.get("default")
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind in INTEGERS:
        return int(str(default or 0), 0)
    if kind == "bool":
        return str(default).lower() == "true"
    plain = {"string": "", "bytes": b"", "uuid": UUID(int=0), "float64": 0.0}
    return plain.get(kind, {})


class Row(NamedTuple):
    """The properties of a field that are needed to create a value for it."""

    name: str
    kind: str
    many: bool
    null: bool
    tagged: bool
    default: Any
    inner: list[Row] | None


class Sampler:
    """A generator of samples of one message in one version."""

    def __init__(self, definition: Definition, version: int) -> None:
        self._definition = definition
        self._version = version
        self._flexible = definition.flexible(version)
        self._plan = self._plan_struct(definition.fields)

    def _plan_struct(self, fields: list[Json]) -> list[Row]:
        present = [field for field in fields if self._version in span(field["versions"])]
        return [self._row(field) for field in present]

    def _row(self, field: Json) -> Row:
        inner = self._definition.inner(field)
        return Row(
            name=camel(field["name"]),
            kind=field["type"].removeprefix("[]"),
            many=field["type"].startswith("[]"),
            null=self._version in span(field.get("nullableVersions")),
            tagged="tag" in field,
            default=default_of(field),
            inner=None if inner is None else self._plan_struct(inner),
        )

    def samples(self, count: int, rng: Random, *, tags: bool = False) -> list[dict[str, Any]]:
        """Return `count` samples: one of each mode in FIRST, then random ones.

        With `tags`, some samples have unknown tagged fields.
        """
        modes = (*FIRST, *([Mode.RANDOM] * (count - len(FIRST))))
        return [self._struct(self._plan, rng, mode, tags) for mode in modes]

    def _struct(self, plan: list[Row], rng: Random, mode: Mode, tags: bool) -> dict[str, Any]:
        made = {
            row.name: self._value(row, rng, mode, tags)
            for row in plan
            if not (row.tagged and mode is Mode.DEFAULT)
        }
        if tags and self._flexible and rng.random() < 0.5:
            made["_tags"] = _unknown_tags(rng)
        return made

    def _value(self, row: Row, rng: Random, mode: Mode, tags: bool) -> Any:
        if row.null and _is_null(row, rng, mode):
            return None
        if row.many:
            return self._array(row, rng, mode, tags)
        if row.inner is not None:
            return self._struct(row.inner, rng, mode, tags)
        if mode is Mode.DEFAULT:  # If the version does not allow null, records are empty.
            return b"" if row.default is None else row.default
        return _scalar(row.kind, row.default, rng, mode)

    def _array(self, row: Row, rng: Random, mode: Mode, tags: bool) -> list[Any]:
        count = rng.choice(COUNTS[mode])
        if row.inner is None:
            many = rng.choice((20, 130)) if count == 2 and rng.random() < 0.2 else count
            return [_scalar(row.kind, None, rng, mode) for _ in range(many)]
        return [self._struct(row.inner, rng, mode, tags) for _ in range(count)]


def _is_null(row: Row, rng: Random, mode: Mode) -> bool:
    if mode is Mode.DEFAULT:
        return row.default is None
    if mode is Mode.RANDOM:
        return rng.random() < 0.2
    if mode is Mode.NULL_ARRAYS:
        return row.many
    return mode is Mode.NULL or (mode is Mode.NULL_LEAVES and row.inner is None)


def _scalar(kind: str, default: Any, rng: Random, mode: Mode) -> Any:
    if mode is Mode.RANDOM and default is not None and rng.random() < 0.2:
        return default
    while True:
        value = _any(kind, rng)
        if value != default:
            return value


def _any(kind: str, rng: Random) -> Any:
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        chance = rng.random()
        if chance < 0.2:
            return low if chance < 0.1 else high
        return rng.randint(low, high) if chance < 0.5 else rng.randint(max(low, -2), 120)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "string":
        return rng.choice(TEXTS)
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 5, 130)))
    if kind == "uuid":
        return UUID(int=rng.getrandbits(128))
    return struct.unpack(">f", struct.pack(">f", rng.uniform(-1e9, 1e9)))[0]


def _unknown_tags(rng: Random) -> dict[int, bytes]:
    numbers = rng.sample((50, 51, 99, 127, 128, 20000), rng.choice((1, 1, 3)))
    return {number: rng.randbytes(rng.choice((0, 1, 130))) for number in sorted(numbers)}

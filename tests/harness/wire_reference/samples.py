"""Random messages, made from Kafka's definitions.

A sample is a dict with the names of Kafka's JSON; bytes are bytes, UUIDs are
UUIDs. What a version does not have is left out.
"""

import struct
from enum import Enum
from random import Random
from typing import Any
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
    NULL = "what may be null is"
    RANDOM = "anything"


FIRST = (Mode.DEFAULT, Mode.FULL, Mode.NULL_LEAVES, Mode.NULL)


def default_of(field: Json) -> Any:
    """What a field holds if nothing was set; for a struct that is not null, {}."""
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


class Sampler:
    """Makes samples of one message in one version."""

    def __init__(self, definition: Definition, version: int) -> None:
        self._definition = definition
        self._version = version
        self._flexible = definition.flexible(version)
        self._plan = self._plan_struct(definition.fields)

    def _plan_struct(self, fields: list[Json]) -> list[tuple[Any, ...]]:
        plan = []
        for field in fields:
            if self._version not in span(field["versions"]):
                continue
            inner = self._definition.inner(field)
            plan.append(
                (
                    camel(field["name"]),
                    field["type"].removeprefix("[]"),
                    field["type"].startswith("[]"),
                    self._version in span(field.get("nullableVersions")),
                    default_of(field),
                    None if inner is None else self._plan_struct(inner),
                    "tag" in field,
                )
            )
        return plan

    def samples(self, count: int, rng: Random, *, tags: bool = False) -> list[dict[str, Any]]:
        """Of each mode one, then random ones; with unknown tagged fields where asked for."""
        modes = (*FIRST, *([Mode.RANDOM] * (count - len(FIRST))))
        return [self._struct(self._plan, rng, mode, tags) for mode in modes]

    def _struct(self, plan: list[Any], rng: Random, mode: Mode, tags: bool) -> dict[str, Any]:
        made = {}
        for name, kind, many, null, default, inner, tagged in plan:
            if mode is Mode.DEFAULT and not (inner and not many):
                if default is None and not null:
                    default = b""  # records where the version does not allow null
                if not tagged:
                    made[name] = default
                continue
            leaf = not (many and inner) and inner is None
            if null and (mode is Mode.NULL or (mode is Mode.NULL_LEAVES and leaf)):
                made[name] = None
            elif null and mode in (Mode.RANDOM, Mode.DEFAULT) and rng.random() < 0.2:
                made[name] = None
            elif many:
                made[name] = self._array(kind, inner, rng, mode, tags)
            elif inner is not None:
                made[name] = self._struct(inner, rng, mode, tags)
            else:
                made[name] = _scalar(kind, default, rng, mode)
        if tags and self._flexible and rng.random() < 0.5:
            made["_tags"] = _unknown_tags(rng)
        return made

    def _array(self, kind: str, inner: Any, rng: Random, mode: Mode, tags: bool) -> list[Any]:
        if inner is not None:
            count = 1 if mode is not Mode.RANDOM else rng.choice((0, 1, 1, 2))
            return [self._struct(inner, rng, mode, tags) for _ in range(count)]
        count = 1 if mode is not Mode.RANDOM else rng.choice((0, 1, 2, 3, 20))
        return [_scalar(kind, None, rng, mode) for _ in range(count)]


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

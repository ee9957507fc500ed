"""Tests of our codecs against an interpreter of Kafka's definitions, which does not need Java."""

from random import Random
from typing import Any

import pytest
from wire_reference import Definition, Interpreter, Sampler, to_object
from wire_reference.definitions import Json, span
from wire_reference.mapping import camel, message_class
from wire_reference.samples import FIRST, default_of

from aiokclient.protocol.fields import NIL

pytestmark = pytest.mark.java

SAMPLES = 8


def test_our_bytes_equal_those_of_the_interpreter(definitions: dict[str, Definition]) -> None:
    rng = Random(7)
    for definition in definitions.values():
        cls = message_class(definition.name)
        for version in definition.versions:
            interpreter = Interpreter(definition, version)
            for sample in Sampler(definition, version).samples(SAMPLES, rng, tags=True):
                data = interpreter.encode(sample)
                message = to_object(cls, sample)
                assert b"".join(message.encode(version)) == data, (definition.name, version)
                assert cls.decode(data, version) == message
                assert interpreter.encode(interpreter.decode(data)) == data


class Coverage:
    """A record of which fields have had values other than the default, and which have been null."""

    def __init__(self, definition: Definition, version: int) -> None:
        self.definition = definition
        self.version = version
        self.changed: set[str] = set()
        self.null: set[str] = set()

    def note(self, fields: list[Json], sample: dict[str, Any], path: str = "") -> None:
        for field in fields:
            name = camel(field["name"])
            if name not in sample:
                continue
            value, here = sample[name], f"{path}.{name}"
            if value is None:
                self.null.add(here)
            if value not in (default_of(field), NIL):
                self.changed.add(here)
            inner = self.definition.inner(field)
            if inner is not None and value is not None:
                for one in value if isinstance(value, list) else [value]:
                    self.note(inner, one, here)

    def expected(self, fields: list[Json], path: str = "") -> tuple[set[str], set[str]]:
        every, nullable = set(), set()
        for field in fields:
            if self.version not in span(field["versions"]):
                continue
            here = f"{path}.{camel(field['name'])}"
            every.add(here)
            if self.version in span(field.get("nullableVersions")):
                nullable.add(here)
            inner = self.definition.inner(field)
            if inner is not None:
                below = self.expected(inner, here)
                every |= below[0]
                nullable |= below[1]
        return every, nullable


def test_samples_change_every_field_and_null_what_may_be_null(
    definitions: dict[str, Definition],
) -> None:
    rng = Random(7)
    for definition in definitions.values():
        for version in definition.versions:
            coverage = Coverage(definition, version)
            for sample in Sampler(definition, version).samples(len(FIRST), rng):
                coverage.note(definition.fields, sample)
            every, nullable = coverage.expected(definition.fields)
            assert coverage.changed == every, (definition.name, version)
            assert coverage.null >= nullable, (definition.name, version)

"""Tests that our bytes equal those of Kafka's own implementation, for each message and version."""

from collections.abc import Iterator
from concurrent.futures import Future
from random import Random
from typing import Any

import pytest
from wire_reference import Definition, Sampler, WireOracle, to_object
from wire_reference.mapping import message_class

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

FROM_JSON = 50
WITH_TAGS = 10
SEED = 2024
PENDING = 8

Pair = tuple[Definition, int]


def pairs(definitions: dict[str, Definition]) -> Iterator[Pair]:
    for definition in definitions.values():
        for version in definition.versions:
            yield definition, version


def java_name(definition: Definition) -> str:
    kind = definition.json["type"]
    return definition.name + ("Data" if kind in ("request", "response", "header") else "")


def encode_all(definition: Definition, version: int, samples: list[Any]) -> list[bytes]:
    """Return our bytes for the samples, and check that they decode to equal messages."""
    cls = message_class(definition.name)
    encoded = []
    for sample in samples:
        message = to_object(cls, sample)
        data = b"".join(message.encode(version))
        assert cls.decode(data, version) == message, (definition.name, version, sample)
        encoded.append(data)
    return encoded


class Comparison:
    """A queue of questions to Java whose answers are compared with our bytes."""

    def __init__(self) -> None:
        self.messages = 0
        self._waiting: list[tuple[str, list[bytes], Future[list[bytes]]]] = []

    def add(self, what: str, ours: list[bytes], answer: Future[list[bytes]]) -> None:
        self._waiting.append((what, ours, answer))
        if len(self._waiting) > PENDING:
            self._compare(*self._waiting.pop(0))

    def finish(self) -> int:
        while self._waiting:
            self._compare(*self._waiting.pop(0))
        return self.messages

    def _compare(self, what: str, ours: list[bytes], answer: Future[list[bytes]]) -> None:
        theirs = answer.result(60)
        assert len(theirs) == len(ours)
        for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            assert left == right, f"{what}, sample {number}: {left.hex()} but Java {right.hex()}"
        self.messages += len(ours)


def test_bytes_of_our_messages_equal_those_of_java(
    definitions: dict[str, Definition], wire_oracle: WireOracle, report: list[str]
) -> None:
    rng = Random(SEED)
    comparison = Comparison()
    count = 0
    for definition, version in pairs(definitions):
        samples = Sampler(definition, version).samples(FROM_JSON, rng)
        ours = encode_all(definition, version, samples)
        answer = wire_oracle.from_json(java_name(definition), version, samples)
        comparison.add(f"{definition.name} v{version}", ours, answer)
        count += 1
    messages = comparison.finish()
    assert count == sum(len(one.versions) for one in definitions.values())
    assert messages == FROM_JSON * count
    report.append(f"wire: {messages} messages of {count} (message, version) pairs equal Java's")


def test_java_reads_our_tags_and_records(
    definitions: dict[str, Definition], wire_oracle: WireOracle, report: list[str]
) -> None:
    rng = Random(SEED)
    comparison = Comparison()
    count = 0
    for definition, version in pairs(definitions):
        samples = Sampler(definition, version).samples(WITH_TAGS, rng, tags=True)
        ours = encode_all(definition, version, samples)
        answer = wire_oracle.again(java_name(definition), version, ours)
        comparison.add(f"{definition.name} v{version}", ours, answer)
        count += 1
    messages = comparison.finish()
    assert messages == WITH_TAGS * count
    report.append(f"wire: {messages} messages with unknown tags read and written again by Java")

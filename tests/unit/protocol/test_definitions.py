"""Tests that our declarations equal Kafka's: fields, versions, defaults, nullability, and tags."""

from collections.abc import Iterator
from typing import Any

import pytest
from wire_reference.definitions import LAST, Definition, Json, span
from wire_reference.mapping import message_class, snake
from wire_reference.samples import default_of

from aiokclient.protocol.api import ApiKey, request_class
from aiokclient.protocol.fields import Field, parse_versions
from aiokclient.protocol.schema import Message, Request, Response, Struct

pytestmark = pytest.mark.java

APIS = 74


def within(text: str | None, outer: range) -> range:
    """Return the versions of a field that are also versions of its message."""
    if text is None:
        return range(0)
    inner = span(text)
    both = range(max(inner.start, outer.start), min(inner.stop, outer.stop))
    return both if both else range(0)


def ours_within(text: str | None, outer: range) -> range:
    if text is None:
        return range(0)
    low, high = parse_versions(text)
    return within(f"{low}-{min(high, LAST)}" if high >= low else "none", outer)


def described(kafka: Json, definition: Definition, outer: range) -> dict[str, Any]:
    """Return the properties of a field in Kafka's definitions."""
    versions = within(kafka["versions"], outer)
    kind = kafka["type"].removeprefix("[]")
    return {
        "kind": "array" if kafka["type"].startswith("[]") else kind,
        "versions": versions,
        "null": within(kafka.get("nullableVersions"), versions),
        "tagged": within(kafka.get("taggedVersions"), versions),
        "tag": kafka.get("tag"),
        "default": default_of(kafka),
        "ignorable": bool(kafka.get("ignorable")),
        "flexible": kafka.get("flexibleVersions"),
        "element": None if definition.inner(kafka) is not None else kind,
    }


NAMES = {"boolean": "bool"}


def declared(field: Field, outer: range) -> dict[str, Any]:
    """Return the properties of a field in our declarations, in the same form."""
    versions = ours_within(field.versions, outer)
    inner = isinstance(field.element, type)
    default = field.new_default()
    kind = NAMES.get(field.kind, field.kind)
    return {
        "kind": kind,
        "versions": versions,
        "null": ours_within(field.null, versions),
        "tagged": ours_within(field.tagged, versions),
        "tag": field.tag,
        "default": {} if isinstance(default, Struct) else default,
        "ignorable": field.ignorable,
        "flexible": field.flexible,
        "element": None if inner else NAMES.get(field.element.kind, field.element.kind),
    }


def struct_name(kafka: str, cls: type[Struct]) -> bool:
    return cls.__name__ in (kafka, "Response" + kafka)


def differences(
    fields: list[Json], cls: type[Struct], definition: Definition, outer: range, path: str
) -> Iterator[str]:
    wanted = [field for field in fields if within(field["versions"], outer)]
    if [snake(field["name"]) for field in wanted] != [field.name for field in cls._fields]:
        yield f"{path}: {[field['name'] for field in wanted]} but {cls._fields}"
        return
    for kafka, ours in zip(wanted, cls._fields, strict=True):
        here = f"{path}.{ours.name}"
        facts = described(kafka, definition, outer)
        inner = definition.inner(kafka)
        if inner is not None and facts["kind"] != "array":
            facts["kind"] = "struct"
        if facts != (found := declared(ours, outer)):
            yield f"{here}: Kafka says {facts}, we say {found}"
        if inner is not None:
            if not struct_name(kafka["type"].removeprefix("[]"), ours.element):
                yield f"{here}: {ours.element.__name__} is named {kafka['type']} in Kafka"
            yield from differences(inner, ours.element, definition, facts["versions"], here)


def test_every_api_of_a_client_is_declared(definitions: dict[str, Definition]) -> None:
    keys = {one.key: one for one in definitions.values() if one.json["type"] == "request"}
    assert len(keys) == APIS
    assert sorted(keys) == sorted(ApiKey)
    for key, definition in keys.items():
        assert request_class(key).__name__ == definition.name
        assert ApiKey(key).api_name + "Request" == definition.name


def test_every_field_is_declared_as_kafka_declares_it(
    definitions: dict[str, Definition], report: list[str]
) -> None:
    found = []
    for name, definition in definitions.items():
        cls = message_class(name)
        found += list(differences(definition.fields, cls, definition, definition.versions, name))
    assert not found, "\n".join(found)
    report.append(f"wire: {len(definitions)} definitions are equal to Kafka's")


def test_versions_are_those_of_kafkas_definitions(definitions: dict[str, Definition]) -> None:
    for name, definition in definitions.items():
        cls = message_class(name)
        versions = definition.versions
        assert range(cls.min_version, cls.max_known_version + 1) == versions, name
        for version in versions:
            assert cls.is_flexible(version) == definition.flexible(version), (name, version)
        unstable = definition.json.get("latestVersionUnstable", False)
        if issubclass(cls, Request):
            assert cls.max_version == versions[-1] - unstable, name


def test_only_the_response_header_of_api_versions_is_an_exception() -> None:
    for key in ApiKey:
        request = request_class(key)
        response = request.response_class
        for version in range(request.min_version, request.max_known_version + 1):
            flexible = request.is_flexible(version)
            assert request.header_version(version) == (2 if flexible else 1)
            expected = flexible and key is not ApiKey.API_VERSIONS
            assert response.header_version(version) == int(expected)


def test_request_and_response_know_each_other() -> None:
    for key in ApiKey:
        request = request_class(key)
        response = request.response_class
        assert issubclass(request, Request)
        assert issubclass(response, Response)
        assert response.request_class is request
        assert response.api_key is request.api_key is key
        assert isinstance(request(), Message)

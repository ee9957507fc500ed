"""A parser that reads the definitions in a kafka-clients jar, and selects those for clients."""

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The API keys of requests that only brokers send, although the listener "broker" accepts them.
BETWEEN_BROKERS = {83, 84, 85, 86, 87}
DATA = (
    "RequestHeader",
    "ResponseHeader",
    "ConsumerProtocolSubscription",
    "ConsumerProtocolAssignment",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
    "LeaderChangeMessage",
    "SnapshotHeaderRecord",
    "SnapshotFooterRecord",
    "KRaftVersionRecord",
    "VotersRecord",
)
LAST = 32767

Json = Mapping[str, Any]


def span(text: str | None) -> range:
    """Return the range of versions for "3+", "0-12", "7", or "none"."""
    if text is None or text == "none":
        return range(0)
    if text.endswith("+"):
        return range(int(text[:-1]), LAST + 1)
    low, _, high = text.partition("-")
    return range(int(low), int(high or low) + 1)


@dataclass(frozen=True)
class Definition:
    """One message as Kafka defines it."""

    name: str
    json: Json

    @property
    def key(self) -> int:
        key: int = self.json["apiKey"]
        return key

    @property
    def versions(self) -> range:
        return span(self.json["validVersions"])

    @property
    def fields(self) -> list[Json]:
        fields: list[Json] = self.json["fields"]
        return fields

    def flexible(self, version: int) -> bool:
        return version in span(self.json["flexibleVersions"])

    def inner(self, field: Json) -> list[Json] | None:
        """Return the fields of the struct that a field is or contains; None for a scalar."""
        if "fields" in field:
            fields: list[Json] = field["fields"]
            return fields
        for common in self.json.get("commonStructs", ()):
            if common["name"] == field["type"].removeprefix("[]"):
                return list(common["fields"])
        return None


def load(jars: list[Path]) -> dict[str, Definition]:
    """Return the definitions of the 74 client APIs and of the messages in DATA, by name."""
    [jar] = [path for path in jars if path.name.startswith("kafka-clients-")]
    with zipfile.ZipFile(jar) as archive:
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if name.startswith("common/message/") and name.endswith(".json")
        ]
    parsed = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M)) for text in texts]
    everything = {raw["name"]: Definition(raw["name"], raw) for raw in parsed}
    return {definition.name: definition for definition in _wanted(everything)}


def _wanted(everything: dict[str, Definition]) -> Iterator[Definition]:
    requests = [one for one in everything.values() if one.json["type"] == "request"]
    for request in sorted(requests, key=lambda one: one.key):
        if (
            "broker" in request.json.get("listeners", ())
            and request.versions
            and request.key not in BETWEEN_BROKERS
        ):
            yield request
            yield everything[request.name.removesuffix("Request") + "Response"]
    for name in DATA:
        yield everything[name]

"""The plugin of real brokers that receives the metrics of clients and writes them into a topic.

It is tests/java/telemetry/TelemetryForwarder.java. ``pushed`` reads its records, and those of the
embedded cluster's ``TopicTelemetryReceiver``, which have the same form.
"""

import base64
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .distribution import Distribution
from .files import CACHE, REPOSITORY, prepared
from .java import find

SOURCE = REPOSITORY / "tests" / "java" / "telemetry" / "TelemetryForwarder.java"


def compiled_forwarder(distribution: Distribution) -> Path:
    """Return the folder with the plugin's class, which is compiled once and cached."""

    def compile_into(folder: Path) -> None:
        folder.mkdir()
        command = [find("javac"), "--release", "17", "-nowarn", "-cp", distribution.class_path()]
        subprocess.run([*command, "-d", str(folder), str(SOURCE)], check=True)

    name = f"telemetry-{distribution.version}-{SOURCE.stat().st_mtime_ns}"
    return prepared(CACHE / name, compile_into)


def forwarder_properties(topic: str, bootstrap: str) -> dict[str, object]:
    """Return the properties of a node that has the plugin."""
    return {
        "metric.reporters": SOURCE.stem,
        "telemetry.forwarder.topic": topic,
        "telemetry.forwarder.bootstrap.servers": bootstrap,
    }


class Pushed(NamedTuple):
    """The metrics of one push, and the client that pushed them."""

    instance_id: uuid.UUID
    client: dict[str, str]
    """The headers of the record: client_id, software_name, principal, and others."""
    terminating: bool
    data: bytes


def pushed(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, Any]]) -> Pushed:
    """Return the push that a record contains."""
    client = {name: bytes(raw).decode() for name, raw in headers}
    identity = uuid.UUID(bytes=base64.urlsafe_b64decode((key or b"") + b"=="))
    return Pushed(identity, client, client["terminating"] == "true", value or b"")

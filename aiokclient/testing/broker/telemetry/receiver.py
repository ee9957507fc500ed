"""The receiver to which a broker passes the metrics that clients push."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from aiokclient.types import ProducerRecord, public_in

CONTENT_TYPE = "OTLP"
"""Kafka's name of the format of the metrics, OTLP `MetricsData` in protobuf."""


def format_uuid(value: UUID) -> str:
    """Return a UUID as Kafka writes it, in 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


@public_in("aiokclient.testing")
@dataclass(frozen=True, slots=True)
class ClientTelemetryContext:
    """The client that pushed metrics, and the connection that it used.

    `client_address` is an IP address, without the port. `software_name` and `software_version` are
    "unknown" if the client has not sent them. A client id that is null is "", as in Kafka.
    """

    client_id: str
    client_instance_id: UUID
    client_address: str
    software_name: str
    software_version: str
    principal: str
    listener: str


@public_in("aiokclient.testing")
@dataclass(frozen=True, slots=True)
class ClientTelemetryPayload:
    """Pushed metrics. `data` is decompressed; the broker does not check that it is OTLP.

    `terminating` says whether this is the client's last push, because the client is closing.
    """

    terminating: bool
    content_type: str
    data: bytes


@public_in("aiokclient.testing")
class ClientTelemetryReceiver(Protocol):
    """A receiver of the metrics that clients push to the embedded cluster.

    The brokers call `export` in the event loop of the cluster, so it must not block. If it raises,
    the client receives INVALID_RECORD. A receiver that also has the methods `start(cluster)` and
    `close()` is started and closed with the cluster, in its event loop.
    """

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Take the metrics of one push."""
        ...


class ReceivingCluster(Protocol):
    """The embedded cluster as a receiver uses it."""

    @property
    def topics(self) -> dict[str, int]: ...

    def create_topic(self, name: str, /) -> Any: ...

    def produce(self, topic: str, values: Iterable[ProducerRecord], partition: int, /) -> Any: ...


@runtime_checkable
class StartedReceiver(Protocol):
    """A receiver that is started and closed with the cluster, in the cluster's event loop."""

    def start(self, cluster: ReceivingCluster, /) -> None: ...

    def close(self) -> None: ...


def check_receiver(receiver: Any) -> Any:
    """Return the receiver that was given to a cluster, or None.

    Raises TypeError for an object without `export`, and for a class.
    """
    has_export = callable(getattr(receiver, "export", None))
    if receiver is not None and (isinstance(receiver, type) or not has_export):
        raise TypeError(
            f"telemetry={receiver!r} is not a receiver. Pass an object with the method "
            "export(context, payload)."
        )
    return receiver


def start_receiver(receiver: object, cluster: ReceivingCluster) -> None:
    """Start a receiver if it has the methods of `StartedReceiver`."""
    if isinstance(receiver, StartedReceiver):
        receiver.start(cluster)


def close_receiver(receiver: object) -> None:
    """Close a receiver if it has the methods of `StartedReceiver`."""
    if isinstance(receiver, StartedReceiver):
        receiver.close()

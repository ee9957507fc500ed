"""A receiver that writes pushed metrics into a topic of the cluster."""

from __future__ import annotations

from aiokclient.errors import IllegalStateError
from aiokclient.record.murmur2 import murmur2
from aiokclient.testing.broker.telemetry.receiver import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ReceivingCluster,
    format_uuid,
)
from aiokclient.types import ProducerRecord, public_in


@public_in("aiokclient.testing")
class TopicTelemetryReceiver:
    """A receiver that writes each push as one record into a topic of the embedded cluster.

        receiver = TopicTelemetryReceiver("client-metrics")
        with EmbeddedCluster(telemetry=receiver) as cluster:
            ...
            cluster.records("client-metrics", 0)

    The topic is created at the cluster's start unless `topics` names it. The value of a record is
    the payload's `data`. The key is the client instance id in Kafka's notation (22 characters of
    base64url), so that all records of a client are in one partition. The headers are the fields of
    the context and `terminating` and `content_type` of the payload, as text.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._cluster: ReceivingCluster | None = None

    def __repr__(self) -> str:
        return f"TopicTelemetryReceiver({self.topic!r})"

    def start(self, cluster: ReceivingCluster) -> None:
        """Create the topic. Called by the embedded cluster at its start."""
        self._cluster = cluster
        if self.topic not in cluster.topics:
            cluster.create_topic(self.topic)

    def close(self) -> None:
        """Forget the cluster. Called by the embedded cluster at its end."""
        self._cluster = None

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Write one record. Raises ValueError if the topic was deleted."""
        cluster = self._cluster
        if cluster is None:
            raise IllegalStateError(
                f"{self!r} has no cluster. Pass it to EmbeddedCluster(telemetry=...)."
            )
        instance_id = format_uuid(context.client_instance_id)
        headers = {
            "client_id": context.client_id,
            "client_instance_id": instance_id,
            "client_address": context.client_address,
            "software_name": context.software_name,
            "software_version": context.software_version,
            "principal": context.principal,
            "listener": context.listener,
            "terminating": str(payload.terminating).lower(),
            "content_type": payload.content_type,
        }
        key = instance_id.encode()
        record = ProducerRecord(
            self.topic,
            payload.data,
            key=key,
            headers=[(name, value.encode("utf-8", "replace")) for name, value in headers.items()],
        )
        partition = (murmur2(key) & 0x7FFFFFFF) % cluster.topics.get(self.topic, 1)
        cluster.produce(self.topic, [record], partition)

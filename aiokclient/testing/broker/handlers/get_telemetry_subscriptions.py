"""GetTelemetrySubscriptions 0: the metrics that a client is to push, and how often (KIP-714).

Announced only with `EmbeddedCluster(telemetry=...)`, but always answered. A client without an id
gets one. A client that no subscription matches gets an empty list and an interval of 300,000 ms.
The list with only "*" means all metrics. A request before the end of the push interval is
THROTTLING_QUOTA_EXCEEDED, except one request after a push that was refused with
UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE. A changed subscription may be requested
immediately.
"""

from __future__ import annotations

from uuid import UUID

from aiokclient.config.codecs import Compression
from aiokclient.protocol.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.telemetry.client import find_instance
from aiokclient.testing.broker.telemetry.receiver import format_uuid

_ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]


def handle(call: Call) -> Reply:
    request: GetTelemetrySubscriptionsRequest = call.request
    code = call.find_refusal()
    if code:
        return GetTelemetrySubscriptionsResponse(error_code=code)
    instance_id = request.client_instance_id
    if not instance_id.int:
        instance_id = _make_instance_id(call)
    instance = find_instance(call, instance_id)
    code = instance.on_subscription_request(call.cluster.loop.time())
    if code:
        return GetTelemetrySubscriptionsResponse(error_code=code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription.subscription_id,
        accepted_compression_types=[int(each) for each in _ACCEPTED],
        push_interval_ms=instance.subscription.interval_ms,
        telemetry_max_bytes=call.broker.configs.read_number("telemetry.max.bytes"),
        delta_temporality=True,
        requested_metrics=list(instance.subscription.metrics),
    )


def _make_instance_id(call: Call) -> UUID:
    """Return a random id. Like Kafka's ids, its text does not begin with a hyphen."""
    while True:
        found = call.cluster.make_topic_id()
        if not format_uuid(found).startswith("-") and found not in call.broker.client_instances:
            return found

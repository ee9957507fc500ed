"""PushTelemetry 0: the metrics of a client, which are passed to the receiver (KIP-714).

Announced only with `EmbeddedCluster(telemetry=...)`, but always answered. Checked in this order:

* INVALID_REQUEST: the client has no id, or its previous push was a terminating one.
* THROTTLING_QUOTA_EXCEEDED: the push interval is not over. A terminating push, and the first push
  after a response with the subscription, may come earlier.
* UNKNOWN_SUBSCRIPTION_ID: the subscription has changed since the client requested it.
* UNSUPPORTED_COMPRESSION_TYPE: there is no such codec.
* TELEMETRY_TOO_LARGE: the compressed metrics have more than `telemetry.max.bytes`.
* INVALID_RECORD: the metrics cannot be decompressed, have more than `telemetry.max.bytes`
  decompressed, or were refused by the receiver.

The broker does not check that the metrics are OTLP. A push without metrics is not passed on.
"""

from __future__ import annotations

import logging

from aiokclient import threads
from aiokclient.config.codecs import Compression
from aiokclient.errors import KafkaError
from aiokclient.protocol.messages import PushTelemetryRequest, PushTelemetryResponse
from aiokclient.record.compression import decompress
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.telemetry.client import find_instance, make_context
from aiokclient.testing.broker.telemetry.instances import ClientInstance
from aiokclient.testing.broker.telemetry.receiver import CONTENT_TYPE, ClientTelemetryPayload

_log = logging.getLogger(__name__)

_RESERVED = (0, 1)
"""The ids that Kafka uses for other purposes."""


async def handle(call: Call) -> Answer:
    request: PushTelemetryRequest = call.request
    code = call.find_refusal()
    if code:
        return PushTelemetryResponse(error_code=code)
    if request.client_instance_id.int in _RESERVED:
        return PushTelemetryResponse(error_code=Code.INVALID_REQUEST)
    limit = call.broker.configs.read_number("telemetry.max.bytes")
    instance = find_instance(call, request.client_instance_id)
    code = instance.on_push(
        call.cluster.loop.time(),
        request.subscription_id,
        terminating=request.terminating,
        known_codec=request.compression_type in Compression.__members__.values(),
        fits=len(request.metrics) <= limit,
    )
    if not code and request.metrics:
        code = await _export_metrics(call, request, instance, limit)
    return PushTelemetryResponse(error_code=code)


async def _export_metrics(
    call: Call, request: PushTelemetryRequest, instance: ClientInstance, limit: int
) -> Code:
    codec, content = Compression(request.compression_type), request.metrics
    if codec is not Compression.NONE:
        # A few bytes may decompress to a megabyte, and a client may send many such requests.
        decompressed = await threads.run(_decompress, codec, content, limit)
        if isinstance(decompressed, KafkaError):
            _log.debug("%r refuses pushed metrics: %s", call.broker, decompressed)
            return instance.refuse_metrics()
        content = decompressed
    receiver = call.cluster.telemetry
    if receiver is None:
        return Code.NONE
    payload = ClientTelemetryPayload(request.terminating, CONTENT_TYPE, bytes(content))
    try:
        receiver.export(make_context(call, request.client_instance_id), payload)
    except Exception:
        _log.warning("%r could not export pushed metrics.", call.broker, exc_info=True)
        return instance.refuse_metrics()
    return Code.NONE


def _decompress(codec: Compression, data: bytes, limit: int) -> bytes | KafkaError:
    """Return decompressed metrics. An error is returned, not raised."""
    try:
        return bytes(decompress(codec, data, limit))
    except KafkaError as error:
        return error

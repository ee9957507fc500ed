"""A receiver that sends pushed metrics to an OTLP endpoint over HTTP."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from aiokclient.testing.broker.telemetry.receiver import (
    ClientTelemetryContext,
    ClientTelemetryPayload,
    ReceivingCluster,
    format_uuid,
)
from aiokclient.types import public_in

_log = logging.getLogger(__name__)

_SCHEMES = {"http": HTTPConnection, "https": HTTPSConnection}


@public_in("aiokclient.testing")
class OtlpHttpTelemetryReceiver:
    """A receiver that sends each push to an OTLP endpoint, such as an OpenTelemetry Collector.

        receiver = OtlpHttpTelemetryReceiver("http://localhost:4318/v1/metrics")
        with EmbeddedCluster(telemetry=receiver) as cluster:
            ...

    The client is added to the resource attributes: `client_id`, `client_instance_id` (in Kafka's
    notation), `client_software_name`, `client_software_version`, `client_source_address`,
    `principal`, and `listener`.

    A thread decodes the metrics and sends them, in the order of the pushes, so that the brokers do
    not wait. It starts with the first push. A failed push is not sent again, and the client does
    not learn that it failed. `sent`, `failed`, `rejected`, and `dropped` count the pushes by
    outcome.

    endpoint: The URL, with http or https.
    headers: Additional HTTP headers, for example for authentication.
    timeout_s: The seconds that one request may take. After `close`, it is the limit for all
        remaining requests together.
    max_queued_bytes: The maximum number of bytes that wait to be sent. Further pushes are dropped.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] = {},
        timeout_s: float = 10.0,
        max_queued_bytes: int = 16 << 20,
    ) -> None:
        if not isinstance(endpoint, str):
            raise TypeError(f"endpoint={endpoint!r} is not a URL. Pass a str.")
        url = urlsplit(endpoint)
        if url.scheme not in _SCHEMES or not url.hostname or url.username or url.password:
            raise ValueError(
                "The endpoint must be a URL with http or https and a host, without credentials. "
                "Pass those as headers."
            )
        if not 0 < timeout_s <= threading.TIMEOUT_MAX:
            raise ValueError(f"timeout_s={timeout_s} is not a number of seconds above 0.")
        self._connect = partial(_SCHEMES[url.scheme], url.hostname, url.port, timeout=timeout_s)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._name = f"{url.scheme}://{url.netloc}{url.path}"
        self._headers = {**headers, "Content-Type": "application/x-protobuf"}
        self._check_head()
        self._timeout_s = timeout_s
        self._max_queued_bytes = max_queued_bytes
        self._changed = threading.Condition()
        self._queue: deque[tuple[ClientTelemetryContext, ClientTelemetryPayload]] = deque()
        self._queued_bytes = 0
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ends_at = 0.0
        self._busy = False
        self._warned = False
        self.sent = 0
        """The number of pushes that the endpoint accepted."""
        self.failed = 0
        """The number of pushes that the endpoint refused, or that could not be sent."""
        self.rejected = 0
        """The number of pushes that were not OTLP, and were not sent."""
        self.dropped = 0
        """The number of pushes for which the queue had no room."""

    def __repr__(self) -> str:
        return f"OtlpHttpTelemetryReceiver({self._name!r})"

    def _check_head(self) -> None:
        """Raise ValueError if the path or the headers cannot be sent. Sends nothing."""
        connection = self._connect()
        try:
            connection.putrequest("POST", self._path)
            for name, value in self._headers.items():
                connection.putheader(name, value)
        except (HTTPException, ValueError):
            # The cause would show the value of a header, which may be secret.
            raise ValueError(
                "The endpoint or a header contains characters that HTTP does not allow."
            ) from None
        finally:
            connection.close()

    def start(self, cluster: ReceivingCluster) -> None:
        """Accept pushes. Called by the embedded cluster at its start."""
        with self._changed:
            self._closed = False

    def close(self) -> None:
        """Accept no more pushes. Called by the embedded cluster at its end.

        Does not wait. The thread sends what is queued, for at most `timeout_s`.
        """
        with self._changed:
            self._closed = True
            self._ends_at = monotonic() + self._timeout_s
            self._changed.notify_all()

    def export(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> None:
        """Queue one push."""
        with self._changed:
            full = self._queued_bytes + len(payload.data) > self._max_queued_bytes
            if self._closed or full:
                self.dropped += 1
                if full:
                    self._warn_once(
                        "Pushed metrics are dropped, because %s is too slow.", self._name
                    )
                return
            self._queue.append((context, payload))
            self._queued_bytes += len(payload.data)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._send_queued, name="aiokclient-otlp-receiver", daemon=True
                )
                self._thread.start()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing is queued. Return False if that takes longer than `timeout` seconds.

        Blocks. Do not call it in the event loop of a cluster.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queue or self._busy), timeout)

    # -- in the thread -------------------------------------------------------------------------

    def _send_queued(self) -> None:
        while (taken := self._take_push()) is not None:
            outcome = self._send_push(*taken)
            with self._changed:
                setattr(self, outcome, getattr(self, outcome) + 1)
                self._busy = False
                self._changed.notify_all()

    def _take_push(self) -> tuple[ClientTelemetryContext, ClientTelemetryPayload] | None:
        """Wait for a push; return None when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            if self._closed and monotonic() >= self._ends_at:
                self.dropped += len(self._queue)
                self._queue.clear()
                self._queued_bytes = 0
            if not self._queue:
                self._thread = None
                self._changed.notify_all()
                return None
            taken = self._queue.popleft()
            self._queued_bytes -= len(taken[1].data)
            self._busy = True
            return taken

    def _send_push(self, context: ClientTelemetryContext, payload: ClientTelemetryPayload) -> str:
        """Send one push, and return the name of the counter to increase."""
        try:
            body = _add_client(context, payload.data)
            if body is None:
                return "rejected"
            status = self._post_metrics(body)
        except Exception as error:  # The thread continues, whatever the error is.
            self._warn_once("%s does not answer: %s", self._name, type(error).__name__)
            return "failed"
        if status // 100 != 2:
            self._warn_once("%s refused pushed metrics with status %d.", self._name, status)
            return "failed"
        return "sent"

    def _post_metrics(self, body: bytes) -> int:
        """Send metrics, and return the status of the response."""
        # Each push has a connection of its own: one that was idle may be closed by the endpoint,
        # and then it is unknown whether the metrics have arrived.
        connection = self._connect()
        try:
            connection.request("POST", self._path, body, self._headers)
            status: int = connection.getresponse().status
            return status
        finally:
            connection.close()

    def _warn_once(self, text: str, *values: object) -> None:
        """Log the first warning only."""
        if not self._warned:
            self._warned = True
            _log.warning(text, *values)


def _add_client(context: ClientTelemetryContext, data: bytes) -> bytes | None:
    """Return metrics with the client in their resource attributes, or None if they are not OTLP."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    attributes = {
        "client_id": context.client_id,
        "client_instance_id": format_uuid(context.client_instance_id),
        "client_software_name": context.software_name,
        "client_software_version": context.software_version,
        "client_source_address": context.client_address,
        "principal": context.principal,
        "listener": context.listener,
    }
    metrics: Any = MetricsData()
    try:
        metrics.ParseFromString(data)
    except DecodeError:
        return None
    for each in metrics.resource_metrics:
        for name, value in attributes.items():
            attribute = each.resource.attributes.add(key=name)
            # The id of a client may contain surrogates, which protobuf refuses.
            attribute.value.string_value = value.encode("utf-8", "replace").decode()
    # The endpoint expects an ExportMetricsServiceRequest, which has the same fields.
    encoded: bytes = metrics.SerializeToString()
    return encoded

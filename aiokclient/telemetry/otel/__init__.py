"""Metrics and tracing by OpenTelemetry. Needs the extra `otel`.

    async with Producer(...) as producer:
        with instrument(producer):
            await producer.send("orders", b"tea")

`instrument` gives the metrics of an object to a MeterProvider (`metrics`), and makes spans of what
a producer or consumer does (`producing`, `consuming`). The object gets a class of its own for that
(`classes`), so that there is no cost, not even a branch, for other objects. Only opentelemetry-api
is needed: without an SDK, nothing is recorded, and no header is added to records.

See docs/tracing.md for the names, attributes, parents, and links of spans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError

try:
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.trace import get_tracer
except ImportError as error:
    raise ImportError(
        "aiokclient.telemetry.otel needs the package opentelemetry-api. Install the extra: "
        "pip install 'aiokclient[otel]'."
    ) from error

from aiokclient.telemetry.otel.classes import is_instrumented, with_methods
from aiokclient.telemetry.otel.consuming import ConsumerTracing, ShareConsumerTracing
from aiokclient.telemetry.otel.metrics import bridge_to
from aiokclient.telemetry.otel.producing import ProducerTracing
from aiokclient.telemetry.otel.spans import Spans

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from aiokclient.telemetry.series import MeasuredClient

__all__ = ["Instrumentation", "instrument"]

SCOPE = "aiokclient"


class Instrumentation:
    """A handle of the instrumentation of an object. `uninstrument` ends the instrumentation.

    As a context manager, the handle ends it at the end of the `with` block.
    """

    def __init__(self, *undo: Callable[[], None]) -> None:
        self._undo = list(undo)

    def uninstrument(self) -> None:
        """Undo the instrumentation, and end all of its spans. Synchronous, idempotent.

        If the body of a loop over the object is running, its span stays the current one until the
        loop requests its next item.
        """
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.uninstrument()


def instrument(
    x: MeasuredClient,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Instrumentation:
    """Give the metrics of an object to OpenTelemetry, and trace it. Return a handle to undo that.

    `x` is a Client, Producer, Consumer, ShareConsumer, Admin, or GroupMember, before or after its
    start. Spans are made for producers and consumers. Objects that share a client have their
    metrics in common. The metrics are observed once, even if several of the objects are
    instrumented. By default, the global providers are used. Call it in the event loop of `x`, or
    before `x` is started. Raises IllegalStateError if `x` is instrumented already, and
    ArgumentTypeError for any other object.
    """
    if isinstance(x, type) or not callable(getattr(x, "metric_values", None)):
        raise ArgumentTypeError(
            f"{x!r} cannot be instrumented. Pass a Client, Producer, Consumer, or Admin."
        )
    if is_instrumented(x):
        raise IllegalStateError(
            f"This {type(x).__name__} is instrumented already. First call uninstrument() on the "
            "object that instrument() returned."
        )
    bridge = bridge_to(get_meter_provider() if meter_provider is None else meter_provider)
    client: Any = x
    spans = Spans(get_tracer(SCOPE, tracer_provider=tracer_provider), client._config)
    tracing: ProducerTracing | ConsumerTracing | None = None
    if hasattr(type(x), "send_many"):
        tracing = ProducerTracing(spans, type(x))
    elif hasattr(type(x), "processing"):
        tracing = ShareConsumerTracing(spans, type(x))
    elif hasattr(type(x), "tracked"):
        tracing = ConsumerTracing(spans, type(x))
    undo = [
        bridge.add_client(x),
        with_methods(x, {} if tracing is None else tracing.make_methods()),
    ]
    if tracing is not None:
        tracing.on_open(client)
        undo.append(tracing.undo_tracing)

    def deactivate() -> None:
        spans.is_active = False

    return Instrumentation(*undo, deactivate)

"""The spans of a consumer: of requests for records, of their processing, and of commits.

- A record of an iteration has a span `process` while the body of the loop runs, or with `tracked`
  until `done`. Its parent is the current span or, without one, the record's creation context.
- A list, or an Arrow batch, has a span `poll` for the request, and as its child a span `process`
  for the body of the loop. For a list, both have links to the creation contexts of its records. The
  spans of `poll()` and `get()` have such links, too. They end when the methods return, because the
  time of the processing is not known.
- A run of a worker's handler has a span `process` with the number of the attempt. The parent and
  the links are those of a record of an iteration or, for a batch, of a list.
- A commit by the application is a child of the current span. One by the consumer has no parent.

The same holds for a share consumer, where a record of `tracked` is processed until it is settled,
or until the body of its `processing` has ended.

`TracedIterator` stands between a loop and the iterator of the consumer. When it delivers records,
it makes their span the current one in the context of the task. The span is then also current in the
body of the loop, and in the tasks that the body starts. The next request for records restores the
context, and then ends the span. The deletion of the iterator does the same: a loop drops its
iterator when its body is left in any other way (see below). Each loop therefore has an
iterator of its own.

The context is restored in the task that makes the next request, and only if the span's context is
the current one there. A task may also request from several iterators in turn. Then the processing
that ends last restores the context that was current before all of them. Tasks that were started in
the body of a loop keep their context after the body has ended.

A loop says nothing to its iterator when its body is left by `break`, `return`, or an exception.
But it drops its reference to the iterator at once, so that the iterator's `__del__` is called from
the frame of the loop. The instruction that the frame then executes shows how the body was left:
`break` and `return` pop the iterator by an instruction of their own, and an exception leaves the
frame at the instruction that has raised it.

The exception itself is not passed to `__del__`. Since Python 3.12, it can be found: it is one of
the newest objects, and its traceback begins in this frame. In Python 3.11, it has no traceback yet,
so only its occurrence is known. An exception that is not found counts as a failure, unless the task
is being cancelled, or the loop is in an asynchronous generator, which may be being closed.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import opcode
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import CodeType, FrameType, MappingProxyType
from typing import Any, Final, Self

from opentelemetry import context as current_context
from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.trace import Link, Span, set_span_in_context

from aiokclient.errors import KafkaError
from aiokclient.telemetry.otel.classes import with_methods
from aiokclient.telemetry.otel.headers import (
    creation_of,
    extracted,
    injected,
    links_to,
    with_processed,
)
from aiokclient.telemetry.otel.spans import COMMIT, COUNT, POLL, PROCESS, Spans, being, ended, fail
from aiokclient.types import ConsumerRecord
from aiokclient.types.named_tuple import NamedTuple

PROCESSING: Final = create_key("aiokclient-processing")
"""The key under which a context has the `Processing` that made the context current."""


class Processing:
    """Records that are being processed. Their span is current until `end_processing`.

    With `ends`, that call also ends the span.
    """

    __slots__ = ("_before", "_context", "_ends", "_is_over", "_task", "span")

    def __init__(self, span: Span, context: Context, *, ends: bool = True) -> None:
        self.span = span
        self._ends = ends
        self._is_over = False
        self._task = _present_task()
        self._before = current_context.get_current()
        outer = get_value(PROCESSING, self._before)
        if isinstance(outer, Processing):
            outer._forget_ended()
        within = set_value(PROCESSING, self, context)
        self._context = weakref.ref(within)
        current_context.attach(within)

    def end_processing(self) -> None:
        """End the processing, and restore the context of the present task."""
        self._is_over = True
        present = current_context.get_current()
        restored = self._find_current_context(present)
        if restored is not present:
            current_context.attach(restored)
        if self._ends:
            self.span.end()

    def _forget_ended(self) -> None:
        """Drop contexts whose processing has ended. Otherwise, a chain of them stays in memory."""
        self._before = self._find_current_context(self._before)

    def _find_current_context(self, context: Context) -> Context:
        """Go back from this context to the newest one whose processing has not ended. Return it.

        Stop at a context that another task made, even if its processing has ended.
        """
        while True:
            found = get_value(PROCESSING, context)
            if not isinstance(found, Processing) or found._context() is not context:
                return context
            if not found._is_over or found._task is not self._task:
                return context
            context = found._before


class RunProcessing(Processing):
    """The processing of a record, or of a batch, by a worker's handler."""

    __slots__ = ()

    def end_run(self, error: BaseException | None) -> None:
        """End the span, and restore the context. `error` is that of the handler, if it failed."""
        if error is not None:
            fail(self.span, error)
        self.end_processing()


class TracedIterator:
    """An iterator for one loop, which yields the results of another iterator.

    `tracked` says whether that is an iterator of `Consumer.tracked`.
    """

    __slots__ = ("__weakref__", "_code", "_inner", "_present", "_tracing", "_tracked")

    def __init__(self, inner: Any, tracing: ConsumerTracing, *, tracked: bool) -> None:
        self._inner = inner
        self._tracked = tracked
        self._tracing = tracing
        self._present: Processing | None = None
        self._code: CodeType | None = None
        """The code of the function with the loop."""

    def __aiter__(self) -> Self:
        return type(self)(self._inner, self._tracing, tracked=self._tracked)

    async def __anext__(self) -> Any:
        self._end_processing()
        self._code = _calling_code()
        began_ns = time_ns()
        try:
            taken = await self._inner.__anext__()
        except StopAsyncIteration:
            raise
        except BaseException as error:
            self._tracing.on_request_failed(error, began_ns)
            raise
        self._present = self._tracing.begin_processing(taken, began_ns, tracked=self._tracked)
        return taken

    def _end_processing(self) -> None:
        present, self._present = self._present, None
        if present is not None:
            present.end_processing()

    def __del__(self) -> None:
        present = self._present
        if present is None:
            return
        frame = sys._getframe(1)
        if frame.f_code is self._code:
            left = left_by(frame)
            if left.failed:
                fail(present.span, left.error)
        self._end_processing()


def _present_task() -> weakref.ref[asyncio.Task[Any]] | None:
    """Return a weak reference to the present task. All calls in a task return the same object."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else weakref.ref(task)


def _calling_code() -> CodeType | None:
    """Return the code of the nearest calling function outside of this library, or None."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("aiokclient.")


POPS: Final = frozenset(
    opcode.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in opcode.opmap
)


MOST_OBJECTS: Final = 20_000
"""Maximum number of new objects among which an exception is searched for."""


class Left:
    """Whether an exception has left a body. `error` is the exception, or None if it is unknown."""

    __slots__ = ("error", "failed")

    def __init__(self, failed: bool, error: BaseException | None = None) -> None:
        self.failed = failed
        self.error = error


def left_by(frame: FrameType) -> Left:
    """Return how the loop in this frame was left. Call it while the loop drops its iterator."""
    instruction = frame.f_code.co_code[frame.f_lasti]
    if instruction in POPS:
        return Left(False)
    error = _newest_from(frame)
    if error is not None:
        return Left(True, error)
    in_generator = frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR
    return Left(not in_generator and not _is_cancelled())


def _newest_from(frame: FrameType) -> BaseException | None:
    """Return the exception that is leaving this frame, or None if it is not found."""
    if gc.get_count()[0] > MOST_OBJECTS:
        return None  # The program has disabled garbage collection, so a search would take too long.
    for found in gc.get_objects(generation=0):
        if issubclass(type(found), BaseException):
            traceback = found.__traceback__
            if traceback is not None and traceback.tb_frame is frame:
                error: BaseException = found
                return error
    return None


def _is_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


COMMITTING = create_key("aiokclient-committing")
"""The key that is set in a context while the application commits, but not the consumer itself."""

MOST_TRACKED = 10_000
"""Maximum number of open spans for the records of `tracked`. If there are more, the oldest ends."""

ATTEMPT: Final = "aiokclient.attempt"
"""The attribute with the number of the run of a record, the first of which is 1."""
NO_ATTRIBUTES: Final[Mapping[str, Any]] = MappingProxyType({})

Method = Callable[..., Any]
Record = ConsumerRecord[Any, Any]


class Read(NamedTuple):
    """The attributes of the delivered records in the spans of a request and of the processing."""

    topics: list[str]
    attributes: dict[str, Any]
    links: list[Link]


class ConsumerTracing:
    """The traced methods of one consumer."""

    _iterations: tuple[str, ...] = (
        "__aiter__",
        "until_end",
        "batches",
        "arrow_batches",
        "tracked",
    )

    def __init__(self, spans: Spans, kind: Any) -> None:
        self._spans = spans
        self._kind = kind
        self._tracked: dict[tuple[str, int, int], Span] = {}
        """The spans of records of `tracked` that are not done."""
        self._undo: Callable[[], None] | None = None

    def make_methods(self) -> dict[str, Method]:
        """Return the methods that replace those of the consumer."""
        return {
            **self._iteration_methods(),
            **self._request_methods(),
            **self._end_methods(),
            "commit": self._make_commit(),
            "_begin_run": self._make_begin_run(),
        }

    def _iteration_methods(self) -> dict[str, Method]:
        def iteration(name: str) -> Method:
            original = getattr(self._kind, name)

            def traced(consumer: Any, *args: Any, **named: Any) -> TracedIterator:
                inner = original(consumer, *args, **named)
                return TracedIterator(inner, self, tracked=name == "tracked")

            return traced

        return {name: iteration(name) for name in self._iterations}

    def _request_methods(self) -> dict[str, Method]:
        def request(name: str) -> Method:
            original = getattr(self._kind, name)

            async def traced(consumer: Any, *args: Any, **named: Any) -> Any:
                began_ns = time_ns()
                try:
                    found = await original(consumer, *args, **named)
                except BaseException as error:
                    self.on_request_failed(error, began_ns)
                    raise
                self._on_received(found, began_ns)
                return found

            return traced

        return {"poll": request("poll"), "get": request("get")}

    def _end_methods(self) -> dict[str, Method]:
        kind = self._kind

        def done(consumer: Any, record: Record) -> None:
            kind.done(consumer, record)
            self.end_record(record)

        def mark_processed(consumer: Any) -> None:
            self._end_tracked()
            kind.mark_processed(consumer)

        async def _close(consumer: Any, *, graceful: bool, timeout: float) -> None:
            try:
                await kind._close(consumer, graceful=graceful, timeout=timeout)
            finally:
                self._end_tracked()

        async def _open(consumer: Any, wait: bool) -> None:
            await kind._open(consumer, wait)
            self.on_open(consumer)

        return {
            "done": done,
            "mark_processed": mark_processed,
            "_close": _close,
            "_open": _open,
        }

    def on_open(self, consumer: Any) -> None:
        """Trace the commits by the consumer itself, once it is started."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        group = None if consumer._engine is None else consumer._engine.group
        if group is not None and self._spans.is_active:
            commits = group.commits
            store: Method = type(commits).store_offsets
            self._undo = with_methods(commits, {"store_offsets": self._trace_store(store)})

    def undo_tracing(self) -> None:
        """Stop tracing commits, and end all spans."""
        if self._undo is not None:
            self._undo()
            self._undo = None
        self._end_tracked()

    # -- runs of a worker

    def _make_begin_run(self) -> Method:
        def _begin_run(consumer: Any, run: Any, attempts: Any) -> RunProcessing | None:
            if not self._spans.is_active:
                return None
            records = [record for _, record in run.list_records()]
            extra = {ATTEMPT: attempts.count_attempts(run, run.record) + 1}
            if len(records) == 1:
                return RunProcessing(*self._start_span(records[0], extra))
            read = _read(records)
            attributes = {**read.attributes, **extra}
            span = self._spans.start_span(PROCESS, read.topics, attributes, links=read.links)
            return RunProcessing(span, with_processed(set_span_in_context(span), read.links))

        return _begin_run

    # -- processing

    def begin_processing(self, taken: Any, began_ns: int, *, tracked: bool) -> Processing | None:
        """Begin to process a record, a list of records, or an Arrow record batch.

        With `tracked`, the span of the record ends with `done`. `began_ns` is the time of the
        request. Return None if no spans are made.
        """
        if not self._spans.is_active:
            return None
        if isinstance(taken, list):
            return self._process_many(_read(taken), began_ns)
        if not isinstance(taken, ConsumerRecord):
            return self._process_many(_read_table(taken), began_ns)
        span, context = self._start_span(taken)
        if tracked:
            key = taken.topic, taken.partition, taken.offset
            earlier = self._tracked.pop(key, None)
            if earlier is not None:
                earlier.end()  # The record was delivered again.
            self._tracked[key] = span
            if len(self._tracked) > MOST_TRACKED:
                self._tracked.pop(next(iter(self._tracked))).end()
        return Processing(span, context, ends=not tracked)

    def _start_span(
        self, record: Record, extra: Mapping[str, Any] = NO_ATTRIBUTES
    ) -> tuple[Span, Context]:
        before = current_context.get_current()
        creation = injected(record.headers)
        if creation is not None and creation_of(before) is None:
            before = extracted(record.headers, before)
        links = links_to([creation])
        span = self._spans.start_span(
            PROCESS, [record.topic], {**_of_record(record), **extra}, context=before, links=links
        )
        return span, with_processed(set_span_in_context(span, before), links)

    def _process_many(self, read: Read, began_ns: int) -> Processing:
        parent = set_span_in_context(self._record_poll(read, began_ns))
        span = self._spans.start_span(
            PROCESS, read.topics, read.attributes, context=parent, links=read.links
        )
        return Processing(span, with_processed(set_span_in_context(span), read.links))

    def end_record(self, record: Record, error: BaseException | None = None) -> None:
        """End the span of a record of `tracked`. `error` is that of its body, if it failed."""
        span = self._tracked.pop((record.topic, record.partition, record.offset), None)
        if span is not None:
            if error is not None:
                fail(span, error)
            span.end()

    def _end_tracked(self) -> None:
        tracked, self._tracked = self._tracked, {}
        for span in tracked.values():
            span.end()

    # -- requests

    def _on_received(self, found: Any, began_ns: int) -> None:
        """Make the span of a request that has ended. If it returned no records, it has no span."""
        if not found or not self._spans.is_active:
            return
        if isinstance(found, list):
            read = _read(found)
        else:
            links = links_to([injected(found.headers)])
            read = Read([found.topic], _of_record(found), links)
        self._record_poll(read, began_ns)

    def _record_poll(self, read: Read, began_ns: int) -> Span:
        span = self._spans.start_span(
            POLL, read.topics, read.attributes, links=read.links, began_ns=began_ns
        )
        span.end()
        return span

    def on_request_failed(self, error: BaseException, began_ns: int) -> None:
        """Make the span of a request that has failed."""
        if isinstance(error, Exception) and self._spans.is_active:
            span = self._spans.start_span(POLL, (), began_ns=began_ns)
            fail(span, error)
            span.end()

    # -- commits

    def _make_commit(self) -> Method:
        kind, spans = self._kind, self._spans

        async def commit(consumer: Any, *args: Any, **named: Any) -> Any:
            if not spans.is_active:
                return await kind.commit(consumer, *args, **named)
            span = spans.start_span(COMMIT, _topics(consumer))
            with ended(span), being(set_value(COMMITTING, True, set_span_in_context(span))):
                return await kind.commit(consumer, *args, **named)

        return commit

    def _trace_store(self, original: Method) -> Method:
        spans = self._spans

        async def store(commits: Any, offsets: Any, *args: Any, **named: Any) -> Any:
            if not offsets or not spans.is_active or get_value(COMMITTING):
                return await original(commits, offsets, *args, **named)
            span = spans.start_span(COMMIT, (tp.topic for tp in offsets), context=Context())
            with ended(span):
                refused = await original(commits, offsets, *args, **named)
                for error in refused.values():
                    fail(span, error)
                    break
            return refused

        return store


class ShareConsumerTracing(ConsumerTracing):
    """The traced methods of one share consumer, which settles records one by one."""

    _iterations = ("__aiter__", "batches", "tracked")

    def _end_methods(self) -> dict[str, Method]:
        kind, methods = self._kind, super()._end_methods()

        def settle(consumer: Any, record: Any, *args: Any) -> bool:
            records = [record] if isinstance(record, ConsumerRecord) else list(record)
            held: bool = kind._settle(consumer, record if records == [record] else records, *args)
            for each in records:
                self.end_record(each)
            return held

        def processing(consumer: Any, record: Record, *args: Any, **named: Any) -> TracedScope:
            return TracedScope(kind.processing(consumer, record, *args, **named), record, self)

        kept = {name: methods[name] for name in ("mark_processed", "_close")}
        return {**kept, "_settle": settle, "processing": processing}

    def on_open(self, consumer: Any) -> None:
        """Do nothing: settlements travel with other requests."""


class TracedScope:
    """The scope of `ShareConsumer.processing`, at whose end the span of the record ends."""

    __slots__ = ("_record", "_scope", "_tracing")

    def __init__(self, scope: Any, record: Record, tracing: ConsumerTracing) -> None:
        self._scope = scope
        self._record = record
        self._tracing = tracing

    async def __aenter__(self) -> Any:
        return await self._scope.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> Any:
        try:
            return await self._scope.__aexit__(kind, error, traceback)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._tracing.end_record(self._record, error)


def _topics(consumer: Any) -> set[str]:
    try:
        return {tp.topic for tp in consumer.assignment()}
    except KafkaError:
        return set()  # The commit raises the same error.


def _of_record(record: Record) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    return attributes


def _as_headers(found: Any) -> Sequence[tuple[str, Any]]:
    """Return the headers of a record in an Arrow table as those of a record."""
    return [(each["key"], each["value"]) for each in found or ()]


def _read(records: Sequence[Record]) -> Read:
    attributes: dict[str, Any] = {COUNT: len(records)}
    partitions = {(record.topic, record.partition) for record in records}
    if len(partitions) == 1:
        ((_, partition),) = partitions
        attributes["messaging.destination.partition.id"] = str(partition)
    links = links_to(injected(record.headers) for record in records)
    return Read([topic for topic, _ in partitions], attributes, links)


def _read_table(table: Any) -> Read:
    """Return the attributes of an Arrow record batch, which is of one partition."""
    topic, partition = (table.column(name)[0].as_py() for name in ("topic", "partition"))
    attributes = {COUNT: table.num_rows, "messaging.destination.partition.id": str(partition)}
    headers = table.column("headers").to_pylist() if table.column("headers").nbytes else []
    return Read([topic], attributes, links_to(injected(_as_headers(each)) for each in headers))

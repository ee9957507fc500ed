"""Native classes on the way of requests and responses do the same as their Python twins.

Both get the same requests and the same bytes, valid and invalid ones. The Python twins are those of
the modules as they are imported without native ones.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import re
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import MemoryTransport

from aiokclient import _native, background
from aiokclient._native import in_use
from aiokclient.errors import KafkaError
from aiokclient.metrics import Metrics
from aiokclient.network import connection, flow, traffic
from aiokclient.protocol import framing, produce_template
from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokclient.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from aiokclient.record.batch import RecordBatchBuilder

pytestmark = pytest.mark.skipif(not in_use(), reason="the native modules are not in use")

KIB = 1 << 10
LIMIT = 200 * KIB
IDS = {"orders": UUID(int=1), "o": UUID(int=2)}
VERSIONS = (3, 4, 5, 8, 9, 12, 13)
SENT_AT = 5.0


def in_python(module: Any) -> Any:
    """Return a copy of a module with its Python twins."""
    spec = importlib.util.spec_from_file_location(f"pure_{module.__name__}", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aiokclient._native.WANTED", False)
        spec.loader.exec_module(made)
    return made


PURE = {
    each: in_python(each)
    for each in (background, framing, produce_template, flow, traffic, connection)
}
KINDS = ("native", "pure")


def of(kind: str, module: Any) -> Any:
    return module if kind == "native" else PURE[module]


def test_the_native_classes_are_in_use_and_their_twins_are_others() -> None:
    for module, name in (
        (framing, "ReaderState"),
        (framing, "PipelineState"),
        (produce_template, "TemplateState"),
        (produce_template, "BatchesState"),
        (flow, "HeldState"),
        (traffic, "MeterState"),
        (background, "TimerState"),
        (connection, "PendingRequest"),
        (connection, "ConnectionState"),
    ):
        native, pure = getattr(module, name), getattr(PURE[module], name)
        assert native.__module__ == "aiokclient._native.ground"
        assert pure.__module__ == f"pure_{module.__name__}"
        assert pure.__name__ == native.__name__


def test_native_constants_are_those_of_the_python_twins() -> None:
    folder = Path(_native.__file__).parent
    text = "".join((folder / f"ground_{part}.pxi").read_text() for part in ("connection", "frames"))
    found = {name: eval(value) for name, value in re.findall(r"^    ([A-Z]+) = (.+)$", text, re.M)}
    assert found == {
        "LARGE": connection.LARGE,
        "UNCOUNTED": connection.UNCOUNTED,
        "SCRATCH": framing._SCRATCH,
        "SPARE": framing._SPARE,
        "REMAINDER": framing._REMAINDER,
        "LULL": framing._LULL,
    }


# -- frames


def told(error: BaseException) -> tuple[Any, ...]:
    """Return what is to be equal in the errors of both twins."""
    found = type(error).__name__, str(error)
    size = getattr(error, "size", None), getattr(error, "limit", None)
    return *found, *size, getattr(error, "correlation_id", None)


def split(kind: str, stream: bytes, ends: list[int]) -> list[Any]:
    """Return everything that a reader tells while it gets the parts of a stream."""
    reader = of(kind, framing).FrameReader(LIMIT)
    found: list[Any] = []
    for start, end in pairwise([0, *ends]):
        while start < end:
            room = reader.get_buffer()
            count = min(len(room), end - start)
            room[:count] = stream[start : start + count]
            start += count
            try:
                found.append(list(map(bytes, reader.take_frames(count))))
            except KafkaError as error:
                return [*found, told(error)]
            found.append((len(room), reader.missing, reader.in_large_frame))
    return found


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


SIZES = st.sampled_from([0, 1, 3, 4, 100, 511, 513, 3000, 65531, 65532, 65533, 70_000, LIMIT])
LENGTHS = st.sampled_from([-1, -(2**31), LIMIT + 1, 2**31 - 1])


@settings(max_examples=60)
@given(
    st.lists(SIZES, max_size=5),
    st.lists(st.integers(0, 1 << 20), max_size=8),
    st.none() | LENGTHS,
    st.integers(0, 7),
)
def test_streams_are_split_alike(
    sizes: list[int], cuts: list[int], hostile: int | None, rest: int
) -> None:
    stream = b"".join(framed(bytes([at + 1]) * size) for at, size in enumerate(sizes))
    if hostile is not None:
        stream += hostile.to_bytes(4, "big", signed=True) + b"\0\0\0\7"[:rest]
    else:
        stream += framed(bytes(100))[:rest]
    ends = sorted({*(cut % (len(stream) + 1) for cut in cuts), len(stream)})
    assert split("native", stream, ends) == split("pure", stream, ends)


def test_streams_are_split_alike_at_each_byte() -> None:
    stream = framed(b"") + framed(b"one") + framed(b"another") + framed(bytes(9))
    for cut in range(len(stream) + 1):
        for ends in ([cut, len(stream)], [cut, min(cut + 1, len(stream)), len(stream)]):
            assert split("native", stream, ends) == split("pure", stream, ends)


# -- requests and responses


def test_requests_are_made_without_their_constructor() -> None:
    for kind in KINDS:
        module = of(kind, produce_template)
        without = {"__slots__": (), "__init__": None}  # A call of it would raise TypeError.
        subclass = type("Subclass", (module.TemplateRequest,), without)
        templates = [module.Template(9, "orders", IDS["orders"], 0, -1, 30_000)]
        made = module.new_request(subclass, templates, batches := [b"batch"])
        assert type(made) is subclass
        assert made.templates is templates
        assert made.batches is batches
        assert made._topics is None


PARTITIONS = st.lists(
    st.tuples(st.sampled_from(sorted(IDS)), st.integers(0, 3)), min_size=1, max_size=4, unique=True
)
DAMAGES = (
    "none", "none", "none", "view", "code", "throttle", "number", "tags", "bad tags", "trailing",
    "cut", "bit", "short",
)  # fmt: skip


class Exchange(NamedTuple):
    """A request, and its response, which may be damaged."""

    api: str
    version: int
    wanted: list[tuple[str, int]]
    has_room: bool
    """Whether the memory of the batches has room for the rest of the request."""
    expects: bool
    base_offset: int
    damage: str
    at: int
    """Tells which byte or bit is damaged."""

    def make_message(self, kind: str) -> Any:
        if self.api == "Metadata":
            return MetadataRequest(topics=[])
        module = of(kind, produce_template)
        templates, batches = [], []
        for name, index in self.wanted:
            templates.append(module.Template(self.version, name, IDS[name], index, -1, 30_000))
            builder = RecordBatchBuilder(limit=1 << 20)
            builder.append(1, None, bytes(10 * index))
            batch = builder.seal(1, 2, 3)
            batches.append(batch if self.has_room else memoryview(bytes(batch)))
        return module.TemplateRequest(templates, batches)

    def make_frame(self, number: int) -> Any:
        """Return the response to the request with this correlation id."""
        answer: Any = MetadataResponse()
        if self.api == "Produce":
            topics: dict[str, TopicProduceResponse] = {}
            for name, index in self.wanted:
                made = TopicProduceResponse(name=name, topic_id=IDS[name])
                part = PartitionProduceResponse(index=index, base_offset=self.base_offset)
                topics.setdefault(name, made).partition_responses.append(part)
                part.error_code = 6 if self.damage == "code" else 0
            answer = ProduceResponse(responses=list(topics.values()))
        if self.damage == "throttle":
            answer.throttle_time_ms = 1
        head = (number + (self.damage == "number")).to_bytes(4, "big")
        if answer.header_version(self.version):
            head += {"tags": b"\1\3\2ab", "bad tags": b"\1\3\x7f"}.get(self.damage, b"\0")
        frame = head + b"".join(answer.encode(self.version))
        at = self.at % (8 * len(frame))
        if self.damage == "trailing":
            return frame + b"more"
        if self.damage == "bit":
            return (int.from_bytes(frame, "big") ^ 1 << at).to_bytes(len(frame), "big")
        ends = {"cut": at // 8, "short": at % 5}
        frame = frame[: ends.get(self.damage)]
        return memoryview(frame) if self.damage == "view" else frame


EXCHANGES = st.lists(
    st.builds(
        Exchange,
        st.sampled_from(["Produce", "Produce", "Metadata"]),
        st.sampled_from(VERSIONS),
        PARTITIONS,
        st.booleans(),
        st.booleans(),
        st.sampled_from([-1, 0, 7, 2**62]),
        st.sampled_from(DAMAGES),
        st.integers(0, 2000),
    ),
    min_size=1,
    max_size=3,
)


def plain(response: Any, version: int) -> Any:
    """Return a response as lists, tuples, and bytes."""
    return response if isinstance(response, list) else b"".join(response.encode(version))


def exchange_all(kind: str, exchanges: list[Exchange]) -> list[Any]:
    pipeline = of(kind, framing).ClientPipeline("client")
    pipeline._next = 2**31 - 3  # Correlation ids begin at 0 again after the largest one.
    found: list[Any] = []
    numbers = []
    for each in exchanges:
        message = each.make_message(kind)
        if not each.expects:
            number, segments = pipeline.encode_request(message, each.version, False)
            found.append((number, b"".join(segments)))
        number, segments = pipeline.encode_request(message, each.version)
        found.append((number, b"".join(segments)))
        numbers.append(number)
    found.append((len(pipeline), pipeline.sent))
    for number, each in zip(numbers, exchanges, strict=True):
        try:
            answer = pipeline.read_response(each.make_frame(number))
        except KafkaError as error:
            return [*found, told(error), len(pipeline)]
        found.append((plain(answer, each.version), len(pipeline)))
    return found


@settings(max_examples=100)
@given(EXCHANGES)
def test_requests_and_responses_are_the_same(exchanges: list[Exchange]) -> None:
    assert exchange_all("native", exchanges) == exchange_all("pure", exchanges)


# -- connections


@pytest.mark.parametrize("version", [None, 7])
def test_pending_requests_are_the_same(version: int | None) -> None:
    found = []
    for kind in KINDS:
        module = of(kind, connection)
        sent = module.PendingRequest(MetadataRequest(topics=[]), version, SENT_AT, 9, True)
        found.append([sent.api, sent.version, sent.since, sent.timeout_s, sent.deadline])
        sent.restart_timeout(SENT_AT + 1)
        sent.expect_response = False
        found[-1] += [sent.since, sent.timeout_s, sent.deadline, sent.expect_response]
        for left in (lambda sent=sent: sent.over, sent.on_written):
            with pytest.raises(NotImplementedError):
                left()
        for left in (sent.deliver_response, sent.fail):
            with pytest.raises(NotImplementedError):
                left(None)
    native, pure = found
    assert native == pure
    assert native == ["Metadata", version, 5.0, 9, 14.0, 6.0, 9, 15.0, False]


class Recorded(connection.PendingRequest):
    """A request that records what happens to it."""

    __slots__ = ("connection", "found", "name", "over", "reaction")

    over: bool

    def __init__(self, name: Any, found: list[Any], connection: Any, *request: Any) -> None:
        super().__init__(*request)
        self.name, self.found, self.connection, self.over = name, found, connection, False
        self.reaction: Callable[[], object] | None = None

    def deliver_response(self, response: Any) -> None:
        waits = self.connection.call_after_read(partial(self.found.append, (self.name, "after")))
        self.found.append((self.name, plain(response, self.version or 0), waits))
        if self.reaction is not None:
            self.reaction()

    def on_written(self) -> None:
        self.found.append((self.name, "written"))

    def fail(self, error: KafkaError) -> None:
        self.found.append((self.name, told(error)))


async def talk(kind: str, exchanges: list[Exchange], reaction: str, piece: int) -> list[Any]:
    """Return what a connection does while it sends requests and gets the responses."""
    metrics = Metrics()
    made = of(kind, connection).BrokerConnection(
        1, "memory", 9092, client_id="c", traffic=of(kind, traffic).Traffic(metrics, "c")
    )
    made._now = itertools.count(SENT_AT, 0.25).__next__
    transport = MemoryTransport(made)
    made.end_setup({0: (3, 13), 3: (0, 12)}, LIMIT)
    found: list[Any] = []
    frames = b""
    for number, each in enumerate(exchanges):
        version = None if each.api == "Metadata" else each.version
        expects = each.expects or each.api == "Metadata"
        sent = Recorded(
            number, found, made, each.make_message("native"), version, SENT_AT, 9, expects
        )
        made.start_request(sent, SENT_AT)
        if expects:
            frames += framed(bytes(each._replace(version=sent.version).make_frame(number)))
        if number == 0 and reaction == "close":
            sent.reaction = made.close
        elif number == 0 and reaction == "drain":
            sent.reaction = made.close_when_idle
        elif number == 0 and reaction == "send":
            again = Recorded(
                "again", found, made, each.make_message("native"), version, SENT_AT, 9, True
            )
            sent.reaction = partial(made.start_request, again, SENT_AT)
    if reaction == "oversized":
        frames += (LIMIT + 1).to_bytes(4, "big") + bytes(8)
    found.append(transport.sent)
    transport.feed(frames, piece)
    found += [transport.sent, made.closed, transport.closing, made.reason and told(made.reason)]
    found += [made.in_flight, made._last_used, made._held.throttled_until, len(made._decoding)]
    made.close()
    found.append(metrics.take_snapshot())
    await made.wait_closed()
    return found


@settings(max_examples=60)
@given(
    EXCHANGES,
    st.sampled_from(["", "close", "drain", "send", "oversized"]),
    st.sampled_from([1, 5, 1 << 20]),
)
def test_connections_do_the_same(exchanges: list[Exchange], reaction: str, piece: int) -> None:
    async def talk_twice() -> None:
        native, pure = [await talk(kind, exchanges, reaction, piece) for kind in KINDS]
        assert native == pure

    asyncio.run(talk_twice())

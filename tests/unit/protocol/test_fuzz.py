"""Tests that decoders turn any bytes into a message or a ProtocolError, with little memory."""

import math
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from thinned import IS_WHOLE

from aiokclient.errors import ProtocolError
from aiokclient.protocol import messages
from aiokclient.protocol.fields import Field
from aiokclient.protocol.framing import ClientPipeline, FrameReader, ServerFraming
from aiokclient.protocol.schema import Message, Struct

pytestmark = pytest.mark.fuzz

EXAMPLES = 150 if IS_WHOLE else 75
SECONDS = float(os.environ.get("AIOKCLIENT_FUZZ", "0"))

VALUES: dict[str, Any] = {
    "boolean": True,
    "float64": 1.5,
    "uuid": UUID(int=77),
    "string": "näme",
    "bytes": b"bytes",
    "records": b"records",
}
HOSTILE = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x10",
    b"\x80\x80\x80\x80\x80",
    b"\xfe\xff\xff\xff\x0f",
    b"\x7f\xff",
    b"\x80\x00",
)

Decode = Callable[[bytes], Any]


def decoders() -> Iterator[tuple[type[Message], int]]:
    for name in messages.__all__:
        cls = getattr(messages, name)
        for version in range(cls.min_version, cls.max_known_version + 1):
            yield cls, version


def value_of(field: Field, version: int) -> Any:
    """Return a value that is not the default, with one element in each array."""
    if not field.present_in(version):
        return field.new_default()
    inner = isinstance(field.element, type)
    value = filled(field.element, version) if inner else VALUES.get(field.element.kind, 5)
    return [value] if field.kind == "array" else value


def filled(cls: type[Struct], version: int) -> Any:
    return cls(**{field.name: value_of(field, version) for field in cls._fields})


@cache
def encodings() -> list[tuple[type[Message], int, bytes]]:
    """Return a full message of each class and version.

    It has an unknown tag where tags are allowed.
    """
    made = []
    for cls, version in decoders():
        message = filled(cls, version)
        if cls.is_flexible(version):
            message.unknown_tags = {1000: b"tag"}
        made.append((cls, version, b"".join(message.encode(version))))
    return made


def survives(cls: type[Message], version: int, data: bytes) -> None:
    """Check that the bytes are refused with ProtocolError or decoded.

    A decoded message can be encoded, and the encoding decodes to an equal message.
    """
    try:
        message = cls.decode(data, version)
    except ProtocolError:
        return
    again = cls.decode(b"".join(message.encode(version)), version)
    assert again == message or has_nan(message)


def has_nan(value: Any) -> bool:
    if isinstance(value, Struct):
        return any(has_nan(getattr(value, field.name)) for field in value._fields)
    if isinstance(value, list):
        return any(map(has_nan, value))
    return isinstance(value, float) and math.isnan(value)


def fuzz(test: Callable[[], None]) -> None:
    """Run a hypothesis test once, or repeatedly for AIOKCLIENT_FUZZ seconds."""
    limited = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(test)
    if not SECONDS:
        seed(20240501)(limited)()
        return
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        seed(time.monotonic_ns())(limited)()


SMALL = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 127, 128, 254, 255])
BYTES = st.one_of(st.binary(max_size=200), st.lists(SMALL, max_size=120).map(bytes))


def test_any_bytes_are_decoded_or_refused() -> None:
    everything = list(decoders())

    @given(BYTES)
    def run(data: bytes) -> None:
        for cls, version in everything:
            survives(cls, version, data)

    fuzz(run)


@st.composite
def edits(draw: st.DrawFn) -> Decode:
    """Draw a function that damages bytes: by cutting, overwriting, inserting, or removing."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["cut", "write", "insert", "drop"]),
                st.floats(0, 1, exclude_max=True),
                st.one_of(st.binary(min_size=1, max_size=5), st.sampled_from(HOSTILE)),
            ),
            min_size=1,
            max_size=3,
        )
    )

    def spoil(data: bytes) -> bytes:
        for kind, where, part in steps:
            position = int(where * (len(data) + 1))
            rest = {
                "cut": b"",
                "write": part + data[position + len(part) :],
                "insert": part + data[position:],
                "drop": data[position + len(part) :],
            }[kind]
            data = data[:position] + rest
        return data

    return spoil


def test_damaged_messages_are_decoded_or_refused() -> None:
    whole = encodings()

    @given(edits())
    def run(spoil: Decode) -> None:
        for cls, version, data in whole:
            survives(cls, version, spoil(data))

    fuzz(run)


def test_every_truncation_is_refused() -> None:
    for cls, version, data in encodings():
        for end in range(len(data)):
            with pytest.raises(ProtocolError):
                cls.decode(data[:end], version)
        with pytest.raises(ProtocolError, match="is followed by"):
            cls.decode(data + b"\0", version)


def test_hostile_lengths_allocate_little_memory() -> None:
    """A hostile length at any position of any message takes less than a quarter of a MiB."""
    spoiled = [
        (cls, version, data[:position] + hostile + data[position + len(hostile) :])
        for cls, version, data in encodings()
        for position in range(0, len(data), 3 if IS_WHOLE else 24)
        for hostile in (HOSTILE[1], HOSTILE[2], HOSTILE[6])
    ]
    for cls, version, data in encodings():
        cls.decode(data, version)  # The first call compiles the decoder, which takes memory.
    tracemalloc.start()
    try:
        for cls, version, data in spoiled:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                cls.decode(data, version)
            except ProtocolError:
                pass
            taken = tracemalloc.get_traced_memory()[1] - before
            assert taken < 1 << 18, (cls.__name__, version, data)
    finally:
        tracemalloc.stop()


def test_any_frame_is_decoded_or_refused_by_a_client() -> None:
    @given(BYTES, st.integers(0, 12))
    def run(data: bytes, version: int) -> None:
        pipeline = ClientPipeline("fuzz")
        pipeline.encode_request(messages.MetadataRequest(), version)
        for frame in (data, bytes(4) + data):
            try:
                pipeline.match_response(frame).decode(frame)
            except ProtocolError:
                pass

    fuzz(run)


def test_any_frame_is_decoded_or_refused_by_a_broker() -> None:
    @given(BYTES, st.integers(-1, 100), st.integers(-1, 20))
    def run(data: bytes, key: int, version: int) -> None:
        head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
        for frame in (data, head + data, head + bytes(4) + b"\xff\xff" + data):
            try:
                ServerFraming().decode_request(frame)
            except ProtocolError:
                pass

    fuzz(run)


def test_any_stream_is_read_or_refused_in_any_pieces() -> None:
    @given(st.lists(st.binary(min_size=1, max_size=50), max_size=20))
    def run(pieces: list[bytes]) -> None:
        reader = FrameReader(1000)
        try:
            for piece in pieces:
                room = reader.get_buffer()
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                for frame in reader.take_frames(count):
                    assert len(frame) <= 1000
        except ProtocolError:
            pass

    fuzz(run)

"""Frames and the requests in flight, for both ends of a connection. Sans-IO.

A frame is its length as an int32, a header, and a message. ``FrameReader``
splits a stream into frames. ``ClientPipeline`` assigns correlation ids to
requests and matches responses: a broker responds to the requests of one
connection in order, so that any correlation id but that of the oldest request
in flight is an error. ``ServerFraming`` is the broker's side.

Outgoing frames are lists of segments, which must be written in order and not be
changed afterwards. Records are segments of their own and are not copied.
"""

from __future__ import annotations

from collections import deque
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any, NoReturn

from aiokclient._native import twin
from aiokclient.errors import ProtocolError, UnsupportedVersionError
from aiokclient.memory import BufferPool
from aiokclient.protocol.api import request_class
from aiokclient.protocol.messages.header import RequestHeader, ResponseHeader
from aiokclient.protocol.schema import LENGTH, Request, Response
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.produce_template import AnyRequest

_PREFIX = LENGTH.size
_HEADER_START = Layout(">hhi")
_REQUEST_START = Layout(">ihh")
_NUMBER = Layout(">i")
_SCRATCH = 64 * 1024
_SPARE = 8
"""Largest number of unused scratch buffers that are kept."""
_REMAINDER = 512
"""Largest part of an incomplete frame, in bytes, that is copied to release a scratch buffer."""
_KEPT = 64 * 1024 * 1024
"""Largest number of bytes that a reader keeps for further large frames."""
_LULL = 16
"""Number of reads without a large frame after which a reader frees the memory that it keeps."""
_LAST_CORRELATION_ID = 0x7FFFFFFF


class OversizedFrameError(ProtocolError):
    """An error raised when a frame is longer than allowed.

    `size` is its length in bytes. `correlation_id` is the first number in it, or None if that has
    not arrived yet.
    """

    def __init__(self, size: int, limit: int, correlation_id: int | None) -> None:
        super().__init__(f"A frame announces {size} bytes. At most {limit} bytes are allowed.")
        self.size = size
        self.limit = limit
        self.correlation_id = correlation_id


@twin("ground")
class ReaderState:
    """The state of a `FrameReader` between two reads, and the splitting of small frames.

    Small frames are those that fit into a scratch buffer. Subclasses have all else.
    """

    max_frame: int
    _scratch: memoryview | None
    _remainder: bytes
    _filled: int
    """The number of bytes of an incomplete frame, in the scratch buffer or in `_remainder`."""
    _lull: int
    _pool: BufferPool
    _frame: memoryview | None
    """The large frame that is received."""

    def get_buffer(self) -> memoryview:
        """Return memory for the next bytes, at least one."""
        if self._frame is not None:
            return self._get_large_buffer()
        scratch = self._scratch
        if scratch is None:
            scratch = self._scratch = _spare.pop() if _spare else memoryview(bytearray(_SCRATCH))
            if not self._filled:
                return scratch
            scratch[: self._filled] = self._remainder
            self._remainder = b""
        return scratch[self._filled :]

    def take_frames(self, count: int) -> list[Buffer]:
        """Return the frames that are complete after ``count`` more bytes, without their lengths.

        Raises ProtocolError for a length that is negative or above max_frame,
        before memory is allocated for it. The connection must then be closed.
        """
        if self._frame is not None:
            return self._fill_large_frame(count)
        scratch = self._scratch
        assert scratch is not None
        filled = self._filled + count
        frames: list[Buffer] = []
        start = 0
        while filled - start >= _PREFIX:
            length: int = LENGTH.unpack_from(scratch, start)[0]
            if not 0 <= length <= self.max_frame:
                self._refuse_length(scratch, start, filled)
            begin = start + _PREFIX
            if length > filled - begin:
                if length > _SCRATCH - _PREFIX:
                    self._begin_large_frame(scratch[begin:filled], length)
                    start = filled
                break
            frames.append(bytes(scratch[begin : begin + length]))
            start = begin + length
        # Keep the bytes from `start` on for the next read.
        rest = self._filled = filled - start
        if rest <= _REMAINDER:
            if rest:
                self._remainder = bytes(scratch[start:filled])
            self._scratch = None
            if len(_spare) < _SPARE:
                _spare.append(scratch)
        elif start:
            scratch[:rest] = bytes(scratch[start:filled])
        self._lull += 1
        if self._lull == _LULL:
            self._pool.clear()
        return frames

    def _get_large_buffer(self) -> memoryview:
        raise NotImplementedError

    def _fill_large_frame(self, count: int) -> list[Buffer]:
        raise NotImplementedError

    def _begin_large_frame(self, received: memoryview, length: int) -> None:
        raise NotImplementedError

    def _refuse_length(self, scratch: memoryview, start: int, end: int) -> NoReturn:
        raise NotImplementedError


class FrameReader(ReaderState):
    """A splitter of a byte stream into frames.

    It fits asyncio's BufferedProtocol: ``get_buffer()`` returns memory for the
    next bytes, and ``take_frames(n)`` returns the frames that are complete with the
    n bytes that were written there. Each frame has its own memory, which does
    not change while anything refers to it. Small frames are copied from a scratch
    buffer. The bytes of a large frame are received directly into its memory,
    which may be reused from an earlier frame that is no longer referenced.

    Between two reads a reader usually has no scratch buffer, so that an idle connection takes
    almost no memory: all readers of the process share a few scratch buffers. A reader keeps a
    scratch buffer only while the buffer contains a large part of an incomplete frame.

    max_frame: the size limit of a frame in bytes; a change applies to the next frame
    kept: bytes of memory of large frames that are kept for reuse
    """

    def __init__(self, max_frame: int, *, kept: int = _KEPT) -> None:
        self.max_frame = max_frame
        self._scratch = None
        self._filled = 0
        self._lull = 0
        self._pool = BufferPool(kept)
        self._frame = None
        self._frame_filled = 0

    @property
    def in_large_frame(self) -> bool:
        """Whether part of a large frame was received."""
        return self._frame is not None

    @property
    def missing(self) -> int:
        """The number of bytes that are missing in a partly received large frame, or 0."""
        return 0 if self._frame is None else len(self._frame) - self._frame_filled

    def _get_large_buffer(self) -> memoryview:
        assert self._frame is not None
        return self._frame[self._frame_filled :]

    def _fill_large_frame(self, count: int) -> list[Buffer]:
        assert self._frame is not None
        self._frame_filled += count
        if self._frame_filled < len(self._frame):
            return []
        large, self._frame = self._frame, None
        return [large]

    def _begin_large_frame(self, received: memoryview, length: int) -> None:
        self._lull = -1
        self._frame = self._pool.take(length)
        self._frame_filled = len(received)
        self._frame[: len(received)] = received

    def _refuse_length(self, scratch: memoryview, start: int, end: int) -> NoReturn:
        """Raise OversizedFrameError for the frame that begins at `start`."""
        begin = start + _PREFIX
        has_number = end >= begin + LENGTH.size
        number = LENGTH.unpack_from(scratch, begin)[0] if has_number else None
        raise OversizedFrameError(LENGTH.unpack_from(scratch, start)[0], self.max_frame, number)


_spare: list[memoryview] = []


class InFlight(NamedTuple):
    """A request that waits for its response."""

    correlation_id: int
    request: AnyRequest
    version: int
    response_header: int
    """The version of the header of the response."""

    def decode(self, frame: Buffer) -> Any:
        """Decode the response. Raises ProtocolError if it is malformed. Thread-safe.

        Bytes after the response are ignored, as in Kafka's own client, because some brokers send
        them.
        """
        position = _PREFIX
        if self.response_header:
            position += 1
            if len(frame) <= _PREFIX or frame[_PREFIX]:  # The header has tagged fields.
                position = ResponseHeader.decode_from(frame, 0, self.response_header)[1]
        return self.request.read_response(frame, position, self.version)[0]


@twin("ground")
class PipelineState:
    """The requests in flight of a `ClientPipeline`, and the encoding and decoding of usual frames.

    Subclasses have all else.
    """

    client_id: str | None
    _headers: dict[tuple[type[AnyRequest], int], tuple[bytes, bytes, int]]
    """For each class of requests and version: what comes before and after the correlation id,
    with room for the length of the frame, and the version of the header of responses."""
    _in_flight: deque[tuple[Any, ...]]
    """The fields of an `InFlight` for each request. Making a named tuple takes as long as five
    calls, and most of them are never needed. The native twin adds the template."""
    _next: int
    """The next correlation id."""

    def encode_request(
        self, request: AnyRequest, version: int, expect_response: bool = True
    ) -> tuple[int, list[Buffer]]:
        """Encode a request, and return its correlation id and the segments of its frame.

        expect_response: False for a produce request with acks=0
        Raises the errors of `Message.encode_frame`. The request is not in flight then.
        """
        number = self._next
        header = self._headers.get((type(request), version))
        start, end, response_header = header or self._add_header(type(request), version)
        segments = request.encode_frame(version, start + _NUMBER.pack(number) + end)
        self._next = 0 if number == _LAST_CORRELATION_ID else number + 1
        if expect_response:
            self._in_flight.append((number, request, version, response_header))
        return number, segments

    def read_response(self, frame: Buffer) -> Any:
        """Return the response to the oldest request in flight, which is removed.

        This is `match_response` and `InFlight.decode` in one call. Raises their errors.
        """
        if self._in_flight and len(frame) > _PREFIX:
            number, request, version, response_header = self._in_flight[0]
            if LENGTH.unpack_from(frame, 0)[0] == number and not (
                response_header and frame[_PREFIX]
            ):
                self._in_flight.popleft()
                position = _PREFIX + 1 if response_header else _PREFIX
                return request.read_response(frame, position, version)[0]
        return self.match_response(frame).decode(frame)

    def match_response(self, frame: Buffer) -> InFlight:
        """Remove and return the oldest request in flight, to which a frame is the response."""
        raise NotImplementedError

    def _add_header(self, request: type[AnyRequest], version: int) -> tuple[bytes, bytes, int]:
        raise NotImplementedError


class ClientPipeline(PipelineState):
    """The client's side: assigns correlation ids, and matches and decodes responses.

    client_id: the client id for the header of each request
    """

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self._headers = {}
        self._in_flight = deque()
        self._next = 0

    def __len__(self) -> int:
        """Return the number of requests in flight."""
        return len(self._in_flight)

    def expects_response(self, correlation_id: int | None) -> bool:
        """Return whether a response with this correlation id, or an unknown one, may come next."""
        if not self._in_flight:
            return False
        return correlation_id in (None, self._in_flight[0][0])

    @property
    def sent(self) -> int:
        """The number of requests that were sent. It wraps to 0 with the correlation ids."""
        return self._next

    def _add_header(self, request: type[AnyRequest], version: int) -> tuple[bytes, bytes, int]:
        header = RequestHeader(client_id=self.client_id)
        encoded = header.encode_into(request.header_version(version), bytearray(), [])
        # Every version of a request header begins with API key, API version and correlation id.
        start = _REQUEST_START.pack(0, request.api_key, version)
        end = bytes(encoded[_HEADER_START.size :])
        added = start, end, request.response_class.header_version(version)
        self._headers[request, version] = added
        return added

    def match_response(self, frame: Buffer) -> InFlight:
        """Remove and return the oldest request in flight, to which a frame is the response.

        Raises ProtocolError for an unexpected correlation id.
        """
        if len(frame) < _PREFIX:
            raise ProtocolError(
                f"A response has only {len(frame)} bytes, too few for a correlation id."
            )
        number = LENGTH.unpack_from(frame, 0)[0]
        if not self._in_flight:
            raise ProtocolError(
                f"A response with correlation id {number} came, but no request is in flight."
            )
        asked = InFlight(*self._in_flight[0][: len(InFlight._fields)])
        if number != asked.correlation_id:
            raise ProtocolError(
                f"A response has correlation id {number}. The next request in flight has "
                f"{asked.correlation_id}."
            )
        self._in_flight.popleft()
        return asked


class DecodedRequest(NamedTuple):
    """A request that the broker received.

    request: None if the API or its version is not known
    """

    header: RequestHeader
    request: Request[Any] | None


class ServerFraming:
    """The broker's side: decodes requests and encodes responses."""

    def decode_request(self, frame: Buffer) -> DecodedRequest:
        """Read header and request. Raises ProtocolError if they are malformed.

        If the API or its version is not known, only the header fields that all
        versions have are read. Like Kafka's brokers, this method ignores bytes after the request.
        """
        if len(frame) < _HEADER_START.size:
            raise ProtocolError(f"A request has only {len(frame)} bytes, too few for a header.")
        key, version, _ = _HEADER_START.unpack_from(frame, 0)
        try:
            cls = request_class(key)
            known = cls.min_version <= version <= cls.max_known_version
        except UnsupportedVersionError:
            known = False
        if not known:
            header, _ = RequestHeader.decode_from(frame, 0, RequestHeader.min_version)
            return DecodedRequest(header, None)
        header, position = RequestHeader.decode_from(frame, 0, cls.header_version(version))
        request, _ = cls.decode_from(frame, position, version)
        return DecodedRequest(header, request)

    def encode_response(
        self, received: DecodedRequest, response: Response, *, version: int | None = None
    ) -> list[Buffer]:
        """Return the segments of the frame with the response to a request.

        version: by default the version of the request; 0 for an ApiVersions request
            of an unknown version
        """
        if version is None:
            version = received.header.request_api_version
        header = ResponseHeader(correlation_id=received.header.correlation_id)
        head = header.encode_into(response.header_version(version), bytearray(_PREFIX), [])
        return response.encode_frame(version, bytes(head))

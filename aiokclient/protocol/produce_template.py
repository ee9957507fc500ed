"""Produce requests that are written from templates, without an object for each part.

All requests for a partition are the same except for the batch. All successful responses are the
same except for three numbers. So a `Template` has the bytes of a request with one batch and of its
successful response, which the codecs have made, and the parts of them that belong to the topic and
to the partition. A request with several batches is put together from these parts, and its response
is compared with them. A response with any other byte is decoded by its codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Layout
from struct import error as LayoutError
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from aiokclient._native import twin
from aiokclient.errors import ProtocolError
from aiokclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokclient.protocol.primitives import read_uvarint, write_uvarint
from aiokclient.protocol.schema import LENGTH

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.protocol.fields import Buffer
    from aiokclient.protocol.schema import Request

COPIED = 16 * 1024
"""Batches with fewer bytes than this are copied into the frame."""
NULL_AND_TAGS = 4
"""The size, in bytes, of the end of a request whose records are null. The end is the length of the
null records, an int32. In flexible versions, it is one byte for that length, and one byte each for
the tags of partition, topic, and request."""
NUMBERS = {layout.size: layout for layout in (Layout(">qq"), Layout(">qqq"))}
"""The layouts of the numbers of a response: the one before version 5, and the one since."""
LOG_START_FROM = 5
"""The first version of Produce whose responses have the start of the log."""
IDS_FROM = 13
"""The first version of Produce that names topics by their ids."""
ID_SIZE = 16
"""The size of a topic's id in bytes."""
NO_TAGS = b"\0"
"""The end of a structure without tagged fields, in flexible versions."""
SMALL_COUNTS = [bytes([count + 1]) for count in range(0x7F)]
"""The bytes of short lengths in flexible versions."""


Written: TypeAlias = tuple[int, int, int]
"""The fields of a successful response for one batch: the base offset, the time at which the batch
was appended to the log, and the start of the log, each of which may be -1. It is not a named tuple,
because making one takes as long as five calls."""


@twin("ground")
def frame_batches(
    batches: Sequence[Buffer], heads: Sequence[bytes], tail: bytes, flexible: bool
) -> list[Buffer] | None:
    """Write a request around its batches, in their memory, and return a view for each of them.

    The views together are the frame. Each head is followed by the length of its batch in the format
    of flexible versions or that of others. The first head begins with room for the length of the
    frame. `tail` is written after the last batch.

    Return None, and write nothing, if the memory of a batch has no room, or if something was
    written around the batch before. Only batches of the native builder have room.
    """
    return None


@twin("ground")
class TemplateState:
    """The parts of a `Template` for a request with one batch, and for its response."""

    __slots__ = (
        "answer_head",
        "answer_size",
        "answer_tail",
        "flexible",
        "head",
        "tail",
        "topic_id",
        "version",
    )

    version: int
    flexible: bool
    topic_id: UUID
    head: bytes
    """Everything before the batch, in a request with one batch."""
    tail: bytes
    answer_head: bytes
    """The part of a successful response before its numbers."""
    answer_tail: bytes
    answer_size: int

    def read_answer(self, frame: Buffer, position: int) -> list[Written] | None:
        """Return a list with the `Written` of the batch if the response is the usual one.

        Otherwise, return None.
        """
        if (
            type(frame) is bytes
            and len(frame) - position == self.answer_size
            and frame.startswith(self.answer_head, position)
            and frame.endswith(self.answer_tail)
        ):
            start = len(self.answer_head)
            layout = NUMBERS[self.answer_size - start - len(self.answer_tail)]
            numbers = layout.unpack_from(frame, position + start)
            return [numbers if self.version >= LOG_START_FROM else (*numbers, -1)]
        return None


class Template(TemplateState):
    """The common parts of all produce requests for one partition, and of their responses."""

    __slots__ = (
        "answer_end",
        "index",
        "index_bytes",
        "name",
        "part",
        "part_tail",
        "request_head",
        "topic_head",
        "transactional_id",
    )

    def __init__(
        self,
        version: int,
        name: str,
        topic_id: UUID,
        index: int,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.version, self.name, self.topic_id, self.index = version, name, topic_id, index
        self.flexible = ProduceRequest.is_flexible(version)
        data = [PartitionProduceData(index=index, records=None)]
        topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=data)
        request = ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[]
        )
        count_size = 1 if self.flexible else LENGTH.size
        whole = b"".join(request.encode(version))
        self.request_head = whole[: -2 if self.flexible else -LENGTH.size]
        """The fields before the topics."""
        request.topic_data = [topic]
        whole = b"".join(request.encode(version))
        self.head = whole[:-NULL_AND_TAGS]
        self.tail = whole[1 - NULL_AND_TAGS :] if self.flexible else b""
        self.index_bytes = self.head[-LENGTH.size :]
        start = len(self.request_head) + count_size
        self.topic_head = self.head[start : -LENGTH.size - count_size]
        """The name or the id of the topic, as requests and responses have it."""
        self._learn_answer()

    def _learn_answer(self) -> None:
        zeros, ones = self._encode_answer(0), self._encode_answer(-1)
        start = next(at for at in range(len(zeros)) if zeros[at] != ones[at])
        end = start
        while end < len(zeros) and zeros[end] != ones[end]:
            end += 1
        self.answer_head, self.answer_tail = zeros[:start], zeros[end:]
        self.answer_size = len(zeros)
        # A response ends with the throttle time, and with the tags of the topic and its own.
        rest = LENGTH.size + self.flexible
        self.answer_end = self.answer_tail[-rest:]
        self.part_tail = self.answer_tail[: -rest - self.flexible]
        numbers = NUMBERS[end - start].format.removeprefix(">")
        self.part = Layout(f">{LENGTH.size}sh{numbers}{len(self.part_tail)}s")
        """The index of the partition as bytes, its error code, the numbers, and its end."""

    def _encode_answer(self, number: int) -> bytes:
        part = PartitionProduceResponse(
            index=self.index,
            base_offset=number,
            log_append_time_ms=number,
            log_start_offset=number,
        )
        topic = TopicProduceResponse(
            name=self.name, topic_id=self.topic_id, partition_responses=[part]
        )
        return b"".join(ProduceResponse(responses=[topic]).encode(self.version))


@twin("ground")
class BatchesState:
    """The batches of a `TemplateRequest`, and the template for each of them."""

    __slots__ = ("_topics", "batches", "templates")

    templates: list[Template]
    batches: Sequence[Buffer]
    """Both are lists."""
    _topics: dict[bytes, dict[bytes, int]] | None
    """The positions in `templates`, once they are needed."""


B = TypeVar("B", bound=BatchesState)


@twin("ground")
def new_request(kind: type[B], templates: list[Template], batches: Sequence[Buffer]) -> B:
    """Return a `TemplateRequest`. The constructor would be another call for each request."""
    made = kind.__new__(kind)
    made.templates, made.batches, made._topics = templates, batches, None
    return made


class TemplateRequest(BatchesState):
    """A request with a batch for each template, at most one for each partition.

    All templates have the same version, and differ only in topic and partition. It stands in the
    place of a `ProduceRequest`, but has no fields of one. A successful response is a list with the
    `Written` of each batch, in the order of the batches.
    """

    __slots__ = ()

    api_key = ProduceRequest.api_key
    response_class = ProduceRequest.response_class
    header_version = ProduceRequest.header_version

    def __init__(self, templates: list[Template], batches: Sequence[Buffer]) -> None:
        self.templates, self.batches, self._topics = templates, batches, None

    def encode_frame(self, version: int, head: bytes) -> list[Buffer]:
        """Return the segments of a frame whose header, with room for the length, is `head`."""
        first = self.templates[0]
        assert version == first.version
        if len(self.templates) == 1:
            batches, heads, tail = self.batches, [head + first.head], first.tail
        else:
            batches, heads, tail = self._write_heads(head)
        frames = frame_batches(batches, heads, tail, first.flexible)
        if frames is not None:
            return frames
        segments: list[Buffer] = []
        rest = self._encode_segments(batches, heads, tail, segments)
        if rest or not segments:
            segments.append(rest)
        start = segments[0]
        assert isinstance(start, bytearray)
        LENGTH.pack_into(start, 0, sum(map(len, segments)) - LENGTH.size)
        return segments

    def _write_heads(self, head: bytes) -> tuple[Sequence[Buffer], list[bytes], bytes]:
        """Return the batches, what comes before the length of each, and the end of the request."""
        batches, first = self.batches, self.templates[0]
        flexible = first.flexible
        topics = self._group_by_topic()
        if len(topics) > 1:
            batches = [batches[at] for positions in topics.values() for at in positions.values()]
        heads: list[bytes] = []
        before = head + first.request_head + _encode_count(len(topics), flexible)
        for topic_head, positions in topics.items():
            before += topic_head + _encode_count(len(positions), flexible)
            for index_bytes in positions:
                heads.append(before + index_bytes)
                before = NO_TAGS if flexible else b""  # Those of the partition.
            if flexible:
                before += NO_TAGS  # Those of the topic.
        if flexible:
            before += NO_TAGS  # Those of the request.
        return batches, heads, before

    def _encode_segments(
        self,
        batches: Sequence[Buffer],
        heads: Sequence[bytes],
        tail: bytes,
        segments: list[Buffer],
    ) -> bytearray:
        """Append the segments of a request, and return the buffer for further bytes."""
        flexible = self.templates[0].flexible
        out = bytearray()
        for batch, before in zip(batches, heads, strict=True):
            size = batch.nbytes if isinstance(batch, memoryview) else len(batch)
            out += before
            if not flexible:
                out += LENGTH.pack(size)
            else:  # As in `write_uvarint`. This saves a call for each batch.
                length = size + 1
                while length > 0x7F:
                    out.append(length & 0x7F | 0x80)
                    length >>= 7
                out.append(length)
            if size < COPIED:
                out += batch
            else:
                segments.append(out)
                segments.append(batch)
                out = bytearray()
        out += tail
        return out

    def _group_by_topic(self) -> dict[bytes, dict[bytes, int]]:
        """Return the positions in `templates`, by the bytes of the topic and of the partition."""
        topics = self._topics
        if topics is None:
            topics = self._topics = {}
            for at, template in enumerate(self.templates):
                topics.setdefault(template.topic_head, {})[template.index_bytes] = at
        return topics

    def read_response(self, frame: Buffer, position: int, version: int) -> tuple[Any, int]:
        """Return the response that begins at a position, and the position after it."""
        if len(self.templates) == 1:
            found = self.templates[0].read_answer(frame, position)
        else:
            found = self._read_several(frame, position) if isinstance(frame, bytes) else None
        if found is not None:
            return found, len(frame)
        return self.response_class.decode_from(frame, position, version)

    def _read_several(self, frame: bytes, position: int) -> list[Written] | None:
        """Return the outcome of each batch if all of them were written, otherwise None."""
        template = self.templates[0]
        flexible, version = template.flexible, template.version
        part, part_tail = template.part, template.part_tail
        found: list[Written | None] = [None] * len(self.templates)
        topics = self._group_by_topic()
        try:
            count, position = _read_count(frame, position, flexible)
            if count != len(topics):
                return None
            for _ in range(count):
                start = position
                if version >= IDS_FROM:
                    position += ID_SIZE
                elif flexible:
                    size, position = read_uvarint(frame, position)
                    position += size - 1
                else:
                    position += 2 + int.from_bytes(frame[position : position + 2])
                positions = topics[frame[start:position]]
                parts, position = _read_count(frame, position, flexible)
                if parts != len(positions):
                    return None
                end = position + parts * part.size
                for each in part.iter_unpack(frame[position:end]):
                    if each[1] or each[-1] != part_tail:
                        return None  # It has an error code, an error message, or tags.
                    numbers = each[2:-1]
                    found[positions[each[0]]] = (
                        numbers if version >= LOG_START_FROM else (*numbers, -1)
                    )
                position = end + flexible
                if flexible and frame[position - 1]:
                    return None  # The topic has tags.
        except (LookupError, ProtocolError, LayoutError):
            # It is not the usual response. The codec says what it is.
            return None
        if frame[position:] != template.answer_end or None in found:
            return None
        return cast("list[Written]", found)


AnyRequest: TypeAlias = "Request[Any] | TemplateRequest"
"""A request that a connection can send."""


def _encode_count(count: int, flexible: bool) -> bytes:
    """Return the length of an array, or of the bytes of a batch, as a request has it."""
    if not flexible:
        return LENGTH.pack(count)
    if count < 0x7F:
        return SMALL_COUNTS[count]
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)


def _read_count(frame: bytes, position: int, flexible: bool) -> tuple[int, int]:
    """Return the length of an array, and the position after it."""
    if flexible:
        count, position = read_uvarint(frame, position)
        return count - 1, position
    count = LENGTH.unpack_from(frame, position)[0]
    return count, position + LENGTH.size

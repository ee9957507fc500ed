"""Produce requests with one batch, which is the usual case, without an object for each part.

All requests for a partition are the same except for the batch. All successful responses are the
same except for three numbers. So a `Template` has the bytes of one request and of one successful
response, which the codecs have made. A response that differs in any other byte is decoded by its
codec.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from aiokclient.named_tuple import NamedTuple
from aiokclient.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from uuid import UUID

    from aiokclient.protocol.fields import Buffer

COPIED = 16 * 1024
"""Batches with fewer bytes than this are copied into the frame."""
NULL_AND_TAGS = 4
"""The size, in bytes, of the end of a request whose records are null. The end is the length of the
null records, an int32. In flexible versions, it is one byte for that length, and one byte each for
the tags of partition, topic, and request."""
NUMBERS = {layout.size: layout for layout in (Layout(">qq"), Layout(">qqq"))}
"""The layouts of the numbers of a response: the one before version 5, and the one since."""
LENGTH = Layout(">i")


class Written(NamedTuple):
    """The fields of a successful response."""

    base_offset: int
    append_time: int
    log_start: int = -1


class Template:
    """The common parts of all produce requests for one partition, and of their responses."""

    __slots__ = (
        "answer_head",
        "answer_size",
        "answer_tail",
        "flexible",
        "head",
        "index",
        "name",
        "numbers",
        "tail",
        "topic_id",
        "transactional_id",
        "version",
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
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[topic],
        )
        whole = b"".join(request.encode(version))
        self.head = whole[:-NULL_AND_TAGS]
        self.tail = whole[1 - NULL_AND_TAGS :] if self.flexible else b""
        self._learn_answer()

    def _learn_answer(self) -> None:
        zeros, ones = self._encode_answer(0), self._encode_answer(-1)
        start = next(at for at in range(len(zeros)) if zeros[at] != ones[at])
        end = start
        while end < len(zeros) and zeros[end] != ones[end]:
            end += 1
        self.answer_head, self.answer_tail = zeros[:start], zeros[end:]
        self.answer_size = len(zeros)
        self.numbers = NUMBERS[end - start]

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


class OneBatchRequest(ProduceRequest):
    """A request that is encoded from a template. Its inherited fields are not set."""

    __slots__ = ("batch", "template")

    def __init__(self, template: Template, batch: Buffer) -> None:
        self.template = template
        self.batch = batch
        self._tags = None

    def encode_into(self, version: int, out: bytearray, segments: list[Buffer]) -> bytearray:
        template, batch = self.template, self.batch
        assert version == template.version
        size = batch.nbytes if isinstance(batch, memoryview) else len(batch)
        out += template.head
        if template.flexible:
            length = size + 1  # As a varint; see `write_uvarint`. This saves a call per request.
            while length > 0x7F:
                out.append(length & 0x7F | 0x80)
                length >>= 7
            out.append(length)
        else:
            out += LENGTH.pack(size)
        if size < COPIED:
            out += batch
            out += template.tail
            return out
        segments.append(out)
        segments.append(batch)
        return bytearray(template.tail)

    def read_response(self, frame: Buffer, position: int, version: int) -> tuple[Any, int]:
        template, end = self.template, len(frame)
        if end - position == template.answer_size:
            head = position + len(template.answer_head)
            tail = end - len(template.answer_tail)
            if frame[position:head] == template.answer_head and (
                frame[tail:] == template.answer_tail
            ):
                return Written(*template.numbers.unpack_from(frame, head)), end
        return super().read_response(frame, position, version)

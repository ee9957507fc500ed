"""A lower bound for clients: a blocking socket with requests that were encoded in advance."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from typing import Any, Self

WAIT_S = 10.0
VERSION = 13
"""The version of Produce requests."""
SIZE = struct.Struct(">i")
ERROR_AT = 29
"""The position of the error code in a Produce response with one partition. It follows the size, the
correlation id, tags, the topic with its id, and the index of the partition."""


class Floor:
    """A connection to the first bootstrap server, with a blocking socket."""

    def __init__(self, bootstrap: str) -> None:
        from aiokclient.protocol.framing import ClientPipeline

        host, _, port = bootstrap.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = bytearray(65_536)
        self._pipeline = ClientPipeline("floor")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def exchange(self, frame: bytes) -> None:
        """Write a Produce request, and read its response."""
        size = self._exchange(frame)
        if size <= ERROR_AT or self._answer[ERROR_AT : ERROR_AT + 2] != b"\0\0":
            raise RuntimeError("The broker refused a batch.")

    def frames(self, topic: str, values: Iterable[bytes]) -> list[bytes]:
        """Return a Produce request for each value: partition 0, acks=all, idempotent."""
        from aiokclient.protocol.messages.init_producer_id import InitProducerIdRequest
        from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        topic_id = self._ask(wanted, 12).topics[0].topic_id
        ids = self._ask(InitProducerIdRequest(transactional_id=None), 4)
        return [self._frame(topic_id, value, ids, number) for number, value in enumerate(values)]

    def _frame(self, topic_id: Any, value: bytes, ids: Any, number: int) -> bytes:
        from aiokclient.protocol.messages.produce import (
            PartitionProduceData,
            ProduceRequest,
            TopicProduceData,
        )
        from aiokclient.record.batch import RecordBatchBuilder

        batch = RecordBatchBuilder(limit=len(value) + 1_000)
        batch.append(int(time.time() * 1000), None, value)
        batch.close()
        records = bytes(batch.seal(ids.producer_id, ids.producer_epoch, number))
        partition = PartitionProduceData(index=0, records=records)
        data = [TopicProduceData(topic_id=topic_id, partition_data=[partition])]
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=data)
        _, segments = self._pipeline.encode_request(request, VERSION, expect_response=False)
        return b"".join(bytes(segment) for segment in segments)

    def _ask(self, request: Any, version: int) -> Any:
        _, segments = self._pipeline.encode_request(request, version)
        size = self._exchange(b"".join(bytes(segment) for segment in segments))
        frame = bytes(self._answer[SIZE.size : size])
        return self._pipeline.match_response(frame).decode(frame)

    def _exchange(self, frame: bytes) -> int:
        """Return the number of bytes of the response, including its size field."""
        connection, answer = self._socket, self._answer
        connection.sendall(frame)
        got = connection.recv_into(answer)
        while got < SIZE.size or got < SIZE.size + SIZE.unpack_from(answer)[0]:
            got += connection.recv_into(memoryview(answer)[got:])
        return got

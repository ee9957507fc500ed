"""A broker that answers with functions from a table, which a test may change at any time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.framing import DecodedRequest, ServerFraming
from aiokclient.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

from .server import Server

Answer: TypeAlias = Any
"""The result of a handler: a response, bytes to send as they are, or None for no response.

If it is an exception class instead, the broker closes the connection.
"""

SPOKEN = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.PRODUCE: (3, 12),
}


MAX_FRAME = 100 * 1024 * 1024


class ScriptedBroker(Server):
    """Broker `node_id` of a cluster.

    `brokers` has the port of each broker by its id. `topics` has the ids of the leaders of each
    topic's partitions.

    `handlers[api](request, version)` returns the response to a request. `seen` has all requests.
    """

    def __init__(self, node_id: int = 1) -> None:
        super().__init__(self._serve)
        self.node_id = node_id
        self.versions = dict(SPOKEN)
        self.brokers: dict[int, int] = {}
        self.topics: dict[str, list[int]] = {}
        self.epoch = 1
        self.seen: list[DecodedRequest] = []
        self.handlers: dict[ApiKey, Callable[[Any, int], Answer]] = {
            ApiKey.API_VERSIONS: self.api_versions,
            ApiKey.METADATA: self.metadata,
        }
        self._framing = ServerFraming()
        self._arrived = asyncio.Event()

    async def __aenter__(self) -> "ScriptedBroker":
        await self.start()
        self.brokers[self.node_id] = self.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def count(self, api: ApiKey) -> int:
        """Return the number of requests of an API."""
        return sum(received.header.request_api_key == api for received in self.seen)

    async def until(self, predicate: Callable[[], bool]) -> None:
        """Wait until `predicate()` returns true. It is called again after each request."""
        while not predicate():
            self._arrived.clear()
            await self._arrived.wait()

    def api_versions(self, request: Any, version: int) -> Answer:
        entries = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        low, high = self.versions[ApiKey.API_VERSIONS]
        if request is None or not low <= version <= high:
            return ApiVersionsResponse(error_code=35, api_keys=entries)
        return ApiVersionsResponse(api_keys=entries)

    def metadata(self, request: Any, version: int) -> Answer:
        names = list(self.topics)
        if request.topics is not None:
            names = [topic.name for topic in request.topics]
        return MetadataResponse(
            cluster_id="scripted",
            controller_id=self.node_id,
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=port)
                for node_id, port in self.brokers.items()
            ],
            topics=[self.topic(name) for name in names],
        )

    def topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=3)
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=leader, leader_epoch=self.epoch
            )
            for index, leader in enumerate(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            if length > MAX_FRAME:
                return
            received = self._framing.decode_request(await reader.readexactly(length))
            self.seen.append(received)
            self._arrived.set()
            answer = self._answer(received)
            if isinstance(answer, type):
                return
            if answer is not None:
                writer.write(self._bytes(received, answer))
                await writer.drain()

    def _answer(self, received: DecodedRequest) -> Answer:
        header = received.header
        handler = self.handlers[ApiKey(header.request_api_key)]
        return handler(received.request, header.request_api_version)

    def _bytes(self, received: DecodedRequest, answer: Answer) -> bytes:
        if isinstance(answer, bytes):
            return answer
        api = received.header.request_api_key
        refused = api == ApiKey.API_VERSIONS and answer.error_code == 35
        version = 0 if refused else None
        segments = self._framing.encode_response(received, answer, version=version)
        return b"".join(bytes(segment) for segment in segments)

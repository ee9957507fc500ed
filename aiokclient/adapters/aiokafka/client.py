"""The client beneath a producer, a consumer, or an admin client."""

from __future__ import annotations

import asyncio
import random
import ssl
import warnings
from collections.abc import Iterable
from typing import Any, Final

from aiokclient import AnyBroker, Broker, Client
from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider
from aiokclient.adapters.aiokafka.cluster import ClusterMetadata
from aiokclient.adapters.aiokafka.connection import ConnectionOptions
from aiokclient.adapters.aiokafka.error_mapping import translated_errors
from aiokclient.adapters.aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokclient.adapters.aiokafka.protocol.admin import CreateTopicsRequest
from aiokclient.adapters.aiokafka.protocol.metadata import MetadataRequest
from aiokclient.errors import UnsupportedVersionError
from aiokclient.events import Connected, Disconnected
from aiokclient.protocol import messages

VERSION: Final = "0.14.0"
"""The version of aiokafka whose interface this is."""


def refuse_deprecated(loop: object = None, api_version: object = None) -> None:
    """Warn of arguments that have no effect."""
    for name, given in (("loop", loop), ("api_version", api_version)):
        if given is not None:
            warnings.warn(
                f"`{name}` is deprecated and has no effect. Leave it out.",
                DeprecationWarning,
                stacklevel=3,
            )


class AIOKafkaClient:
    """Connections and metadata. `native` is the `aiokclient.Client` that it stands for."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        retry_backoff_ms: int = 100,
        ssl_context: ssl.SSLContext | None = None,
        security_protocol: str = "PLAINTEXT",
        api_version: str | None = None,
        connections_max_idle_ms: int | None = 540000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        given = locals()
        refuse_deprecated(None, api_version)
        self._connect(ConnectionOptions.of(given))

    @classmethod
    def of(cls, options: ConnectionOptions) -> AIOKafkaClient:
        """Return a client with the options of a producer, a consumer, or an admin client."""
        client = cls.__new__(cls)
        client._connect(options)
        return client

    def _connect(self, options: ConnectionOptions) -> None:
        converted = options.convert()
        self._bootstrap_servers = options.bootstrap_servers
        self._client_id = options.client_id
        self._request_timeout_ms = options.request_timeout_ms
        self._retry_backoff = options.retry_backoff_ms / 1000
        self._servers: list[str] = converted["bootstrap_servers"]
        self.cluster = ClusterMetadata(metadata_max_age_ms=options.metadata_max_age_ms)
        self._topics: set[str] = set()
        self._readings: set[asyncio.Future[bool]] = set()
        """The reads of metadata in progress, for which no task waits."""
        self.native = Client(**converted)

    @property
    def hosts(self) -> str | list[str]:
        """The bootstrap servers, as given."""
        return self._bootstrap_servers

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._client_id}>"

    async def bootstrap(self) -> None:
        """Connect to a bootstrap server, each of which is tried once.

        Raises KafkaConnectionError if none accepts a connection, and the errors of a refused login.
        """
        with translated_errors():
            starting = asyncio.ensure_future(self.native.start())
            watching = asyncio.ensure_future(self._wait_until_all_failed())
            try:
                await asyncio.wait({starting, watching}, return_when=asyncio.FIRST_COMPLETED)
                if not starting.done():
                    raise KafkaConnectionError(
                        f"Unable to bootstrap from {self._servers}: {watching.result()}"
                    )
                await starting
            finally:
                for task in (starting, watching):
                    task.cancel()
                await asyncio.wait({starting, watching})
        await self.fetch_all_metadata()

    async def _wait_until_all_failed(self) -> str:
        """Return why no bootstrap server can be reached; never, if one is."""
        failed: dict[str, BaseException | None] = {}
        async for event in self.native.events():
            if isinstance(event, Connected):
                break
            if isinstance(event, Disconnected) and event.cause is not None:
                failed[event.address] = event.cause
                if len(failed) >= len(self._servers):
                    return "; ".join(f"{each}: {cause}" for each, cause in failed.items())
        await asyncio.Event().wait()
        return ""

    async def close(self) -> None:
        """Close all connections."""
        await self.native.close()

    def get_random_node(self) -> int | None:
        """Return the id of a broker, or None if none is known."""
        brokers = [int(each.nodeId) for each in self.cluster.brokers()]
        return random.choice(brokers) if brokers else None

    async def ready(self, node_id: int, **_: Any) -> bool:
        """Return whether the broker is known: a request connects by itself."""
        return self.cluster.broker_metadata(node_id) is not None

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Read the metadata of all topics."""
        await self._read_metadata(None)
        return self.cluster

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Read the metadata of the topics in use; the future is whether that has succeeded."""
        topics = sorted(self._topics) or None
        reading = asyncio.ensure_future(self._update_metadata(topics))
        self._readings.add(reading)
        reading.add_done_callback(self._readings.discard)
        return reading

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Take a topic into use, and read its metadata. A broker may create the topic."""
        self._topics.add(topic)
        return self.force_metadata_update()

    def set_topics(self, topics: Iterable[str]) -> asyncio.Future[bool]:
        """Take these topics into use instead of earlier ones, and read their metadata."""
        self._topics = set(topics)
        return self.force_metadata_update()

    async def _update_metadata(self, topics: list[str] | None) -> bool:
        try:
            await self._read_metadata(topics, create=True)
        except KafkaError:
            return False  # As aiokafka answers; the next call of a client raises the error.
        return True

    async def send(self, node_id: int, request: Any, **_: Any) -> Any:
        """Send a request of `aiokafka.protocol` to a broker, and return its response.

        Raises TypeError for another request. `native.request` sends any request of aiokclient.
        """
        if not isinstance(request, CreateTopicsRequest | MetadataRequest):
            raise TypeError(
                f"{type(request).__name__} is not CreateTopicsRequest or MetadataRequest. Send "
                "other requests with `native.request(message, to=Broker(id))`."
            )
        with translated_errors():
            response: Any = await self.native.request(request.convert(), to=Broker(node_id))
        return request.response_type.of(response)

    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int:
        """Return the id of the coordinator of a group (0) or a transactional id (1)."""
        request = messages.FindCoordinatorRequest(
            key_type=coordinator_type, coordinator_keys=[coordinator_key]
        )
        with translated_errors():
            try:
                response = await self.native.request(request, to=AnyBroker())
            except UnsupportedVersionError:  # Brokers before Kafka 3.0 find one key at a time.
                request = messages.FindCoordinatorRequest(
                    key=coordinator_key, key_type=coordinator_type
                )
                response = await self.native.request(request, to=AnyBroker())
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise for_code(found.error_code)(found.error_message or coordinator_key)
        return found.node_id

    async def _read_metadata(
        self, topics: list[str] | None, create: bool = False
    ) -> messages.MetadataResponse:
        request = MetadataRequest(topics, allow_auto_topic_creation=create)
        with translated_errors():
            response = await self.native.request(request.convert(), to=AnyBroker())
        self.cluster.update(response)
        return response

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Return the partitions of a topic, which brokers may create.

        Raises UnknownTopicOrPartitionError after `request_timeout_ms`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request_timeout_ms / 1000
        known = self.cluster.partitions_for_topic(topic)
        while known is None:
            response = await self._read_metadata([topic], create=True)
            code = response.topics[0].error_code if response.topics else 0
            known = self.cluster.partitions_for_topic(topic)
            if known is not None:
                break
            error = for_code(code) if code else UnknownTopicOrPartitionError
            if not error.retriable:
                raise error(topic)
            if loop.time() >= deadline:
                raise UnknownTopicOrPartitionError(topic)
            await asyncio.sleep(self._retry_backoff)
        self._topics.add(topic)
        return known

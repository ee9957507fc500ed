"""The admin client with aiokafka's interface."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

from aiokclient import Admin, AnyBroker, Broker, Controller, TopicPartition
from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider
from aiokclient.adapters.aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokclient.adapters.aiokafka.admin.new_partitions import NewPartitions
from aiokclient.adapters.aiokafka.admin.new_topic import NewTopic
from aiokclient.adapters.aiokafka.admin.records_to_delete import RecordsToDelete
from aiokclient.adapters.aiokafka.client import VERSION, AIOKafkaClient, refuse_deprecated
from aiokclient.adapters.aiokafka.connection import ConnectionOptions
from aiokclient.adapters.aiokafka.error_mapping import translate, translated_errors
from aiokclient.adapters.aiokafka.errors import NodeNotReadyError, for_code
from aiokclient.adapters.aiokafka.protocol.admin import CreateTopicsRequest
from aiokclient.adapters.aiokafka.protocol.metadata import MetadataRequest
from aiokclient.adapters.aiokafka.protocol.responses import (
    AlterConfigsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
    DescribeGroupsResponse,
    MetadataResponse,
)
from aiokclient.adapters.aiokafka.structs import OffsetAndMetadata
from aiokclient.errors import KafkaError as NativeError
from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_configs import AlterableConfig, AlterConfigsResource
from aiokclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsTopic,
)
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.describe_configs import DescribeConfigsResource


class AIOKafkaAdminClient:
    """An admin client with aiokafka's arguments, defaults, and calls. `native` is aiokclient's.

    Most calls return the response of a broker, whose error codes they do not raise.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-" + VERSION,
        request_timeout_ms: int = 40000,
        connections_max_idle_ms: int = 540000,
        retry_backoff_ms: int = 100,
        metadata_max_age_ms: int = 300000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        api_version: None = None,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_username: str | None = None,
        sasl_plain_password: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        given = locals()
        refuse_deprecated(None, api_version)
        self._closed = False
        self._started = False
        self._request_timeout_ms = request_timeout_ms
        self._client = AIOKafkaClient.of(ConnectionOptions.of(given))
        self.native = Admin(client=self._client.native)

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaConnectionError. A second call does nothing."""
        if self._started:
            return
        await self._client.bootstrap()
        with translated_errors():
            await self.native.start()
        self._started = True

    async def close(self) -> None:
        """Close the connections. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        await self.native.close()
        await self._client.close()

    # -- topics

    async def create_topics(
        self,
        new_topics: list[NewTopic],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> CreateTopicsResponse:
        """Create topics. The outcomes are in `topic_errors`: topic, code, and message."""
        topics = [
            (
                *(topic.name, topic.num_partitions, topic.replication_factor),
                *(list(topic.replica_assignments.items()), list(topic.topic_configs.items())),
            )
            for topic in new_topics
        ]
        timeout_ms = timeout_ms or self._request_timeout_ms
        request = CreateTopicsRequest(topics, timeout_ms, validate_only)
        return CreateTopicsResponse.of(await self._request(request.convert(), Controller()))

    async def delete_topics(
        self, topics: list[str], timeout_ms: int | None = None
    ) -> DeleteTopicsResponse:
        """Delete topics. The outcomes are in `topic_error_codes`: topic and code."""
        request = messages.DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic) for topic in topics],
            topic_names=list(topics),
            timeout_ms=timeout_ms or self._request_timeout_ms,
        )
        return DeleteTopicsResponse.of(await self._request(request, Controller()))

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, Kafka's own included."""
        return [topic["topic"] for topic in await self.describe_topics()]

    async def describe_topics(self, topics: list[str] | None = None) -> list[Any]:
        """Return a dictionary for each topic, with its partitions."""
        response = await self._get_cluster_metadata(topics)
        described: list[Any] = response.to_object()["topics"]
        return described

    async def create_partitions(
        self,
        topic_partitions: dict[str, NewPartitions],
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> CreatePartitionsResponse:
        """Add partitions to topics. Raises the first error of a topic."""
        topics = [
            CreatePartitionsTopic(
                name=name,
                count=new.total_count,
                assignments=None
                if new.new_assignments is None
                else [
                    CreatePartitionsAssignment(broker_ids=list(each))
                    for each in new.new_assignments
                ],
            )
            for name, new in topic_partitions.items()
        ]
        request = messages.CreatePartitionsRequest(
            topics=topics,
            timeout_ms=timeout_ms or self._request_timeout_ms,
            validate_only=validate_only,
        )
        response = CreatePartitionsResponse.of(await self._request(request, Controller()))
        for topic, code, text in response.topic_errors:
            if code:
                raise for_code(code)(f"Could not create partitions for {topic}: {text}")
        return response

    async def delete_records(
        self,
        records_to_delete: dict[TopicPartition, RecordsToDelete],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Delete records before offsets, and return the first remaining offsets.

        Raises the first error of a partition.
        """
        offsets = {tp: each.before_offset for tp, each in records_to_delete.items()}
        timeout = (timeout_ms or self._request_timeout_ms) / 1000
        with translated_errors():
            results = await self.native.delete_records(offsets, timeout=timeout)
            if results.errors:
                raise next(iter(results.errors.values()))
        return dict(results.succeeded)

    # -- the cluster and its configs

    async def describe_cluster(self) -> dict[str, Any]:
        """Return a dictionary with the brokers, and the ids of the cluster and its controller."""
        described = (await self._get_cluster_metadata()).to_object()
        described.pop("topics")
        return described

    async def describe_configs(
        self, config_resources: list[ConfigResource], include_synonyms: bool = False
    ) -> list[DescribeConfigsResponse]:
        """Return a response for each broker and one for all topics, with their `resources`."""

        async def describe(
            resources: list[ConfigResource], target: AnyBroker | Broker
        ) -> DescribeConfigsResponse:
            request = messages.DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(each.resource_type),
                        resource_name=str(each.name),
                        configuration_keys=list(each.configs) if each.configs else None,
                    )
                    for each in resources
                ],
                include_synonyms=include_synonyms,
            )
            return DescribeConfigsResponse.of(await self._request(request, target))

        parts = group_resources(config_resources)
        return await asyncio.gather(*(describe(some, target) for target, some in parts.items()))

    async def alter_configs(
        self, config_resources: list[ConfigResource]
    ) -> list[AlterConfigsResponse]:
        """Replace all configs of each resource. Those that are not given get their defaults."""

        async def alter(
            resources: list[ConfigResource], target: AnyBroker | Broker
        ) -> AlterConfigsResponse:
            request = messages.AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=int(each.resource_type),
                        resource_name=str(each.name),
                        configs=[
                            AlterableConfig(name=name, value=None if text is None else str(text))
                            for name, text in (each.configs or {}).items()
                        ],
                    )
                    for each in resources
                ],
            )
            return AlterConfigsResponse.of(await self._request(request, target))

        parts = group_resources(config_resources)
        return await asyncio.gather(*(alter(some, target) for target, some in parts.items()))

    # -- groups

    async def describe_consumer_groups(
        self,
        group_ids: list[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[DescribeGroupsResponse]:
        """Return a response for each coordinator, with its `groups`."""

        async def describe(groups: list[str], node_id: int) -> DescribeGroupsResponse:
            request = messages.DescribeGroupsRequest(
                groups=groups, include_authorized_operations=include_authorized_operations
            )
            return DescribeGroupsResponse.of(await self._request(request, Broker(node_id)))

        by_node: dict[int, list[str]] = {}
        for group_id in group_ids:
            node_id = group_coordinator_id
            if node_id is None:
                node_id = await self.find_coordinator(group_id)
            by_node.setdefault(node_id, []).append(group_id)
        return await asyncio.gather(*(describe(some, node) for node, some in by_node.items()))

    async def list_consumer_groups(
        self, broker_ids: list[int] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return names and protocol types of the groups on these brokers, by default on all.

        Raises the first error of a broker.
        """
        if broker_ids is None:
            metadata = await self._get_cluster_metadata([])
            broker_ids = [node_id for node_id, *_ in metadata.brokers]
        groups: set[tuple[Any, ...]] = set()
        for broker_id in broker_ids:
            response = await self._request(messages.ListGroupsRequest(), Broker(broker_id))
            groups |= {(each.group_id, each.protocol_type) for each in response.groups}
        return list(groups)

    async def find_coordinator(self, group_id: str, coordinator_type: int = 0) -> int:
        """Return the id of the coordinator of a group (0) or a transactional id (1)."""
        return await self._client.coordinator_lookup(coordinator_type, group_id)

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: list[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group: of all its partitions, or of these.

        The offset is -1 for one of these partitions without a committed offset.
        """
        with translated_errors():
            results = await self.native.list_consumer_group_offsets([group_id])
            if results.errors:
                raise results.errors[group_id]
        found = {
            TopicPartition(*tp): OffsetAndMetadata(each.offset, each.metadata)
            for tp, each in results.succeeded[group_id].items()
            if each is not None
        }
        if partitions is None:
            return found
        return {tp: found.get(tp, OffsetAndMetadata(-1, "")) for tp in partitions}

    # -- requests

    async def _get_cluster_metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        native = await self._request(request.convert(), AnyBroker())
        self._client.cluster.update(native)
        return MetadataResponse.of(native)

    async def _request(self, request: Any, target: Any) -> Any:
        if isinstance(target, Broker) and not await self._client.ready(target.node_id):
            await self._get_cluster_metadata([])
            if not await self._client.ready(target.node_id):
                raise NodeNotReadyError(f"No broker has the id {target.node_id}.")
        try:
            return await self._client.native.request(request, to=target)
        except NativeError as error:
            raise translate(error) from error


def group_resources(
    resources: Sequence[ConfigResource],
) -> dict[AnyBroker | Broker, list[ConfigResource]]:
    """Return the resources by the broker that must be asked: each broker knows its own configs."""
    parts: dict[AnyBroker | Broker, list[ConfigResource]] = {}
    for each in resources:
        own = each.resource_type == ConfigResourceType.BROKER
        parts.setdefault(Broker(int(each.name)) if own else AnyBroker(), []).append(each)
    return parts

"""The fetch requests of one range to the leader of its partition.

A range belongs to one topic id. When the topic is deleted and created again, the brokers refuse
further requests, because they contain the id. Brokers before Kafka 3.1 do not support topic ids
in Fetch.

A range also belongs to one cluster, because its offsets mean nothing in another cluster.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.metadata.snapshot import BrokerInfo, differ
from aiokclient.cluster.targets import Leader
from aiokclient.consumer.fetching.session import BY_ID, NO_TOPIC_ID
from aiokclient.consumer.ranges.connections import RangeOwner
from aiokclient.consumer.ranges.outcomes import EVENTS, partition_data
from aiokclient.consumer.ranges.request import RangeRequest
from aiokclient.errors import (
    ClusterChangedError,
    KafkaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import Purpose
from aiokclient.network.sent import OnResponse
from aiokclient.policy import Scope
from aiokclient.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import TopicInfo

__all__ = ["LeaderRequests"]

MAX_WAIT_MS: Final = 500
"""Milliseconds that the broker may wait for records."""
DOUBTED: Final = MappingProxyType({100: True, 103: True})
"""The error codes of a leader that does not know the topic id, or has another id for the topic."""


class LeaderRequests:
    """The requests of one range. `locate` must succeed before the others are called."""

    def __init__(self, cluster: ClusterClient, owner: RangeOwner, request: RangeRequest) -> None:
        self._cluster = cluster
        self._owner = owner
        self._tp = request.tp
        self._expected_id = request.topic_id
        self._read_committed = request.read_committed
        self._topic_id = NO_TOPIC_ID
        self._cluster_id: str | None = None
        self._answered = False
        """Whether the leader has sent a response without an error."""

    async def locate(self, timeout: float) -> None:
        """Find the topic, and request it in all later updates of the metadata.

        Raises UnknownTopicOrPartitionError, UnknownTopicIdError if the topic has another id than
        expected, and the errors of `MetadataUpdater.refresh`.
        """
        updater, topic = self._cluster.updater, self._tp.topic
        updater.want(topic, self._owner)
        info = self._cluster.metadata.topic(topic)
        if info is None or info.error or not self._fits(info):
            if info is not None and not self._fits(info):
                updater.doubt(info.topic_id)  # So that a single response replaces the topic.
            info = (await updater.refresh((topic,), timeout=timeout, at_once=True)).topic(topic)
        refusal = error_for(
            0 if info is None else info.error, api="Metadata", topic_partition=self._tp
        )
        if refusal is not None:
            raise refusal
        if info is None or self._tp.partition >= len(info.partitions):
            raise UnknownTopicOrPartitionError(api="Metadata", topic_partition=self._tp)
        if not self._fits(info):
            raise self._recreated(f"Its id is {info.topic_id}, not {self._expected_id}.")
        self._topic_id, self._cluster_id = info.topic_id, self._cluster.metadata.cluster_id

    def _fits(self, info: TopicInfo) -> bool:
        """Return whether a topic may be the one to read, and has the partition."""
        known = info.topic_id != NO_TOPIC_ID and self._expected_id is not None
        same = not known or info.topic_id == self._expected_id
        return same and self._tp.partition < len(info.partitions)

    def connected(self) -> BrokerConnection | None:
        """Return the open connection to the leader, or None if there is none."""
        leader = self._cluster.metadata.leader(*self._tp)
        return self._cluster.connected(leader, Purpose.FETCH, self._owner)

    def attempt(
        self, connection: BrokerConnection, offset: int, size: int, done: OnResponse
    ) -> None:
        """Fetch once. See `ClusterClient.attempt`."""
        epoch = self._cluster.metadata.leader_epoch(*self._tp)
        message = self._message(offset, size, epoch, MAX_WAIT_MS)
        self._cluster.attempt(connection, message, done, highest=self._highest())

    async def request(
        self, offset: int, size: int, timeout: float, earlier: KafkaError | None
    ) -> FetchResponse:
        """Fetch, with retries, from the present leader. See `ClusterClient.request`."""
        # Each retry may go to another leader, so the request names no epoch. The broker waits for
        # less than the timeout, so that its response, which says why there is no record, arrives.
        wait_ms = min(MAX_WAIT_MS, int(timeout * 500))
        message = self._message(offset, size, -1, wait_ms)
        return await self._cluster.request(
            message,
            Leader(*self._tp),
            timeout=timeout,
            scope=Scope.FETCH,
            check=self.refusal,
            purpose=Purpose.FETCH,
            owner=self._owner,
            highest=self._highest,
            before_retry=self._before_retry,
            earlier=earlier,
        )

    def _message(self, offset: int, size: int, epoch: int, wait_ms: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._tp.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=size,
        )
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(topic=self._tp.topic, topic_id=self._topic_id, partitions=[partition])
            ],
        )

    def _highest(self) -> int | None:
        """Return the highest version in which to send the request, or None if there is no limit.

        Called before each attempt. Raises ClusterChangedError if the client has moved to another
        cluster.
        """
        self._require_cluster()
        return BY_ID - 1 if self._topic_id == NO_TOPIC_ID else None

    def refusal(self, response: FetchResponse) -> KafkaError | None:
        """Return the error of the partition in a response, or None if it concerns the position."""
        error = error_for(response.error_code, api="Fetch")
        data = partition_data(response, self._tp.partition)
        if error is not None or data is None:
            return error
        if data.error_code in EVENTS:
            self._answered = True
            return None
        self._hint(data, response)
        if data.error_code in DOUBTED:
            self._cluster.updater.doubt(self._topic_id)
        return error_for(data.error_code, api="Fetch", topic_partition=self._tp)

    def _hint(self, data: PartitionData, response: FetchResponse) -> None:
        """Apply the new leader that a response names (KIP-951)."""
        leader = data.current_leader
        if leader.leader_id >= 0 and leader.leader_epoch >= 0:
            nodes = response.node_endpoints
            endpoints = [BrokerInfo(n.node_id, n.host, n.port, n.rack) for n in nodes]
            self._cluster.updater.apply_hint(
                *self._tp, leader.leader_id, leader.leader_epoch, endpoints
            )

    async def _before_retry(self, error: KafkaError) -> None:
        """Raise an error if the topic does not exist any more, or the client has moved.

        A client has moved if it is now connected to another cluster.
        """
        self._require_cluster()
        metadata = self._cluster.metadata
        info = metadata.topic(self._tp.topic)
        if info is None:
            return
        # Some brokers do not know a new topic yet. So a missing topic counts as deleted only after
        # its leader has answered.
        if self._answered and not metadata.exists(self._tp.topic):
            raise UnknownTopicOrPartitionError(
                "The topic was deleted while it was read.", api="Fetch", topic_partition=self._tp
            )
        if NO_TOPIC_ID not in (info.topic_id, self._topic_id) and info.topic_id != self._topic_id:
            raise self._recreated("It was deleted and created again while it was read.")

    def _require_cluster(self) -> None:
        """Raise ClusterChangedError if the client has moved to another cluster."""
        former, present = self._cluster_id, self._cluster.metadata.cluster_id
        if former is None or present is None or not differ(former, present):
            return
        error = ClusterChangedError(old_cluster_id=former, new_cluster_id=present)
        error.what = "The client moved to another cluster while the range was read."
        error.hint = "Its offsets mean nothing there. Read a range of the present cluster."
        raise error

    def _recreated(self, why: str) -> KafkaError:
        error = UnknownTopicIdError(why, api="Fetch", topic_partition=self._tp)
        error.what = "The topic is not the one to be read."
        error.hint = "The records of the deleted topic are gone."
        return error

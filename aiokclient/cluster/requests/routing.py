"""The routing of requests: from a target to a broker id."""

from __future__ import annotations

from aiokclient.cluster.metadata.updater import MetadataUpdater
from aiokclient.cluster.requests.coordinator import CoordinatorLocator
from aiokclient.cluster.targets import AnyBroker, Broker, Controller, Coordinator, Leader, Target
from aiokclient.errors import InvalidMetadataError, error_for
from aiokclient.types import TopicPartition

__all__ = ["Router"]


class Router:
    """The lookup of targets in the snapshot, which is refreshed once if a target is missing."""

    def __init__(self, updater: MetadataUpdater, coordinators: CoordinatorLocator) -> None:
        self._updater = updater
        self._coordinators = coordinators

    async def route(self, to: Target, timeout: float) -> int | None:
        """Return the broker id of a target, or None for any broker.

        Raises InvalidMetadataError, the error of the topic, or the error of the lookup. All but
        authorization errors may be temporary.
        """
        match to:
            case AnyBroker():
                return None
            case Coordinator(kind, key):
                return await self._coordinators.locate(kind, key)
            case Leader(topic, partition):
                return await self._leader(topic, partition, timeout)
            case Broker(node_id):
                return await self._broker(node_id, timeout)
            case Controller():
                return await self._controller(timeout)

    def refresh(self, to: Target, node_id: int | None) -> None:
        """Discard the known broker of a target, because it proved wrong."""
        match to:
            case Coordinator(kind, key):
                self._coordinators.forget(kind, key, node_id)
            case Leader(topic, _):
                self._updater.request_update((topic,))
            case _:
                self._updater.request_update()

    async def _leader(self, topic: str, partition: int, timeout: float) -> int:
        leader = self._updater.snapshot.leader(topic, partition)
        if leader < 0:
            snapshot = await self._updater.refresh((topic,), timeout=timeout)
            leader = snapshot.leader(topic, partition)
        if leader >= 0:
            return leader
        where = TopicPartition(topic, partition)
        info = self._updater.snapshot.topic(topic)
        code = info.error if info is not None else 0
        raise error_for(code, topic_partition=where) or InvalidMetadataError(
            "No leader is known.", topic_partition=where
        )

    async def _broker(self, node_id: int, timeout: float) -> int:
        if node_id not in self._updater.snapshot.brokers:
            await self._updater.refresh(timeout=timeout)
        return node_id

    async def _controller(self, timeout: float) -> int:
        snapshot = self._updater.snapshot
        if snapshot.controller_id not in snapshot.brokers:
            snapshot = await self._updater.refresh(timeout=timeout)
        if snapshot.controller_id not in snapshot.brokers:
            raise InvalidMetadataError("No controller is known.")
        return snapshot.controller_id

"""The share groups on one broker: their sessions, and the share partitions that it leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.share.partition import SharePartition
from aiokclient.testing.broker.share.sessions import (
    SessionKey,
    SharePartitionKey,
    ShareSession,
    ShareSessions,
)
from aiokclient.testing.broker.topics.topics import Partition

if TYPE_CHECKING:
    from aiokclient.testing.broker.state import ClusterState


class _LoadedKey(NamedTuple):
    group_id: str
    key: SharePartitionKey


class ShareLeader:
    """The sessions and the share partitions of a broker."""

    def __init__(self, node_id: int) -> None:
        self.sessions = ShareSessions()
        self._node_id = node_id
        self._loaded: dict[_LoadedKey, SharePartition] = {}

    # -- share partitions --------------------------------------------------------------------

    def find_loaded(self, group_id: str, key: SharePartitionKey) -> SharePartition | None:
        """Return a share partition if it is in memory and the broker still leads it."""
        found = self._loaded.get(_LoadedKey(group_id, key))
        if found is not None and not found.is_led:
            self._drop_partition(group_id, key)
            return None
        return found

    def load_partition(
        self, cluster: ClusterState, group_id: str, key: SharePartitionKey, partition: Partition
    ) -> SharePartition:
        """Return a share partition, which is loaded if need be.

        Raises Refused if the coordinator of the group has not created its state, or if the group
        cannot begin yet.
        """
        found = self.find_loaded(group_id, key)
        if found is not None:
            return found
        state = cluster.share_states.find_state(group_id, key)
        if state is None:
            raise Refused(Code.UNKNOWN_SERVER_ERROR, "")
        loaded = SharePartition(cluster, group_id, key, partition, state)
        self._loaded[_LoadedKey(group_id, key)] = loaded
        return loaded

    def drop_fenced(self, group_id: str, key: SharePartitionKey) -> None:
        """Drop a share partition whose state was replaced."""
        found = self._loaded.get(_LoadedKey(group_id, key))
        if found is not None and found.is_fenced:
            self._drop_partition(group_id, key)

    def _drop_partition(self, group_id: str, key: SharePartitionKey) -> None:
        found = self._loaded.pop(_LoadedKey(group_id, key), None)
        if found is not None:
            found.drop()

    # -- ends of sessions --------------------------------------------------------------------

    def close_session(self, session: ShareSession) -> None:
        """End a session, and release the records that the member holds in its partitions."""
        self.sessions.remove_session(session.key)
        self._release_records(session.key, session.partitions)

    def _release_records(self, key: SessionKey, partitions: Iterable[SharePartitionKey]) -> None:
        for each in partitions:
            found = self.find_loaded(key.group_id, each)
            if found is not None:
                found.release_member(key.member_id)
                self.drop_fenced(key.group_id, each)

    def on_disconnected(self, connection: object) -> None:
        """End the session of a connection. Without another session, forget the group.

        As in Kafka, the group is also forgotten if the session has ended before the connection.
        """
        session = self.sessions.close_connection(connection)
        if session is None:
            return
        if self.sessions.find_session(session.key) is session:
            self.close_session(session)
        group_id = session.key.group_id
        if not self.sessions.has_group(group_id):
            for each in [each for each in self._loaded if each.group_id == group_id]:
                self._drop_partition(*each)

    def drop_all(self) -> None:
        """Forget everything, when the broker stops or share groups are disabled."""
        self.sessions.remove_all()
        for each in list(self._loaded):
            self._drop_partition(*each)


def find_led_partition(
    cluster: ClusterState, node_id: int, key: SharePartitionKey
) -> tuple[Partition | None, Code]:
    """Return a partition, and the error code if the broker does not lead it."""
    topic = cluster.topics_by_id.get(key.topic_id)
    partition = None if topic is None else topic.find_partition(key.partition)
    if partition is None:
        return None, Code.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != node_id:
        return partition, Code.NOT_LEADER_OR_FOLLOWER
    return partition, Code.NONE


def check_enabled(cluster: ClusterState) -> None:
    """Raise Refused if share groups are disabled."""
    if not cluster.share_level:
        raise Refused(Code.UNSUPPORTED_VERSION, "")

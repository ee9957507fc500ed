"""What all groups of controls stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokclient.testing.broker.broker import Broker
    from aiokclient.testing.broker.listener import Listener
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics import Partition, Topic
    from aiokclient.testing.runner import Runner


class Controls:
    """Finds brokers, topics and partitions by what a test calls them."""

    _state: ClusterState
    _runner: Runner
    _listener: Listener
    _listen_host: str

    def _broker(self, node_id: int) -> Broker:
        broker = self._state.brokers.get(node_id)
        if broker is None:
            raise ValueError(f"there is no broker {node_id}; there are {list(self._state.brokers)}")
        return broker

    def _topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise ValueError(f"there is no topic {name!r}; there are {list(self._state.topics)}")
        return topic

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._topic(topic).partition(partition)
        if found is None:
            raise ValueError(f"the topic {topic!r} has no partition {partition}")
        return found

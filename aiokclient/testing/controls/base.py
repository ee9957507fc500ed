"""The base class of the embedded cluster's controls, and how the cluster exposes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from aiokclient.testing.broker.broker import EmbeddedBroker
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics.topics import BrokerTopic, Partition
    from aiokclient.testing.runner import Runner


P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")


def forward_to(
    part: str, method: Callable[Concatenate[C, P], R]
) -> Callable[Concatenate[Any, P], R]:
    """Return a method of the cluster that forwards to a method of one of its controls.

    `part` is the attribute in which the cluster holds the controls.
    """

    @wraps(method)
    def forward_call(cluster: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(cluster, part), *args, **kwargs)

    return forward_call


class Controls:
    """A base class for controls, which finds brokers, topics, and partitions by name.

    The controls run in the event loop of the cluster.
    """

    def __init__(
        self, state: ClusterState, brokers: Mapping[int, EmbeddedBroker], runner: Runner
    ) -> None:
        self._state = state
        self._brokers = brokers
        self._runner = runner

    def find_broker(self, node_id: int) -> EmbeddedBroker:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise ValueError(f"There is no broker {node_id}. Brokers: {list(self._brokers)}.")
        return broker

    def find_topic(self, name: str) -> BrokerTopic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise ValueError(f"There is no topic {name!r}. Topics: {list(self._state.topics)}.")
        return topic

    def find_partition(self, topic: str, partition: int) -> Partition:
        found = self.find_topic(topic).find_partition(partition)
        if found is None:
            raise ValueError(f"Topic {topic!r} has no partition {partition}.")
        return found

"""The base of the controls of an embedded cluster, and how the cluster offers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from aiokclient.testing.broker.broker import Broker
    from aiokclient.testing.broker.state import ClusterState
    from aiokclient.testing.broker.topics import Partition, Topic
    from aiokclient.testing.runner import Runner


P = ParamSpec("P")
C = TypeVar("C", bound="Controls")
R = TypeVar("R")


def control(part: str, method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method of the cluster that calls this one of its controls in attribute `part`."""

    @wraps(method)
    def forward(cluster: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(getattr(cluster, part), *args, **kwargs)

    return forward


class Controls:
    """Controls that run in the cluster's event loop and name brokers, topics and partitions."""

    def __init__(self, state: ClusterState, brokers: Mapping[int, Broker], runner: Runner) -> None:
        self._state = state
        self._brokers = brokers
        self._runner = runner

    def broker(self, node_id: int) -> Broker:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise ValueError(f"there is no broker {node_id}; there are {list(self._brokers)}")
        return broker

    def topic(self, name: str) -> Topic:
        topic = self._state.topics.get(name)
        if topic is None:
            raise ValueError(f"there is no topic {name!r}; there are {list(self._state.topics)}")
        return topic

    def partition(self, topic: str, partition: int) -> Partition:
        found = self.topic(topic).partition(partition)
        if found is None:
            raise ValueError(f"the topic {topic!r} has no partition {partition}")
        return found

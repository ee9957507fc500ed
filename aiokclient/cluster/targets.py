"""Targets of requests: the brokers for which requests are intended."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

__all__ = ["TARGETS", "AnyBroker", "Broker", "Controller", "Coordinator", "Leader", "Target"]


class AnyBroker(NamedTuple):
    """The connected broker with the fewest requests in flight."""


class Broker(NamedTuple):
    """The broker with this id."""

    node_id: int


class Controller(NamedTuple):
    """The broker that serves requests which change the cluster."""


class Leader(NamedTuple):
    """The broker that leads a partition."""

    topic: str
    partition: int


class Coordinator(NamedTuple):
    """The coordinator of a key. `kind` is "group", "transaction", or "share"."""

    kind: str
    key: str


Target: TypeAlias = AnyBroker | Broker | Controller | Leader | Coordinator
TARGETS: Final = (AnyBroker, Broker, Controller, Leader, Coordinator)

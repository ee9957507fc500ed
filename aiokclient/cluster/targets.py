"""Whom a request is for."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

__all__ = ["TARGETS", "AnyBroker", "Broker", "Controller", "Coordinator", "Leader", "Target"]


class AnyBroker(NamedTuple):
    """Whichever broker is connected and has the least to do."""


class Broker(NamedTuple):
    """The broker with this id."""

    node_id: int


class Controller(NamedTuple):
    """The broker that takes what changes the cluster."""


class Leader(NamedTuple):
    """The broker that leads a partition."""

    topic: str
    partition: int


class Coordinator(NamedTuple):
    """The broker that coordinates a key: `kind` is "group", "transaction" or "share"."""

    kind: str
    key: str


Target: TypeAlias = AnyBroker | Broker | Controller | Leader | Coordinator
TARGETS: Final = (AnyBroker, Broker, Controller, Leader, Coordinator)

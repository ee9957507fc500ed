"""Targets of requests: the brokers for which requests are intended."""

from __future__ import annotations

from typing import Final, TypeAlias

from aiokclient.types import public_in
from aiokclient.types.named_tuple import NamedTuple

KINDS: Final = {"group": "group", "transaction": "transactional id", "share": "share partition"}
"""The noun for a coordinator's keys in texts, by the kind of the coordinator."""


@public_in("aiokclient")
class AnyBroker(NamedTuple):
    """The connected broker with the fewest requests in flight."""


@public_in("aiokclient")
class Broker(NamedTuple):
    """The broker with this id."""

    node_id: int


@public_in("aiokclient")
class Controller(NamedTuple):
    """The broker that serves requests which change the cluster."""


@public_in("aiokclient")
class Leader(NamedTuple):
    """The broker that leads a partition."""

    topic: str
    partition: int


@public_in("aiokclient")
class Coordinator(NamedTuple):
    """The coordinator of a key. `kind` is "group", "transaction", or "share"."""

    kind: str
    key: str


Target: TypeAlias = AnyBroker | Broker | Controller | Leader | Coordinator
TARGETS: Final = (AnyBroker, Broker, Controller, Leader, Coordinator)


def subject_of(target: Target) -> str | None:
    """Return the key of a coordinator as text, such as "group payments"; None for other targets.

    Errors contain this text, because their codes do not name the group or the id.
    """
    if isinstance(target, Coordinator) and target.kind in KINDS:
        return f"{KINDS[target.kind]} {target.key}"
    return None

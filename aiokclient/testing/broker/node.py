"""A broker as handlers and other brokers see it: its id, address, configs, and state."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aiokclient.config.kinds import written
from aiokclient.testing.broker.configs import BrokerConfigSource, Configs
from aiokclient.testing.broker.security.listeners import DEFAULT
from aiokclient.testing.broker.sessions import FetchSessions
from aiokclient.testing.broker.share.leader import ShareLeader
from aiokclient.testing.broker.telemetry.instances import ClientInstances


class Endpoint(NamedTuple):
    """The address of one listener, as clients receive it. The port is 0 until the first start."""

    host: str
    port: int


class Node:
    """The state of one broker in the cluster.

    `endpoints` has the address of each listener by its name. A client receives the addresses of the
    listener that it is connected to (KIP-103). Ports stay the same after the first start. A paused
    node accepts connections and answers nothing.
    """

    def __init__(
        self,
        node_id: int,
        endpoints: Mapping[str, Endpoint],
        rack: str | None,
        *,
        defaults: Configs,
        rng: random.Random,
        time: Callable[[], float],
    ) -> None:
        self.node_id = node_id
        self.endpoints = dict(endpoints)
        self.rack = rack
        self.alive = False
        """Whether the broker listens."""
        self.registered = True
        """Whether the cluster knows the broker. Without that, the broker answers nevertheless."""
        self.paused = False
        self.configs = Configs(defaults.options, BrokerConfigSource.DYNAMIC_BROKER, defaults)
        self.sessions = FetchSessions(self.configs, rng, time)
        self.client_instances = ClientInstances(time)
        self.shares = ShareLeader(node_id)

    @property
    def host(self) -> str:
        """The host name of the default listener."""
        return self.endpoints[DEFAULT].host

    @property
    def port(self) -> int:
        """The port of the default listener."""
        return self.endpoints[DEFAULT].port

    def __repr__(self) -> str:
        return f"<broker {self.node_id} at {written((self.host, self.port))}>"

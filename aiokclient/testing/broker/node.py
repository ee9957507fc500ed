"""A broker as handlers and other brokers see it: its id, address, configs, and state."""

from __future__ import annotations

import random
from collections.abc import Callable

from aiokclient.testing.broker.configs import BROKER_OPTIONS, BrokerConfigSource, Configs
from aiokclient.testing.broker.sessions import FetchSessions


class Node:
    """The state of one broker in the cluster.

    `host` and `port` are the address that clients receive (KIP-103's advertised listener). The port
    stays the same after the first start. A paused node accepts connections and answers nothing.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        rack: str | None,
        *,
        defaults: Configs,
        rng: random.Random,
        time: Callable[[], float],
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack
        self.alive = False
        """Whether the broker listens."""
        self.paused = False
        self.configs = Configs(BROKER_OPTIONS, BrokerConfigSource.DYNAMIC_BROKER, defaults)
        self.sessions = FetchSessions(self.configs, rng, time)

    def __repr__(self) -> str:
        return f"<broker {self.node_id} at {self.host}:{self.port}>"

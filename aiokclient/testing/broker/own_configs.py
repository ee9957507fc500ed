"""The configs that each broker has for itself: its id, its listeners, its rack, its directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokclient.config.kinds import written
from aiokclient.testing.broker.security.listeners import CONTROLLER, DEFAULT, BrokerListener

if TYPE_CHECKING:
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.state import ClusterState


def find_log_dir(node_id: int) -> str:
    """Return the path of the log directory of a broker."""
    return f"/embedded/broker-{node_id}"


def list_own_configs(cluster: ClusterState, broker: Node) -> dict[str, str]:
    """Return the values that a broker was started with, for options that have one per broker."""
    addresses = {
        name: f"{name}://{written((endpoint.host, endpoint.port))}"
        for name, endpoint in broker.endpoints.items()
    }
    clients = [address for name, address in addresses.items() if name != CONTROLLER]
    listeners: Mapping[str, BrokerListener] = cluster.security.listeners
    own = {
        "advertised.listeners": ",".join(clients),
        "broker.id": str(broker.node_id),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": DEFAULT,
        "listener.security.protocol.map": ",".join(
            f"{name}:{_find_protocol(each)}" for name, each in listeners.items()
        ),
        "listeners": ",".join(addresses.values()),
        "log.dirs": find_log_dir(broker.node_id),
        "node.id": str(broker.node_id),
        "process.roles": "broker,controller",
    }
    return own if broker.rack is None else own | {"broker.rack": broker.rack}


def _find_protocol(listener: BrokerListener) -> str:
    if listener.mechanisms:
        return "SASL_SSL" if listener.tls else "SASL_PLAINTEXT"
    return "SSL" if listener.tls else "PLAINTEXT"

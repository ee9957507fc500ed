"""Kafka for tests: brokers in this process that any client can use.

`EmbeddedCluster` is brokers on loopback, in a thread of their own or in the event loop.
`Simulation` runs clients and brokers in virtual time on a network with seeded faults.
`ProxyConnector` leads real connections through a proxy that treats them badly.
"""

from aiokclient.testing.cluster import EmbeddedCluster
from aiokclient.testing.faults import Fault
from aiokclient.testing.loop import SimulationError
from aiokclient.testing.network import NameFault, Weather
from aiokclient.testing.proxy import FaultProxy, ProxyConnector, ProxyFaults
from aiokclient.testing.requests import ReceivedRequest
from aiokclient.testing.simulation import Simulation

__all__ = [
    "EmbeddedCluster",
    "Fault",
    "FaultProxy",
    "NameFault",
    "ProxyConnector",
    "ProxyFaults",
    "ReceivedRequest",
    "Simulation",
    "SimulationError",
    "Weather",
]

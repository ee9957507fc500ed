"""Kafka for tests: brokers in this process that any client can use.

`EmbeddedCluster` is brokers on loopback, in a thread of their own or in the event loop.
"""

from aiokclient.testing.cluster import EmbeddedCluster
from aiokclient.testing.faults import Fault
from aiokclient.testing.requests import ReceivedRequest

__all__ = ["EmbeddedCluster", "Fault", "ReceivedRequest"]

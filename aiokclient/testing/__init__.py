"""Kafka for tests: brokers in the test's own process that any Kafka client can use.

`EmbeddedCluster` runs brokers on loopback, in a thread of their own or in the caller's event loop.
`Simulation` runs clients and brokers in virtual time, on a network with seeded faults.
`ProxyConnector` routes real connections through a proxy that injects faults.

Names are imported when they are first used, because pytest loads this package's plugin in every
run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.testing.broker.faults import Fault
    from aiokclient.testing.broker.requests import ReceivedRequest
    from aiokclient.testing.broker.security.listeners import BrokerListener
    from aiokclient.testing.broker.telemetry.otlp_receiver import OtlpHttpTelemetryReceiver
    from aiokclient.testing.broker.telemetry.receiver import (
        ClientTelemetryContext,
        ClientTelemetryPayload,
        ClientTelemetryReceiver,
    )
    from aiokclient.testing.broker.telemetry.topic_receiver import TopicTelemetryReceiver
    from aiokclient.testing.certificates import ClientCertificate
    from aiokclient.testing.cluster import EmbeddedCluster
    from aiokclient.testing.proxy import FaultProxy, ProxyConnector, ProxyFaults
    from aiokclient.testing.simulation.loop import SimulationError
    from aiokclient.testing.simulation.network import NameFault, Weather
    from aiokclient.testing.simulation.simulation import Simulation
    from aiokclient.testing.tokens import TokenIssuer, unsecured_token

__all__ = [
    "BrokerListener",
    "ClientCertificate",
    "ClientTelemetryContext",
    "ClientTelemetryPayload",
    "ClientTelemetryReceiver",
    "EmbeddedCluster",
    "Fault",
    "FaultProxy",
    "NameFault",
    "OtlpHttpTelemetryReceiver",
    "ProxyConnector",
    "ProxyFaults",
    "ReceivedRequest",
    "Simulation",
    "SimulationError",
    "TokenIssuer",
    "TopicTelemetryReceiver",
    "Weather",
    "unsecured_token",
]

_MODULES = {
    "BrokerListener": "broker.security.listeners",
    "ClientCertificate": "certificates",
    "ClientTelemetryContext": "broker.telemetry.receiver",
    "ClientTelemetryPayload": "broker.telemetry.receiver",
    "ClientTelemetryReceiver": "broker.telemetry.receiver",
    "EmbeddedCluster": "cluster",
    "Fault": "broker.faults",
    "FaultProxy": "proxy",
    "NameFault": "simulation.network",
    "OtlpHttpTelemetryReceiver": "broker.telemetry.otlp_receiver",
    "ProxyConnector": "proxy",
    "ProxyFaults": "proxy",
    "ReceivedRequest": "broker.requests",
    "Simulation": "simulation.simulation",
    "SimulationError": "simulation.loop",
    "TokenIssuer": "tokens",
    "TopicTelemetryReceiver": "broker.telemetry.topic_receiver",
    "Weather": "simulation.network",
    "unsecured_token": "tokens",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""


if not TYPE_CHECKING:  # If type checkers saw the function, they would accept any name.

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value

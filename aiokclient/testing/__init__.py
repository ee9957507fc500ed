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
    from aiokclient.testing.exploration.exploring import CounterexampleError, Report, explore
    from aiokclient.testing.exploration.faults import (
        ALL_FAULTS,
        BreakHttp,
        CancelService,
        CancelTask,
        CutConnections,
        KillService,
        LoseReplies,
        MoveLeaders,
        PauseBroker,
        Rebalance,
        RefuseRequests,
        ScaleOut,
        ServiceFault,
        SlowHandlers,
        SlowNetwork,
        StallService,
        StopBroker,
    )
    from aiokclient.testing.exploration.invariants import (
        ALL_INVARIANTS,
        bounded_in_hand,
        closes_in_time,
        committed_at_most_processed,
        exactly_once,
        handled_at_least_once,
        no_task_left,
        nothing_lost,
        order_within_key,
    )
    from aiokclient.testing.exploration.running import Feed
    from aiokclient.testing.exploration.timeline import Timeline
    from aiokclient.testing.proxy import FaultProxy, ProxyConnector, ProxyFaults
    from aiokclient.testing.simulation.loop import SimulationError
    from aiokclient.testing.simulation.network import NameFault, Weather
    from aiokclient.testing.simulation.simulation import Simulation
    from aiokclient.testing.tokens import TokenIssuer, unsecured_token

__all__ = [
    "ALL_FAULTS",
    "ALL_INVARIANTS",
    "BreakHttp",
    "BrokerListener",
    "CancelService",
    "CancelTask",
    "ClientCertificate",
    "ClientTelemetryContext",
    "ClientTelemetryPayload",
    "ClientTelemetryReceiver",
    "CounterexampleError",
    "CutConnections",
    "EmbeddedCluster",
    "Fault",
    "FaultProxy",
    "Feed",
    "KillService",
    "LoseReplies",
    "MoveLeaders",
    "NameFault",
    "OtlpHttpTelemetryReceiver",
    "PauseBroker",
    "ProxyConnector",
    "ProxyFaults",
    "Rebalance",
    "ReceivedRequest",
    "RefuseRequests",
    "Report",
    "ScaleOut",
    "ServiceFault",
    "Simulation",
    "SimulationError",
    "SlowHandlers",
    "SlowNetwork",
    "StallService",
    "StopBroker",
    "Timeline",
    "TokenIssuer",
    "TopicTelemetryReceiver",
    "Weather",
    "bounded_in_hand",
    "closes_in_time",
    "committed_at_most_processed",
    "exactly_once",
    "explore",
    "handled_at_least_once",
    "no_task_left",
    "nothing_lost",
    "order_within_key",
    "unsecured_token",
]

_MODULES = {
    "ALL_FAULTS": "exploration.faults",
    "ALL_INVARIANTS": "exploration.invariants",
    "BreakHttp": "exploration.faults",
    "BrokerListener": "broker.security.listeners",
    "CancelService": "exploration.faults",
    "CancelTask": "exploration.faults",
    "ClientCertificate": "certificates",
    "ClientTelemetryContext": "broker.telemetry.receiver",
    "ClientTelemetryPayload": "broker.telemetry.receiver",
    "ClientTelemetryReceiver": "broker.telemetry.receiver",
    "CounterexampleError": "exploration.exploring",
    "CutConnections": "exploration.faults",
    "EmbeddedCluster": "cluster",
    "Fault": "broker.faults",
    "FaultProxy": "proxy",
    "Feed": "exploration.running",
    "KillService": "exploration.faults",
    "LoseReplies": "exploration.faults",
    "MoveLeaders": "exploration.faults",
    "NameFault": "simulation.network",
    "OtlpHttpTelemetryReceiver": "broker.telemetry.otlp_receiver",
    "PauseBroker": "exploration.faults",
    "ProxyConnector": "proxy",
    "ProxyFaults": "proxy",
    "Rebalance": "exploration.faults",
    "ReceivedRequest": "broker.requests",
    "RefuseRequests": "exploration.faults",
    "Report": "exploration.exploring",
    "ScaleOut": "exploration.faults",
    "ServiceFault": "exploration.faults",
    "Simulation": "simulation.simulation",
    "SimulationError": "simulation.loop",
    "SlowHandlers": "exploration.faults",
    "SlowNetwork": "exploration.faults",
    "StallService": "exploration.faults",
    "StopBroker": "exploration.faults",
    "Timeline": "exploration.timeline",
    "TokenIssuer": "tokens",
    "TopicTelemetryReceiver": "broker.telemetry.topic_receiver",
    "Weather": "simulation.network",
    "bounded_in_hand": "exploration.invariants",
    "closes_in_time": "exploration.invariants",
    "committed_at_most_processed": "exploration.invariants",
    "exactly_once": "exploration.invariants",
    "explore": "exploration.exploring",
    "handled_at_least_once": "exploration.invariants",
    "no_task_left": "exploration.invariants",
    "nothing_lost": "exploration.invariants",
    "order_within_key": "exploration.invariants",
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

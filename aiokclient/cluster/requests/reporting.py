"""The connections of a client as its reporter of metrics uses them."""

from __future__ import annotations

from collections.abc import Callable

from aiokclient.cluster.requests.brokers import Brokers
from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.pool import ConnectionPool, Purpose
from aiokclient.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from aiokclient.protocol.messages.push_telemetry import PushTelemetryRequest

__all__ = ["ReporterConnections"]

HANGING_S = 1.0
"""Seconds without a response after which a connection is used only if there is no other."""


class ReporterConnections:
    """The connections of one client, for requests that must not change how it works.

    Normally, these requests use connections that are open anyway. `brokers()` returns None while
    only requests for metadata are permitted.
    """

    def __init__(self, brokers: Callable[[], Brokers | None]) -> None:
        self._brokers = brokers

    def announced(self) -> bool:
        """Return whether a connected broker announces the telemetry requests. Synchronous."""
        return bool(self._pools())

    async def connect(self, preferred: int | None, avoided: int | None) -> BrokerConnection | None:
        """Return the control connection to a broker that announces the telemetry requests.

        Returns None if no connected broker announces the requests. The result is the connection to
        `preferred` if that is a connected broker that announces them, otherwise to any such broker.
        `avoided` is used only if no other broker can be reached. The control connection is opened
        if necessary. Raises an error if it cannot be opened.
        """
        brokers, pools = self._brokers(), self._pools()
        if brokers is None or not pools:
            return None
        others = [pool for pool in pools if pool.node_id != avoided]
        if not others:
            return await _other(brokers, avoided) or await pools[0].get(Purpose.CONTROL)
        for pool in others:
            if pool.node_id == preferred:
                return await pool.get(Purpose.CONTROL)
        ready = [pool for pool in others if pool.ready(Purpose.CONTROL) is not None]
        prompt = [pool for pool in ready if _silent_for(pool) < HANGING_S]
        chosen = prompt or ready or others
        pool = chosen[0] if len(chosen) == 1 else brokers.rng.choice(chosen)
        return await pool.get(Purpose.CONTROL)

    async def connect_any(self) -> BrokerConnection:
        """Return the control connection to any broker that announces the telemetry requests.

        The connection is opened if necessary. Raises UnsupportedVersionError if no broker announces
        the requests, and an error if no connection can be opened.
        """
        brokers = self._brokers()
        if brokers is None:
            raise KafkaError("No broker is known.")
        return await brokers.connect_any(GetTelemetrySubscriptionsRequest)

    def _pools(self) -> list[ConnectionPool]:
        brokers = self._brokers()
        if brokers is None:
            return []
        return [pool for pool in brokers.eligible() if any(map(_announces, pool.connections()))]


async def _other(brokers: Brokers, avoided: int | None) -> BrokerConnection | None:
    """Return a connection to a broker other than `avoided` that announces the telemetry requests.

    Returns None if there is no such broker.
    """
    try:
        unfit = () if avoided is None else (avoided,)
        connection = await brokers.choose(unfit).get(Purpose.CONTROL)
    except KafkaError:
        return None
    return connection if _announces(connection) else None


def _announces(connection: BrokerConnection) -> bool:
    try:
        connection.broker.version_of(GetTelemetrySubscriptionsRequest)
        connection.broker.version_of(PushTelemetryRequest)
    except UnsupportedVersionError:
        return False
    return True


def _silent_for(pool: ConnectionPool) -> float:
    connection = pool.ready(Purpose.CONTROL)
    return 0.0 if connection is None else connection.unanswered_for()

"""The connection for the produce requests to one broker, and whether the broker can be reached.

While there is a connection, no task runs. Only connecting needs a task, which `open` starts, and
which tries again until it has a connection or no partition needs one.

A broker is *unreachable* while its connection is lost and the producer tries to reconnect. It is
*silent* when a request has had no response for a second. If no batch waits to be sent, the producer
does not reconnect, and would never notice that the broker is reachable again. In that case the
broker counts as reachable until an attempt to connect fails.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from aiokclient.background import Callbacks
from aiokclient.errors import KafkaError
from aiokclient.network.pool import Purpose
from aiokclient.policy import Backoff, Retry, Scope
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.sending.produce_request import IDS_FROM
from aiokclient.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.lifecycle.supervisor import Supervisor
    from aiokclient.config.producer import ProducerConfig
    from aiokclient.network.connection import BrokerConnection

__all__ = ["ConnectionUser", "ProduceConnection"]

SILENCE_S = 1.0
"""Seconds without a response after which a broker counts as silent."""
TICK_S = 0.010


class ConnectionUser(Protocol):
    """The sender whose requests use a connection."""

    queues: dict[PartitionQueue, None]
    """The partitions that the broker leads."""
    in_flight: int
    """Number of produce requests without a response."""

    def pump(self) -> None:
        """Send the ready batches, because an attempt to connect has ended."""

    def disconnected(self) -> bool:
        """Handle the loss of the connection. Return whether batches wait to be sent."""

    def resume(self) -> None:
        """Send the waiting batches of all partitions."""

    def fail_all(self, error: KafkaError) -> None:
        """Fail all batches, because the broker cannot be used and waiting does not change that."""

    def reach_changed(self) -> None:
        """Handle a broker that became reachable, unreachable, silent, or responsive."""


class ProduceConnection:
    """The connection for the produce requests to one broker."""

    def __init__(
        self,
        node_id: int,
        config: ProducerConfig,
        cluster: ClusterClient,
        supervisor: Supervisor,
        callbacks: Callbacks,
        user: ConnectionUser,
    ) -> None:
        self.current: BrokerConnection | None = None
        self.by_name = False
        """Whether produce requests to the broker name topics by their names."""
        self.reachable = True
        self.silent = False
        self.watch: asyncio.TimerHandle | None = None
        """The timer that checks whether the broker responds, while requests are in flight."""
        self._node_id = node_id
        self._cluster = cluster
        self._supervisor = supervisor
        self._callbacks = callbacks
        self._user = user
        self._backoff = Backoff.of_reconnects(config)
        self._connecting = False
        self._ignore_loss: Callable[[], None] = lambda: None
        self._closed = False

    @property
    def unsendable(self) -> bool:
        """Whether the broker is unreachable or silent."""
        return self.silent or not self.reachable

    def unanswered_for(self) -> float:
        """Return the seconds since the oldest request without a response was sent, or 0."""
        return 0.0 if self.current is None else self.current.unanswered_for()

    def open(self) -> None:
        """Start to connect, unless that is in progress."""
        if self._connecting:
            return
        self._connecting = True
        self._supervisor.spawn(self._connect, name=f"produce connection to broker {self._node_id}")

    def close(self) -> None:
        """Stop connecting, and ignore the end of the connection."""
        self._closed = True
        self._ignore_loss()  # The connection may be shared and may stay open after this.
        if self.watch is not None:
            self.watch.cancel()

    # -- silence

    def begin_watch(self) -> None:
        """Check from now on whether the broker responds, until nothing is in flight."""
        self.watch = self._callbacks.later(SILENCE_S, self._listen)

    def set_silent(self, silent: bool) -> None:
        """Store whether the broker is silent."""
        if self.silent is not silent:
            self.silent = silent
            self._user.reach_changed()

    def _listen(self) -> None:
        """Check whether the broker still responds."""
        self.watch = None
        connection = self.current
        if not self._user.in_flight or connection is None:
            return
        quiet = connection.unanswered_for()
        if quiet >= SILENCE_S:
            self.set_silent(True)
            quiet = 0.0
        self.watch = self._callbacks.later(max(SILENCE_S - quiet, TICK_S), self._listen)

    def _set_reachable(self, reachable: bool) -> None:
        self.silent = False
        self.reachable = reachable
        self._user.reach_changed()

    # -- connecting

    async def _connect(self) -> None:
        try:
            await self._keep_connecting()
        finally:
            self._connecting = False
        if self.current is None:
            self._set_reachable(True)
        self._user.pump()

    async def _keep_connecting(self) -> None:
        retry = Retry(math.inf, self._backoff, self._cluster.clock)
        while self._user.queues and not self._closed:
            lasting = self._callbacks.later(SILENCE_S, self._set_reachable, False)
            try:
                connection = await self._cluster.connect(self._node_id, Purpose.PRODUCE)
                # An unsupported version must raise here rather than when a request is sent.
                connection.broker.version_of(ProduceRequest)
            except KafkaError as error:
                self._set_reachable(False)
                action = retry.failed(error, Scope.CONNECTION)
                if not action.again:
                    self._user.fail_all(error)
                    return
                topics = dict.fromkeys(queue.topic.name for queue in self._user.queues)
                self._cluster.updater.request_update(topics)
                await asyncio.sleep(action.delay_s)
            else:
                self.current = connection
                self.by_name = connection.broker.version_of(ProduceRequest) < IDS_FROM
                self._ignore_loss = connection.on_close(self._callbacks.guard(self._lost))
                self._set_reachable(True)
                return
            finally:
                lasting.cancel()

    def _lost(self, connection: BrokerConnection, reason: KafkaError | None) -> None:
        if connection is not self.current:
            return
        self.current = None
        waiting = self._user.disconnected()
        if reason is not None and not self._closed:
            self._set_reachable(not waiting)
        if waiting:
            self._user.resume()

"""Controls of the embedded cluster over its brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiokclient.testing.broker.broker import Broker
from aiokclient.testing.broker.listener import Listener
from aiokclient.testing.broker.state import ClusterState
from aiokclient.testing.broker.views import held
from aiokclient.testing.controls.base import Controls
from aiokclient.testing.runner import Runner


class BrokerControls(Controls):
    """Controls that stop, start and pause brokers, wipe the cluster, and hold metadata."""

    def __init__(
        self,
        state: ClusterState,
        brokers: Mapping[int, Broker],
        runner: Runner,
        listener: Listener,
        listen_host: str,
    ) -> None:
        super().__init__(state, brokers, runner)
        self._listener = listener
        self._listen_host = listen_host

    def stop(self, broker: int, *, failover_after: float = 0.0) -> None:
        """Kill a broker: its port is closed, its connections are cut, others take over.

        Leadership goes to the next in-sync replica in a new epoch, after `failover_after`
        seconds. A partition without another one has no leader until the broker is back.
        """

        def stop() -> None:
            found = self.broker(broker)
            if not found.alive:
                return
            found.shut()
            self._state.groups.settle()
            if failover_after > 0:
                self._state.loop.call_later(failover_after, self._failover, found)
            else:
                self._state.left(broker)
            self._state.changed()

        self._runner.call(stop)

    def _failover(self, broker: Broker) -> None:
        if not broker.alive:
            self._state.left(broker.node_id)

    def start(self, broker: int) -> None:
        """Start a broker that was stopped, on its old port."""
        found = self.broker(broker)

        def start() -> None:
            if not found.alive:
                found.listen(self._listener, self._listen_host)
                self._state.joined(found)

        self._runner.call(start)
        self._runner.call_async(found.serve)

    def pause(self, broker: int) -> None:
        """Let a broker hang: connections are taken and nothing is answered; no failover."""
        self._runner.call(self.broker(broker).pause)

    def resume(self, broker: int) -> None:
        """Let a paused broker answer what has come meanwhile, and go on."""
        self._runner.call(self.broker(broker).resume)

    def wipe(self, topics: Mapping[str, int] = {}, *, same_id: bool = False) -> None:
        """Replace the cluster by a new one with the same brokers at the same addresses.

        Every broker goes down and comes back without topics, records, groups and producer ids;
        configs stay. Then `topics` are created, before any client is answered. The new cluster has
        another id, unless `same_id` is set, and gives the same producer ids as the old one did.
        """
        brokers = list(self._brokers.values())

        def wipe() -> None:
            for broker in brokers:
                broker.shut()
            self._state.wipe(same_id=same_id)
            for broker in brokers:
                broker.listen(self._listener, self._listen_host)
            for name, partitions in topics.items():
                self._state.create_topic(name, self._state.assign(partitions, -1))

        self._runner.call(wipe)
        for broker in brokers:
            self._runner.call_async(broker.serve)

    @contextmanager
    def hold_metadata(self, broker: int) -> Iterator[None]:
        """Have a broker answer Metadata within the block with what it knows now.

        A broker that lags the controller does so. Its other answers are up to date.
        """
        node = self.broker(broker).node_id

        def hold() -> None:
            self._state.held[node] = held(self._state)

        def release() -> None:
            self._state.held.pop(node, None)

        self._runner.call(hold)
        try:
            yield
        finally:
            self._runner.post(release)

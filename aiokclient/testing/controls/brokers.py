"""Controls of the embedded cluster that act on brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiokclient.testing.broker.broker import EmbeddedBroker
from aiokclient.testing.broker.connections.listener import Listener
from aiokclient.testing.broker.state import ClusterState
from aiokclient.testing.broker.topics.views import copy_cluster
from aiokclient.testing.controls.base import Controls
from aiokclient.testing.runner import Runner


class BrokerControls(Controls):
    """Controls that stop, start, and pause brokers, replace the cluster, and freeze metadata."""

    def __init__(
        self,
        state: ClusterState,
        brokers: Mapping[int, EmbeddedBroker],
        runner: Runner,
        listener: Listener,
        listen_host: str,
    ) -> None:
        super().__init__(state, brokers, runner)
        self._listener = listener
        self._listen_host = listen_host

    def stop(self, broker: int, *, failover_after: float = 0.0) -> None:
        """Kill a broker: close its port, cut its connections, and let other brokers take over.

        After `failover_after` seconds, the next in-sync replica of each partition becomes the
        leader in a new epoch. A partition without another in-sync replica has no leader until the
        broker is started again.
        """

        def stop_broker() -> None:
            found = self.find_broker(broker)
            if not found.alive:
                return
            found.kill()
            self._state.settle_coordinators()
            if failover_after > 0:
                self._state.loop.call_later(failover_after, self._failover, found)
            else:
                self._state.on_broker_stopped(broker)
            self._state.notify_tests()

        self._runner.call_in_loop(stop_broker)

    def _failover(self, broker: EmbeddedBroker) -> None:
        if not broker.alive:
            self._state.on_broker_stopped(broker.node_id)

    def start(self, broker: int) -> None:
        """Start a broker that was stopped, on its previous port."""
        found = self.find_broker(broker)

        def start() -> None:
            if not found.alive:
                found.open_listeners(self._listener, self._listen_host)
                self._state.on_broker_started(found)

        self._runner.call_in_loop(start)
        self._runner.run_coroutine(found.accept_connections)

    def pause(self, broker: int) -> None:
        """Make a broker hang: it accepts connections, but answers nothing. It stays the leader."""
        self._runner.call_in_loop(self.find_broker(broker).pause)

    def resume(self, broker: int) -> None:
        """Resume a paused broker, which then answers the requests that it received meanwhile."""
        found = self.find_broker(broker)

        def resume_broker() -> None:
            found.resume()
            self._state.transactions.move_to_coordinators()

        self._runner.call_in_loop(resume_broker)

    def wipe(self, topics: Mapping[str, int] = {}, *, same_id: bool = False) -> None:
        """Replace the cluster with a new, empty one that has the same brokers and addresses.

        Every broker stops and restarts without topics, records, groups, and producer ids. Configs
        stay. Then `topics` are created, before any client receives a response. The new cluster has
        a different cluster id unless `same_id` is set. It assigns producer ids from the beginning,
        so ids of the old cluster occur again.
        """
        brokers = list(self._brokers.values())

        def wipe_cluster() -> None:
            for broker in brokers:
                broker.kill()
            self._state.wipe(same_id=same_id)
            for broker in brokers:
                broker.open_listeners(self._listener, self._listen_host)
            for name, partitions in topics.items():
                self._state.create_topic(name, self._state.assign_replicas(partitions, -1))

        self._runner.call_in_loop(wipe_cluster)
        for broker in brokers:
            self._runner.run_coroutine(broker.accept_connections)

    @contextmanager
    def hold_metadata(self, broker: int) -> Iterator[None]:
        """Freeze the metadata of a broker within the block.

        The broker answers Metadata requests with the state of the cluster at the start of the
        block. This simulates a broker that lags the controller. Its other responses are up to date.
        """
        node = self.find_broker(broker).node_id

        def keep_present_view() -> None:
            self._state.held[node] = copy_cluster(self._state)

        def use_current_view() -> None:
            self._state.held.pop(node, None)

        self._runner.call_in_loop(keep_present_view)
        try:
            yield
        finally:
            self._runner.post_to_loop(use_current_view)

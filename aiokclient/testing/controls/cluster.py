"""Controls of the embedded cluster over the cluster as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiokclient.testing.broker.views import held
from aiokclient.testing.controls.leaders import LeaderControls


class ClusterControls(LeaderControls):
    """Controls that wipe the cluster, and that hold the metadata of a broker."""

    def wipe(self, topics: Mapping[str, int] = {}, *, same_id: bool = False) -> None:
        """Replace the cluster by a new one with the same brokers at the same addresses.

        Every broker goes down and comes back without topics, records, groups and producer ids;
        configs stay. Then `topics` are created, before any client is answered. The new cluster has
        another id, unless `same_id` is set, and gives the same producer ids as the old one did.
        """

        brokers = list(self._state.brokers.values())

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
        node = self._broker(broker).node_id

        def hold() -> None:
            self._state.held[node] = held(self._state)

        def release() -> None:
            self._state.held.pop(node, None)

        self._runner.call(hold)
        try:
            yield
        finally:
            self._runner.post(release)

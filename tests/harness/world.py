"""A simulation for one scenario, with a cluster, a ledger, and clients on request."""

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ledger import Ledger
from owned import CheckedConsumer, check_successor

from aiokclient import Client, Consumer, Producer
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation
from aiokclient.testing.simulation.network import VirtualNetwork, Weather

T = TypeVar("T")
PROTOCOL = ("group_protocol", "partition_assignment_strategy")


class World:
    """The objects of a scenario. Its clients use the simulated network and clock."""

    def __init__(self, sim: Simulation, cluster: EmbeddedCluster) -> None:
        self.sim, self.cluster = sim, cluster
        self.ledger = Ledger()
        self._consumers: list[weakref.ref[CheckedConsumer]] = []
        self._groups: dict[str, dict[str, Any]] = {}
        """The options of the group protocol, by group."""

    @property
    def network(self) -> VirtualNetwork:
        return self.sim.network

    @property
    def now(self) -> float:
        return self.sim.loop.time()

    def options(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "connector": self.sim.connector,
            "clock": self.sim.clock,
            **more,
        }

    def client(self, **more: Any) -> Client:
        return Client(**self.options(**more))

    def producer(self, **more: Any) -> Producer[Any, Any]:
        return Producer(**self.options(**more))

    def consumer(self, *topics: str, checked: bool = True, **more: Any) -> Consumer[Any, Any]:
        """Return a consumer.

        At the end of its block, the owners of its group's partitions are checked (see `owned`),
        unless `checked` is False: a member whose program processes records, or requests none,
        releases nothing.
        """
        more.setdefault("auto_offset_reset", "earliest")
        consumer = CheckedConsumer(*topics, **self.options(**more))
        consumer.world, consumer.checked = self, checked
        self._consumers.append(weakref.ref(consumer))
        if group := more.get("group_id"):
            # A test's own assignors may be wrong on purpose.
            self._groups[group] = {
                name: more[name] for name in PROTOCOL if isinstance(more.get(name), str)
            }
        return consumer

    async def check_groups(self) -> None:
        """Check that the groups of all consumers are free for new members, once all have gone."""
        network = self.network
        network.weather, network.tamper = Weather(), None
        network.refusing.clear()
        network.heal()
        self.cluster.reset()
        disabled = logging.root.manager.disable
        logging.disable()  # The logs are those of the scenario.
        try:
            for group, options in self._groups.items():
                if group in self.cluster.groups:
                    await check_successor(self, group, **self.options(**options))
        finally:
            logging.disable(disabled)

    def consumers(self) -> list[CheckedConsumer]:
        """Return the consumers of this world that exist."""
        return [each for reference in self._consumers if (each := reference()) is not None]

    def check(self) -> None:
        """Check A, B, and C against the brokers' logs."""
        for topic in self.cluster.topics:
            self.ledger.consume_all(self.cluster.records(topic))
        self.ledger.check()

    def address(self, broker: int) -> str:
        """Return the name of a broker on the network."""
        host, port = self.cluster.address(broker)
        return f"{host}:{port}"

    def requests(self, api: ApiKey, since: float = 0.0) -> list[Any]:
        """Return the requests of an API that the brokers received since a virtual time."""
        return [r for r in self.cluster.requests if r.api == api and r.at >= since]


def simulate(
    scenario: Callable[[World], Coroutine[Any, Any, T]],
    *,
    brokers: int = 1,
    topics: Mapping[str, int] | None = None,
    seed: int = 1,
    weather: Weather | None = None,
    **options: Any,
) -> T:
    """Run a scenario with a topic "t" of one partition, and check that nothing is left open.

    ``options`` are those of the cluster.
    """

    async def main(sim: Simulation) -> T:
        wanted = {"t": 1} if topics is None else topics
        async with sim.cluster(brokers=brokers, topics=wanted, **options) as cluster:
            world = World(sim, cluster)
            result = await scenario(world)
            sim.network.heal()
            await asyncio.sleep(1)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks still running: {left}"
            assert not sim.network.connections, "connections still open"
            await world.check_groups()
        return result

    return Simulation(seed, weather=weather, limit_s=10_000).run(main)

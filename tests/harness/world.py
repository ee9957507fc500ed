"""A simulation for one scenario, with a cluster, a ledger, and clients on request."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ledger import Ledger

from aiokclient import Client, Consumer, Producer
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation
from aiokclient.testing.simulation.network import VirtualNetwork, Weather

T = TypeVar("T")


class World:
    """The objects of a scenario. Its clients use the simulated network and clock."""

    def __init__(self, sim: Simulation, cluster: EmbeddedCluster) -> None:
        self.sim, self.cluster = sim, cluster
        self.ledger = Ledger()

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

    def consumer(self, *topics: str, **more: Any) -> Consumer[Any, Any]:
        more.setdefault("auto_offset_reset", "earliest")
        return Consumer(*topics, **self.options(**more))

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
            result = await scenario(World(sim, cluster))
            sim.network.heal()
            await asyncio.sleep(1)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks still running: {left}"
            assert not sim.network.connections, "connections still open"
        return result

    return Simulation(seed, weather=weather, limit_s=10_000).run(main)

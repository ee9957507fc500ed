"""A walk on an embedded cluster in a simulation, in which the seed determines everything.

``python -m admin_walk.simulated SEED CALLS``, in tests/harness, shows the calls of one walk.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiokclient import Producer, SaslScram
from aiokclient.admin import Admin, UserScramCredentialUpsertion
from aiokclient.testing import BrokerListener, EmbeddedCluster, Simulation
from aiokclient.testing.simulation.network import Weather

from .walk import Clients, Walk, WalkReport

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:walker",
    "allow.everyone.if.no.acl.found": "true",
    "delegation.token.secret.key": "a-test-secret",
}
USER, PASSWORD = "walker", "walker-password"
LATENCY_S = (0.0002, 0.003)


class SimulatedSite:
    """An embedded cluster of three brokers, and the faults of its network."""

    brokers: tuple[int, ...] = (1, 2, 3)
    reuses_names = True
    deletes_credentials = True
    learns_tokens_late = False
    forgets_deletions = False

    def __init__(self, sim: Simulation, cluster: EmbeddedCluster) -> None:
        self._sim, self._cluster = sim, cluster
        self.log_dirs: dict[int, Sequence[str]] = {
            broker: (f"/embedded/broker-{broker}",) for broker in self.brokers
        }

    async def stop(self, broker: int) -> None:
        self._cluster.stop(broker, failover_after=self._sim.rng.choice([0.0, 0.5, 2.0]))

    async def start(self, broker: int) -> None:
        self._cluster.start(broker)

    def list_faults(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return [self.cut_connections]

    async def cut_connections(self) -> None:
        self._sim.network.cut(None)


def run(seed: int, calls: int, say: Callable[[str], None] = lambda line: None) -> WalkReport:
    """Run the walk of a seed. If it fails, the error has its last calls in a note."""

    async def main(sim: Simulation) -> WalkReport:
        listeners = {"SASL": BrokerListener(mechanisms=["SCRAM-SHA-256"])}
        async with sim.cluster(brokers=3, configs=CONFIGS, listeners=listeners) as cluster:
            return await _walk(sim, cluster, calls, say)

    return Simulation(seed, weather=Weather(latency_s=LATENCY_S)).run(main)


async def _walk(
    sim: Simulation, cluster: EmbeddedCluster, calls: int, say: Callable[[str], None]
) -> WalkReport:
    options: dict[str, Any] = {
        "connector": sim.connector,
        "clock": sim.clock,
        "request_timeout_ms": 3_000,
        "default_api_timeout_ms": 8_000,
    }
    plain = {**options, "bootstrap_servers": cluster.bootstrap_servers}
    login = {
        **options,
        "bootstrap_servers": cluster.bootstrap_servers_for("SASL"),
        "security": SaslScram(USER, PASSWORD, mechanism="SCRAM-SHA-256"),
    }
    async with Admin(**plain) as reader:
        credential = UserScramCredentialUpsertion(USER, PASSWORD, "SCRAM-SHA-256", 4096)
        (await reader.alter_user_scram_credentials([credential])).raise_for_errors()
        async with (
            Admin(**plain) as admin,
            Admin(**login) as tokens,
            Producer(**{**plain, "default_api_timeout_ms": 30_000}) as producer,
        ):
            clients = Clients(admin, reader, producer, tokens)
            walk = Walk(sim.rng, SimulatedSite(sim, cluster), clients, say)
            try:
                return await walk.run(calls)
            except BaseException as error:
                error.add_note("\n".join(["The last steps:", *walk.report.lines[-60:]]))
                raise


def main() -> None:
    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")

    report = run(int(sys.argv[1]), int(sys.argv[2]), say)
    sys.stdout.write(f"{report}\n")


if __name__ == "__main__":
    main()

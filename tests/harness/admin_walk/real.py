"""A walk on three real brokers.

Each has two log directories and a rack of its own. They have an authorizer, and a listener for
logins.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Producer, SaslScram
from aiokclient.admin import Admin, UserScramCredentialUpsertion

from .simulated import CONFIGS, PASSWORD, USER
from .walk import Clients, Walk, WalkReport

LISTENER, MECHANISM = "SASL", "SCRAM-SHA-256"
PROPERTIES = {
    "broker.session.timeout.ms": 6000,
    "listener.name.sasl.sasl.enabled.mechanisms": MECHANISM,
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@contextmanager
def start_cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(
        KAFKA,
        brokers=3,
        properties=CONFIGS | PROPERTIES,
        listeners={LISTENER: "SASL_PLAINTEXT"},
        log_dirs=2,
    ) as cluster:
        yield cluster


class RealSite:
    """Three real brokers."""

    brokers: tuple[int, ...] = (1, 2, 3)
    # A broker of Kafka 4.4.0 that restarts gives a topic the options of a deleted one of its name.
    reuses_names = False
    # A broker of Kafka 4.4.0 that reads the deletion of a SCRAM credential when it restarts may
    # forget the credentials of all other users for this mechanism.
    deletes_credentials = False
    # Controllers look tokens up in a cache that another thread of theirs fills.
    learns_tokens_late = True
    # Brokers write the starts of logs to disk once a minute.
    forgets_deletions = True

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self.log_dirs: dict[int, Sequence[str]] = {
            broker: cluster.list_log_dirs(broker) for broker in self.brokers
        }

    async def stop(self, broker: int) -> None:
        await asyncio.to_thread(self._cluster.kill, broker)

    async def start(self, broker: int) -> None:
        await asyncio.to_thread(self._cluster.start, broker)

    def list_faults(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return []


def run(
    cluster: KafkaCluster, seed: int, calls: int, say: Callable[[str], None] = lambda line: None
) -> WalkReport:
    """Run the walk of a seed on a running cluster."""
    return asyncio.run(_walk(cluster, seed, calls, say))


async def _walk(
    cluster: KafkaCluster, seed: int, calls: int, say: Callable[[str], None]
) -> WalkReport:
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap,
        "request_timeout_ms": 10_000,
        "default_api_timeout_ms": 40_000,
    }
    login = {
        **options,
        "bootstrap_servers": cluster.listener(LISTENER),
        "security": SaslScram(USER, PASSWORD, mechanism=MECHANISM),
    }
    async with Admin(**options) as reader:
        credential = UserScramCredentialUpsertion(USER, PASSWORD, MECHANISM, 4096)
        (await reader.alter_user_scram_credentials([credential])).raise_for_errors()
        async with (
            Admin(**options) as admin,
            Admin(**login) as tokens,
            Producer(**options) as producer,
        ):
            clients = Clients(admin, reader, producer, tokens)
            # A text as the seed has the same hash in every process.
            walk = Walk(random.Random(f"walk {seed}"), RealSite(cluster), clients, say)
            try:
                return await walk.run(calls)
            except BaseException as error:
                error.add_note("\n".join(["The last steps:", *walk.report.lines[-60:]]))
                raise

"""Three Kafka brokers with TLS and SCRAM, a controller, and an unsecured way to administer them."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trustme
from cryptography.hazmat.primitives import serialization
from kafka_harness import KAFKA, KafkaCluster
from kip848_member import configure
from secret_search import SecretSearch

from aiokclient import (
    Admin,
    Client,
    Controller,
    NewTopic,
    SaslScram,
    ScramMechanism,
    Tls,
    UserScramCredentialUpsertion,
)
from aiokclient.errors import KafkaError
from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignableTopic,
)
from aiokclient.protocol.messages.elect_leaders import TopicPartitions

from .checks import PARTITIONS, TPS_BY_TOPIC
from .members import SESSION_MS
from .schedule import NODES

T = TypeVar("T")
LISTENER = "SECURED"
USER, MECHANISM = "soak", ScramMechanism.SCRAM_SHA_512
REAUTHENTICATION_MS = 8_000
THREADS = 4
PROPERTIES: dict[str, object] = {
    # Long enough that a broker that briefly gets no processor time is not considered dead.
    "broker.session.timeout.ms": 3000,
    "ssl.keystore.type": "PEM",
    f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": MECHANISM.sasl_name,
    f"listener.name.{LISTENER.lower()}.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    f"listener.name.{LISTENER.lower()}.scram-sha-512.connections.max.reauth.ms": (
        REAUTHENTICATION_MS
    ),
}


class Site:
    """The cluster, its topics, its user, and the actions of an operator."""

    def __init__(self, folder: Path) -> None:
        self.password = secrets.token_urlsafe(18)
        authority = trustme.CA()
        ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(ca))
        broker = authority.issue_cert("localhost", "127.0.0.1")
        keystore = _write_keystore(folder / "broker.pem", broker)
        self._tls = Tls(cafile=str(ca))
        self.cluster = KafkaCluster(
            KAFKA,
            brokers=len(NODES),
            properties={**PROPERTIES, "ssl.keystore.location": keystore},
            listeners={LISTENER: "SASL_SSL"},
        )
        self._threads = ThreadPoolExecutor(THREADS, "soak")

    def search(self) -> SecretSearch:
        """Return the search for the secrets of this site."""
        search = SecretSearch()
        search.add("password", self.password)
        return search

    def options(self) -> dict[str, Any]:
        """Return the options of a client that logs in."""
        return {
            "bootstrap_servers": self.cluster.listener(LISTENER),
            "security": SaslScram(USER, self.password, MECHANISM.sasl_name, tls=self._tls),
        }

    def operator(self) -> Client:
        """Return a client that uses the unsecured listener, and bypasses the faulty network."""
        return Client(bootstrap_servers=self.cluster.bootstrap)

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a blocking function of the cluster in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start the cluster, and create its topics, its user, and the configs of its groups."""
        loop = asyncio.get_running_loop()
        try:
            await self.run(self.cluster.__enter__)
            # All threads exist from the beginning, so that their number does not change.
            await asyncio.gather(
                *(loop.run_in_executor(self._threads, _pause) for _ in range(THREADS))
            )
            await self.change_password_salt()
            async with self.operator() as client, Admin(client=client) as admin:
                topics = [
                    NewTopic(topic, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
                    for topic in TPS_BY_TOPIC
                ]
                (await admin.create_topics(topics)).raise_for_errors()
            await configure(
                self.cluster.bootstrap,
                "kip848",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=500,
            )
            for topic in TPS_BY_TOPIC:
                await self.run(self.cluster.await_partitions, topic, PARTITIONS)
            yield
        finally:
            self.cluster.close()
            self._threads.shutdown(wait=False)

    async def change_password_salt(self) -> None:
        """Give the user a new salt for the same password, as an administrator may at any time."""
        async with self.operator() as client, Admin(client=client) as admin:
            change = UserScramCredentialUpsertion(USER, self.password, MECHANISM)
            (await admin.alter_user_scram_credentials([change])).raise_for_errors()

    async def lead(self, order: Callable[[int], Sequence[int]]) -> None:
        """Move the leaders. `order` returns the replicas of a partition, the new leader first.

        A broker that is not in sync does not become a leader.
        """
        reassignment = messages.AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=i, replicas=list(order(i)))
                        for i in range(PARTITIONS)
                    ],
                )
                for topic in TPS_BY_TOPIC
            ]
        )
        election = messages.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[
                TopicPartitions(topic=topic, partitions=list(range(PARTITIONS)))
                for topic in TPS_BY_TOPIC
            ],
        )
        try:
            async with self.operator() as client:
                for request in (reassignment, election):
                    await client.request(request, Controller(), timeout=20.0)
        except KafkaError:
            pass  # A broker is down. The leaders do not move.

    async def spread_leaders(self) -> None:
        """Make each broker the leader of one partition of each topic."""
        await self.lead(lambda index: [*NODES[index:], *NODES[:index]])

    async def in_sync(self) -> None:
        """Wait until all replicas are in sync, those of the internal topics included."""
        for topic in (*TPS_BY_TOPIC, "__consumer_offsets", "__transaction_state"):
            for index in range(PARTITIONS):
                await self.run(self.cluster.await_in_sync, topic, index)


def _pause() -> None:
    """Occupy a thread long enough that the executor starts another one for the next call."""
    time.sleep(0.05)


def _write_keystore(path: Path, certificate: trustme.LeafCert) -> Path:
    """Write a key and its certificates to one file, in the PKCS #8 form that Kafka reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(pem + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    return path

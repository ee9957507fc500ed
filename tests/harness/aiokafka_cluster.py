"""The cluster of aiokafka's own suite: its listeners, certificates, ACLs, users, and tickets.

aiokafka makes these in a container by Kafka's tools. Here, an embedded cluster or a real Kafka has
the same listeners, and ACLs and users are made by `aiokclient.Admin`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography.hazmat.primitives import serialization
from kafka_harness import KAFKA, KafkaCluster
from kerberos_peers import MISSING, REALM, Acceptor, Kdc

from aiokclient import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    Admin,
    ResourcePattern,
    UserScramCredentialUpsertion,
)
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.testing.broker.connections.sasl import MECHANISMS

SEC = "org.apache.kafka.common.security."
BROKER, CLIENT = "kafka/localhost", "client/localhost"
"""The principals in Kerberos of the broker and of the suite's clients."""
USER = "test"
"""The user of the suite, whose password is its name."""
WAIT_S = 60
KEY_PASSWORD = b"abcdefgh"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
CONFIGS: dict[str, str | int] = {
    "num.partitions": 2,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


class SuiteCluster(NamedTuple):
    """The addresses of a cluster, and the files that its clients need."""

    plain: str
    ssl_port: int
    sasl_port: int
    certificates: Path
    kdc: Kdc | None


@contextmanager
def suite_cluster(folder: Path, real: bool) -> Iterator[SuiteCluster]:
    """Start an embedded cluster, or a real Kafka, and a KDC if the machine has one."""
    with ExitStack() as stack:
        kdc = None
        if not MISSING:
            kdc = stack.enter_context(Kdc())
            kdc.add(BROKER)
            kdc.add(CLIENT)
        start = start_kafka if real else start_embedded
        yield start(stack, folder, kdc)


def start_embedded(stack: ExitStack, folder: Path, kdc: Kdc | None) -> SuiteCluster:
    """Start an embedded cluster, which accepts tickets by the package gssapi."""
    mechanisms = ["PLAIN", *SCRAM]
    if kdc is not None:
        keytab = kdc.keytab(BROKER)
        MECHANISMS["GSSAPI"] = lambda accounts: Acceptor(keytab)
        stack.callback(MECHANISMS.pop, "GSSAPI")
        mechanisms.append("GSSAPI")
    cluster = EmbeddedCluster(
        auto_create_topics=True,
        configs=CONFIGS,
        listeners={
            "SSL": BrokerListener(tls=True),
            "SASL": BrokerListener(mechanisms=mechanisms, users={USER: USER}),
        },
    )
    stack.enter_context(cluster)
    client = cluster.client_certificate("client")
    write_certificates(folder, client.authority, client.certificate, client.key)
    return SuiteCluster(
        cluster.bootstrap_servers,
        port_of(cluster.bootstrap_servers_for("SSL")),
        port_of(cluster.bootstrap_servers_for("SASL")),
        folder,
        kdc,
    )


def start_kafka(stack: ExitStack, folder: Path, kdc: Kdc | None) -> SuiteCluster:
    """Start a real Kafka."""
    authority = trustme.CA()
    broker = authority.issue_cert("localhost", "127.0.0.1")
    client = authority.issue_cert("localhost", common_name="client")
    store = folder / "broker.pem"
    store.write_bytes(convert_key(broker.private_key_pem.bytes(), None) + chain_of(broker))
    trusted = authority.cert_pem.bytes().decode()
    write_certificates(folder, trusted, chain_of(client).decode(), client.private_key_pem.bytes())
    logins = {
        "PLAIN": f'{SEC}plain.PlainLoginModule required user_{USER}="{USER}";',
        **dict.fromkeys(SCRAM, f"{SEC}scram.ScramLoginModule required;"),
    }
    jvm: tuple[str, ...] = ()
    if kdc is not None:
        jvm = (f"-Djava.security.krb5.conf={kdc.folder / 'krb5.conf'}",)
        logins["GSSAPI"] = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{kdc.keytab(BROKER)}" principal="{BROKER}@{REALM}";'
        )
    prefix = "listener.name.sasl."
    properties: dict[str, object] = {
        **CONFIGS,
        "auto.create.topics.enable": "true",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "sasl.kerberos.service.name": "kafka",
        f"{prefix}sasl.enabled.mechanisms": ",".join(logins),
        **{f"{prefix}{name.lower()}.sasl.jaas.config": each for name, each in logins.items()},
    }
    kafka = stack.enter_context(
        KafkaCluster(
            KAFKA,
            properties=properties,
            listeners={"SSL": "SSL", "SASL": "SASL_PLAINTEXT"},
            jvm=jvm,
        )
    )
    ssl, sasl = port_of(kafka.listener("SSL")), port_of(kafka.listener("SASL"))
    return SuiteCluster(kafka.bootstrap, ssl, sasl, folder, kdc)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def chain_of(certificate: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def convert_key(pem: bytes, password: bytes | None) -> bytes:
    """Return a private key in PKCS #8, encrypted if there is a password."""
    key = serialization.load_pem_private_key(pem, None)
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, encryption)


def write_certificates(folder: Path, authority: str, certificate: str, key: str | bytes) -> None:
    """Write the files that the suite expects, under its names and with its password."""
    (folder / "ca.crt").write_text(authority)
    (folder / "client.crt").write_text(certificate)
    raw = key if isinstance(key, bytes) else key.encode()
    (folder / "client.key").write_bytes(convert_key(raw, KEY_PASSWORD))


# -- what the suite calls while its event loop runs, and waits for --------------------------------


class Administration:
    """Calls of `Admin` that block, each in a thread with an event loop of its own."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def call(self, function: Callable[[Admin], Coroutine[Any, Any, Any]]) -> Any:
        """Return the result of a coroutine function."""

        async def run() -> Any:
            async with Admin(bootstrap_servers=self._servers) as admin:
                return await function(admin)

        with ThreadPoolExecutor(1) as executor:
            return executor.submit(asyncio.run, run()).result()


async def known_acls(admin: Admin) -> frozenset[AclBinding]:
    return frozenset(await admin.describe_acls())


async def until(admin: Admin, applied: Callable[[frozenset[AclBinding]], bool]) -> None:
    """Wait until the broker applies a change of ACLs."""
    async with asyncio.timeout(WAIT_S):
        while True:
            if applied(await known_acls(admin)):
                return
            await asyncio.sleep(0.02)


class AclManager:
    """aiokafka's manager of ACLs, which calls Kafka's script there."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._added: list[AclBinding] = []

    def list_acl(self) -> frozenset[AclBinding]:
        """Return all ACLs."""
        return frozenset(self._administration.call(known_acls))

    def add_acl(
        self,
        *,
        operation: str,
        allow_principal: str | None = None,
        deny_principal: str | None = None,
        cluster: bool = False,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Add an ACL, and wait until the broker applies it."""
        if cluster:
            pattern = ResourcePattern.cluster()
        elif topic is not None:
            pattern = ResourcePattern.topic(topic)
        elif group is not None:
            pattern = ResourcePattern.group(group)
        else:
            assert transactional_id is not None
            pattern = ResourcePattern.transactional_id(transactional_id)
        denied = deny_principal is not None
        acl = AclBinding(
            pattern,
            f"User:{deny_principal if denied else allow_principal}",
            AclOperation[operation.upper()],
            AclPermissionType.DENY if denied else AclPermissionType.ALLOW,
        )

        async def add(admin: Admin) -> None:
            (await admin.create_acls([acl])).raise_for_errors()
            await until(admin, lambda known: acl in known)

        self._administration.call(add)
        self._added.append(acl)

    def cleanup(self) -> None:
        """Remove all that were added, and wait until the broker has none of them."""
        added, self._added = self._added, []

        async def remove(admin: Admin) -> None:
            (await admin.delete_acls(each.to_filter() for each in added)).raise_for_errors()
            await until(admin, lambda known: known.isdisjoint(added))

        if added:
            self._administration.call(remove)


class KafkaConfig:
    """aiokafka's manager of users."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration

    def add_scram_user(self, username: str, password: str) -> None:
        """Add a user to both mechanisms, and wait until the broker knows it."""

        async def add(admin: Admin) -> None:
            for mechanism in SCRAM:
                change = UserScramCredentialUpsertion(username, password, mechanism)
                (await admin.alter_user_scram_credentials([change])).raise_for_errors()
            async with asyncio.timeout(WAIT_S):
                while True:
                    known = (await admin.describe_user_scram_credentials()).get(username)
                    if isinstance(known, tuple) and len(known) == len(SCRAM):
                        return
                    await asyncio.sleep(0.02)

        self._administration.call(add)


class KerberosUtils:
    """aiokafka's commands of Kerberos, for which the process gets the variables of the KDC."""

    def __init__(self, kdc: Kdc) -> None:
        self._kdc = kdc
        os.environ.update(kdc.environment)

    def kinit(self, principal: str) -> None:
        """Get a ticket."""
        self._kdc.kinit(principal, self._cache)

    def kdestroy(self) -> None:
        """Remove the tickets."""
        subprocess.run(["kdestroy", "-A"], check=True)

    @property
    def _cache(self) -> Path:
        return Path(self._kdc.environment["KRB5CCNAME"].removeprefix("FILE:"))

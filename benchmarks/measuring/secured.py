"""A Kafka of one node with a listener for each security protocol and all SASL mechanisms.

Certificates are made for each run. GSSAPI is available where a KDC can be started.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_harness import KAFKA, KafkaCluster
from kerberos_peers import Kdc, missing_for_kerberos

from measuring.brokers import JVM, Brokers, raise_open_files
from measuring.spec import Spec

USER, PASSWORD = "alice", "alice-secret"
HOST = "127.0.0.1"
LISTENERS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = 4096
SERVICE = f"kafka/{HOST}"
MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Login:
    """A way to connect: a security protocol, and perhaps a SASL mechanism."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""

    @property
    def name(self) -> str:
        encrypted = self.protocol.endswith("SSL")
        if not self.mechanism:
            return "TLS" if encrypted else "plaintext"
        return f"{self.mechanism} over TLS" if encrypted else self.mechanism


MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI")
LOGINS = (
    Login(),
    Login("SSL"),
    *(
        Login(protocol, mechanism)
        for mechanism in MECHANISMS
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
    ),
)


class SecuredBrokers(Brokers):
    """The topics of such a Kafka, and how to log in to it.

    `missing` says what is missing for GSSAPI, or is empty.
    """

    def __init__(self, kafka: KafkaCluster, folder: Path, keytab: str, missing: str) -> None:
        pids = [node.pid for node in kafka.nodes.values()]
        super().__init__(kafka, pids, folder, f"Apache Kafka {KAFKA.version}, one node")
        self._servers = {name: kafka.listener(name) for name in LISTENERS}
        self._servers["PLAINTEXT"] = kafka.bootstrap
        self._authority, self._keytab = str(folder / "authority.pem"), keytab
        self.missing = missing

    def over(self, spec: Spec, login: Login) -> Spec:
        """Return the same workload with this login."""
        return replace(
            spec,
            bootstrap=self._servers[login.protocol],
            protocol=login.protocol,
            mechanism=login.mechanism,
            authority=self._authority,
            user=USER,
            password=PASSWORD,
            keytab=self._keytab,
        )

    def create_users(self) -> None:
        """Create the users of SCRAM, which the other mechanisms do not need."""
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for mechanism in mechanisms:
            info = ScramCredentialInfo(mechanism, ITERATIONS)
            upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([upsertion]).values():
                future.result(60)


@contextlib.contextmanager
def secured() -> Iterator[SecuredBrokers]:
    """Provide a new Kafka with all listeners."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        keystore = _make_certificates(folder)
        missing = missing_for_kerberos()
        kdc = None if missing else stack.enter_context(_realm(folder))
        properties: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "sasl.kerberos.service.name": "kafka",
        }
        jaas = _jaas(None if kdc is None else str(folder / "kafka-127.0.0.1.keytab"))
        for listener in ("sasl_plaintext", "sasl_ssl"):
            prefix = f"listener.name.{listener}."
            properties[prefix + "sasl.enabled.mechanisms"] = ",".join(map(str.upper, jaas))
            properties |= {f"{prefix}{each}.sasl.jaas.config": jaas[each] for each in jaas}
        jvm = JVM if kdc is None else (*JVM, f"-Djava.security.krb5.conf={folder}/krb5.conf")
        raise_open_files()
        kafka = KafkaCluster(
            KAFKA,
            jvm=jvm,
            properties=properties,
            listeners={listener: listener for listener in LISTENERS},
        )
        stack.enter_context(kafka)
        keytab = "" if kdc is None else str(folder / f"{USER}.keytab")
        brokers = SecuredBrokers(kafka, folder, keytab, missing)
        brokers.create_users()
        yield brokers


def _jaas(keytab: str | None) -> Mapping[str, str]:
    """Return the JAAS configuration of each mechanism of the broker."""
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    found = {each.lower(): scram for each in SCRAM}
    found["plain"] = f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    found["oauthbearer"] = (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{USER}";'
    )
    if keytab is not None:
        found["gssapi"] = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="{SERVICE}";'
        )
    return found


def _make_certificates(folder: Path) -> Path:
    """Write the authority's certificate, and return the file with the broker's and its key."""
    import trustme
    from cryptography.hazmat.primitives import serialization

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    leaf = authority.issue_cert(HOST, "localhost")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(  # Java reads no other form.
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    keystore = folder / "broker.pem"
    keystore.write_bytes(pem + b"".join(each.bytes() for each in leaf.cert_chain_pems))
    return keystore


@contextlib.contextmanager
def _realm(folder: Path) -> Iterator[Kdc]:
    """Start a KDC with the principals of the broker and of the user, for all child processes."""
    kdc = Kdc(folder)
    before = {name: os.environ.get(name) for name in kdc.environment}
    os.environ.update(kdc.environment)
    kdc.start()
    try:
        kdc.add(SERVICE)
        kdc.add(USER)
        yield kdc
    finally:
        kdc.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

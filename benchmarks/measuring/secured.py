"""A Kafka of one node with a listener for each security protocol and all SASL mechanisms.

Certificates are made for each run. GSSAPI is available where a KDC can be started.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_harness import KAFKA, KafkaCluster
from kerberos_peers import MISSING, REALM, Kdc

from measuring.brokers import JVM, Brokers, raise_open_files
from measuring.spec import Spec

USER, PASSWORD = "alice", "alice-secret"
HOST = "127.0.0.1"
LISTENERS = {"SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT", "SASL_SSL": "SASL_SSL"}
KERBEROS_LISTENERS = {"GSSAPI_PLAINTEXT": "SASL_PLAINTEXT", "GSSAPI_SSL": "SASL_SSL"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS = 4096
SERVICE = "kafka/localhost"
NO_KERBEROS = MISSING
"""The programs or packages that GSSAPI needs and that are missing, or an empty text."""
MODULES = "org.apache.kafka.common.security"
JAAS = {
    "plain": f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    **{each.lower(): f"{MODULES}.scram.ScramLoginModule required;" for each in SCRAM},
    "oauthbearer": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
    f'unsecuredLoginStringClaim_sub="{USER}";',
}


@dataclass(frozen=True)
class Login:
    """A way to connect: a security protocol, and perhaps a SASL mechanism."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""

    @property
    def listener(self) -> str:
        kerberos = self.mechanism == "GSSAPI"
        return self.protocol.replace("SASL", "GSSAPI") if kerberos else self.protocol

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
    """A Kafka with all listeners, and the certificates and keytab with which clients log in."""

    def __init__(
        self, kafka: KafkaCluster, folder: Path, listeners: Iterable[str], keytab: str
    ) -> None:
        pids = [node.pid for node in kafka.nodes.values()]
        super().__init__(kafka, pids, folder, f"Apache Kafka {KAFKA.version}, one node")
        self._servers = {name: kafka.listener(name) for name in listeners}
        self._servers["PLAINTEXT"] = kafka.bootstrap
        self._authority, self._keytab = str(folder / "authority.pem"), keytab

    def over(self, spec: Spec, login: Login) -> Spec:
        """Return the same workload with this login."""
        return replace(
            spec,
            bootstrap=self._servers.get(login.listener, ""),
            protocol=login.protocol,
            mechanism=login.mechanism,
            authority=self._authority,
            user=USER,
            password=PASSWORD,
            keytab=self._keytab,
        )

    def create_users(self) -> None:
        """Create the users of SCRAM. The other mechanisms need no users in the cluster."""
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
        kdc = None if MISSING else stack.enter_context(_realm())
        listeners = LISTENERS | (KERBEROS_LISTENERS if kdc else {})
        properties: dict[str, object] = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "sasl.kerberos.service.name": "kafka",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            properties |= _sasl(listener, JAAS)
        jvm = list(JVM)
        if kdc is not None:
            for listener in KERBEROS_LISTENERS:
                properties |= _sasl(listener.lower(), {"gssapi": _kerberos_jaas(kdc)})
            jvm.append(f"-Djava.security.krb5.conf={kdc.folder / 'krb5.conf'}")
        raise_open_files()
        kafka = KafkaCluster(
            KAFKA,
            jvm=tuple(jvm),
            properties=properties,
            listeners=listeners,
            hosts=dict.fromkeys(KERBEROS_LISTENERS, "localhost") if kdc else {},
        )
        stack.enter_context(kafka)
        keytab = "" if kdc is None else kdc.keytab(USER)
        brokers = SecuredBrokers(kafka, folder, listeners, keytab)
        brokers.create_users()
        yield brokers


def _sasl(listener: str, jaas: Mapping[str, str]) -> dict[str, object]:
    """Return the properties of a listener with these mechanisms."""
    prefix = f"listener.name.{listener}."
    return {
        prefix + "sasl.enabled.mechanisms": ",".join(map(str.upper, jaas)),
        **{f"{prefix}{mechanism}.sasl.jaas.config": jaas[mechanism] for mechanism in jaas},
    }


def _kerberos_jaas(kdc: Kdc) -> str:
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{kdc.keytab(SERVICE)}" principal="{SERVICE}@{REALM}";'
    )


def _make_certificates(folder: Path) -> Path:
    """Write the authority's certificate. Return a file with the broker's certificate and key."""
    import trustme
    from cryptography.hazmat.primitives import serialization

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    leaf = authority.issue_cert(HOST, "localhost")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    pem = key.private_bytes(  # Java reads only PKCS #8.
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    keystore = folder / "broker.pem"
    keystore.write_bytes(pem + b"".join(each.bytes() for each in leaf.cert_chain_pems))
    return keystore


@contextlib.contextmanager
def _realm() -> Iterator[Kdc]:
    """Start a KDC with the principals of the broker and of the user, for all child processes."""
    with Kdc() as kdc:
        before = {name: os.environ.get(name) for name in kdc.environment}
        os.environ.update(kdc.environment)
        try:
            kdc.add(SERVICE)
            kdc.add(USER)
            # aiokafka uses no keytab, only the ticket cache.
            kdc.kinit(USER, kdc.folder / "tickets")
            yield kdc
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

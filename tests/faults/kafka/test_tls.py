"""TLS on a real Kafka: trusted authorities, client certificates, and the errors of each mistake."""

from __future__ import annotations

import datetime
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kafka_harness import KAFKA, KafkaCluster

from aiokclient import Admin, Client, Consumer, NewTopic, Producer, Tls
from aiokclient.errors import ConfigError, ConnectionSetupError, KafkaError

LISTENERS = ("SSL", "MTLS", "ELSEWHERE", "EXPIRED")
PASSWORD = "open-sesame"


def keystore(path: Path, certificate: trustme.LeafCert) -> Path:
    """Write a key and its certificates to one file, in the PKCS #8 form that Kafka reads."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    path.write_bytes(pem + chain)
    return path


class Secured:
    """A broker with a listener for each kind of certificate, and the files of a client."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, trustme.CA()
        self.ca, self.other_ca = folder / "ca.pem", folder / "other-ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        trustme.CA().cert_pem.write_to_path(str(self.other_ca))
        self.own = keystore(folder / "client.pem", self.authority.issue_cert("alice"))
        self.locked = folder / "locked.pem"
        self.locked.write_bytes(self._locked(self.own.read_bytes()))
        self.cluster = KafkaCluster(
            KAFKA, properties=self._properties(), listeners=dict.fromkeys(LISTENERS, "SSL")
        )

    def _properties(self) -> dict[str, object]:
        issue, folder = self.authority.issue_cert, self.folder
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        expired = issue("localhost", "127.0.0.1", not_before=past, not_after=past.replace(month=2))
        broker = keystore(folder / "broker.pem", issue("localhost", "127.0.0.1"))
        elsewhere = keystore(folder / "elsewhere.pem", issue("elsewhere.example"))
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.elsewhere.ssl.keystore.type": "PEM",
            "listener.name.elsewhere.ssl.keystore.location": elsewhere,
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": keystore(
                folder / "expired.pem", expired
            ),
        }

    @staticmethod
    def _locked(pem: bytes) -> bytes:
        key = serialization.load_pem_private_key(pem, None)
        locked = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
        return locked + pem[pem.index(b"-----BEGIN CERTIFICATE") :]

    def tls(self, **options: Any) -> Tls:
        return Tls(cafile=str(self.ca), **options)


@pytest.fixture(scope="module")
def secured(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("tls"))
    with secured.cluster:
        yield secured


async def round_trip(servers: str, **options: Any) -> None:
    """Create a topic, send a record to it, and read the record."""
    topic = f"tls-{uuid.uuid4().hex[:8]}"
    async with Client(bootstrap_servers=servers, **options) as client:
        async with Admin(client=client) as admin:
            (await admin.create_topics([NewTopic(topic, 1, 1)])).raise_for_errors()
        async with Producer(client=client) as producer:
            await producer.send(topic, b"v" * 100_000)
        async with Consumer(topic, client=client, auto_offset_reset="earliest") as consumer:
            record = await consumer.get(timeout=30)
    assert record is not None
    assert record.value == b"v" * 100_000


async def refusal(servers: str, **options: Any) -> KafkaError:
    """Return the error that the start of a client raises."""
    client = Client(bootstrap_servers=servers, default_api_timeout_ms=20_000, **options)
    with pytest.raises(KafkaError) as caught:
        await client.start()
    await client.close()
    return caught.value


async def test_records_pass_over_tls(secured: Secured) -> None:
    await round_trip(secured.cluster.listener("SSL"), security=secured.tls())


async def test_an_ssl_context_can_be_passed(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=str(secured.ca))
    await round_trip(secured.cluster.listener("SSL"), security=context)


def test_records_pass_over_tls_with_uvloop(secured: Secured) -> None:
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(round_trip(secured.cluster.listener("SSL"), security=secured.tls()))


async def test_kafkas_ssl_options_are_accepted(secured: Secured) -> None:
    properties = {
        "bootstrap.servers": secured.cluster.listener("MTLS"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.ca),
        "ssl.keystore.location": str(secured.locked),
        "ssl.key.password": PASSWORD,
    }
    async with Admin.from_properties(properties) as admin:
        assert (await admin.describe_cluster()).brokers
        assert PASSWORD not in repr(vars(admin))


async def test_the_client_presents_its_certificate(secured: Secured) -> None:
    servers = secured.cluster.listener("MTLS")
    await round_trip(servers, security=secured.tls(certfile=str(secured.own)))
    locked = secured.tls(certfile=str(secured.locked), password=PASSWORD)
    await round_trip(servers, security=locked)


async def test_a_client_without_a_certificate_is_refused(secured: Secured) -> None:
    servers = secured.cluster.listener("MTLS")
    error = await refusal(servers, security=secured.tls())
    assert isinstance(error, ConnectionSetupError)
    assert "requires a certificate of the client" in str(error)
    assert "certfile" in str(error)
    assert servers in str(error)


async def test_a_certificate_of_an_unknown_authority_is_refused(
    secured: Secured, tmp_path: Path
) -> None:
    stranger = keystore(tmp_path / "stranger.pem", trustme.CA().issue_cert("mallory"))
    tls = secured.tls(certfile=str(stranger))
    error = await refusal(secured.cluster.listener("MTLS"), security=tls)
    assert isinstance(error, ConnectionSetupError)
    assert "requires a certificate of the client" in str(error)
    assert "certfile" in str(error)


@pytest.mark.fault(45)
@pytest.mark.parametrize("listener", ["ELSEWHERE", "EXPIRED"])
async def test_an_invalid_broker_certificate_is_refused(secured: Secured, listener: str) -> None:
    servers = secured.cluster.listener(listener)
    error = await refusal(servers, security=secured.tls())
    assert isinstance(error, ConnectionSetupError)
    assert not error.retriable
    assert f"The certificate of {servers} is not accepted" in str(error)
    assert {"ELSEWHERE": "mismatch", "EXPIRED": "expired"}[listener] in str(error)


async def test_the_check_of_the_host_name_can_be_disabled(secured: Secured) -> None:
    servers = secured.cluster.listener("ELSEWHERE")
    await round_trip(servers, security=secured.tls(check_hostname=False))


@pytest.mark.fault(45)
async def test_a_broker_of_an_untrusted_authority_is_refused(secured: Secured) -> None:
    servers = secured.cluster.listener("SSL")
    error = await refusal(servers, security=Tls(cafile=str(secured.other_ca)))
    assert isinstance(error, ConnectionSetupError)
    assert "is not accepted" in str(error)
    assert "Tls()" in str(error)


@pytest.mark.fault(45)
async def test_a_producer_start_raises_tls_errors(secured: Secured) -> None:
    servers = secured.cluster.listener("SSL")
    with pytest.raises(ConnectionSetupError, match="is not accepted"):
        async with Producer(bootstrap_servers=servers, security=Tls()):
            pass


async def test_a_tls_port_used_with_plaintext_is_explained(secured: Secured) -> None:
    error = await refusal(secured.cluster.listener("SSL"))
    assert isinstance(error, ConnectionSetupError)
    assert "TLS port, but the client uses plaintext. Set security=Tls()" in str(error)


async def test_a_plaintext_port_used_with_tls_is_explained(secured: Secured) -> None:
    error = await refusal(secured.cluster.bootstrap, security=secured.tls())
    assert isinstance(error, ConnectionSetupError)
    assert "plaintext port, but the client uses TLS. Set security=Plaintext()" in str(error)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"cafile": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"certfile": "/nowhere/client.pem"}, "/nowhere/client.pem"),
    ],
)
async def test_missing_certificate_files_are_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        await Client(bootstrap_servers="localhost:9", security=Tls(**options)).start()


async def test_a_wrong_password_is_not_shown(secured: Secured) -> None:
    tls = secured.tls(certfile=str(secured.locked), password="wrong-sesame")
    error = await refusal(secured.cluster.listener("MTLS"), security=tls)
    assert isinstance(error, ConfigError)
    assert str(secured.locked) in str(error)
    assert "wrong-sesame" not in f"{error!r}{error}{error.__cause__!r}{tls!r}"

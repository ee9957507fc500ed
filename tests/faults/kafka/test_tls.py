"""TLS on a real Kafka: trusted authorities, client certificates, and the errors of each mistake."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from logging_in import refusal, round_trip
from secured_kafka import SecuredKafka
from tls_records import record_proxy

from aiokclient import Admin, Client, Producer, Tls
from aiokclient.errors import (
    ConfigError,
    ConnectionSetupError,
    InvalidConfigurationError,
    TlsError,
)

PASSWORD = "open-sesame"


@pytest.fixture(scope="module")
def locked(secured_session: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of the client, with a key that needs PASSWORD."""
    pem = secured_session.certificates.client.read_bytes()
    key = serialization.load_pem_private_key(pem, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSWORD.encode()),
    )
    path = tmp_path_factory.mktemp("locked") / "locked.pem"
    path.write_bytes(encrypted + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return path


async def test_records_pass_over_tls(secured: SecuredKafka) -> None:
    await round_trip(bootstrap_servers=secured.servers("SSL"), security=secured.tls)


async def test_an_ssl_context_can_be_passed(secured: SecuredKafka) -> None:
    context = ssl.create_default_context(cafile=str(secured.certificates.ca))
    await round_trip(bootstrap_servers=secured.servers("SSL"), security=context)


def test_records_pass_over_tls_with_uvloop(secured: SecuredKafka) -> None:
    uvloop = pytest.importorskip("uvloop")
    uvloop.run(round_trip(bootstrap_servers=secured.servers("SSL"), security=secured.tls))


async def test_kafkas_ssl_options_are_accepted(secured: SecuredKafka, locked: Path) -> None:
    properties = {
        "bootstrap.servers": secured.servers("MTLS"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificates.ca),
        "ssl.keystore.location": str(locked),
        "ssl.key.password": PASSWORD,
    }
    async with Admin.from_properties(properties) as admin:
        assert (await admin.describe_cluster()).brokers
        assert PASSWORD not in repr(vars(admin))


async def test_the_client_presents_its_certificate(secured: SecuredKafka, locked: Path) -> None:
    servers = secured.servers("MTLS")
    await round_trip(
        bootstrap_servers=servers,
        security=secured.certificates.tls(certfile=str(secured.certificates.client)),
    )
    tls = secured.certificates.tls(certfile=str(locked), password=PASSWORD)
    await round_trip(bootstrap_servers=servers, security=tls)


VERSIONS = ["TLSv1.2", "TLSv1.3"]


def ssl_options(secured: SecuredKafka, version: str, **options: str) -> dict[str, str]:
    """Return Kafka's options for a client that trusts the brokers' authority."""
    return {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(secured.certificates.ca),
        "ssl_enabled_protocols": version,
        **options,
    }


@pytest.mark.fault(45)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("certificate", "text"),
    [
        ("none", "requires a certificate of the client, and there is none"),
        ("expired", "refused the client's certificate"),
        ("foreign", "refused the client's certificate"),
    ],
)
async def test_no_request_is_accepted_after_a_refused_certificate_of_the_client(
    secured: SecuredKafka, certificate: str, version: str, text: str
) -> None:
    given = {}
    if certificate != "none":
        given["ssl_keystore_location"] = str(secured.certificates.clients[certificate])
    async with record_proxy(secured.servers("MTLS")) as proxy:
        error = await refusal(proxy.servers, **ssl_options(secured, version, **given))
        answers = proxy.data_after_handshake()
        if version == "TLSv1.2":
            assert proxy.data(of_client=True) == [], "the client sends nothing"
    assert type(error) is TlsError
    assert isinstance(error, InvalidConfigurationError)
    assert text in str(error)
    assert "Give Tls() a certfile and keyfile" in str(error)
    assert proxy.servers in str(error)
    assert proxy.connections > 0
    assert answers == [], "the broker ends the connection without a response"


@pytest.mark.fault(45)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("listener", "text"),
    [
        ("ELSEWHERE", "mismatch"),
        ("EXPIRED", "certificate has expired"),
        ("FOREIGN", "Check the certificate authority given to Tls()"),
    ],
)
async def test_no_byte_is_sent_to_a_broker_with_an_invalid_certificate(
    secured: SecuredKafka, listener: str, version: str, text: str
) -> None:
    async with record_proxy(secured.servers(listener)) as proxy:
        error = await refusal(proxy.servers, **ssl_options(secured, version))
        assert proxy.data(of_client=True) == []
    assert type(error) is TlsError
    assert isinstance(error, InvalidConfigurationError)
    assert f"The certificate of {proxy.servers} is not accepted" in str(error)
    assert text in str(error)
    assert proxy.connections > 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_proxy_counts_what_is_sent_after_a_handshake(
    secured: SecuredKafka, version: str
) -> None:
    certificate = {"ssl_keystore_location": str(secured.certificates.client)}
    async with record_proxy(secured.servers("MTLS")) as proxy:
        client = Client(
            bootstrap_servers=proxy.servers, **ssl_options(secured, version, **certificate)
        )
        async with client:
            assert proxy.data(of_client=True)
            assert proxy.data_after_handshake()


async def test_the_check_of_the_host_name_can_be_disabled(secured: SecuredKafka) -> None:
    servers = secured.servers("ELSEWHERE")
    await round_trip(
        bootstrap_servers=servers, security=secured.certificates.tls(check_hostname=False)
    )


@pytest.mark.fault(45)
async def test_a_producer_start_raises_tls_errors(secured: SecuredKafka) -> None:
    servers = secured.servers("SSL")
    with pytest.raises(ConnectionSetupError, match="is not accepted"):
        async with Producer(bootstrap_servers=servers, security=Tls()):
            pass


async def test_a_tls_port_of_kafka_used_with_plaintext_is_explained(secured: SecuredKafka) -> None:
    error = await refusal(secured.servers("SSL"))
    assert isinstance(error, ConnectionSetupError)
    assert "TLS port, but the client uses plaintext. Set security=Tls()" in str(error)


async def test_a_plaintext_port_of_kafka_used_with_tls_is_explained(secured: SecuredKafka) -> None:
    error = await refusal(secured.cluster.bootstrap, security=secured.tls)
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


async def test_a_wrong_password_is_not_shown(secured: SecuredKafka, locked: Path) -> None:
    tls = secured.certificates.tls(certfile=str(locked), password="wrong-sesame")
    error = await refusal(secured.servers("MTLS"), security=tls)
    assert isinstance(error, ConfigError)
    assert str(locked) in str(error)
    assert "wrong-sesame" not in f"{error!r}{error}{error.__cause__!r}{tls!r}"

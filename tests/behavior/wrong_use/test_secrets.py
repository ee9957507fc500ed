"""No secret appears in a repr, an error, a log message, or a metric."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from aiokclient import Admin, Client, Consumer, Producer, Tls
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ConfigError, KafkaError
from aiokclient.protocol import messages
from aiokclient.protocol.messages.alter_user_scram_credentials import ScramCredentialUpsertion

SECRET = "open-sesame"
BYTES = SECRET.encode()
PROPERTIES = {
    "bootstrap.servers": "localhost:9092",
    "security.protocol": "SSL",
    "ssl.keystore.location": "client.pem",
    "ssl.key.password": SECRET,
    "ssl.truststore.certificates": f"-----BEGIN CERTIFICATE-----{SECRET}",
}


def shown(value: Any) -> str:
    return f"{value!r} {value} {[value]!r}"


def test_security_objects_show_no_secret() -> None:
    tls = Tls(certfile="client.pem", password=SECRET, cadata=SECRET)
    assert SECRET not in shown(tls)
    assert "client.pem" in shown(tls)


def test_options_show_no_secret() -> None:
    config = ClientConfig.from_properties(PROPERTIES)
    assert SECRET not in shown(config)


@pytest.mark.parametrize("make", [Client, Producer, Consumer, Admin])
def test_clients_show_no_secret(make: Any) -> None:
    made = make.from_properties(PROPERTIES)
    assert SECRET not in shown(made) + shown(vars(made)) + shown(made.health())


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_key_password": 5, "security_protocol": "SSL"},
        {"ssl_key_password": SECRET},
        {"ssl_key_password": SECRET, "security_protocol": "SSL", "ssl_keystore_type": "JKS"},
        {"ssl_key_password": SECRET, "security_protocol": "SSL"},
        {"security": SECRET},
        {"ssl_keystore_password": SECRET},
        {"sasl_jaas_config": SECRET},
    ],
)
def test_config_errors_show_no_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Client(bootstrap_servers="localhost:9092", **options)
    assert SECRET not in shown(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        messages.SaslAuthenticateRequest(auth_bytes=BYTES),
        messages.SaslAuthenticateResponse(auth_bytes=BYTES),
        messages.CreateDelegationTokenResponse(hmac=BYTES),
        messages.RenewDelegationTokenRequest(hmac=BYTES),
        messages.ExpireDelegationTokenRequest(hmac=BYTES),
        messages.AlterUserScramCredentialsRequest(
            upsertions=[ScramCredentialUpsertion(name="alice", salt=BYTES, salted_password=BYTES)]
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_show_no_secret(message: Any) -> None:
    assert SECRET not in shown(message)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    """A client's private key, encrypted with the secret as its password, and its certificate."""
    certificate = trustme.CA().issue_cert("alice")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(BYTES),
    )
    path = tmp_path / "client.pem"
    path.write_bytes(pem + certificate.cert_chain_pems[0].bytes())
    return path


@pytest.mark.parametrize("password", [SECRET, f"not-{SECRET}"])
async def test_a_failed_start_shows_no_secret(
    servers: str, locked: Path, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tls = Tls(certfile=str(locked), password=password)
    client = Client(bootstrap_servers=servers, security=tls, default_api_timeout_ms=2_000)
    with pytest.raises(KafkaError) as caught:
        await client.start()
    await client.close()
    trace = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown(caught.value) + trace + caplog.text
    assert isinstance(caught.value, ConfigError) == (password != SECRET)


async def test_the_log_of_a_client_shows_no_secret(
    servers: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send("orders", BYTES, key=BYTES, headers=[("token", BYTES)])
        assert SECRET not in shown(producer.metrics()) + shown(producer.health())
    async with Consumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        assert any([record.value == BYTES async for record in consumer.until_end()])
        assert SECRET not in shown(consumer.metrics()) + shown(consumer.health())
    assert SECRET not in caplog.text

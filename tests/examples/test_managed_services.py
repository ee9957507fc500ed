"""Tests of the recipes for managed services, with an embedded cluster that imitates each service.

The host names of the services resolve to the embedded cluster, whose certificates contain these
names. The cluster's certificate authority replaces the default ones of the operating system. The
programs of the documentation's pages run unchanged.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from aiokclient import Consumer, OAuthToken, Producer, SaslOAuthBearer
from aiokclient.config.client import ClientConfig
from aiokclient.errors import RecordTooLargeError, SaslAuthenticationError
from aiokclient.network.sasl.tokens import refresh_delay_s
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.testing import BrokerListener, EmbeddedCluster, unsecured_token

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "services").glob("*.md"))
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.M | re.S)
]
PASSWORD = "Endpoint=sb://example.servicebus.windows.net/;SharedAccessKey=a+b/c="


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the programs of all pages define."""
    names: dict[str, Any] = {"__name__": "__docs__"}
    for language, code in BLOCKS:
        if language == "python":
            exec(compile(code, "docs/services", "exec"), names)
    return names


class Names(TcpConnector):
    """A connector that resolves a host name and port to a port on this machine."""

    def __init__(self, host: str, port: int, target: int) -> None:
        super().__init__()
        self._host, self._port, self._target = host, port, target
        self.verified: set[str | None] = set()

    async def resolve(self, host: str, port: int) -> list[Address]:
        assert host == self._host
        return [("127.0.0.1", self._target if port == self._port else port)]

    async def connect(
        self,
        address: Address,
        protocol_factory: Callable[[], asyncio.BufferedProtocol],
        *,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> asyncio.Transport:
        assert tls is not None
        assert tls.check_hostname
        assert tls.verify_mode is ssl.CERT_REQUIRED
        self.verified.add(server_hostname)
        return await super().connect(
            address, protocol_factory, tls=tls, server_hostname=server_hostname
        )


@contextmanager
def service(
    options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **listener: Any
) -> Iterator[EmbeddedCluster]:
    """Run an embedded cluster at the address in the options, which the default context trusts."""
    host, _, _ = options["bootstrap_servers"].partition(":")
    made = BrokerListener(tls=True, host=host, **listener)
    with EmbeddedCluster(topics={"t": 1}, listeners={"SERVICE": made}) as cluster:
        certificate = cluster.client_certificate("avnadmin")
        for name, text in (
            ("ca.pem", certificate.authority),
            ("service.cert", certificate.certificate),
            ("service.key", certificate.key),
        ):
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        yield cluster


def names_of(options: Any, cluster: EmbeddedCluster) -> Names:
    host, _, port = options["bootstrap_servers"].partition(":")
    return Names(host, int(port), cluster.address(1, "SERVICE")[1])


async def round_trip(options: Any, cluster: EmbeddedCluster) -> None:
    connector = names_of(options, cluster)
    common = {**options, "connector": connector}
    async with Producer(**common) as producer:
        await producer.send("t", b"value")
    async with Consumer("t", auto_offset_reset="earliest", **common) as consumer:
        record = await consumer.get(timeout=30)
    assert record is not None
    assert record.value == b"value"
    assert connector.verified == {options["bootstrap_servers"].partition(":")[0]}


async def test_event_hubs(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_HUBS_CONNECTION_STRING", PASSWORD)
    options = page["event_hubs"]()
    users = {"$ConnectionString": PASSWORD}
    with service(options, tmp_path, monkeypatch, mechanisms=["PLAIN"], users=users) as cluster:
        await round_trip(options, cluster)


async def test_confluent_cloud(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFLUENT_API_KEY", "KEY")
    monkeypatch.setenv("CONFLUENT_API_SECRET", "SECRET")
    options = page["confluent_cloud"]()
    users = {"KEY": "SECRET"}
    with service(options, tmp_path, monkeypatch, mechanisms=["PLAIN"], users=users) as cluster:
        await round_trip(options, cluster)
        monkeypatch.setenv("CONFLUENT_API_SECRET", "WRONG")
        with pytest.raises(SaslAuthenticationError):
            await round_trip(page["confluent_cloud"](), cluster)


async def test_confluent_clouds_properties(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = (
        code for language, code in BLOCKS if language == "properties" and "confluent" in code
    )
    path = tmp_path / "client.properties"
    path.write_text(text)
    monkeypatch.setenv("CONFLUENT_API_KEY", "KEY")
    monkeypatch.setenv("CONFLUENT_API_SECRET", "SECRET")
    options = page["confluent_cloud"]()
    users = {"KEY": "SECRET"}
    with service(options, tmp_path, monkeypatch, mechanisms=["PLAIN"], users=users) as cluster:
        connector = names_of(options, cluster)
        async with Producer.from_properties(path, connector=connector) as producer:
            await producer.send("t", b"value")
        assert len(cluster.records("t")) == 1


async def test_aiven_with_a_certificate(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = page["aiven_with_certificate"]()
    with service(options, tmp_path, monkeypatch, mutual_tls=True) as cluster:
        monkeypatch.delenv("SSL_CERT_FILE")
        await round_trip(options, cluster)


async def test_aiven_with_a_password(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIVEN_PASSWORD", PASSWORD)
    options = page["aiven_with_password"]()
    listener = {"mechanisms": ["SCRAM-SHA-256"], "users": {"avnadmin": PASSWORD}}
    with service(options, tmp_path, monkeypatch, **listener) as cluster:
        monkeypatch.delenv("SSL_CERT_FILE")
        await round_trip(options, cluster)


async def test_event_hubs_limits_the_size_of_requests(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENT_HUBS_CONNECTION_STRING", PASSWORD)
    options = page["event_hubs_producer"]()
    users = {"$ConnectionString": PASSWORD}
    with service(options, tmp_path, monkeypatch, mechanisms=["PLAIN"], users=users) as cluster:
        async with Producer(**options, connector=names_of(options, cluster)) as producer:
            with pytest.raises(RecordTooLargeError):
                await producer.send("t", bytes(1_040_000))


async def test_redpanda_cloud(page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDPANDA_USER", "me")
    monkeypatch.setenv("REDPANDA_PASSWORD", PASSWORD)
    options = page["redpanda_cloud"]()
    listener = {"mechanisms": ["SCRAM-SHA-256"], "users": {"me": PASSWORD}}
    with service(options, tmp_path, monkeypatch, **listener) as cluster:
        await round_trip(options, cluster)


async def test_strimzi_with_a_password(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets(tmp_path, ca="", password=PASSWORD)
    options = page["strimzi_with_password"](tmp_path)
    listener = {"mechanisms": ["SCRAM-SHA-512"], "users": {"billing": PASSWORD}}
    with service(options, tmp_path, monkeypatch, **listener) as cluster:
        monkeypatch.delenv("SSL_CERT_FILE")
        secrets(tmp_path, ca=(tmp_path / "ca.pem").read_text())
        await round_trip(page["strimzi_with_password"](tmp_path), cluster)


async def test_strimzi_with_a_certificate(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = page["strimzi_with_certificate"](tmp_path)
    with service(options, tmp_path, monkeypatch, mutual_tls=True) as cluster:
        monkeypatch.delenv("SSL_CERT_FILE")
        secrets(
            tmp_path,
            ca=(tmp_path / "ca.pem").read_text(),
            certificate=(tmp_path / "service.cert").read_text(),
            key=(tmp_path / "service.key").read_text(),
        )
        await round_trip(options, cluster)


def secrets(
    folder: Path, ca: str = "", password: str = "", certificate: str = "", key: str = ""
) -> None:
    """Write what the pod of Strimzi's page mounts. Files of empty texts are left as they are."""
    for name, text in (
        ("ca/ca.crt", ca),
        ("user/password", password),
        ("user/user.crt", certificate),
        ("user/user.key", key),
    ):
        if text:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment with made-up credentials of AWS, and without any other credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("aws")
async def test_the_signer_for_msk_makes_a_token_that_the_client_accepts(page: Any) -> None:
    token = await page["msk_token"]()
    assert isinstance(token, OAuthToken)
    text = token.token.reveal()
    url = urlsplit(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    query = parse_qs(url.query)
    assert url.hostname == f"kafka.{page['REGION']}.amazonaws.com"
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert query["X-Amz-Credential"][0].endswith(f"/{page['REGION']}/kafka-cluster/aws4_request")
    # Check what the page says: how long a token lasts, and when the client asks for the next one.
    assert query["X-Amz-Expires"] == ["900"]
    signed = datetime.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%S%z")
    assert token.expires_at_ms == 1000 * (signed.timestamp() + 900)
    assert refresh_delay_s(ClientConfig(bootstrap_servers="b:9092"), 900, random=0.5) == 600


async def test_msk_logs_in_by_the_signers_token(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def generate(region: str) -> tuple[str, int]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        calls.append(region)
        return unsecured_token("alice"), 2**50

    # The embedded cluster cannot verify the tokens of AWS, so this test replaces their generator.
    monkeypatch.setattr(MSKAuthTokenProvider, "generate_auth_token", generate)
    options = page["msk"]()
    assert isinstance(options["security"], SaslOAuthBearer)
    with service(options, tmp_path, monkeypatch, mechanisms=["OAUTHBEARER"]) as cluster:
        await round_trip(options, cluster)
    assert calls == [page["REGION"]] * 2, "a producer and a consumer have one token each"

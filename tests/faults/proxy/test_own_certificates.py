"""Replacements of the client's certificate files, and certificates that one side refuses."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import aiokclient.network.tls as network_tls
from aiokclient import Admin, Client, Consumer, Producer, SaslScram, Tls
from aiokclient.errors import TlsError
from aiokclient.testing import BrokerListener, EmbeddedCluster

SCRAM = BrokerListener(
    tls=True, mutual_tls=True, mechanisms=("SCRAM-SHA-256",), users={"alice": "wonderland"}
)
LISTENERS = {"SSL": BrokerListener(tls=True, mutual_tls=True), "SASL_SSL": SCRAM}
REFUSED = "refused the client's certificate, because it has expired"


class Files(NamedTuple):
    """The files of a client: the trusted authority, and its own certificate with the key."""

    authority: Path
    own: Path

    @property
    def tls(self) -> Tls:
        return Tls(cafile=str(self.authority), certfile=str(self.own))

    @property
    def properties(self) -> dict[str, str]:
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.own),
        }

    def issue(self, cluster: EmbeddedCluster, *, expired: bool = False) -> None:
        made = cluster.client_certificate("alice", expired=expired)
        replace(self.authority, made.authority)
        replace(self.own, made.key + made.certificate)


def replace(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    os.replace(new, path)


def cut(cluster: EmbeddedCluster) -> None:
    """End all connections by restarting the broker."""
    cluster.stop(1)
    cluster.start(1)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics=["orders"], listeners=LISTENERS) as cluster:
        yield cluster


@pytest.fixture
def files(tmp_path: Path, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Files with a valid certificate. Clients check for changed files at each new connection."""
    monkeypatch.setattr(network_tls, "CHECK_S", 0.0)
    monkeypatch.setattr(network_tls, "WAIT_S", 60.0)
    made = Files(tmp_path / "ca.pem", tmp_path / "own.pem")
    made.issue(cluster)
    return made


Opening = Callable[[EmbeddedCluster, Files, AsyncExitStack], Any]


def servers(cluster: EmbeddedCluster, listener: str = "SSL") -> dict[str, Any]:
    found = cluster.bootstrap_servers_for(listener)
    return {"bootstrap_servers": found, "reconnect_backoff_max_ms": 50}


async def by_arguments(cluster: EmbeddedCluster, files: Files, stack: AsyncExitStack) -> Any:
    producer = Producer(security=files.tls, **servers(cluster))
    return await stack.enter_async_context(producer)


async def by_properties(cluster: EmbeddedCluster, files: Files, stack: AsyncExitStack) -> Any:
    producer = Producer.from_properties(files.properties, **servers(cluster))
    return await stack.enter_async_context(producer)


async def by_sasl(cluster: EmbeddedCluster, files: Files, stack: AsyncExitStack) -> Any:
    login = SaslScram("alice", "wonderland", "SCRAM-SHA-256", tls=files.tls)
    producer = Producer(security=login, **servers(cluster, "SASL_SSL"))
    return await stack.enter_async_context(producer)


async def by_a_shared_client(cluster: EmbeddedCluster, files: Files, stack: AsyncExitStack) -> Any:
    client = Client(security=files.tls, **servers(cluster))
    await stack.enter_async_context(client)
    return await stack.enter_async_context(Producer(client=client))


async def send_after_refusal(producer: Producer[Any, Any], value: bytes) -> None:
    """Send a record with the new files.

    A connection with the old files may have been refused just before they were replaced. Its error
    fails what is sent until it has been handled, but nothing after that.
    """
    try:
        await producer.send("orders", value)
    except TlsError:
        await producer.send("orders", value)


@pytest.mark.fault(45)
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
@pytest.mark.parametrize("opening", [by_arguments, by_properties, by_sasl, by_a_shared_client])
async def test_new_connections_use_replaced_files(
    cluster: EmbeddedCluster, files: Files, opening: Opening, pause_s: float
) -> None:
    """With the pause, the bootstrap servers refuse the former files, too, in many runs."""
    async with AsyncExitStack() as stack:
        producer = await opening(cluster, files, stack)
        await producer.send("orders", b"before")
        files.issue(cluster, expired=True)
        await producer.send("orders", b"on the open connection")
        cut(cluster)
        with pytest.raises(TlsError, match=REFUSED):
            await producer.send("orders", b"refused")
        await asyncio.sleep(pause_s)
        files.issue(cluster)
        await send_after_refusal(producer, b"after")
    values = [record.value for record in cluster.records("orders", 0)]
    assert values == [b"before", b"on the open connection", b"after"]


@pytest.mark.fault(45)
@pytest.mark.parametrize("opening", [by_arguments, by_sasl])
async def test_files_that_are_replaced_just_after_a_check_are_used_at_once(
    cluster: EmbeddedCluster, files: Files, opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        producer = await opening(cluster, files, stack)
        await producer.send("orders", b"before")
        files.issue(cluster, expired=True)
        cut(cluster)
        with pytest.raises(TlsError, match=REFUSED):
            await producer.send("orders", b"refused")
        monkeypatch.setattr(network_tls, "CHECK_S", 3600.0)
        files.issue(cluster)
        await send_after_refusal(producer, b"after")


@pytest.mark.fault(45)
async def test_consumers_and_admins_use_replaced_files(
    cluster: EmbeddedCluster, files: Files
) -> None:
    options = servers(cluster) | {"security": files.tls}
    consumer = Consumer("orders", auto_offset_reset="earliest", **options)
    async with consumer, Admin(**options) as admin:
        for number in range(3):
            cluster.produce("orders", [b"%d" % number])
            record = await consumer.get(timeout=30)
            assert record is not None
            assert record.value == b"%d" % number
            assert list(await admin.list_topics()) == ["orders"]
            files.issue(cluster, expired=True)
            cut(cluster)
            files.issue(cluster)


@pytest.mark.fault(45)
async def test_files_that_cannot_be_used_are_warned_of_once_and_the_old_ones_stay(
    cluster: EmbeddedCluster, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(security=files.tls, **servers(cluster)) as producer:
        await producer.send("orders", b"0")
        replace(files.own, "-----BEGIN PRIVATE KEY-----\nopen-sesame")
        for number in range(1, 4):
            cut(cluster)
            await producer.send("orders", b"%d" % number)
        files.issue(cluster, expired=True)
        cut(cluster)
        with pytest.raises(TlsError, match=REFUSED):
            await producer.send("orders", b"refused")
        files.issue(cluster)
        await send_after_refusal(producer, b"4")
    assert [record.value for record in cluster.records("orders", 0)] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    lines = [r for r in caplog.records if r.__dict__.get("event") == "tls_files_refused"]
    assert len(lines) == 1
    assert lines[0].levelno == logging.WARNING
    assert str(files.own) in lines[0].getMessage()
    assert "open-sesame" not in caplog.text


# -- certificates that the brokers refuse ---------------------------------------------------------


def without(cluster: EmbeddedCluster) -> Tls:
    return cluster.client_tls


def expired(cluster: EmbeddedCluster) -> Tls:
    return cluster.client_certificate("alice", expired=True).tls


def foreign(cluster: EmbeddedCluster) -> Tls:
    other = EmbeddedCluster(listeners=LISTENERS).client_certificate("alice")
    authority = cluster.client_certificate("alice").authority
    return Tls(cadata=authority, certdata=other.certificate, keydata=other.key)


@pytest.mark.fault(45)
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (without, "requires a certificate of the client, and there is none"),
        (expired, REFUSED),
        (foreign, "refused the client's certificate, because it does not trust its authority"),
    ],
)
async def test_a_refused_certificate_of_the_client_is_explained_and_no_request_arrives(
    cluster: EmbeddedCluster, make: Callable[[EmbeddedCluster], Tls], text: str
) -> None:
    before = cluster.requests_total
    with pytest.raises(TlsError, match=text):
        await Client(security=make(cluster), **servers(cluster)).start()
    assert cluster.requests_total == before

"""Tests of `BrokerListener(certificate=...)`: brokers whose certificates clients refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiokclient import Client, Tls
from aiokclient.errors import TlsError
from aiokclient.testing import BrokerListener, EmbeddedCluster

LISTENERS = {
    "VALID": BrokerListener(tls=True),
    "EXPIRED": BrokerListener(tls=True, certificate="expired"),
    "UNTRUSTED": BrokerListener(tls=True, certificate="untrusted"),
    "OTHER_HOST": BrokerListener(tls=True, certificate="other-host"),
}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(listeners=LISTENERS) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        ("EXPIRED", r"is not accepted \(certificate has expired\)"),
        ("UNTRUSTED", r"is not accepted \(unable to get local issuer certificate\)"),
        ("OTHER_HOST", r"is not accepted \(IP address mismatch"),
    ],
)
async def test_clients_refuse_the_certificate_and_send_no_request(
    cluster: EmbeddedCluster, listener: str, text: str
) -> None:
    servers = cluster.bootstrap_servers_for(listener)
    with pytest.raises(TlsError, match=text):
        await Client(bootstrap_servers=servers, security=cluster.client_tls).start()
    assert cluster.requests_total == 0


async def test_a_client_that_does_not_verify_names_accepts_other_hosts(
    cluster: EmbeddedCluster,
) -> None:
    tls = Tls(cadata=cluster.client_certificate("alice").authority, check_hostname=False)
    servers = cluster.bootstrap_servers_for("OTHER_HOST")
    async with Client(bootstrap_servers=servers, security=tls):
        assert cluster.requests_total > 0


def test_only_known_certificates_of_listeners_with_tls_are_allowed() -> None:
    with pytest.raises(ValueError, match="Use one of 'valid', 'expired', 'untrusted'"):
        BrokerListener(tls=True, certificate="old")
    with pytest.raises(ValueError, match="certificate needs tls=True"):
        BrokerListener(certificate="expired")

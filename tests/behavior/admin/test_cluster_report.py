"""The check of a cluster: what it finds, what it passes, and that it works without a start."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from hanging_transactions import hang_transaction, switch_verification
from raw_transactions import RawTransaction

from aiokclient import Admin, Client, SaslPlain, SaslScram, Tls, TopicPartition
from aiokclient.admin import ClusterReport, Finding, NewTopic
from aiokclient.errors import ClosedError, ClusterAuthorizationError, UnsupportedVersionError
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster

USERS = {"alice": "open-sesame"}
LISTENERS = {
    "TLS": BrokerListener(tls=True),
    "EXPIRED": BrokerListener(tls=True, certificate="expired"),
    "UNTRUSTED": BrokerListener(tls=True, certificate="untrusted"),
    "OTHER": BrokerListener(tls=True, certificate="other-host"),
    "SASL": BrokerListener(mechanisms=("PLAIN",), users=USERS),
    "SASL_SSL": BrokerListener(tls=True, mechanisms=("SCRAM-SHA-512",), users=USERS),
}
CONNECTING = {"names", "tcp", "protocol"}
STATE = {
    "versions",
    "brokers",
    "features",
    "quorum",
    "clock",
    "leaderless",
    "under-min-isr",
    "under-replicated",
    "hanging-transactions",
}
LEFT_BY_OTHERS = {"leaderless", "under-min-isr", "under-replicated", "hanging-transactions"}
"""The checks in which other tests on the real cluster, which they share, may have left a fault."""


@pytest.fixture(scope="module")
def secured_cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, listeners=LISTENERS) as cluster:
        yield cluster


@contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port that refuses connections, and that nothing else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Run a server that accepts connections, and never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65536):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


async def check(servers: str, timeout: float = 30.0, **options: Any) -> ClusterReport:
    return await Admin(bootstrap_servers=servers, **options).check_cluster(timeout=timeout)


def faults(report: ClusterReport) -> dict[str, Finding]:
    """Return the errors of a report by their checks, of which each may have one."""
    found = [each for each in report if each.severity == "error"]
    assert len({each.check for each in found}) == len(found), found
    assert all(each.text and each.advice and each.subject for each in report)
    return {each.check: each for each in found}


def passed(report: ClusterReport) -> set[str]:
    return {each.check for each in report.passed}


def shared_checks(servers: Any) -> set[str]:
    """Return the checks of a cluster whose outcome other tests can change."""
    return LEFT_BY_OTHERS if servers.kind == "kafka" else set()


async def wait_for_report(
    admin: Admin, is_awaited: Callable[[ClusterReport], bool]
) -> ClusterReport:
    """Repeat the check until the cluster has noticed what happened to it."""
    async with asyncio.timeout(60):
        while True:
            report = await admin.check_cluster(timeout=20)
            if is_awaited(report):
                return report


async def test_a_healthy_cluster_passes_every_check(brokers: Any) -> None:
    async with Admin(bootstrap_servers=brokers.servers) as admin:
        report = await wait_for_report(admin, lambda report: report.ok)
        assert await admin.describe_cluster()  # The admin client goes on.
    assert [each for each in report if each.severity == "warning" and each.check in STATE] == []
    assert passed(report) >= CONNECTING | STATE | {"log-dirs"}
    assert len([each for each in report.passed if each.check == "tcp"]) == 3
    (count,) = [each for each in report.passed if each.check == "brokers"]
    assert count.text == "3 brokers in service: 1, 2, 3."
    assert list(report) == list(report.findings)
    assert len(report) == len(report.findings)


async def test_a_check_without_a_start_gives_the_same(cluster_servers: Any) -> None:
    started = Admin(bootstrap_servers=cluster_servers.bootstrap)
    async with started:
        first = await started.check_cluster()
    admin = Admin(bootstrap_servers=cluster_servers.bootstrap)
    second = await admin.check_cluster()
    shared = shared_checks(cluster_servers)
    assert [(each.check, each.subject) for each in first if each.check not in shared] == [
        (each.check, each.subject) for each in second if each.check not in shared
    ]
    assert passed(first) - shared == passed(second) - shared >= STATE - shared
    async with admin:  # The check has started nothing.
        assert (await admin.describe_cluster()).brokers
    with pytest.raises(ClosedError):
        await admin.check_cluster()


async def test_each_bootstrap_server_that_fails_is_a_finding(cluster_servers: Any) -> None:
    with closed_port() as port:
        wrong = f"127.0.0.1:{port}"
        report = await check(f"no-such-host.invalid:9092,{wrong},{cluster_servers.bootstrap}")
    found = faults(report)
    shared = shared_checks(cluster_servers)
    assert set(found) - shared == {"names", "tcp"}
    assert found["names"].subject == "bootstrap server no-such-host.invalid:9092"
    assert "cannot be resolved" in found["names"].text
    assert found["tcp"].subject == f"bootstrap server {wrong}"
    assert "refused" in found["tcp"].text
    assert "port" in found["tcp"].advice
    assert passed(report) >= STATE - shared


async def test_a_cluster_that_cannot_be_reached_raises_nothing() -> None:
    with closed_port() as port:
        admin = Admin(bootstrap_servers=f"127.0.0.1:{port}")
        report = await admin.check_cluster(timeout=10)
    assert set(faults(report)) == {"tcp"}
    assert not report.ok
    assert passed(report) == {"names"}


async def test_a_silent_server_is_a_finding_within_the_timeout() -> None:
    async with silent_server() as address, asyncio.timeout(20):
        report = await check(address, timeout=2.0)
    found = faults(report)
    assert set(found) == {"protocol"}
    assert "did not answer ApiVersions" in found["protocol"].text
    assert passed(report) == {"names", "tcp"}


async def test_a_server_of_another_protocol_is_a_finding() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        found = faults(await check(f"{host}:{port}"))
    assert set(found) == {"protocol"}
    assert "HTTP server" in found["protocol"].text
    assert found["protocol"].advice == "Check the port in bootstrap_servers."


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        ("EXPIRED", "expired"),
        ("UNTRUSTED", "certificate"),
        ("OTHER", "mismatch"),
        ("SASL", "plaintext port"),
    ],
)
async def test_tls_that_fails_is_a_finding(
    secured_cluster: EmbeddedCluster, listener: str, text: str
) -> None:
    servers = secured_cluster.bootstrap_servers_for(listener).split(",")[0]
    report = await check(servers, security=secured_cluster.client_tls)
    found = faults(report)
    assert set(found) == {"tls"}
    assert text in found["tls"].text
    assert passed(report) == {"names", "tcp"}


async def test_plaintext_on_a_tls_port_is_a_finding(secured_cluster: EmbeddedCluster) -> None:
    servers = secured_cluster.bootstrap_servers_for("TLS").split(",")[0]
    found = faults(await check(servers))
    assert set(found) == {"tls"}
    assert "is a TLS port" in found["tls"].text
    assert found["tls"].advice.startswith("Set security=Tls()")


async def test_a_login_that_is_refused_or_missing_is_a_finding(
    secured_cluster: EmbeddedCluster,
) -> None:
    servers = secured_cluster.bootstrap_servers_for("SASL").split(",")[0]
    wrong = await check(servers, security=SaslPlain("alice", "wrong", None))
    found = faults(wrong)
    assert set(found) == {"login"}
    assert "'alice'" in found["login"].text
    assert "wrong" not in repr(wrong)
    assert passed(wrong) == CONNECTING
    other = faults(await check(servers, security=SaslScram("alice", "open-sesame", tls=None)))
    assert "offers PLAIN" in other["login"].text
    missing = faults(await check(servers))
    assert set(missing) == {"login"}
    assert "SaslPlain(user, password)" in missing["login"].advice


async def test_tls_and_a_login_that_work_pass(secured_cluster: EmbeddedCluster) -> None:
    security = SaslScram("alice", "open-sesame", tls=secured_cluster.client_tls)
    report = await check(secured_cluster.bootstrap_servers_for("SASL_SSL"), security=security)
    assert report.ok, report.findings
    assert passed(report) >= CONNECTING | {"tls", "login"} | STATE
    texts = {each.check: each.text for each in report.passed}
    assert "The certificate is valid until" in texts["tls"]
    assert texts["login"] == "The login with SCRAM-SHA-512 was accepted."


async def test_missing_certificate_files_are_a_finding(tmp_path: Any) -> None:
    report = await check("127.0.0.1:1", security=Tls(cafile=str(tmp_path / "no.pem")))
    found = faults(report)
    assert set(found) == {"tls"}
    assert "no.pem" in found["tls"].text


async def test_a_stopped_broker_and_its_partitions_are_findings(brokers: Any) -> None:
    async with Admin(bootstrap_servers=brokers.servers) as admin:
        name = f"check-{uuid.uuid4().hex[:8]}"
        topics = [
            NewTopic(f"{name}-alone", assignments={0: [3]}),
            NewTopic(f"{name}-pair", assignments={0: [1, 3], 1: [2, 1]}),
            NewTopic(f"{name}-strict", assignments={0: [3, 2]}, configs={"min.insync.replicas": 2}),
        ]
        (await admin.create_topics(topics)).raise_for_errors()
        brokers.stop(3)
        try:
            report = await wait_for_report(
                admin,
                lambda report: (
                    {"leaderless", "under-replicated", "brokers"}
                    <= {each.check for each in report if each.severity == "error"}
                ),
            )
        finally:
            brokers.start(3)
        by_check = {each.check: each for each in report if each.severity == "error"}
        assert by_check["brokers"].subject.startswith("broker 3 (")
        assert "fenced" in by_check["brokers"].text
        assert f"{name}-alone-0" in by_check["leaderless"].subject
        assert "broker 3" in by_check["leaderless"].text
        assert f"{name}-pair-0" in by_check["under-replicated"].subject
        assert f"{name}-pair-1" not in by_check["under-replicated"].subject
        assert "broker 3 (" in by_check["under-replicated"].text
        assert f"{name}-strict-0" in by_check["under-min-isr"].subject
        assert by_check["tcp"].severity == "error"
        report = await wait_for_report(admin, lambda report: report.ok)
        (await admin.delete_topics(each.name for each in topics)).raise_for_errors()


async def test_missing_permissions_and_old_brokers_are_no_faults(
    secured_cluster: EmbeddedCluster,
) -> None:
    servers = secured_cluster.bootstrap_servers
    with (
        secured_cluster.fail(ApiKey.DESCRIBE_QUORUM, ClusterAuthorizationError),
        secured_cluster.fail(ApiKey.DESCRIBE_LOG_DIRS, UnsupportedVersionError),
    ):
        report = await check(servers)
    assert report.ok, report.findings
    found = {each.check: each for each in report}
    assert found["quorum"].severity == "warning"
    assert "lacks a permission" in found["quorum"].text
    assert "ACL" in found["quorum"].advice
    assert found["log-dirs"].severity == "info"
    assert "too old" in found["log-dirs"].text
    assert passed(report) >= STATE - {"quorum", "clock"}


async def test_a_cancelled_check_leaves_no_task(cluster_servers: Any) -> None:
    before = asyncio.all_tasks()
    admin = Admin(bootstrap_servers=cluster_servers.bootstrap)
    for seconds in (0.0, 0.01, 0.03, 0.1, 0.2):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(admin.check_cluster(), seconds)
        assert asyncio.all_tasks() == before


async def test_a_transaction_may_hang_if_a_broker_that_could_know_it_is_not_reached() -> None:
    old = int(time.time() * 1000) - 20 * 60_000
    async with EmbeddedCluster(brokers=2) as cluster:
        servers = "{}:{}".format(*cluster.address(1))
        async with Client(bootstrap_servers=servers) as client, Admin(client=client) as admin:
            created = await admin.create_topics([NewTopic("paid", assignments={0: [1]})])
            created.raise_for_errors()
            transaction = RawTransaction(client, "pay-1")
            await transaction.begin()
            await transaction.produce(TopicPartition("paid", 0), b"a", timestamp=old)
        with cluster.drop(ApiKey.API_VERSIONS, broker=2):
            report = await check(servers, timeout=20.0)
        whole = await check(servers)
    (finding,) = [each for each in report if each.check == "hanging-transactions"]
    assert (finding.severity, finding.subject) == ("error", "paid-0")
    assert "unknown, because broker 2 cannot be reached" in finding.text
    assert finding.advice.startswith("Repeat the check")
    assert "hanging-transactions" not in faults(whole)


async def test_a_hanging_transaction_is_a_finding(cluster_servers: Any) -> None:
    topic = await cluster_servers.new_topic()
    tp, bootstrap = TopicPartition(topic, 0), cluster_servers.bootstrap
    await switch_verification(bootstrap, False)
    try:
        async with Client(bootstrap_servers=bootstrap) as client, Admin(client=client) as admin:
            await hang_transaction(client, f"{topic}-hangs", tp)
            report = await admin.check_cluster()
            found = [each for each in report if each.check == "hanging-transactions"]
            (finding,) = [each for each in found if each.subject == str(tp)]
            assert finding.severity == "error"
            assert f"{topic}-hangs" in finding.text
            assert "offset 0" in finding.text
            assert "abort_transaction" in finding.advice
            (hanging,) = await admin.find_hanging_transactions(topic=topic)
            await admin.abort_transaction(hanging)
            again = await admin.check_cluster()
            assert str(tp) not in {each.subject for each in again}
    finally:
        await switch_verification(bootstrap, True)


async def test_an_older_kafka_says_what_it_cannot_answer(kafka_old: Any) -> None:
    report = await check(kafka_old.bootstrap)
    assert report.ok, report.findings
    (finding,) = [each for each in report if each.check == "brokers"]
    assert (finding.severity, "too old" in finding.text) == ("info", True)
    assert passed(report) >= STATE - {"brokers"}

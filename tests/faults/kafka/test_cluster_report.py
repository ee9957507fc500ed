"""The check of a real Kafka whose certificates or logins are wrong, and without permissions."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from secured_kafka import STRANGER, STRANGER_PASSWORD, USER, SecuredKafka

from aiokclient import Admin, SaslPlain, SaslScram
from aiokclient.admin import ClusterReport, Finding


async def check(servers: str, security: Any) -> ClusterReport:
    return await Admin(bootstrap_servers=servers, security=security).check_cluster(timeout=30)


def only_fault(report: ClusterReport) -> Finding:
    (found,) = [each for each in report if each.severity == "error"]
    return found


@pytest.mark.parametrize(
    ("listener", "text", "advice"),
    [
        ("EXPIRED", "certificate has expired", "Renew it"),
        ("FOREIGN", "certificate", "Check the certificate authority"),
        ("ELSEWHERE", "mismatch", "Use a name that is in the certificate"),
        ("SASL_PLAINTEXT", "is a plaintext port", "Set security="),
        ("MTLS", "requires a certificate of the client", "Give Tls() a certfile"),
    ],
)
async def test_tls_that_fails_with_kafka_is_a_finding(
    secured: SecuredKafka, listener: str, text: str, advice: str
) -> None:
    found = only_fault(await check(secured.servers(listener), secured.tls))
    assert found.check == "tls"
    assert text in found.text
    assert found.advice.startswith(advice)


async def test_plaintext_on_a_tls_port_of_kafka_is_a_finding(secured: SecuredKafka) -> None:
    found = only_fault(
        await Admin(bootstrap_servers=secured.servers("SSL")).check_cluster(timeout=30)
    )
    assert (found.check, "is a TLS port" in found.text) == ("tls", True)


async def test_logins_that_are_refused_or_missing_are_findings(secured: SecuredKafka) -> None:
    servers = secured.servers("SASL_PLAINTEXT")
    refused = only_fault(await check(servers, SaslPlain(USER, "wrong", None)))
    assert (refused.check, USER in refused.text) == ("login", True)
    missing = only_fault(await Admin(bootstrap_servers=servers).check_cluster(timeout=30))
    assert missing.check == "login"
    assert "requires SASL with" in missing.advice
    only = secured.servers("SCRAMONLY")
    other = only_fault(await check(only, SaslPlain(USER, "alice-secret", None)))
    assert (other.check, "SCRAM-SHA-512" in other.text) == ("login", True)


async def test_a_working_login_over_tls_passes(secured: SecuredKafka) -> None:
    way = await secured.way("SCRAM-SHA-512", "SSL")
    report = await check(way.servers, way.security)
    assert report.ok, report.findings
    texts = {each.check: each.text for each in report.passed}
    assert texts["login"] == "The login with SCRAM-SHA-512 was accepted."
    assert "The certificate is valid until" in texts["tls"]


async def test_a_certificate_that_is_not_verified_is_named(secured: SecuredKafka) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    report = await check(secured.servers("EXPIRED"), context)
    assert report.ok, report.findings
    assert "was not verified" in {each.check: each.text for each in report.passed}["tls"]


async def test_what_the_user_may_not_see_is_a_warning(secured: SecuredKafka) -> None:
    security = SaslScram(STRANGER, STRANGER_PASSWORD, tls=None)
    report = await check(secured.servers("SASL_PLAINTEXT"), security)
    assert report.ok, report.findings
    warned = {each.check for each in report if "lacks a permission" in each.text}
    assert "quorum" in warned
    assert all(each.advice for each in report)

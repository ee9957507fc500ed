"""The findings of a cluster's check that need a cluster in a rare state."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiokclient.admin import ClusterReport, Finding, PassedCheck
from aiokclient.admin.checks.addresses import AddressChecks, Server, ServerAnswer
from aiokclient.admin.checks.cluster import check_features, check_versions
from aiokclient.admin.checks.report import NAMED, ReportNotes, listed_names
from aiokclient.clock import SystemClock
from aiokclient.config.admin import AdminConfig
from aiokclient.network.setup import ConnectionSettings
from aiokclient.network.transport import TcpConnector
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

DAY_S = 86_400


def answers(
    highest: dict[int, int], *, features: dict[int, int] | None = None, level: int = 0
) -> dict[int, ServerAnswer]:
    """Return the answers of brokers by their highest version of Metadata, and of a feature."""
    made = {}
    for node, version in highest.items():
        keys = [
            ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=version),
            ApiVersion(api_key=ApiKey.PUSH_TELEMETRY, min_version=0, max_version=node),
        ]
        response = ApiVersionsResponse(api_keys=keys)
        if features is not None:
            supported = SupportedFeatureKey(
                name="metadata.version", min_version=7, max_version=features[node]
            )
            finalized = FinalizedFeatureKey(
                name="metadata.version", max_version_level=level, min_version_level=level
            )
            response.supported_features = [supported]
            response.finalized_features = [finalized]
            response.finalized_features_epoch = 5
        made[node] = ServerAnswer(Server("localhost", 9000 + node, node), response, None)
    return made


def findings(notes: ReportNotes) -> list[tuple[str, str, str]]:
    return [(each.severity, each.check, each.subject) for each in notes.make_report()]


def test_brokers_of_different_versions_are_a_warning() -> None:
    notes = ReportNotes()
    check_versions(notes, answers({1: 12, 2: 13, 3: 12}))
    report = notes.make_report()
    assert findings(notes) == [("warning", "versions", "brokers 1, 3; broker 2")]
    assert report.findings[0].text.endswith("They differ in Metadata.")
    assert report.ok
    same = ReportNotes()
    check_versions(same, answers({1: 12, 2: 12}))
    assert findings(same) == []
    (passed,) = same.make_report().passed
    assert passed.subject == "brokers 1, 2"


def test_a_broker_without_the_level_of_a_feature_is_an_error() -> None:
    notes = ReportNotes()
    check_features(notes, answers({1: 1, 2: 1}, features={1: 27, 2: 25}, level=27))
    assert findings(notes) == [("error", "features", "broker 2")]
    assert "levels 7 to 25 of metadata.version" in notes.make_report().findings[0].text
    assert not notes.make_report().ok


def test_a_level_below_what_all_brokers_support_is_a_remark() -> None:
    notes = ReportNotes()
    check_features(notes, answers({1: 1, 2: 1}, features={1: 27, 2: 26}, level=25))
    assert findings(notes) == [("info", "features", "metadata.version")]
    assert "metadata.version 25 of 26" in notes.make_report().findings[0].text
    unknown = ReportNotes()
    check_features(unknown, answers({1: 1}))  # An older broker has no features.
    assert unknown.make_report() == ClusterReport((), ())


@pytest.mark.parametrize(("days", "expected"), [(10, 1), (29, 1), (40, 0)])
def test_a_certificate_that_expires_soon_is_a_warning(days: int, expected: int) -> None:
    ends = time.time() + days * DAY_S + 60
    text = time.strftime("%b %d %H:%M:%S %Y GMT", time.gmtime(ends))
    session = SimpleNamespace(getpeercert=lambda: {"notAfter": text}, version=lambda: "TLSv1.3")
    connection: Any = SimpleNamespace(read_info=lambda name: session)
    config = AdminConfig.build({"bootstrap_servers": "localhost:9092"})
    settings = ConnectionSettings(TcpConnector(), "test", None, 1 << 20, None)
    notes = ReportNotes()
    checks = AddressChecks(config, settings, notes, SystemClock(), 1.0)
    said = checks._check_certificate(Server("localhost", 9092), cast(Any, connection))
    assert f"for {days} days" in said
    assert findings(notes) == [("warning", "tls", "bootstrap server localhost:9092")] * expected


def test_a_report_lists_errors_first_and_checks_in_order() -> None:
    notes = ReportNotes()
    notes.add_finding("info", "names", "a", "b", "c")
    notes.add_finding("error", "quorum", "a", "b", "c")
    notes.add_finding("warning", "tcp", "a", "b", "c")
    notes.add_finding("error", "names", "a", "b", "c")
    notes.add_pass("quorum", "a", "b")
    notes.add_pass("tcp", "a", "b")
    report = notes.make_report()
    assert [(each.severity, each.check) for each in report] == [
        ("error", "names"),
        ("error", "quorum"),
        ("warning", "tcp"),
        ("info", "names"),
    ]
    assert report.findings[0] == Finding("error", "a", "b", "c", "names")
    assert report.passed == (PassedCheck("tcp", "a", "b"), PassedCheck("quorum", "a", "b"))
    assert len(report) == 4


def test_only_the_first_names_are_listed() -> None:
    assert listed_names(range(3)) == "0, 1, 2"
    assert listed_names(range(NAMED + 2)).endswith("9, and 2 more")

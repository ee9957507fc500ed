"""`aiokclient doctor`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import json
import socket
from typing import Any

from aiokclient.testing import EmbeddedCluster

LEFT_BY_OTHERS = {"leaderless", "under-min-isr", "under-replicated", "hanging-transactions"}
"""The faults that other tests may leave in the real cluster, which they share."""


def test_doctor_finds_no_fault_in_a_cluster_that_has_none(cluster_servers: Any, run: Any) -> None:
    code, out, err = run("doctor", "--json")
    report = json.loads(out)
    assert list(report) == ["ok", "findings", "passed"]
    faults = [each["check"] for each in report["findings"] if each["severity"] == "error"]
    assert set(faults) <= (LEFT_BY_OTHERS if cluster_servers.kind == "kafka" else set())
    assert report["ok"] is not bool(faults)
    assert code == (1 if faults else 0)
    assert {"check", "subject", "text"} == set(report["passed"][0])
    assert err.startswith(f"aiokclient: {len(faults)} fault")
    assert not any("Admin." in each["advice"] for each in report["findings"])
    lines = run("doctor", "--passed").out.splitlines()
    assert lines[0] == "subject\tseverity\tcheck\ttext\tadvice"
    assert "subject\tcheck\ttext" in lines


def test_doctor_exits_with_1_if_partitions_have_no_leader(run_on: Any) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        run = run_on(cluster.bootstrap_servers)
        assert run("topics", "create", "orders", "--assign", "2").code == 0
        cluster.stop(2)
        code, out, err = run("doctor", "--json", "--timeout", "5")
        report = json.loads(out)
    assert code == 1
    assert report["ok"] is False
    (finding,) = [each for each in report["findings"] if each["check"] == "leaderless"]
    assert finding["severity"] == "error"
    assert set(finding) == {"severity", "subject", "text", "advice", "check"}
    assert " other finding" in err


def test_doctor_says_why_no_broker_can_be_reached(run_on: Any) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{bound.getsockname()[1]}"
        code, out, _ = run_on(servers)("doctor", "--json", "--timeout", "5")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert finding["check"] == "tcp"
    assert servers in finding["subject"]
    assert finding["advice"]

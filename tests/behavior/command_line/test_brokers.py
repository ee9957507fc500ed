"""`aiokclient brokers`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


def test_brokers_list_shows_their_addresses(run: Any) -> None:
    rows = json.loads(run("brokers", "list", "--json").out)
    assert {tuple(row) for row in rows} == {("node_id", "host", "port", "rack", "fenced")}
    lines = run("brokers", "list").out.splitlines()
    assert lines[0] == "node_id\thost\tport\track"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(row["node_id"]) for row in rows]
    assert run("brokers", "list", "--fenced").out.startswith("node_id\thost\tport\track\tfenced\n")


def test_brokers_versions_shows_each_api_and_the_version_in_use(run: Any) -> None:
    broker = json.loads(run("brokers", "list", "--json").out)[0]["node_id"]
    rows = json.loads(run("brokers", "versions", str(broker), "--json").out)
    assert {row["node_id"] for row in rows} == {broker}
    assert [row["api_key"] for row in rows] == sorted(row["api_key"] for row in rows)
    metadata = next(row for row in rows if row["name"] == "Metadata")
    assert metadata["api_key"] == 3
    assert metadata["min_version"] <= metadata["usable_version"] <= metadata["max_version"]
    assert run("brokers", "versions").out.startswith(
        "node_id\tapi_key\tname\tmin_version\tmax_version\tusable_version\n"
    )


def test_brokers_versions_names_brokers_that_do_not_exist(run: Any) -> None:
    broker = json.loads(run("brokers", "list", "--json").out)[0]["node_id"]
    code, out, err = run("brokers", "versions", "77", str(broker), "-q")
    assert (code, out) == (3, f"{broker}\n")
    assert err == "aiokclient: broker 77: " + err.partition("broker 77: ")[2]
    assert "No broker 77 is running." in err
    assert run("brokers", "versions", "-", typed=f"{broker}\n\n").code == 0
    code, _, err = run("brokers", "versions", "-", typed="one\n")
    assert code == 2
    assert "ID" in err


def test_brokers_unregister_refuses_a_broker_that_runs(run: Any) -> None:
    broker = str(json.loads(run("brokers", "list", "--json").out)[0]["node_id"])
    for more in ((), ("--yes",), ("--dry-run",)):
        code, out, err = run("brokers", "unregister", broker, *more)
        assert (code, out) == (2, "")
        assert "is running" in err
        assert "--no-check" in err
    code, _, err = run("brokers", "unregister", "77", "--yes")
    assert code == 3
    assert "There is no broker 77." in err


def test_brokers_unregister_removes_a_broker_that_is_stopped(
    three: EmbeddedCluster, run_on: Any
) -> None:
    run = run_on(three.bootstrap_servers)
    three.stop(3)
    try:
        listed = json.loads(run("brokers", "list", "--fenced", "--json").out)
        assert [each["node_id"] for each in listed if each["fenced"]] == [3]
        code, _, err = run("brokers", "unregister", "3")
        assert code == 2
        assert err == (
            "aiokclient: Remove the registration of broker 3? Without a terminal, this needs "
            "--yes.\n"
        )
        code, out, err = run("brokers", "unregister", "3", "--dry-run", "--json")
        assert code == 0
        assert json.loads(out)[0] | {"host": "", "port": 0} == {
            "node_id": 3,
            "host": "",
            "port": 0,
            "rack": None,
            "fenced": True,
        }
        assert "dry run" in err
        assert len(json.loads(run("brokers", "list", "--fenced", "--json").out)) == 3
        assert run("brokers", "unregister", "3", "--yes").code == 0
        assert len(json.loads(run("brokers", "list", "--fenced", "--json").out)) == 2
        assert run("brokers", "unregister", "3", "--yes").code == 3
    finally:
        three.start(3)

"""`aiokclient cluster` and `aiokclient quorum`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

SOME_ID = "00000000-0000-0000-0000-000000000001"
SHORT_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STATUS = ("leader_id", "leader_epoch", "high_watermark", "max_follower_lag", "max_follower_lag_ms")


def test_cluster_describe_shows_the_leader_of_the_quorum_as_the_controller(run: Any) -> None:
    described = json.loads(run("cluster", "describe", "--json").out)
    quorum = json.loads(run("quorum", "describe", "--json").out)
    assert described["controller_id"] == quorum["leader_id"]
    assert list(described) == [
        "cluster_id",
        "controller_id",
        "brokers",
        "authorized_operations",
        "broker_count",
    ]
    assert described["authorized_operations"] is None
    assert described["broker_count"] == len(described["brokers"])
    assert set(described["brokers"][0]) == {"node_id", "host", "port", "rack", "fenced"}


def test_cluster_describe_prints_the_id_alone_if_it_is_quiet(run: Any) -> None:
    cluster_id = json.loads(run("cluster", "describe", "--json").out)["cluster_id"]
    assert run("cluster", "describe", "-q") == (0, f"{cluster_id}\n", "")
    heading, values = run("cluster", "describe").out.splitlines()
    assert heading == "cluster_id\tcontroller_id\tbroker_count"
    assert values.startswith(f"{cluster_id}\t")


def test_cluster_describe_includes_operations_if_they_are_asked_for(run: Any) -> None:
    described = json.loads(run("cluster", "describe", "--operations", "--json").out)
    assert {"alter", "describe", "create"} <= set(described["authorized_operations"])
    assert described["authorized_operations"] == sorted(described["authorized_operations"])


def test_quorum_describe_shows_the_quorum_and_its_replicas(run: Any) -> None:
    described = json.loads(run("quorum", "describe", "--json").out)
    assert list(described) == [*STATUS, "voters", "observers", "endpoints"]
    (leader,) = [each for each in described["voters"] if each["role"] == "leader"]
    assert leader["replica_id"] == described["leader_id"]
    assert leader["lag"] == leader["lag_ms"] == 0
    assert leader["last_fetch_timestamp_iso"].endswith("Z")
    assert described["endpoints"][str(leader["replica_id"])][0]["listener"] == "CONTROLLER"


def test_quorum_describe_shows_one_table_if_it_is_named(run: Any) -> None:
    status = run("quorum", "describe", "--show", "status").out.splitlines()
    assert status[0].split("\t") == [*STATUS, "voters", "observers"]
    assert len(status) == 2
    replication = run("quorum", "describe", "--show", "replication").out.splitlines()
    assert replication[0].startswith("replica_id\tdirectory_id\trole\tlog_end_offset\t")
    both = run("quorum", "describe").out.splitlines()
    assert both[0] == status[0]
    assert replication[0] in both
    code, _, err = run("quorum", "describe", "--show", "nothing")
    assert code == 2
    assert "status" in err


def test_quorum_changes_are_refused_with_voters_that_an_option_lists(run: Any) -> None:
    leader = str(json.loads(run("quorum", "describe", "--json").out)["leader_id"])
    endpoint = ("--endpoint", "CONTROLLER://localhost:9")
    for words in (
        ("add", "77", *endpoint, "--directory-id", SOME_ID),
        ("remove", leader),
        ("remove", leader, "--directory-id", SHORT_ID),
    ):
        code, out, err = run("quorum", *words)
        assert (code, out) == (1, "")
        assert "kraft.version" in err
        assert len(err.splitlines()) == 1


def test_quorum_changes_send_nothing_in_a_dry_run(run: Any) -> None:
    add = ("quorum", "add", "77", "--endpoint", "CONTROLLER://[::1]:9", "--dry-run")
    code, out, err = run(*add, "--directory-id", SOME_ID, "--json")
    assert code == 0
    assert json.loads(out) == [
        {
            "controller_id": 77,
            "directory_id": SHORT_ID,
            "endpoints": [{"listener": "CONTROLLER", "host": "::1", "port": 9}],
        }
    ]
    assert "dry run" in err
    assert run("quorum", "remove", "1", "--directory-id", SHORT_ID, "--dry-run").code == 0
    code, _, err = run("quorum", "remove", "77", "--dry-run")
    assert code == 3
    assert "There is no voter 77." in err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("add", "77"), "--endpoint CONTROLLER://HOST:PORT"),
        (("add", "77", "--endpoint", "localhost:9"), "is not LISTENER://HOST:PORT"),
        (("add", "77", "--endpoint", "CONTROLLER://localhost:9"), "is no observer of the quorum"),
        (("remove",), "ID"),
        (("remove", "one"), "invalid int value: 'one'"),
        (("remove", "1", "--directory-id", "x"), "no id of Kafka"),
    ],
)
def test_quorum_refuses_wrong_use(run: Any, words: tuple[str, ...], text: str) -> None:
    code, out, err = run("quorum", *words)
    assert (code, out) == (2, "")
    assert text in err


def test_quorum_unregister_refuses_voters_and_names_unknown_controllers(run: Any) -> None:
    leader = str(json.loads(run("quorum", "describe", "--json").out)["leader_id"])
    code, _, err = run("quorum", "unregister", leader, "--yes")
    assert code == 2
    assert f"aiokclient quorum remove {leader}" in err
    code, _, err = run("quorum", "unregister", leader, "--yes", "--no-check")
    assert code == 1
    assert "cannot unregister itself" in err
    code, _, err = run("quorum", "unregister", "77", "--yes")
    assert code == 3
    assert "Controller ID 77 is not" in err
    code, _, err = run("quorum", "unregister", "77")
    assert code == 2
    assert "needs --yes" in err

"""Commands with --bootstrap-controller, on the controllers of the embedded cluster (KIP-919).

The same calls are tested on a real Kafka in `tests/behavior/admin/test_controllers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def quorum() -> Iterator[EmbeddedCluster]:
    """A cluster whose three brokers are its controllers."""
    with EmbeddedCluster(3) as cluster:
        yield cluster


@pytest.fixture
def run(quorum: EmbeddedCluster, run_on: Any) -> Any:
    """Type a command for controllers. An environment variable names the brokers."""
    run = run_on(quorum.bootstrap_servers)
    return lambda *words: run(*words, "--bootstrap-controller", quorum.bootstrap_controllers)


def test_controllers_describe_the_quorum_the_cluster_and_features(
    run: Any, run_on: Any, quorum: EmbeddedCluster
) -> None:
    on_brokers = run_on(quorum.bootstrap_servers)
    described = json.loads(run("quorum", "describe", "--json").out)
    assert [each["replica_id"] for each in described["voters"]] == quorum.brokers
    cluster = json.loads(run("cluster", "describe", "--json").out)
    assert cluster["controller_id"] == described["leader_id"]
    assert on_brokers("cluster", "describe", "-q").out == f"{cluster['cluster_id']}\n"
    assert run("brokers", "list", "-q").out == "1\n2\n3\n"
    features = json.loads(run("features", "describe", "--json").out)
    expected = json.loads(on_brokers("features", "describe", "--json").out)
    assert features["finalized"] == expected["finalized"]
    assert run("features", "upgrade", "group.version=1", "--dry-run").code == 0
    assert run("reassign", "list") == (
        0,
        "topic\tpartition\treplicas\tadding\tremoving\ttarget\n",
        "",
    )
    nothing = (0, "", "aiokclient: Nothing is being moved.\n")
    assert run("reassign", "cancel", "-q") == nothing
    assert run("doctor").code == 0


def test_controllers_unregister_neither_running_brokers_nor_voters(run: Any) -> None:
    code, out, err = run("brokers", "unregister", "1", "--yes")
    assert (code, out) == (2, "")
    assert "Broker 1 is running" in err
    assert "--no-check" in err
    assert run("brokers", "unregister", "77", "--yes").code == 3
    assert run("quorum", "unregister", "2", "--yes").code == 2
    assert run("quorum", "unregister", "77", "--yes").code == 3


def test_commands_that_controllers_do_not_answer_do_not_have_the_option(run: Any) -> None:
    for words in (("topics", "list"), ("log-dirs", "describe"), ("transactions", "list")):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert "--bootstrap-controller" in err

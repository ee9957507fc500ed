"""`aiokclient features`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import json
from typing import Any

import pytest

TOOL = "org.apache.kafka.tools.FeatureCommand"
NAME = "transaction.version"


def levels(run: Any) -> dict[str, int]:
    finalized: dict[str, int] = json.loads(run("features", "describe", "--json").out)["finalized"]
    return finalized


def test_features_describe_shows_levels_in_the_cluster_and_of_a_broker(run: Any) -> None:
    described = json.loads(run("features", "describe", "--json").out)
    assert list(described) == ["supported", "finalized", "epoch"]
    assert described["supported"][NAME] == {"lowest": 0, "highest": 2}
    broker = str(json.loads(run("brokers", "list", "--json").out)[0]["node_id"])
    assert json.loads(run("features", "describe", "--node", broker, "--json").out) == described
    lines = run("features", "describe").out.splitlines()
    assert lines[0] == "name\tlowest\thighest\tlevel\trelease\tepoch"
    (metadata,) = [line.split("\t") for line in lines if line.startswith("metadata.version\t")]
    assert metadata[3:5] == ["33", "4.4-IV2"]


def test_features_upgrade_to_the_level_of_the_cluster_succeeds(run: Any) -> None:
    before = levels(run)
    for more in ((), ("--dry-run",)):
        code, out, _ = run("features", "upgrade", f"{NAME}=2", "--json", *more)
        assert code == 0
        assert json.loads(out) == [{"name": NAME, "before": 2, "after": 2}]
    assert levels(run) == before


def test_features_changes_that_are_refused_fail_all_features(run: Any) -> None:
    before = levels(run)
    code, out, err = run("features", "upgrade", f"{NAME}=2", "no.such.feature=1")
    assert (code, out) == (1, "name\tbefore\tafter\n")
    assert [line.split(": ")[1] for line in err.splitlines()] == [NAME, "no.such.feature"]
    code, _, err = run("features", "upgrade", "metadata.version=3.3")
    assert code == 1
    assert "metadata.version" in err
    assert levels(run) == before


def test_features_downgrade_and_disable_need_consent(run: Any) -> None:
    for words in (("downgrade", "no.such=1"), ("disable", "no.such")):
        code, out, err = run("features", *words)
        assert (code, out) == (2, "")
        assert "needs --yes" in err
        code, _, err = run("features", *words, "--unsafe")
        assert code == 2
        assert "Metadata may be lost." in err
        assert run("features", *words, "--yes").code == 1
        assert run("features", *words, "--dry-run").code == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("upgrade",), "--release"),
        (("upgrade", "a"), "is not NAME=LEVEL"),
        (("upgrade", "a=b"), "'b' is no level of a"),
        (("upgrade", "metadata.version=1.0"), "none of the releases"),
        (("upgrade", "a=1", "--release", "4.0"), "--release"),
        (("upgrade", "a=1", "a=2"), "Give one level of a."),
        (("disable",), "NAME"),
        (("of-release", "9.9"), "none of the releases"),
        (("dependencies", "nope=1"), "There is no feature nope."),
        (("dependencies", "kraft.version=9"), "kraft.version has levels 0 to 1."),
    ],
)
def test_features_refuses_wrong_use(run: Any, words: tuple[str, ...], text: str) -> None:
    code, out, err = run("features", *words)
    assert (code, out) == (2, "")
    assert text in err


def test_features_of_release_asks_no_cluster(run_on: Any) -> None:
    run = run_on("127.0.0.1:1")
    rows = json.loads(run("features", "of-release", "4.0", "--json").out)
    assert rows[0] == {"name": "metadata.version", "level": 25, "release": "4.0-IV3"}
    assert {"name": NAME, "level": 2, "release": None} in rows
    assert run("features", "of-release", "4.0.1").out == run("features", "of-release", "4.0").out
    assert "4.4-IV2" in run("features", "of-release").out
    words = ("eligible.leader.replicas.version=1", "metadata.version=4.4")
    rows = json.loads(run("features", "dependencies", *words, "--json").out)
    assert rows == [
        {"name": words[0].split("=")[0], "level": 1, "dependencies": {"metadata.version": 23}},
        {"name": "metadata.version", "level": 33, "dependencies": {}},
    ]

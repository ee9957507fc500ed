"""Each method of Java's Admin beside this one: on the embedded cluster, on one node, and on three.

`make parity` compares all scenarios of `admin_parity.tables`. SCENARIO=text selects those whose
names contain it, and SCENARIO=sample those of `SAMPLE`. RECORD=1 writes the results of Java on
three brokers that test_recorded_calls_of_java.py expects of the embedded cluster, without Java.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from admin_parity.clusters import open_cluster
from admin_parity.java import JavaAdmin
from admin_parity.running import (
    find_refusals,
    has_refusal,
    has_success,
    run_scenarios,
    without_configs,
)
from admin_parity.scenario import ALL
from admin_parity.tables import SAMPLE, SCENARIOS

CHOSEN = os.environ.get("AIOKCLIENT_SCENARIO", "")
RECORDED = Path(__file__).with_name("calls_of_java.json")
RESULTS: dict[str, dict[str, Any]] = {}
"""The results of Java on each cluster, by the names of the scenarios."""


@pytest.fixture(scope="module")
def java_admin(kafka_jars: list[Path]) -> Iterator[JavaAdmin]:
    with JavaAdmin() as java:
        yield java


def test_each_method_of_java_has_scenarios(java_admin: JavaAdmin) -> None:
    declared, callable_ones = java_admin.list_methods()
    assert declared == callable_ones == {each.method for each in SCENARIOS}
    assert len({each.name for each in SCENARIOS}) == len(SCENARIOS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ALL)
async def test_the_results_are_those_of_java(kind: str, java_admin: JavaAdmin) -> None:
    with open_cluster(kind) as cluster:
        outcomes = await run_scenarios(cluster, java_admin, CHOSEN)
    for each in outcomes:
        result = {key: part for key, part in each.theirs.items() if key != "after"}
        RESULTS.setdefault(kind, {})[each.scenario.name] = result
    problems = [text for each in outcomes if (text := each.describe_problem())]
    assert not problems, "\n".join(problems)


@pytest.mark.skipif(bool(CHOSEN), reason="some scenarios were chosen")
def test_each_method_succeeds_and_is_refused() -> None:
    """Each method has a scenario with a success and one with a refusal."""
    results = [(name.split(",")[0], each) for name, each in RESULTS["kafka3"].items()]
    succeeded = {method for method, each in results if has_success(each)}
    refused = {method for method, each in results if has_refusal(each)}
    methods = {each.method for each in SCENARIOS}
    assert methods - succeeded == set(NEVER_SUCCEED)
    assert methods - refused == set(NEVER_REFUSED)


def test_the_embedded_cluster_refuses_what_a_real_one_refuses() -> None:
    for each in SCENARIOS:
        results = [RESULTS[kind].get(each.name) for kind in ("embedded", "kafka3")]
        if None not in results and not each.elsewhere and not each.differs:
            ours, theirs = map(find_refusals, results)
            assert ours == theirs, each.name


def test_record_the_results_of_java() -> None:
    """Compare the recorded results with those of Java on three brokers, or record them."""
    results = RESULTS["kafka3"]
    found = {name: without_configs(results[name]) for name in SAMPLE if name in results}
    if os.environ.get("AIOKCLIENT_RECORD"):
        RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    recorded = json.loads(RECORDED.read_text())
    assert found == {name: recorded[name] for name in found}


NEVER_SUCCEED = {
    "addRaftVoter": "the voters of the tests are those of an option",
    "removeRaftVoter": "as addRaftVoter",
    "unregisterBroker": "the cluster would lose a broker",
    "unregisterController": "the cluster would lose its controller",
}
NEVER_REFUSED = {
    "describeCluster": "every user may read it",
    "describeReplicaLogDirs": "Java returns replicas without directories",
    "listConsumerGroups": "a user without permission gets an empty list",
    "listGroups": "as listConsumerGroups",
    "listTopics": "as listConsumerGroups",
    "metrics": "nothing is sent",
    "unregisterMetricFromSubscription": "nothing is sent",
}

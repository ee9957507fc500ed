"""A random walk of admin calls on three real brokers, which are killed in between (`make walk`)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from admin_walk import real
from kafka_harness import KafkaCluster

SEED = int(os.environ.get("AIOKCLIENT_WALK_SEED") or 1)
CALLS = int(os.environ.get("AIOKCLIENT_WALK_CALLS") or 500)

pytestmark = pytest.mark.walk


@pytest.fixture(scope="module")
def cluster(java: str) -> Iterator[KafkaCluster]:
    with real.start_cluster() as cluster:
        yield cluster


@pytest.mark.timeout(0)
def test_real_brokers_are_as_the_results_of_a_walk_say(cluster: KafkaCluster) -> None:
    report = real.run(cluster, SEED, CALLS, lambda line: print(line, flush=True))  # noqa: T201
    print(f"seed {SEED}: {report}")  # noqa: T201
    assert sum(report.calls.values()) == CALLS

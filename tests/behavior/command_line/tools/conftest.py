"""A real Kafka of two brokers for both command lines, and the check that what is claimed is typed.

A test in this folder that passes must have typed all options of the tools, and their counterparts,
of the rows in options.csv that name it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster, ToolHost
from tool_sides import Sides, read_table

Run = Callable[..., Any]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.sasl."
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:tool-ops",
    "delegation.token.secret.key": "a-test-secret",
    # On a loaded machine, a broker must not count as dead while it gets no processor time.
    "broker.session.timeout.ms": "6000",
    # Some tests write records that belong to no transaction of a coordinator.
    "transaction.partition.verification.enable": "false",
    f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    f"{PREFIX}scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    f"{PREFIX}scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
}


@pytest.fixture(scope="package")
def tool_kafka(java: str) -> Iterator[KafkaCluster]:
    """Two brokers and a controller, with an authorizer, and a listener SASL for logins.

    Each broker has two directories for logs.
    """
    listeners = {"SASL": "SASL_PLAINTEXT"}
    with KafkaCluster(KAFKA, 2, properties=PROPERTIES, listeners=listeners, log_dirs=2) as cluster:
        yield cluster


@pytest.fixture
def sides(tool_kafka: KafkaCluster, tool_host: ToolHost, run_on: Callable[[str], Run]) -> Sides:
    """Both command lines for `tool_kafka`."""
    return Sides(tool_host, run_on(tool_kafka.bootstrap), tool_kafka.bootstrap)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Check that a test which has passed typed what the table says that it compares."""
    result = yield
    if sides := pyfuncitem.funcargs.get("sides"):
        claimed = [each for each in read_table() if each.compared_by == pyfuncitem.name]
        assert sides.untyped(claimed) == [], "the table names this test, which did not type that"
    return result

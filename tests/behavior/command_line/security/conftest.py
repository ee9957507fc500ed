"""A cluster with an authorizer and logins: embedded, and a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from aiokclient.testing import BrokerListener, EmbeddedCluster

Run = Callable[..., Any]
CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a-test-secret",
}


class Secured(NamedTuple):
    """The servers of a cluster. At `bootstrap`, clients are super users; at `sasl`, they log in."""

    bootstrap: str
    sasl: str


@pytest.fixture(scope="package", params=["embedded", "kafka"])
def secured(request: pytest.FixtureRequest) -> Iterator[Secured]:
    if request.param == "embedded":
        listeners = {"SASL": BrokerListener(mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"))}
        with EmbeddedCluster(listeners=listeners, configs=CONFIGS) as cluster:
            yield Secured(cluster.bootstrap_servers, cluster.bootstrap_servers_for("SASL"))
        return
    kafka = request.getfixturevalue("kafka_secured")
    yield Secured(kafka.bootstrap, kafka.listener("SASL"))


@pytest.fixture
def run_secured(secured: Secured, run_on: Callable[[str], Run]) -> Run:
    """Type a command as a super user of the cluster with an authorizer."""
    return run_on(secured.bootstrap)

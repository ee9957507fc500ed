"""When a broker that cannot check the ids itself must name its cluster."""

from typing import Any

import pytest

from aiokclient.cluster.identity import ClusterIdentity
from aiokclient.config.client import ClientConfig
from aiokclient.protocol.messages.metadata import MetadataResponse


def identity(change: str = "accept", **options: Any) -> ClusterIdentity:
    config = ClientConfig(bootstrap_servers="localhost:9092", cluster_id_change=change, **options)
    return ClusterIdentity(config, lambda found: None)


@pytest.mark.parametrize("change", ["accept", "fail"])
def test_no_broker_is_asked_before_the_cluster_is_known(change: str) -> None:
    made = identity(change)
    made.doubt()
    assert not made.doubts(1)


@pytest.mark.parametrize("change", ["accept", "fail"])
def test_bootstrap_servers_are_not_asked(change: str) -> None:
    made = identity(change)
    made.adopt(MetadataResponse(cluster_id="c"))
    made.doubt()
    assert made.doubts(0)
    assert made.doubts(1)
    assert not made.doubts(-1)


def test_brokers_are_asked_from_an_outage_to_the_next_metadata() -> None:
    made = identity()
    made.adopt(MetadataResponse(cluster_id="c"))
    assert not made.doubts(1)
    made.doubt()
    assert made.doubts(1)
    made.confirm()
    assert not made.doubts(1)


def test_brokers_are_always_asked_if_another_cluster_is_an_error() -> None:
    made = identity("fail")
    made.adopt(MetadataResponse(cluster_id="c"))
    assert made.doubts(1)
    made.confirm()
    assert made.doubts(1)

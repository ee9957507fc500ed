"""The moments at which connections and brokers must show their cluster, and what follows."""

from typing import Any, cast

import pytest

from aiokclient.cluster.metadata.requests import ClusterIdentity
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ClusterChangedError
from aiokclient.protocol.messages.metadata import MetadataResponse


class Requests:
    """The metadata requests of a client, which are told about other clusters."""

    def __init__(self) -> None:
        self.others: list[MetadataResponse] = []

    def on_other_cluster(self, found: MetadataResponse) -> None:
        self.others.append(found)


def identity(change: str = "accept", **options: Any) -> ClusterIdentity:
    config = ClientConfig(bootstrap_servers="localhost:9092", cluster_id_change=change, **options)
    return ClusterIdentity(config, cast(Any, Requests()))


@pytest.mark.parametrize("change", ["accept", "fail"])
def test_no_broker_is_asked_before_the_cluster_is_known(change: str) -> None:
    made = identity(change)
    made.doubt_cluster()
    assert not made.is_in_doubt(1)


@pytest.mark.parametrize("change", ["accept", "fail"])
def test_bootstrap_servers_are_not_asked(change: str) -> None:
    made = identity(change)
    made.adopt_cluster(MetadataResponse(cluster_id="c"))
    made.doubt_cluster()
    assert made.is_in_doubt(0)
    assert made.is_in_doubt(1)
    assert not made.is_in_doubt(-1)


def test_brokers_are_asked_from_an_outage_to_the_next_metadata() -> None:
    made = identity()
    made.adopt_cluster(MetadataResponse(cluster_id="c"))
    assert not made.is_in_doubt(1)
    made.doubt_cluster()
    assert made.is_in_doubt(1)
    made.confirm_cluster()
    assert not made.is_in_doubt(1)


def test_brokers_are_always_asked_if_another_cluster_is_an_error() -> None:
    made = identity("fail")
    made.adopt_cluster(MetadataResponse(cluster_id="c"))
    assert made.is_in_doubt(1)
    made.confirm_cluster()
    assert made.is_in_doubt(1)


# -- what is asked of connections


def answer_of(cluster_id: str | None) -> MetadataResponse:
    return MetadataResponse(cluster_id=cluster_id)


@pytest.mark.parametrize(
    ("options", "checks"),
    [
        ({}, True),
        ({"metadata_recovery_strategy": "none"}, False),
        ({"metadata_cluster_check_enable": False}, False),
    ],
)
def test_connections_carry_the_ids_only_when_a_rebootstrap_could_follow(
    options: dict[str, Any], checks: bool
) -> None:
    found = identity(**options)
    assert found.checks is checks
    assert found.expected_ids(1) is None, "the cluster is not known yet"
    found.adopt_cluster(answer_of("c"))
    assert found.expected_ids(0) == (("c", 0) if checks else None)
    assert found.expected_ids(-1) is None, "a bootstrap server may be any broker"


def test_only_a_broker_of_another_cluster_is_an_error() -> None:
    requests = Requests()
    config = ClientConfig(bootstrap_servers="localhost:9092")
    found = ClusterIdentity(config, cast(Any, requests))
    other = answer_of("d")
    assert found.compare_ids(1, "b:9092", other) is None, "no cluster is known"
    found.adopt_cluster(answer_of("c"))
    found.adopt_cluster(answer_of(None))
    assert found.cluster_id == "c"
    assert found.compare_ids(1, "b:9092", answer_of("c")) is None
    assert found.compare_ids(1, "b:9092", answer_of(None)) is None
    assert requests.others == []
    error = found.compare_ids(1, "b:9092", other)
    assert "in the cluster d, and broker 1 is in the cluster c" in str(error)
    assert requests.others == [other]
    assert found.is_other_cluster(other)
    assert not found.is_other_cluster(answer_of("c"))


def test_another_cluster_is_adopted_unless_that_must_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strict, lenient = identity("fail"), identity()
    for found in (strict, lenient):
        found.adopt_cluster(answer_of("c"))
        found.adopt_cluster(answer_of("c"))
    assert caplog.records == []
    with pytest.raises(ClusterChangedError) as caught:
        strict.adopt_cluster(answer_of("d"))
    assert (caught.value.old_cluster_id, caught.value.new_cluster_id) == ("c", "d")
    assert strict.cluster_id == "c"
    lenient.adopt_cluster(answer_of("d"))
    assert lenient.cluster_id == "d"
    assert [record.__dict__["event"] for record in caplog.records] == ["cluster_changed"]

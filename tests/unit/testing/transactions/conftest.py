"""A producer that sends raw requests, and a real Kafka whose features a test may change."""

import pytest
from kafka_harness import KAFKA, KafkaCluster
from txn_raw import Txn


class OneBroker:
    """A broker of an embedded cluster, to which a producer connects."""

    def __init__(self, wire, address):
        self.wire, self.address = wire, address

    def again(self):
        return self.wire.at(self.address)


@pytest.fixture(scope="session")
def kafka_of_levels(java):
    """A real broker, whose level of transaction.version each test changes before all else."""
    with KafkaCluster(KAFKA) as cluster:
        yield cluster


@pytest.fixture
def txn_on(wire_to):
    """Return `txn_on(cluster, level, id)`, a raw producer that uses one broker of a cluster."""

    def make(cluster, level=2, id=None, *, broker=1):
        return Txn(OneBroker(wire_to(cluster), cluster.address(broker)), level, id)

    return make

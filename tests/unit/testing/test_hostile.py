"""Tests that brokers answer invalid requests or close the connection, and stay consistent."""

import random
import uuid

import pytest

from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey
from aiokclient.protocol.api import request_class
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.handlers import list_handled

EDGES = {
    "int8": (-128, -1, 0, 1, 2, 4, 127),
    "int16": (-(1 << 15), -1, 0, 1, 2, 3, (1 << 15) - 1),
    "uint16": (0, 1, (1 << 16) - 1),
    "int32": (-(1 << 31), -2, -1, 0, 1, 2, 100, 20_000, (1 << 31) - 1),
    "int64": (-(1 << 63), -5, -2, -1, 0, 1, 2, 3, 1 << 40, (1 << 63) - 1),
    "boolean": (True, False),
    "float64": (-1.0, 0.0, 1e-300, 1.0, 1e300, float("inf"), float("nan")),
    "string": ("orders", "orders", "", "nothing", "1", "retention.ms", "5", "delete", "é" * 300),
}
EDGES["bytes"] = (b"", b"orders", b"\0\1", b"\xff" * 300)
HELD_APIS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
WAITS = ("max_wait_ms", "timeout_ms")
ROUNDS = 60


class Sender:
    """A sender of requests of any API, whose fields have extreme values."""

    def __init__(self, cluster, wire, seed):
        self.rng = random.Random(seed)
        self.wire = wire
        self.ids = [cluster.topic_id("orders"), uuid.UUID(int=0), uuid.UUID(int=77)]

    def message(self, cls, version):
        message = cls()
        for field in cls._fields:
            if field.present_in(version) and self.rng.random() < 0.8:
                setattr(message, field.name, self.value(field, version))
        return message

    def value(self, field, version):
        if field.nullable_in(version) and self.rng.random() < 0.2:
            return None
        if field.name in WAITS:
            return self.rng.choice((-1, 0, 1))
        if field.kind == "array":
            count = self.rng.choice((0, 1, 1, 2, 3))
            return [self.element(field.element, version) for _ in range(count)]
        if field.kind == "struct":
            return self.message(field.element, version)
        return self.scalar(field.kind)

    def element(self, element, version):
        if isinstance(element, type):
            return self.message(element, version)
        return self.scalar(element.kind)

    def scalar(self, kind):
        if kind == "uuid":
            return self.rng.choice(self.ids)
        if kind == "records":
            batch = bytearray(self.wire.batch(b"a", b"b", producer=(1, 0, self.rng.randrange(4))))
            if self.rng.random() < 0.7:
                batch[self.rng.randrange(len(batch))] ^= 1 << self.rng.randrange(8)
            return bytes(batch)
        return self.rng.choice(EDGES[kind])

    def send(self, api, connection):
        """Send a random request.

        Return False if the connection cannot be used after it.
        """
        cls = request_class(api)
        version = self.rng.randint(*list_handled()[api])
        if version < cls.min_version:
            return True
        request = self.message(cls, version)
        if api in HELD_APIS:
            connection.socket.settimeout(0.02)
        try:
            if getattr(request, "acks", None) == 0:
                connection.send(request, version, expect=False)
            else:
                connection.request(request, version)
        except (EOFError, BrokenPipeError, ConnectionResetError, TimeoutError):
            # The broker closed the connection, or holds the request.
            return False
        except KafkaError:
            # This version cannot encode the request.
            return True
        return True


@pytest.fixture
def small():
    """Run a small cluster. The test fails at its end if a broker could not handle a request."""
    with EmbeddedCluster(2, {"orders": 2}, seed=1) as cluster:
        cluster.produce("orders", [b"v"] * 5)
        yield cluster


@pytest.mark.parametrize("api", list_handled(), ids=lambda api: ApiKey(api).name)
def test_brokers_survive_extreme_values(small, wire_to, api):
    wire = wire_to(small)
    sender = Sender(small, wire, f"{api}")
    connection = wire.to(1)
    for _ in range(ROUNDS):
        if "orders" not in small.topics:
            small.create_topic("orders", 2)
            sender.ids[0] = small.topic_id("orders")
        if not sender.send(api, connection):
            connection = wire.to(sender.rng.choice((1, 2)))


@pytest.mark.parametrize("api", list_handled(), ids=lambda api: ApiKey(api).name)
def test_names_of_the_maximum_length_are_answered(small, wire_to, api):
    wire = wire_to(small)
    sender = Sender(small, wire, f"long {api}")
    sender.scalar = lambda kind: (
        "\u00e9" * 16_383 if kind == "string" else Sender.scalar(sender, kind)
    )
    connection = wire.to(1)
    for _ in range(20):
        if not sender.send(api, connection):
            connection = wire.to(sender.rng.choice((1, 2)))


def test_brokers_survive_any_bytes(small, wire_to):
    wire, rng = wire_to(small), random.Random(5)
    for _ in range(300):
        connection = wire.to(1)
        api = rng.choice(list(list_handled()))
        body = (
            int(api).to_bytes(2, "big")
            + rng.randrange(14).to_bytes(2, "big")
            + rng.randbytes(rng.randrange(60))
        )
        connection.socket.sendall(len(body).to_bytes(4, "big") + body)
        connection.socket.close()
    assert wire.to(1).request(request_class(ApiKey.METADATA)()).brokers

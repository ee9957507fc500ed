"""Tests that hostile clients cannot harm the embedded cluster with pushes of metrics.

The cluster stays within its memory limits, answers all other requests, and raises no errors.
"""

from __future__ import annotations

import os
import random
import tracemalloc
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import zstandard
from parity import named

from aiokclient.config.codecs import Compression
from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver
from aiokclient.testing.broker.telemetry.instances import MOST_INSTANCES, ClientInstances
from aiokclient.testing.broker.telemetry.subscriptions import MetricsSubscriptions

ID = uuid.UUID(int=0x1234)
GIB = 1 << 30
MIB = 1 << 20
ROUNDS = 8 if os.environ.get("AIOKCLIENT_EXPLORE") else 2
"""Rounds of 116,000 instances each, a second apart."""


def gzip_bomb(size: int) -> bytes:
    """Return gzip members of zeros. One compressed byte stands for about 1,000 bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return (packer.compress(bytes(size // 16)) + packer.flush()) * 16


def zstd_bomb(size: int) -> bytes:
    """Return zstd frames of zeros. One compressed byte stands for about 10,000 bytes."""
    return bytes(zstandard.ZstdCompressor(level=1).compress(bytes(size // 16)) * 16)


def repeated_zstd_bomb(size: int) -> bytes:
    """Return a zstd frame that repeats one byte. Each byte of the frame stands for 32,768."""
    most = 128 << 10
    header = b"\x28\xb5\x2f\xfd" + bytes([0x00, 0x58])
    blocks = size // most
    content = b"".join(
        ((most << 3 | 1 << 1 | (number == blocks - 1)).to_bytes(3, "little") + b"\0")
        for number in range(blocks)
    )
    return header + content


def snappy_bomb(size: int) -> bytes:
    """Return a raw block that announces a larger size than it has."""
    announced = bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128])
    return announced + bytes([size >> 21 & 127 | 128, size >> 28]) + b"\0" * 1000


def lz4_bomb(size: int) -> bytes:
    packer = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB)
    parts = [packer.begin(size)]
    parts += [packer.compress(bytes(4 * MIB)) for _ in range(size // (4 * MIB))]
    return bytes(b"".join(parts) + packer.flush())


BOMBS: dict[str, tuple[Compression, Callable[[int], bytes], int]] = {
    "gzip": (Compression.GZIP, gzip_bomb, GIB),
    "zstd": (Compression.ZSTD, zstd_bomb, GIB),
    "zstd of repeated blocks": (Compression.ZSTD, repeated_zstd_bomb, GIB),
    "snappy": (Compression.SNAPPY, snappy_bomb, GIB),
    "lz4": (Compression.LZ4, lz4_bomb, GIB // 8),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_without_using_the_memory(name: str, broker: Any, collector: Any) -> None:
    codec, make, size = BOMBS[name]
    bomb = make(size)
    assert len(bomb) <= MIB
    client = broker.client()
    number = client.ask(ID).subscription_id
    tracemalloc.start()
    try:
        assert client.push(ID, number, bomb, codec=codec) == "INVALID_RECORD"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The memory is for the request, the response, and at most twice the allowed content.
    assert peak < 3 * len(bomb) + 4 * MIB
    assert collector.pushes == []
    assert broker.names() == []


def test_metrics_that_are_not_otlp_are_passed_on(broker: Any, collector: Any) -> None:
    # Kafka's brokers do not decode pushed metrics either.
    client = broker.client()
    garbage = random.Random(1).randbytes(1000)
    assert client.push(ID, client.ask(ID).subscription_id, garbage) == "ok"
    assert [payload.data for _, payload in collector.pushes] == [garbage]


def test_bytes_that_are_not_of_the_codec_are_refused(broker: Any, collector: Any) -> None:
    rng = random.Random(2)
    for number in range(200):
        client = broker.client()
        identity = uuid.UUID(int=rng.getrandbits(128))
        subscription_id = client.ask(identity).subscription_id
        garbage = rng.randbytes(rng.randrange(1, 2000))
        codec = 1 + number % 4
        assert client.push(identity, subscription_id, garbage, codec=codec) == "INVALID_RECORD"
        client.connection.socket.close()
    assert collector.pushes == []


def test_the_number_of_instances_of_one_connection_is_bounded(
    telemetry_cluster: Any, broker: Any
) -> None:
    broker.subscribe("all", metrics="*")
    connection, rng = broker.client().connection, random.Random(3)
    for _ in range(17):
        requests = [
            messages.GetTelemetrySubscriptionsRequest(
                client_instance_id=uuid.UUID(int=rng.getrandbits(128))
            )
            for _ in range(1000)
        ]
        connection.send_all(*requests)
        assert {connection.receive().error_code for _ in requests} == {0}
    instances = telemetry_cluster._brokers[1].client_instances
    assert len(instances) == MOST_INSTANCES
    connection.socket.close()


def test_the_memory_for_very_many_instances_is_bounded() -> None:
    subscriptions, now = MetricsSubscriptions(), [0.0]
    subscriptions.find_configs("all").apply_changes({"metrics": "*"})
    instances = ClientInstances(lambda: now[0])

    def use(first: int, count: int) -> None:
        for number in range(first, first + count):
            instance = instances.use_instance(uuid.UUID(int=number), number, subscriptions, dict)
            assert instance.on_push(now[0], 0, terminating=False, known_codec=True, fits=True)

    use(0, 2 * MOST_INSTANCES)
    tracemalloc.start()
    try:
        use(MIB, 20_000)
        before, _ = tracemalloc.get_traced_memory()
        use(2 * MIB, 20_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < MIB
    for first in range(3, 3 + ROUNDS):
        use(first * MIB, 116_000)
        now[0] += 1.0
    assert len(instances) == MOST_INSTANCES


def test_a_pattern_that_is_slow_to_match_does_not_block_the_brokers(broker: Any) -> None:
    broker.subscribe("slow", metrics="a", match="client_id=(a+)+b")
    client = broker.client("a" * 30_000)
    assert list(client.ask(ID).requested_metrics) == []


def test_random_requests_are_answered(broker: Any) -> None:
    rng = random.Random(4)
    client = broker.client()
    codes = set()
    for _ in range(2000):
        request = messages.PushTelemetryRequest(
            client_instance_id=uuid.UUID(int=rng.choice((0, 1, 2, rng.getrandbits(128)))),
            subscription_id=rng.choice((0, -(1 << 31), (1 << 31) - 1)),
            terminating=rng.random() < 0.5,
            compression_type=rng.randrange(-128, 128),
            metrics=rng.randbytes(rng.choice((0, 1, 100))),
        )
        codes.add(named(client.connection.request(request).error_code))
    assert codes >= {"INVALID_REQUEST", "UNKNOWN_SUBSCRIPTION_ID", "THROTTLING_QUOTA_EXCEEDED"}


def test_a_full_topic_of_metrics_is_bounded(telemetry_broker: Any) -> None:
    receiver = TopicTelemetryReceiver("metrics")
    with EmbeddedCluster(telemetry=receiver, retention_bytes=4 * MIB) as cluster:
        broker = telemetry_broker(cluster.address(1))
        for number in range(2, 42):
            client, identity = broker.client(), uuid.UUID(int=number)
            data = bytes(900_000)
            assert client.push(identity, client.ask(identity).subscription_id, data) == "ok"
            client.connection.socket.close()
        kept = sum(len(record.value or b"") for record in cluster.records("metrics", 0))
        assert kept <= 24 * MIB  # The limit includes the active segment.

"""Tests of subscriptions, with valid and invalid responses of brokers."""

import random

import pytest

from aiokclient.config.codecs import Compression
from aiokclient.protocol.messages import GetTelemetrySubscriptionsResponse
from aiokclient.telemetry.subscription import NamePrefixes, subscription_of

NAMES = ["org.apache.kafka.producer.a", "org.apache.kafka.consumer.b", "mine", ""]


def response(**more: object) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(**{"push_interval_ms": 1000, **more})


@pytest.mark.parametrize(
    ("requested", "wanted"),
    [
        (["*"], NAMES),
        ([""], NAMES),
        (["nothing", "*"], NAMES),
        ([], []),
        (["*a"], []),
        (["org.apache.kafka.producer."], NAMES[:1]),
        (["org.apache.kafka.producer.a.b"], []),
        (["org.apache", "org.apache.kafka.producer", "mine"], NAMES[:3]),
        (["m", "mine", "minerva"], ["mine"]),
        (["x" * 100_000_000, "mine"], ["mine"]),
    ],
)
def test_names_with_a_requested_prefix_are_wanted(requested: list[str], wanted: list[str]) -> None:
    subscription = subscription_of(response(requested_metrics=requested))
    assert [name for name in NAMES if name in subscription.names] == wanted


def test_prefixes_match_as_startswith_does() -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        texts = ["".join(rng.choices("ab.", k=rng.randrange(5))) for _ in range(12)]
        prefixes, names = texts[: rng.randrange(6)], texts[6:]
        for name in names:
            assert (name in NamePrefixes(prefixes)) == name.startswith(tuple(prefixes))


@pytest.mark.parametrize(
    ("interval_ms", "seconds"),
    [(0, 300), (-1, 300), (-(2**31), 300), (1, 0.1), (100, 0.1), (2**31 - 1, (2**31 - 1) / 1000)],
)
def test_interval_is_usable(interval_ms: int, seconds: float) -> None:
    assert subscription_of(response(push_interval_ms=interval_ms)).interval_s == seconds


@pytest.mark.parametrize(("size", "limit"), [(0, 2**20), (-5, 2**20), (7, 7), (2**31 - 1,) * 2])
def test_size_is_usable(size: int, limit: int) -> None:
    assert subscription_of(response(telemetry_max_bytes=size)).max_bytes == limit


def test_unknown_compressions_are_left_out_and_the_order_is_kept() -> None:
    accepted = [-1, 3, 0, 77, 4, 3, *[100] * 1000, 1]
    subscription = subscription_of(response(accepted_compression_types=accepted))
    assert subscription.codecs == (Compression.LZ4, Compression.ZSTD)


def test_a_million_prefixes_are_shortened() -> None:
    requested = [f"org.apache.kafka.{number}" for number in range(1_000_000)]
    subscription = subscription_of(response(requested_metrics=requested))
    assert subscription.shortened
    assert "org.apache.kafka.17.x" in subscription.names
    assert "mine" not in subscription.names

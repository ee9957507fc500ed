"""Options that do not exist, have a wrong value, or contradict each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, Producer
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.errors import ConfigError

Make = Callable[..., Lifecycle]


async def later(*_: Any) -> bytes:
    return b""


class Later:
    async def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
        return b""

    async def deserialize(self, topic: str, data: bytes, headers: Any) -> Any: ...

    async def __call__(self, error: Exception) -> Any: ...


OPTIONS: list[tuple[Make, dict[str, Any], str]] = [
    (Producer, {"linger": 5}, "linger is not an option. Did you mean linger_ms?"),
    (Producer, {"bootstrap_server": "h:1"}, "Did you mean bootstrap_servers?"),
    (Consumer, {"auto_offset_rest": "latest"}, "Did you mean auto_offset_reset?"),
    (Consumer, {"linger_ms": 5}, "linger_ms is not an option"),
    (Admin, {"acks": 1}, "acks is not an option"),
    (Producer, {"retries": 3}, "Retries continue until delivery_timeout_ms"),
    (Producer, {"sasl_mechanism": "PLAIN"}, "sasl_mechanism needs security_protocol=SASL_SSL"),
    (Consumer, {"group_id": ""}, "group_id: It is empty. Name a group, or leave it out"),
    (Consumer, {"group_instance_id": "a"}, "group_instance_id: It needs a group_id"),
    (Consumer, {"group_id": "g", "group_instance_id": "a b"}, "'a b' is not allowed. It must be"),
    (Consumer, {"group_protocol": "consumer"}, "group_protocol: 'consumer' needs a group_id"),
    (Consumer, {"group_remote_assignor": "uniform"}, "It needs group_protocol='consumer'"),
    (
        Consumer,
        {"group_id": "g", "group_protocol": "consumer", "session_timeout_ms": 10_000},
        "session_timeout_ms: It cannot be set with group_protocol='consumer'. The brokers decide",
    ),
    (
        Consumer,
        {
            "group_id": "g",
            "group_protocol": "consumer",
            "partition_assignment_strategy": "roundrobin",
        },
        "cannot be set with group_protocol='consumer'. .* see group_remote_assignor",
    ),
    (Producer, {"transactional_id": ""}, "transactional_id: It is empty. Name the producer"),
    (Producer, {"acks": 2}, "acks: 2 is not allowed. It must be one of 'all', 0 and 1"),
    (Producer, {"compression_type": "brotli"}, "one of 'none', 'gzip', 'snappy', 'lz4' and 'zstd'"),
    (Producer, {"linger_ms": "5"}, "linger_ms: '5' is not allowed. It must be an integer"),
    (Producer, {"acks": 1, "enable_idempotence": True}, "enable_idempotence: It needs acks='all'"),
    (
        Producer,
        {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
        "enable_idempotence: It needs max_in_flight_requests_per_connection of at most 5",
    ),
    (Producer, {"value_serializer": "json"}, "a function, or an object with serialize"),
    (Producer, {"value_serializer": later}, "because it is called without await"),
    (Producer, {"key_serializer": Later()}, "because it is called without await"),
    (Producer, {"on_delivery_error": later}, "on_delivery_error: .* It must be an ordinary"),
    (Producer, {"partitioner": later}, "partitioner: .* It must be an ordinary"),
    (Consumer, {"value_deserializer": later}, "value_deserializer: .* It must be an ordinary"),
    (Consumer, {"key_deserializer": Later()}, "key_deserializer: .* It must be an ordinary"),
    (Consumer, {"on_record_error": Later()}, "on_record_error: .* It must be an ordinary"),
    (Client, {"security": "SSL"}, r"It must be Plaintext\(\), Tls\(...\), an ssl.SSLContext"),
    (Client, {"bootstrap_servers": "localhost"}, "'localhost' is not host:port"),
    (Client, {"bootstrap_servers": ()}, "Give the address, host:port"),
    (Consumer, {"auto_offset_reset": "first"}, "'earliest', 'latest', 'none' or 'by_duration:'"),
]


@pytest.mark.parametrize(("make", "options", "text"), OPTIONS)
def test_bad_options_of_clients_are_refused(make: Make, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make(**{"bootstrap_servers": "localhost:9092", **options})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"linger.millis": "5"}, "linger.millis is not an option. Did you mean linger.ms?"),
        ({"linger_ms": "5"}, "linger_ms is not an option. Did you mean linger.ms?"),
        ({"linger.ms": "five"}, "linger.ms: 'five' is not allowed. It must be an integer"),
        ({"compression.type": "brotli"}, "compression.type: 'brotli'"),
    ],
)
def test_bad_properties_are_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer.from_properties({"bootstrap.servers": "localhost:9092", **properties})


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
def test_options_of_the_shared_client_are_refused(make: Make) -> None:
    client = Client(bootstrap_servers="localhost:9092")
    with pytest.raises(ConfigError, match="reconnect_backoff_ms is an option of the client"):
        make(client=client, reconnect_backoff_ms=5)


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
@pytest.mark.parametrize("given", ["localhost:9092", Client, object()])
def test_client_must_be_a_client(make: Make, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"client: .* is not an aiokclient\.Client"):
        make(client=given)

"""Options as keyword arguments and under Kafka's names, and the texts of ConfigError."""

import ssl
from typing import Any

import pytest

from aiokclient import Admin, Client, Plaintext, Producer, State, Tls
from aiokclient.errors import ConfigError, KafkaError
from aiokclient.testing import EmbeddedCluster

SERVERS = "localhost:9092"


class TestProperties:
    async def test_from_properties_takes_kafkas_names_and_texts(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        producer: Producer[Any, Any] = Producer.from_properties(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "client.id": "props",
                "acks": "all",
                "linger.ms": "0",
                "batch.size": "1000",
                "compression.type": "gzip",
                "enable.idempotence": "true",
                "delivery.timeout.ms": "30000",
                "max.in.flight.requests.per.connection": "1",
                "security.protocol": "PLAINTEXT",
            }
        )
        async with producer:
            assert (await producer.send(topic, b"v")).offset == 0
        assert cluster.requests[-1].client_id == "props"

    @pytest.mark.parametrize("kind", [Producer, Admin, Client])
    async def test_all_clients_have_from_properties(
        self, cluster: EmbeddedCluster, kind: Any
    ) -> None:
        async with kind.from_properties({"bootstrap.servers": cluster.bootstrap_servers}) as made:
            assert made.state is State.RUNNING

    async def test_from_properties_takes_functions_as_keywords(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        properties = {"bootstrap.servers": cluster.bootstrap_servers}
        made: Any = Producer.from_properties(properties, value_serializer=str.encode)
        async with made as producer:
            assert (await producer.send(topic, "text")).offset == 0

    @pytest.mark.parametrize(
        ("name", "nearest"),
        [
            ("linger.mss", "linger.ms"),
            ("bootstrap.server", "bootstrap.servers"),
            ("bootstrap_servers", "bootstrap.servers"),
            ("compresion.type", "compression.type"),
            ("ack", "acks"),
        ],
    )
    def test_an_unknown_property_is_refused(self, name: str, nearest: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Producer.from_properties({"bootstrap.servers": SERVERS, name: "1"})
        assert name in str(caught.value)
        assert nearest in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, KafkaError)

    @pytest.mark.parametrize(
        ("name", "text", "allowed"),
        [
            ("acks", "2", "all"),
            ("linger.ms", "soon", "integer"),
            ("linger.ms", "-1", "0"),
            ("enable.idempotence", "yes", "True or False"),
            ("compression.type", "brotli", "zstd"),
            ("bootstrap.servers", "nowhere", "host:port"),
            ("bootstrap.servers", "", "host:port"),
            ("security.protocol", "TLS", "SSL"),
            ("value.serializer", "org.apache.kafka.StringSerializer", "a function"),
        ],
    )
    def test_a_bad_property_value_is_refused(self, name: str, text: str, allowed: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Producer.from_properties({"bootstrap.servers": SERVERS, name: text})
        for part in (name, allowed):
            assert part in str(caught.value)


class TestKeywords:
    def test_options_have_their_defaults(self) -> None:
        options = Producer(bootstrap_servers=SERVERS)._options
        assert options.acks == -1
        assert options.enable_idempotence is True
        assert options.max_in_flight_requests_per_connection == 5
        assert options.delivery_timeout_ms == 120_000
        assert options.linger_ms == 5
        assert options.compression_type == "none"
        assert options.buffer_memory == 32 * 1024 * 1024
        assert options.max_block_ms == 60_000
        assert options.default_api_timeout_ms == 60_000
        assert options.close_timeout_ms == 5_000

    @pytest.mark.parametrize("kind", [Producer, Admin, Client])
    def test_an_unknown_option_is_refused(self, kind: Any) -> None:
        with pytest.raises(ConfigError, match="Did you mean client_id"):
            kind(bootstrap_servers=SERVERS, clientid="x")

    @pytest.mark.parametrize("kind", [Producer, Admin, Client])
    def test_bootstrap_servers_are_accepted_in_all_forms(self, kind: Any) -> None:
        for servers in (
            "a:1",
            "a:1,b:2",
            ["a:1", "b:2"],
            [("a", 1)],
            "[::1]:9092",
            "PLAINTEXT://a:1",
        ):
            assert kind(bootstrap_servers=servers).state is State.NEW

    async def test_empty_bootstrap_servers_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="bootstrap_servers"):
            await Producer().start()

    @pytest.mark.parametrize(
        "security", [Plaintext(), Tls(), ssl.create_default_context()], ids=["none", "tls", "own"]
    )
    def test_security_accepts_its_classes_and_ssl_contexts(self, security: Any) -> None:
        assert Client(bootstrap_servers=SERVERS, security=security).state is State.NEW

    async def test_options_of_a_shared_client_are_refused(self, cluster: EmbeddedCluster) -> None:
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            with pytest.raises(ConfigError, match="bootstrap_servers"):
                Producer(client=client, bootstrap_servers=SERVERS)
            async with Producer(client=client, linger_ms=0, close_timeout_ms=1) as producer:
                assert producer.state is State.RUNNING

    async def test_compression_levels_are_checked(
        self, cluster: EmbeddedCluster, topic: str
    ) -> None:
        for codec, level in (("gzip", 1), ("gzip", 9), ("zstd", 3), ("zstd", 19), ("lz4", 9)):
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                compression_type=codec,
                compression_level=level,
            ) as producer:
                await producer.gather(producer.send_many(topic, [bytes(1000)] * 10))
        with pytest.raises(ConfigError, match="compression_level"):
            Producer(bootstrap_servers=SERVERS, compression_type="gzip", compression_level=10)

    def test_no_config_error_shows_a_secret(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Client(bootstrap_servers=SERVERS, ssl_key_password=5)  # type: ignore[arg-type]  # on purpose
        assert "5" not in str(caught.value).replace("9092", "")

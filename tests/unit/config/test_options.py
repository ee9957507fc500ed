"""Tests of options: their defaults, limits, property-file texts, and error messages."""

from __future__ import annotations

import copy
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from aiokclient.config.admin import AdminConfig, AdminOptions
from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.consumer import ConsumerConfig, ConsumerOptions
from aiokclient.config.producer import ProducerConfig, ProducerOptions
from aiokclient.config.security import Plaintext, Tls
from aiokclient.config.share import GROUP_CONFIGS, ShareConsumerConfig, ShareConsumerOptions
from aiokclient.errors import ConfigError
from aiokclient.log import hints

HERE = {"bootstrap_servers": "localhost:9092"}
CONFIGS = (ClientConfig, ProducerConfig, ConsumerConfig, ShareConsumerConfig, AdminConfig)
OPTIONS = (ClientOptions, ProducerOptions, ConsumerOptions, ShareConsumerOptions, AdminOptions)


def client(**options: Any) -> ClientConfig:
    return ClientConfig.build({**HERE, **options})


def producer(**options: Any) -> ProducerConfig:
    return ProducerConfig.build({**HERE, **options})


def consumer(**options: Any) -> ConsumerConfig:
    return ConsumerConfig.build({**HERE, **options})


def share(**options: Any) -> ShareConsumerConfig:
    return ShareConsumerConfig.build({**HERE, "group_id": "g", **options})


def properties(kind: type[ClientConfig] = ClientConfig, **texts: str) -> Any:
    return kind.from_properties(
        {"bootstrap.servers": "h:1", **{name.replace("_", "."): t for name, t in texts.items()}}
    )


@pytest.mark.parametrize(("kind", "options"), list(zip(CONFIGS, OPTIONS, strict=True)))
def test_typed_options_are_those_of_the_class(kind: type[ClientConfig], options: type) -> None:
    assert options.__total__ is False
    assert set(options.__annotations__) == {*kind.declarations}


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_default_is_allowed(kind: type[ClientConfig]) -> None:
    needed = {**HERE, "group_id": "g"} if kind is ShareConsumerConfig else HERE
    made = kind.build(needed)
    assert kind.build(needed) == made
    assert made.replace() == made


def test_producer_is_idempotent_and_consumer_reads_latest_by_default() -> None:
    made = producer()
    assert (made.acks, made.enable_idempotence, made.linger_ms) == (-1, True, 5)
    assert (made.delivery_timeout_ms, made.buffer_memory) == (120_000, 32 * 1024 * 1024)
    assert made.client_id == "aiokclient"
    assert made.security == Plaintext()
    assert consumer().auto_offset_reset == "latest"


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b.example.org:65535,", [("a", 1), ("b.example.org", 65535)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        ([("a", 1)], [("a", 1)]),
        ("[::1]:9092,10.0.0.1:9093", [("::1", 9092), ("10.0.0.1", 9093)]),
        ([("[::1]", 9092), ("::1", 9093)], [("::1", 9092), ("::1", 9093)]),
        ("[fe80::1%eth0]:9092", [("fe80::1%eth0", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers_are_parsed_to_addresses(
    given: Any, addresses: list[tuple[str, int]]
) -> None:
    assert client(bootstrap_servers=given).bootstrap_servers == tuple(addresses)


@pytest.mark.parametrize(
    "given", ["", [], "localhost", "a:b", "::1:9092", "a:0", "a:65536", "a b:1", 9092, None, [1]]
)
def test_bootstrap_servers_are_refused_when_an_address_is_wrong(given: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        client(bootstrap_servers=given)


def test_an_error_asks_for_bootstrap_servers_when_they_are_missing() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap_servers: .* Give the address, host:port"):
        ClientConfig()


WRONG = [
    (producer, {"linger_ms": -1}, "linger_ms: -1 .* an integer from 0 to 2147483647"),
    (producer, {"linger_ms": "5"}, "linger_ms: '5' is not allowed"),
    (producer, {"linger_ms": True}, "linger_ms: True"),
    (producer, {"linger_ms": 1.5}, "linger_ms: 1.5"),
    (producer, {"acks": 2}, "acks: 2 .* one of 'all', 0 and 1"),
    (producer, {"compression_type": "brotli"}, "'none', 'gzip', 'snappy', 'lz4' and 'zstd'"),
    (producer, {"compression_type": "gzip", "compression_level": 10}, "from 1 to 9"),
    (producer, {"compression_level": 1}, "none has no levels"),
    (producer, {"compression_type": "snappy", "compression_level": 1}, "snappy has no levels"),
    (producer, {"acks": 1, "enable_idempotence": True}, "needs acks='all'"),
    (producer, {"acks": 0, "transactional_id": "t"}, "needs acks='all'"),
    (producer, {"transactional_id": "t", "enable_idempotence": False}, "transactional_id needs"),
    (
        producer,
        {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
        "at most 5",
    ),
    (
        producer,
        {"value_serializer": "json"},
        "serialize\\(\\), passed as an argument by the program",
    ),
    (producer, {"key_serializer": 3}, "key_serializer: 3 .* a function, or an object"),
    (consumer, {"key_deserializer": 3}, "key_deserializer: 3 .* a function, or an object"),
    (producer, {"partitioner": "random"}, "partitioner: 'random' .* a function"),
    (producer, {"on_delivery_error": 4}, "on_delivery_error: 4 .* a function"),
    (client, {"connector": 5}, "resolve\\(\\) and connect\\(\\)"),
    (client, {"clock": 5}, "monotonic\\(\\)"),
    (
        client,
        {"security": "SSL"},
        "security: a str .* Plaintext\\(\\), Tls\\(...\\), .* security_protocol",
    ),
    (consumer, {"auto_offset_reset": "by_duration:tomorrow"}, "such as PT24H or P7D"),
    (consumer, {"auto_offset_reset": "smallest"}, "'earliest', 'latest', 'none'"),
    (consumer, {"heartbeat_interval_ms": 45_000}, r"not below session_timeout_ms \(45000\)"),
    (consumer, {"enable_auto_commit": "yes"}, "True or False"),
    (share, {"group_id": None}, "group_id: None .* Name the group whose members share the records"),
    (share, {"group_id": ""}, "group_id: '' .* Name the group whose members share the records"),
    (share, {"share_acquire_mode": "x"}, "'auto', 'record_limit' and 'batch_optimized'"),
    (share, {"fetch_max_bytes": 200 << 20}, "too large for receive_message_max_bytes"),
    (share, {"share_acknowledgement_mode": "explicit"}, r"ShareConsumer.tracked\(\)"),
    (share, {"enable_auto_commit": True}, r"ShareConsumer.tracked\(\)"),
    (share, {"group_instance_id": "i"}, "A share group has no static members"),
    (share, {"group_protocol": "consumer"}, "A share group has a protocol of its own"),
    (share, {"group_remote_assignor": "range"}, "The brokers assign the partitions"),
    (share, {"partition_assignment_strategy": "range"}, "The brokers assign the partitions"),
    (client, {"client_id": ""}, "client_id: '' .* not empty"),
    (client, {"security": "SSL"}, "security: "),
    (client, {"security": object()}, "Plaintext"),
    (client, {"security_protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, or SASL_SSL"),
    (client, {"sasl_mechanism": "PLAIN"}, "needs security_protocol=SASL_SSL or SASL_PLAINTEXT"),
    (client, {"ssl_truststore_location": "ca.pem"}, "needs security_protocol=SSL"),
    (client, {"security_protocol": "SSL", "security": Tls()}, "either security or"),
    (client, {"security_protocol": "PLAINTEXT", "security": Tls()}, "contradicts"),
    (client, {"security_protocol": "SSL", "ssl_keystore_type": "JKS"}, "Only PEM is supported"),
    (client, {"linger_ms": 1}, "linger_ms is not an option"),
    (producer, {"lingerms": 1}, "lingerms is not an option. Did you mean linger_ms"),
    (producer, {"retries": 3}, "delivery_timeout_ms"),
]


@pytest.mark.parametrize(
    ("make", "options", "text"),
    WRONG,
    ids=[f"{make.__name__}: {' and '.join(options)}: {text[:40]}" for make, options, text in WRONG],
)
def test_a_wrong_option_raises_an_error_with_its_name_and_range(
    make: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        make(**options)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", GROUP_CONFIGS)
def test_an_option_of_a_share_group_names_the_configuration_and_the_call(name: str) -> None:
    config, value = GROUP_CONFIGS[name]
    call = (
        f"Set it with Admin.alter_configs({{ConfigResource.group(group_id): "
        f"{{{config!r}: {value!r}}}}})."
    )
    with pytest.raises(ConfigError) as caught:
        share(**{name: value})
    assert str(caught.value).startswith(f"{name}: It is a configuration of the share group")
    assert str(caught.value).endswith(call)
    with pytest.raises(ConfigError) as caught:
        properties(ShareConsumerConfig, group_id="g", **{name: value})
    assert str(caught.value).startswith(f"{name.replace('_', '.')}: It is a configuration of")
    assert str(caught.value).endswith(call)
    with pytest.raises(ConfigError, match=f"{name}: It is"):
        ShareConsumerConfig.from_properties({"group.id": "g"}, **HERE, **{name: value})


def test_a_share_consumer_ignores_the_options_of_producers_in_a_file() -> None:
    made = properties(
        ShareConsumerConfig, group_id="g", share_acquire_mode="record_limit", acks="1"
    )
    assert (made.group_id, made.share_acquire_mode) == ("g", "record_limit")
    assert properties(ConsumerConfig, share_acquire_mode="record_limit").group_id is None
    assert properties(ConsumerConfig, share_acknowledgement_mode="explicit").group_id is None
    with pytest.raises(ConfigError, match=r"group\.id: '' is not allowed. Name the group"):
        properties(ShareConsumerConfig)
    with pytest.raises(ConfigError, match=r"ShareConsumer.tracked\(\)"):
        properties(ShareConsumerConfig, group_id="g", share_acknowledgement_mode="explicit")


def test_idempotence_is_left_out_where_it_cannot_be() -> None:
    assert producer(acks=1).enable_idempotence is False
    assert producer(acks="0").acks == 0
    assert producer(max_in_flight_requests_per_connection=10).enable_idempotence is False
    assert producer(transactional_id="t").enable_idempotence is True


def test_compression_level_is_that_of_the_chosen_codec() -> None:
    assert producer(compression_type="zstd", compression_level=3).compression_level == 3
    assert (
        properties(
            ProducerConfig, compression_type="gzip", compression_gzip_level="9"
        ).compression_level
        == 9
    )
    assert (
        properties(
            ProducerConfig, compression_type="lz4", compression_gzip_level="9"
        ).compression_level
        is None
    )


@pytest.mark.parametrize(
    ("given", "kept", "milliseconds"),
    [
        ("Earliest", "earliest", None),
        ("none", "none", None),
        ("by_duration:PT1H", "by_duration:PT1H", 3_600_000),
        ("by_duration:p1dt2h3m4.5s", "by_duration:P1DT2H3M4.5S", 93_784_500),
    ],
)
def test_auto_offset_reset_keeps_its_name_and_its_duration(
    given: str, kept: str, milliseconds: int | None
) -> None:
    made = consumer(auto_offset_reset=given)
    assert (made.auto_offset_reset, made.auto_offset_reset_ms) == (kept, milliseconds)


def test_a_first_backoff_above_the_limit_raises_the_limit() -> None:
    assert client(retry_backoff_ms=5000).retry_backoff_max_ms == 5000


def test_properties_are_converted_from_text() -> None:
    made = properties(
        ProducerConfig,
        acks="all",
        linger_ms=" 20 ",
        enable_idempotence="TRUE",
        compression_type="ZSTD",
        transactional_id="",
    )
    assert (made.acks, made.linger_ms, made.compression_type) == (-1, 20, "zstd")
    assert made.transactional_id is None
    strategy = properties(ConsumerConfig, partition_assignment_strategy="range, sticky")
    assert strategy.partition_assignment_strategy == ("range", "sticky")


def test_properties_take_options_that_no_text_can_say() -> None:
    made = ProducerConfig.from_properties({"bootstrap.servers": "h:1"}, value_serializer=str.encode)
    assert made.value_serializer("v") == b"v"


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({"linger.ms": "soon"}, "linger.ms: 'soon' is not allowed. It must be an integer"),
        ({"linger_ms": "5"}, "linger_ms is not an option. Did you mean linger.ms"),
        ({"enable.idempotence": "1"}, "enable.idempotence: '1'"),
        ({"key.serializer": "org.apache.kafka.X"}, "key.serializer: .* argument by the program"),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config needs security.protocol=SASL_SSL"),
        ({"ssl.truststore.password": "geheim"}, "ssl.truststore.password is not an option here"),
    ],
)
def test_wrong_properties_raise_an_error_with_their_names(texts: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ProducerConfig.from_properties({"bootstrap.servers": "h:1", **texts})


def test_kafkas_tls_options_become_one_object() -> None:
    made = properties(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location="/ca.pem",
        ssl_keystore_location="/me.pem",
        ssl_key_password="geheim",
        ssl_endpoint_identification_algorithm="",
    )
    assert made.security == Tls(
        cafile="/ca.pem", certfile="/me.pem", password="geheim", check_hostname=False
    )
    assert made.replace(client_id="other").security == made.security
    assert properties(security_protocol="SSL").security == Tls()
    assert properties(security_protocol="plaintext").security == Plaintext()


def test_security_accepts_any_ssl_context() -> None:
    context = ssl.create_default_context()
    made = client(security=context)
    assert made.security.ssl_context() is context
    assert Plaintext().ssl_context() is None


def test_secrets_are_shown_nowhere() -> None:
    made = properties(
        security_protocol="SSL", ssl_keystore_location="/me", ssl_key_password="geheim"
    )
    assert "geheim" not in repr(made) + str(made) + repr(made.security)
    with pytest.raises(ConfigError) as caught:
        client(ssl_key_password=b"geheim")
    assert "geheim" not in str(caught.value)


def test_password_of_a_key_without_a_certificate_is_refused_with_its_name() -> None:
    text = r"^ssl\.key\.password: It needs ssl\.keystore\.location or "
    with pytest.raises(ConfigError, match=text):
        ProducerConfig.from_properties(
            {"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.key.password": "p"}
        )


def test_tls_refuses_options_that_do_not_fit_together() -> None:
    with pytest.raises(ConfigError, match="either context or the files"):
        Tls(context=ssl.create_default_context(), cafile="ca.pem")
    with pytest.raises(ConfigError, match="need certfile"):
        Tls(keyfile="key.pem")


def test_tls_makes_contexts_of_its_files_and_options(tmp_path: Path) -> None:
    authority = trustme.CA()
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(ca)
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(own)
    context = Tls(cafile=str(ca), certfile=str(own), check_hostname=False).ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname
    assert len(context.get_ca_certs()) == 1
    assert Tls(cadata=ca.read_text()).ssl_context().check_hostname
    with pytest.raises(ConfigError, match=r"missing\.pem cannot be loaded"):
        Tls(cafile=str(tmp_path / "missing.pem")).ssl_context()
    with pytest.raises(ConfigError, match=r"ca\.pem or its key .* cannot be loaded"):
        Tls(certfile=str(ca)).ssl_context()


def test_a_shared_client_keeps_its_connections_options() -> None:
    shared = client(client_id="shared", request_timeout_ms=7)
    made = ProducerConfig.build({"linger_ms": 1, "default_api_timeout_ms": 9}, client=shared)
    assert (made.client_id, made.request_timeout_ms) == ("shared", 7)
    assert (made.linger_ms, made.default_api_timeout_ms) == (1, 9)
    with pytest.raises(ConfigError, match="bootstrap_servers is an option of the client"):
        ProducerConfig.build(HERE, client=shared)


def test_configs_are_immutable_and_equal_to_their_copies() -> None:
    made = consumer(group_id="g")
    with pytest.raises(AttributeError, match="group_id"):
        made.group_id = "h"
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == made


def test_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(client()) == "ClientConfig(bootstrap_servers=(('localhost', 9092),))"


def test_every_option_elsewhere_is_none_of_ours() -> None:
    ours = {name for kind in CONFIGS for name in kind.declarations}
    assert not ours & {*hints.RENAMED, *hints.ABSENT}
    assert ours >= set(hints.RENAMED.values())
    assert not hints.RENAMED.keys() & hints.ABSENT.keys()

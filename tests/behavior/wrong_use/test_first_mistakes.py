"""The messages of mistakes that are made on the first day: each says what to do."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokclient import Admin, Consumer, Producer, ProducerRecord, TopicPartition, transform
from aiokclient.admin import ConfigResource
from aiokclient.errors import (
    CommitFailedError,
    ConfigError,
    IllegalStateError,
    InvalidTopicError,
    RecordTooLargeError,
)
from aiokclient.testing import EmbeddedCluster

Given = Any
TP = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"t": 1, "small": 1, "other": 1}) as started:
        yield started


@pytest.fixture
async def producer(cluster: EmbeddedCluster) -> AsyncIterator[Producer[Any, Any]]:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as started:
        yield started


@pytest.fixture
async def consumer(cluster: EmbeddedCluster) -> AsyncIterator[Consumer[Any, Any]]:
    cluster.produce("t", [b"a", b"b", b"c"])
    options: dict[str, Any] = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with Consumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", **options
    ) as started:
        yield started


RECORDS: dict[str, tuple[dict[str, Given], str]] = {
    "a number as key": ({"key": 1}, "key is int 1. Encode it, or set key_serializer"),
    "a text as key": ({"key": "k"}, "key is str 'k'.*key_serializer"),
    "a dict as value": ({"value": {"a": 1}}, "value is dict .*value_serializer"),
    "a dict as headers": ({"headers": {"a": b"b"}}, r"headers=list\(headers.items\(\)\)"),
    "one pair as headers": ({"headers": ("a", b"b")}, r"headers=\[\('a', b'b'\)\]"),
    "a text as value of a header": (
        {"headers": [("a", b"b"), ("c", "d")]},
        "value of the header 'c' is str 'd'. Encode it",
    ),
    "bytes as name of a header": ({"headers": [(b"a", b"b")]}, "header name b'a' is not a str"),
    "an iterator as headers": (
        {"headers": zip(["a"], [b"b"], strict=True)},
        r"headers are a zip, which can be read only once. Pass headers=list\(",
    ),
    "a header of three parts": ({"headers": [("a", b"b", 1)]}, "is not a pair of name and value"),
}


@pytest.mark.parametrize("mistake", RECORDS)
async def test_send_of_a_wrong_type_says_which_part_is_wrong(
    producer: Producer[Any, Any], mistake: str
) -> None:
    given, text = RECORDS[mistake]
    with pytest.raises(TypeError, match=text):
        producer.send("t", **given)
    with pytest.raises(TypeError, match=text):
        producer.send_many("t", [ProducerRecord("t", **given)])


@pytest.mark.parametrize("topic", [["t"], {"t"}, {}, b"t", None, 5])
async def test_send_to_something_else_than_a_topic_says_that_it_takes_a_str(
    producer: Producer[Any, Any], topic: Given
) -> None:
    for call in (producer.send, producer.send_many, producer.send_arrow):
        if topic is None and call == producer.send_arrow:
            continue  # The batch has a column of topics.
        with pytest.raises(TypeError, match=r"name of a topic must be a str, as in send"):
            call(topic, [b"v"])
    for wait in (producer.send_all, producer.send_and_wait):
        with pytest.raises(TypeError, match=r"name of a topic must be a str, as in send"):
            await wait(topic, [b"v"])
    with pytest.raises(TypeError, match="name of a topic must be a str"):
        await producer.prepare(topic)


async def test_send_to_a_topic_as_bytes_shows_the_str(producer: Producer[Any, Any]) -> None:
    topic: Given = b"orders"
    with pytest.raises(TypeError, match="Pass 'orders'"):
        producer.send(topic, b"v")


async def test_record_that_the_broker_refuses_as_too_large_names_the_size(
    cluster: EmbeddedCluster, producer: Producer[Any, Any]
) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.alter_configs({ConfigResource.topic("small"): {"max.message.bytes": "1000"}})
    with pytest.raises(RecordTooLargeError, match=r"has 20\d\d bytes\. Send smaller") as raised:
        await producer.send("small", b"v" * 2000)
    assert ". The batch" in str(raised.value)
    # Records that the broker refuses together are sent one by one, and only the large one fails.
    fits, large = producer.send("small", b"v" * 500), producer.send("small", b"v" * 1500)
    assert (await fits).offset == 0
    with pytest.raises(RecordTooLargeError, match=r"has 15\d\d bytes"):
        await large


LOOPS: dict[str, Callable[[Consumer[Any, Any]], Any]] = {
    "consumer": lambda consumer: consumer,
    "batches": lambda consumer: consumer.batches(),
    "arrow_batches": lambda consumer: consumer.arrow_batches(),
    "until_end": lambda consumer: consumer.until_end(),
    "tracked": lambda consumer: consumer.tracked(),
}


@pytest.mark.parametrize("loop", LOOPS)
async def test_for_loop_over_an_asynchronous_iterable_names_async_for(
    consumer: Consumer[Any, Any], loop: str
) -> None:
    with pytest.raises(TypeError, match="async for"):
        for _ in LOOPS[loop](consumer):
            pass


async def test_for_loop_over_transform_names_async_for(
    cluster: EmbeddedCluster, consumer: Consumer[Any, Any]
) -> None:
    servers = cluster.bootstrap_servers
    stream: Any
    async with (
        Producer(bootstrap_servers=servers, transactional_id="tx") as producer,
        transform(consumer, producer) as stream,
    ):
        with pytest.raises(TypeError, match="async for"):
            list(stream)


@pytest.mark.parametrize("name", ["^t.*", "t*", "orders|payments", "t[0-9]", r"t\d"])
async def test_subscription_to_a_pattern_as_text_names_compile(
    consumer: Consumer[Any, Any], name: str
) -> None:
    with pytest.raises(InvalidTopicError, match=r"re.compile"):
        consumer.subscribe([name])
    with pytest.raises(InvalidTopicError, match=r"re.compile"):
        Consumer(name, bootstrap_servers="localhost:9092")
    assert consumer.subscription() == {"t"}


async def test_subscription_to_bytes_shows_the_bytes(consumer: Consumer[Any, Any]) -> None:
    topic: Given = b"t"
    with pytest.raises(TypeError, match="b't' is not a topic"):
        consumer.subscribe(topic)


@pytest.mark.parametrize(
    "servers", ["http://localhost:9092", "https://localhost:9092/", ["HTTP://h:1"], "b:1,http://h"]
)
def test_bootstrap_server_as_url_says_host_and_port(servers: Given) -> None:
    with pytest.raises(ConfigError, match=r"URL.*write host:port"):
        Producer(bootstrap_servers=servers)


def test_bootstrap_server_as_bytes_is_refused_as_a_whole() -> None:
    servers: Given = b"localhost:9092"
    with pytest.raises(ConfigError, match="b'localhost:9092' is not allowed"):
        Producer(bootstrap_servers=servers)


def test_bootstrap_server_with_the_name_of_a_listener_is_accepted() -> None:
    Producer(bootstrap_servers="PLAINTEXT://localhost:9092")


def test_mechanism_of_amazon_msk_names_its_replacement() -> None:
    java = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    for more in ({}, {"sasl.client.callback.handler.class": handler}):
        with pytest.raises(ConfigError, match=r"OAUTHBEARER|SaslOAuthBearer"):
            Producer.from_properties({**java, **more})
    with pytest.raises(ConfigError, match=r"OAUTHBEARER|SaslOAuthBearer"):
        Producer(
            bootstrap_servers="localhost:9092",
            security_protocol="SASL_SSL",
            sasl_mechanism="AWS_MSK_IAM",
        )


@pytest.mark.parametrize("what", [TP, ("t", 0), [TP], "t", ["t"], iter(["t"]), iter([TP])])
async def test_commit_takes_one_partition_or_topic_or_several(
    consumer: Consumer[Any, Any], what: Given
) -> None:
    assert len(await consumer.poll(max_records=2)) == 2
    await consumer.commit(what)
    stored = (await consumer.committed([TP]))[TP]
    assert stored is not None
    assert stored.offset == 2


@pytest.mark.parametrize(
    "what", ["misspelled", ["misspelled"], ["t", "misspelled"], {"misspelled"}]
)
async def test_commit_of_a_topic_that_is_not_read_raises_and_names_it(
    consumer: Consumer[Any, Any], what: Given
) -> None:
    await consumer.poll(max_records=2)
    with pytest.raises(IllegalStateError, match="'misspelled' cannot be committed"):
        await consumer.commit(what)
    assert (await consumer.committed([TP]))[TP] is None


async def test_commit_of_a_topic_whose_partitions_are_assigned_or_matched_is_accepted(
    cluster: EmbeddedCluster,
) -> None:
    options: dict[str, Any] = {"group_id": "g2", "enable_auto_commit": False}
    async with Consumer(
        re.compile("oth.*"), bootstrap_servers=cluster.bootstrap_servers, **options
    ) as consumer:
        consumer.assign([TP])
        await consumer.commit("t")
        await consumer.commit("other")
        with pytest.raises(IllegalStateError, match="'small' cannot be committed"):
            await consumer.commit("small")
        with pytest.raises(CommitFailedError):
            await consumer.commit(TopicPartition("small", 0))


async def test_commit_in_on_revoked_of_a_topic_that_was_unsubscribed_is_accepted(
    cluster: EmbeddedCluster,
) -> None:
    stored: list[Any] = []

    class Listener:
        async def on_revoked(self, tps: Any) -> None:
            await consumer.commit("t")
            stored.append(await consumer.committed([TP]))

    cluster.produce("t", [b"a"])
    options: dict[str, Any] = {
        "group_id": "g3",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "listener": Listener(),
    }
    async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        assert await consumer.get(10.0) is not None
        consumer.unsubscribe()
    assert [found[TP].offset for found in stored] == [1]

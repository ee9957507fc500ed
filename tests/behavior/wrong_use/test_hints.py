"""Hints for users of other clients: the names of options, classes, and methods."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import pytest
from public_packages import NEED_PYSPARK, PUBLIC_PACKAGES

import aiokclient
from aiokclient import Admin, Client, Consumer, ConsumerRecord, Delivery, Producer
from aiokclient.consumer.consumer import STOPPED
from aiokclient.consumer.delivery.iterators import ArrowBatches, RecordBatches, RecordIterator
from aiokclient.consumer.delivery.unpack import Chunk
from aiokclient.consumer.fetching.buffer import PartitionFetch
from aiokclient.errors import ConfigError
from aiokclient.log.foreign_names import ATTRIBUTES, with_foreign_names
from aiokclient.log.hints.names import CLASSES
from aiokclient.producer.batching.batch import ProducerBatch
from aiokclient.producer.batching.queue import PartitionQueue
from aiokclient.producer.delivery.deliveries import Deliveries, Outcomes
from aiokclient.record.batch import RecordBatch
from aiokclient.schema import Schema

SERVERS = "localhost:9092"
LOOPED = (
    "Admin",
    "Client",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "GroupMember",
    "Headers",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "Records",
    "TopicPartition",
    "Transaction",
)
"""The public classes whose attributes the loops of programs read for each record."""
WITHIN = (
    *(ArrowBatches, RecordBatches, RecordIterator, Chunk, PartitionFetch),
    *(RecordBatch, ProducerBatch, PartitionQueue, Deliveries, Outcomes),
)
"""The classes of what a client makes for each batch, iteration, or list of records."""
READS, WRITES = ("__getattr__", "__getattribute__"), ("__setattr__", "__delattr__")


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (
            Producer,
            "ssl_context",
            "ssl_context is not an option here. Pass the ssl.SSLContext as security=",
        ),
        (Consumer, "api_version", "Versions are negotiated"),
        (
            Consumer,
            "rebalance_timeout_ms",
            "Use max_poll_interval_ms, which is also the rebalance timeout",
        ),
        (Producer, "max_batch_size", "max_batch_size is called batch_size here"),
        (Consumer, "consumer_timeout_ms", r"Use poll\(timeout=\.\.\.\)"),
        (Producer, "ssl_cafile", r"Tls\(cafile=\.\.\.\)"),
        (Producer, "loop", "event loop in which it is started"),
        (Producer, "linger_mss", "Did you mean linger_ms"),
        (Producer, "lingerMs", "Did you mean linger_ms"),
        (Consumer, "auto_offset", "Did you mean auto_offset_reset"),
        (Consumer, "linger_ms", "linger_ms is not an option of a Consumer, but of a Producer"),
        (Admin, "group_id", "group_id is not an option of an Admin, but of a Consumer"),
        (Producer, "linger.ms", r"Write linger_ms, or pass Kafka's dotted names to Prod"),
        (Consumer, "dr_msg_cb", "dr_msg_cb is called on_delivery_error here"),
        (Producer, "statistics_interval_ms", r"Call metrics\(\)"),
    ],
)
def test_an_option_of_another_client_as_an_argument_says_what_to_write(
    make: Any, name: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        make(bootstrap_servers=SERVERS, **{name: None})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.ca.location", r"Pass security=Tls\(cafile=\.\.\.\)"),
        ("message.timeout.ms", r"message\.timeout\.ms is called delivery\.timeout\.ms here"),
        ("statistics.interval.ms", r"Call metrics\(\)"),
        ("partitioner.class", "Pass a function as partitioner="),
        ("metadata.broker.list", r"is called bootstrap\.servers here"),
        ("queue.buffering.max.ms", r"is called linger\.ms here"),
        ("sasl.username", r"Pass security=SaslScram\(user, password\)"),
        ("interceptor.classes", "There are no interceptors"),
        ("linger_ms", r"Did you mean linger\.ms"),
    ],
)
def test_an_option_of_another_client_in_properties_says_what_to_write(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Producer.from_properties({"bootstrap.servers": SERVERS, name: "x"})


@pytest.mark.parametrize("name", ["frobnicate", "ms", "batch_bytes", "socket", "qqq_qqqq_qqq"])
def test_an_option_unlike_any_other_gets_no_suggestion(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Producer(bootstrap_servers=SERVERS, **{name: 1})
    assert str(caught.value) == f"{name} is not an option."


@pytest.mark.parametrize(
    ("option", "name", "text"),
    [
        ("key.serializer", "org.apache.kafka.common.serialization.StringSerializer", "str.encode"),
        ("value.serializer", "org.apache.kafka.common.serialization.LongSerializer", "'>q'"),
        ("value.serializer", "io.confluent.kafka.serializers.KafkaAvroSerializer", "registry"),
        ("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer", "Leave"),
        ("value.serializer", "com.example.OrderSerializer", "pass a function"),
    ],
)
def test_a_class_name_of_a_serializer_says_what_to_use(option: str, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(text)):
        Producer.from_properties({"bootstrap.servers": SERVERS, option: name})
    with pytest.raises(ConfigError, match=re.escape(text)):
        Producer(bootstrap_servers=SERVERS, **{option.replace(".", "_"): name})


def test_one_error_lists_all_bad_options() -> None:
    with pytest.raises(ConfigError) as caught:
        Producer(bootstrap_servers=SERVERS, linger_mss=1, acks=7, ssl_context=None, batch_size="x")
    assert len(caught.value.problems) == 4
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 options cannot be used:"
    for name in ("linger_mss", "acks", "ssl_context", "batch_size"):
        assert sum(line.startswith(name) for line in lines) == 1
    with pytest.raises(ConfigError) as caught:
        Consumer.from_properties(
            {"bootstrap.servers": "x", "linger.mss": "1", "auto.offset.reset": "first"}
        )
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigError) as caught:
        Producer.from_properties({"linger.ms": "x", "acks": "9"}, batch_sise=1, max_block_ms="y")
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigError) as caught:
        Consumer(
            bootstrap_servers=SERVERS,
            group_id="",
            heartbeat_interval_ms=50_000,
            ssl_key_password="hunter2",
        )
    assert len(caught.value.problems) == 3
    assert "hunter2" not in str(caught.value)


def test_a_delivery_timeout_below_the_linger_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="delivery_timeout_ms: 10 is below linger_ms"):
        Producer(bootstrap_servers=SERVERS, delivery_timeout_ms=10, linger_ms=11)


def test_a_whole_float_is_an_integer_option() -> None:
    Producer(bootstrap_servers=SERVERS, linger_ms=5.0)
    for value in (5.5, float("inf"), float("nan"), True):
        with pytest.raises(ConfigError, match="linger_ms"):
            Producer(bootstrap_servers=SERVERS, linger_ms=value)


@pytest.mark.parametrize("make", [Producer, Consumer, Admin, Client])
def test_a_mapping_as_an_argument_suggests_from_properties(make: Any) -> None:
    with pytest.raises(TypeError, match=rf"{make.__name__}\.from_properties\(\)"):
        make({"bootstrap.servers": SERVERS})


@pytest.mark.parametrize("make", [Producer, Admin, Client])
def test_a_positional_argument_shows_how_to_pass_options(make: Any) -> None:
    with pytest.raises(TypeError, match=rf"{make.__name__}\(bootstrap_servers=\.\.\.\)"):
        make(SERVERS)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("AIOKafkaProducer", "Producer"),
        ("AIOKafkaConsumer", "Consumer"),
        ("KafkaProducer", "Producer"),
        ("KafkaConsumer", "Consumer"),
        ("KafkaAdminClient", "Admin"),
        ("AdminClient", "Admin"),
        ("ConfluentProducer", "Producer"),
    ],
)
def test_importing_a_class_of_another_client_says_what_to_import(name: str, ours: str) -> None:
    with pytest.raises(ImportError, match=rf"from aiokclient import {ours}"):
        exec(f"from aiokclient import {name}")


def test_hasattr_of_a_class_of_another_client_is_false() -> None:
    assert not hasattr(aiokclient, "AIOKafkaProducer")
    with pytest.raises(AttributeError, match="from aiokclient import Producer"):
        _ = aiokclient.AIOKafkaProducer


def test_importing_an_unknown_name_raises_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Frobnicator'"):
        exec("from aiokclient import Frobnicator")
    assert not hasattr(aiokclient, "Frobnicator")


@pytest.mark.parametrize(
    ("make", "name", "text"),
    [
        (Consumer, "getmany", r"Use `await consumer\.poll"),
        (Consumer, "getone", r"Use `await consumer\.get"),
        (Consumer, "wakeup", r"Use stop\(\)"),
        (Producer, "stop", r"Await close\(\)"),
        (Producer, "produce", "Use send"),
        (Admin, "create_topic", "create_topics"),
        (Client, "stop", r"Await close\(\)"),
    ],
)
def test_a_method_of_another_client_says_what_to_use(make: Any, name: str, text: str) -> None:
    made = make(bootstrap_servers=SERVERS)
    with pytest.raises(AttributeError, match=text):
        getattr(made, name)
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        made.frobnicate
    assert not hasattr(made, "_repr_png_")


def test_names_of_other_clients_are_no_attributes() -> None:
    for make in (Consumer, Producer, Admin, Client):
        made = make(bootstrap_servers=SERVERS)
        for name in ATTRIBUTES[make.__name__]:
            assert not hasattr(make, name)
            assert not hasattr(made, name)
            assert name not in dir(made)
            assert name not in {key for key, _ in inspect.getmembers_static(made)}
        assert {"close", "start", "metrics"} <= {*dir(made)}
    assert not set(CLASSES) & set(aiokclient.__all__)


def test_a_name_of_another_client_raises_the_same_error_at_the_class_and_the_object() -> None:
    producer: Any = Producer(bootstrap_servers=SERVERS)
    hint = "Use send(topic, value, key=...). Await the delivery that it returns."
    for holder, text in ((producer, "'Producer' object"), (Producer, "type object 'Producer'")):
        with pytest.raises(AttributeError) as caught:
            holder.produce
        assert str(caught.value) == f"{text} has no attribute 'produce'. {hint}"
        assert caught.value.name == "produce"
        assert caught.value.obj is holder


def test_an_unknown_name_raises_the_error_of_python() -> None:
    producer: Any = Producer(bootstrap_servers=SERVERS)
    with pytest.raises(AttributeError) as caught:
        producer.sent
    assert str(caught.value) == "'Producer' object has no attribute 'sent'"
    assert (caught.value.name, caught.value.obj) == ("sent", producer)


def test_a_subclass_may_define_a_name_of_another_client() -> None:
    class Polled:
        poll = 5

        def produce(self) -> str:
            return "mixed in"

        @classmethod
        def purge(cls) -> str:
            return cls.__name__

    class Own(Producer[Any, Any]):
        def stop(self) -> str:
            return "own"

    class Mixed(Producer[Any, Any], Polled):
        pass

    class Delegating(Producer[Any, Any]):
        def __getattr__(self, name: str) -> str:
            return f"asked for {name}"

    own: Any = Own(bootstrap_servers=SERVERS)
    assert own.stop() == "own"
    assert "stop" in dir(own)
    with pytest.raises(AttributeError, match=r"'Own' object has no attribute 'produce'\. Use send"):
        own.produce
    mixed: Any = Mixed(bootstrap_servers=SERVERS)
    assert (mixed.produce(), mixed.poll, mixed.purge()) == ("mixed in", 5, "Mixed")
    assert (Mixed.poll, Mixed.purge()) == (5, "Mixed")
    delegating: Any = Delegating(bootstrap_servers=SERVERS)
    assert delegating.produce == "asked for produce"
    own.purge = len
    assert own.purge is len
    assert "purge" in dir(own)


def test_a_hint_for_a_name_that_exists_is_refused() -> None:
    named: Any = type("Admin", (), {"poll": 1})
    with pytest.raises(TypeError, match=r"Admin\.poll exists, so that it needs no hint"):
        with_foreign_names(named)


def test_no_object_of_a_hot_loop_slows_the_access_to_its_attributes() -> None:
    """CPython keeps no inline caches for the attributes of classes that define these methods."""
    for made in (*(getattr(aiokclient, name) for name in LOOPED), *WITHIN):
        for base in (each for each in made.__mro__ if each not in (object, tuple, list)):
            assert not {*READS, *WRITES} & {*vars(base)}, f"{base.__qualname__} of {made.__name__}"


FROZEN_BY_HAND = (Schema,)
"""Values that no dataclass makes, because they compute their hash once."""


def test_no_public_class_slows_the_access_to_its_attributes_except_frozen_values() -> None:
    for name in (each for each in PUBLIC_PACKAGES if each not in NEED_PYSPARK):
        package = importlib.import_module(name)
        for made in (getattr(package, each) for each in package.__all__):
            bases = made.__mro__ if isinstance(made, type) else ()
            for base in (each for each in bases if each.__module__.startswith("aiokclient")):
                about = f"{base.__qualname__} of {name}.{made.__name__}"
                assert not {*READS} & {*vars(base)}, about
                frozen = is_dataclass(base) and base.__dataclass_params__.frozen
                frozen = frozen or base in FROZEN_BY_HAND
                assert frozen or not {*WRITES} & {*vars(base)}, about


def test_no_object_that_a_record_or_a_batch_needs_has_a_dictionary() -> None:
    values = ["ConsumerRecord", "Delivery", "ProducerRecord", "TopicPartition"]
    if aiokclient.native:  # In pure Python, a tuple with another attribute needs a dictionary.
        values.append("RecordMetadata")
    for made in (*(getattr(aiokclient, name) for name in values), *WITHIN):
        assert not made.__dictoffset__, made.__qualname__


def test_no_attribute_of_a_record_or_a_delivery_is_a_property_in_python() -> None:
    """A property costs a call of Python for each access, and a record has a dozen attributes."""
    for made in (ConsumerRecord, Delivery) if aiokclient.native else ():
        for base in made.__mro__:
            found = {name for name, each in vars(base).items() if isinstance(each, property)}
            assert not found, f"{base.__qualname__} of {made.__name__}: {found}"


async def test_awaiting_stop_suggests_close() -> None:
    consumer = Consumer(bootstrap_servers=SERVERS)
    with pytest.raises(TypeError, match=r"await consumer\.close\(\)"):
        await consumer.stop()  # type: ignore[func-returns-value]
    assert not STOPPED


FILE = """\
# a comment
! another one = with a separator
\tbootstrap.servers : one:9092,\\
    two:9092

client.id=caf\\u00e9 \\uD83D\\uDE00
  acks   all
linger.ms\\
  =  7
compression.type:zstd
batch.size 1000
max.request.size=5
max.request.size=6
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("as_text", [str, Path])
def test_from_properties_reads_a_file_as_java_does(
    tmp_path: Path, ending: str, as_text: Any
) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(FILE.replace("\n", ending).encode())
    config = Producer.from_properties(as_text(path))._config
    assert config.bootstrap_servers == (("one", 9092), ("two", 9092))
    assert config.client_id == "café 😀"
    assert (config.acks, config.linger_ms, config.compression_type) == (-1, 7, "zstd")
    assert (config.batch_size, config.max_request_size) == (1000, 6)
    consumer_file = tmp_path / "consumer.properties"
    consumer_file.write_text(f"bootstrap.servers={SERVERS}\ngroup.id=g\n")
    consumer = Consumer.from_properties(consumer_file, "orders", max_poll_records=7)
    assert consumer._config.max_poll_records == 7
    assert "group='g' topics='orders'" in repr(consumer)


def test_properties_with_hard_escapes_are_read_as_java_does() -> None:
    parse = importlib.import_module("aiokclient.config.properties").parse_properties
    assert parse("a\\:b\\=c\\ d = e\\:f") == {"a:b=c d": "e:f"}
    assert parse("k=v  ") == {"k": "v  "}
    assert parse("k") == {"k": ""}
    assert parse("k=\\tx\\ny\\qz\\\\") == {"k": "\tx\nyqz\\"}
    assert parse("k=a\\\\\nl=b") == {"k": "a\\", "l": "b"}
    assert parse("k=a\\\n#b") == {"k": "a#b"}
    assert parse("# a\\\nk=b") == {"k": "b"}
    assert parse("k=a\\") == {"k": "a"}
    assert parse("k = = v") == {"k": "= v"}
    assert parse("   \n\t\n\x0c\n") == {}
    with pytest.raises(ConfigError, match=r"Line 2 of .* \\u00g0"):
        parse("a=b\nk=\\u00g0")


def test_a_properties_file_in_latin_1_or_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    for encoding in ("latin-1", "utf-8", "utf-8-sig"):
        path.write_bytes(f"bootstrap.servers={SERVERS}\nclient.id=café\n".encode(encoding))
        assert Producer.from_properties(path)._config.client_id == "café"


def test_a_properties_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.properties cannot be read: No such file"):
        Producer.from_properties(tmp_path / "nowhere.properties")
    with pytest.raises(TypeError, match="neither a mapping"):
        Producer.from_properties(["bootstrap.servers"])  # type: ignore[arg-type]

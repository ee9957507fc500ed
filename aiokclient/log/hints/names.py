"""Classes, arguments, and serializers of other clients, with what to use here instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CLASSES: Final = {
    name: f"{name} is a class of {whose}. Write: from aiokclient import {ours}"
    for name, whose, ours in (
        ("AIOKafkaProducer", "aiokafka", "Producer"),
        ("AIOKafkaConsumer", "aiokafka", "Consumer"),
        ("AIOKafkaAdminClient", "aiokafka", "Admin"),
        ("AIOKafkaClient", "aiokafka", "Client"),
        ("KafkaProducer", "kafka-python and Java", "Producer"),
        ("KafkaConsumer", "kafka-python and Java", "Consumer"),
        ("KafkaShareConsumer", "Java", "ShareConsumer"),
        ("KafkaAdminClient", "kafka-python and Java", "Admin"),
        ("KafkaClient", "kafka-python", "Client"),
        ("SimpleClient", "kafka-python", "Client"),
        ("SimpleProducer", "kafka-python", "Producer"),
        ("SimpleConsumer", "kafka-python", "Consumer"),
        ("AdminClient", "confluent-kafka and Java", "Admin"),
        ("AIOProducer", "confluent-kafka", "Producer"),
        ("AIOConsumer", "confluent-kafka", "Consumer"),
        ("ConfluentProducer", "confluent-kafka", "Producer"),
        ("ConfluentConsumer", "confluent-kafka", "Consumer"),
        ("SerializingProducer", "confluent-kafka", "Producer"),
        ("DeserializingConsumer", "confluent-kafka", "Consumer"),
        ("AvroProducer", "confluent-kafka", "Producer"),
        ("AvroConsumer", "confluent-kafka", "Consumer"),
        ("AsyncProducer", "other clients", "Producer"),
        ("AsyncConsumer", "other clients", "Consumer"),
        ("MockProducer", "Java", "Producer; from aiokclient.testing import EmbeddedCluster"),
        ("MockConsumer", "Java", "Consumer; from aiokclient.testing import EmbeddedCluster"),
        ("AIOKafkaConnection", "aiokafka", "Client"),
        ("AbstractTokenProvider", "aiokafka", "SaslOAuthBearer (and pass an async function)"),
        ("RecordsToDelete", "aiokafka", "Admin (delete_records() takes {tp: offset})"),
        ("ConsumerRebalanceListener", "aiokafka and Java", "Consumer (and pass listener=)"),
        ("AbstractRebalanceListener", "aiokafka", "Consumer (and pass listener=)"),
        ("OffsetAndTimestampTuple", "other clients", "OffsetAndTimestamp"),
        ("KafkaException", "confluent-kafka and Java", "KafkaError"),
        ("Message", "confluent-kafka", "ConsumerRecord"),
        ("ConsumerRecords", "Java", "Records"),
        ("NewTopicRequest", "other clients", "NewTopic"),
        ("TopicPartitionInfo", "Java", "TopicPartition"),
        ("ConsumerGroupMetadata", "Java", "GroupMetadata"),
    )
}
"""Classes that programs import from other clients, with what to import instead."""

_DESCRIBED = "Use `await admin.describe_topics([...])`, whose partitions have leader and replicas."
STRUCTS: Final = {
    **{
        name: f"Write: from aiokclient import {name}"
        for name in (
            "ConsumerRecord",
            "OffsetAndMetadata",
            "OffsetAndTimestamp",
            "RecordMetadata",
            "TopicPartition",
        )
    },
    "BrokerMetadata": "Use `await admin.describe_cluster()`, whose brokers have ids and hosts.",
    "PartitionMetadata": _DESCRIBED,
}
"""The types in the module `structs` of aiokafka and kafka-python, with what to use here instead."""

_TIMEOUT = "Write timeout=, in seconds."
_ARGUMENTS: Final = {
    "pattern": (
        "Pass a compiled pattern as the first argument: subscribe(re.compile(...)). It must match "
        "the whole name of a topic."
    ),
    "timeout_ms": _TIMEOUT,
    "timeout_in_ms": _TIMEOUT,
    "timestamp_ms": "Write timestamp=, in milliseconds since the epoch.",
    "new_topics": "Pass the topics as the first argument.",
    "config_resources": "Pass the resources as the first argument.",
    "topic_partitions": "Pass the new totals as the first argument: {topic: total}.",
    "records_to_delete": "Pass the offsets as the first argument: {TopicPartition(...): offset}.",
    "group_ids": "Pass the groups as the first argument.",
    "partition": "Pass a list of partitions, [TopicPartition(...)].",
}
"""Arguments of methods of other clients, with what to write here instead."""

_SEVERAL = ("committed", "pause", "resume", "seek_to_beginning", "seek_to_end")
"""Methods of consumers that take several arguments in other clients, and one collection here."""

_NUMBERS = {"Short": "h", "Integer": "i", "Long": "q", "Float": "f", "Double": "d", "Boolean": "?"}
_BYTES = ("ByteArray", "Bytes", "ByteBuffer", "Void")
_REGISTRY = ("Avro", "Protobuf", "JsonSchema", "Json")


def argument_hint(method: str, count: int, named: Iterable[str]) -> str | None:
    """Return a hint about a call whose arguments the method does not accept, or None.

    `count` is the number of its positional arguments, and `named` has the names of the others.
    """
    for name in named:
        if name in _ARGUMENTS:
            return _ARGUMENTS[name]
    if method in _SEVERAL and count > 1:
        return f"Pass one list of partitions: {method}([TopicPartition(...), ...])."
    return None


def serializer_hint(name: str) -> str | None:
    """Return what to pass instead of the name of a Java serializer or deserializer class."""
    short = name.rpartition(".")[2]
    for ending in ("Deserializer", "Serializer"):
        if short.endswith(ending):
            return _hint(short.removesuffix(ending), reading=ending == "Deserializer")
    return None


def _hint(kind: str, *, reading: bool) -> str:
    if kind in _BYTES:
        return "Leave the option out: without it, keys and values are bytes."
    if kind == "String":
        what = "bytes.decode" if reading else "str.encode"
    elif kind in _NUMBERS:
        layout = f"struct.Struct('>{_NUMBERS[kind]}')"
        what = f"lambda data: {layout}.unpack(data)[0]" if reading else f"{layout}.pack"
    elif kind == "UUID":
        what = "lambda data: uuid.UUID(data.decode())" if reading else "lambda v: str(v).encode()"
    elif kind.removeprefix("Kafka") in _REGISTRY:
        what = "an object of a schema registry client"
    else:
        what = "a function"
    return f"A Java class cannot be used here. In the program, pass {what} as an option."

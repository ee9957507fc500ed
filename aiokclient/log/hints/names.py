"""Classes, methods, and serializers of other clients, with what to use here instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

__all__ = [
    "ATTRIBUTES",
    "CLASSES",
    "STRUCTS",
    "argument_hint",
    "missing_attribute",
    "serializer_hint",
]

CLASSES: Final = {
    name: f"{name} is a class of {whose}. Write: from aiokclient import {ours}"
    for name, whose, ours in (
        ("AIOKafkaProducer", "aiokafka", "Producer"),
        ("AIOKafkaConsumer", "aiokafka", "Consumer"),
        ("AIOKafkaAdminClient", "aiokafka", "Admin"),
        ("AIOKafkaClient", "aiokafka", "Client"),
        ("KafkaProducer", "kafka-python and Java", "Producer"),
        ("KafkaConsumer", "kafka-python and Java", "Consumer"),
        ("KafkaShareConsumer", "Java", "Consumer (there are no share consumers yet)"),
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

_START = "Start a client with `async with`, `await client.start()`, or `await client`."
_CLOSE = "Await close(), or use `async with`."
_STARTS = "The start of a producer does this. After an error, use `await producer.restart()`."
_ASSIGN = "Use assign(), which keeps the positions of partitions that remain assigned."
_COMMON: Final = {
    "stop": _CLOSE,
    "shutdown": _CLOSE,
    "aclose": _CLOSE,
    "open": _START,
    "connect": _START,
    "bootstrap_connected": "Read the attribute state, or call health().",
    "client_id": "The client id is part of the repr.",
    "set_sasl_credentials": "Pass security=SaslPlain(...) or SaslScram(...) to a new client.",
    "list_topics": "Use Admin.list_topics().",
    "create_topics": "Use Admin.create_topics().",
    "stats": "Call metrics().",
}

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "Consumer": {
        "getmany": (
            "Use `await consumer.poll(timeout, max_records=...)`, whose result has "
            "by_partition(). Or iterate over consumer.batches(). To read only some partitions, "
            "pause() the others."
        ),
        "getone": "Use `await consumer.get(timeout)`, or loop: `async for record in consumer`.",
        "consume": "Use `await consumer.poll(timeout, max_records=...)`, or consumer.batches().",
        "poll_async": "Use `await consumer.poll(timeout)`.",
        "messages": "Iterate over the consumer: `async for record in consumer`.",
        "last_poll_timestamp": "Call metrics(), which contains consumer.poll.age.seconds.",
        "seek_to_committed": "Use seek() with an offset from `await consumer.committed(tps)`.",
        "topics": "Use `await consumer.list_topics()`.",
        "subscribe_pattern": "Pass a compiled pattern: subscribe(re.compile(...)).",
        "unassign": "Use assign(()) or unsubscribe().",
        "incremental_assign": _ASSIGN,
        "incremental_unassign": _ASSIGN,
        "store_offsets": (
            "A record counts as processed when the next one is requested. Use tracked() and "
            "done(record)."
        ),
        "get_watermark_offsets": (
            "Use `await consumer.beginning_offsets(tps)` and end_offsets(tps)."
        ),
        "memberid": "Use group_metadata().member_id.",
        "consumer_group_metadata": "Use group_metadata().",
        "commit_sync": "Use `await consumer.commit()`.",
        "commit_async": "Use `await consumer.commit()` in a task.",
        "commitSync": "Use `await consumer.commit()`.",
        "commitAsync": "Use `await consumer.commit()` in a task.",
        "wakeup": "Use stop(), which any thread may call.",
        "enforceRebalance": "The coordinator of the group starts rebalances.",
        "enforce_rebalance": "The coordinator of the group starts rebalances.",
        "partitionsFor": "Use `await consumer.partitions_for(topic)`.",
        "listTopics": "Use `await consumer.list_topics()`.",
        "seekToBeginning": "Use seek_to_beginning().",
        "seekToEnd": "Use seek_to_end().",
        "beginningOffsets": "Use `await consumer.beginning_offsets(tps)`.",
        "endOffsets": "Use `await consumer.end_offsets(tps)`.",
        "offsetsForTimes": "Use `await consumer.offsets_for_times({tp: ms})`.",
        "currentLag": "Use `await consumer.lag(tps)`.",
        "current_lag": "Use `await consumer.lag(tps)`.",
        "groupMetadata": "Use group_metadata().",
        "acknowledge": "Share consumers are not available in this version. Use commit().",
        **{name: hint for name, hint in _COMMON.items() if name not in ("stop", "list_topics")},
    },
    "Producer": {
        "produce": "Use send(topic, value, key=...). Await the delivery that it returns.",
        "send_batch": "Use send_many(topic, values). Batches are made by the producer.",
        "create_batch": "Use send_many(topic, values). Batches are made by the producer.",
        "poll": "There is nothing to poll: deliveries complete in the event loop.",
        "purge": "Use close(0), which fails all records that are not sent yet.",
        "sendOffsetsToTransaction": "Use `await producer.send_offsets_to_transaction(...)`.",
        "init_transactions": _STARTS,
        "initTransactions": _STARTS,
        "beginTransaction": "Use `await producer.begin_transaction()`, or transaction().",
        "commitTransaction": "Use `await producer.commit_transaction()`, or transaction().",
        "abortTransaction": "Use `await producer.abort_transaction()`, or transaction().",
        "partitionsFor": "Use `await producer.partitions_for(topic)`.",
        "partitions_for_topic": "Use `await producer.partitions_for(topic)`.",
        **_COMMON,
    },
    "Admin": {
        "create_topic": "Use `await admin.create_topics([NewTopic(...)])`.",
        "delete_topic": "Use `await admin.delete_topics([name])`.",
        "describe_consumer_groups": "Use `await admin.describe_groups(groups)`.",
        "list_consumer_groups": "Use `await admin.list_groups()`.",
        "delete_consumer_groups": "Use `await admin.delete_groups(groups)`.",
        "alter_consumer_group_offsets_async": (
            "Use `await admin.alter_consumer_group_offsets(...)`."
        ),
        "incremental_alter_configs": "Use `await admin.alter_configs({resource: {name: change}})`.",
        "find_coordinator": "Use describe_groups(), whose descriptions have a coordinator.",
        "list_offsets": "Use Consumer.beginning_offsets(), end_offsets(), or offsets_for_times().",
        "poll": "Await the calls. There is nothing to poll.",
        **{
            name: hint
            for name, hint in _COMMON.items()
            if name not in ("list_topics", "create_topics")
        },
    },
    "Client": {
        "send_request": "Use `await client.request(message, to=...)`.",
        **_COMMON,
    },
    "GroupMember": dict(_COMMON),
}
"""Methods and attributes of other clients, by the class here, with what to use instead."""

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


def missing_attribute(self: Any, name: str) -> NoReturn:
    """Raise AttributeError, with a hint if the attribute is one of another client.

    This is the `__getattr__` of a class, which Python calls for missing attributes.
    """
    kind = type(self)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    for one in kind.__mro__:
        hint = ATTRIBUTES.get(one.__name__, {}).get(name)
        if hint is not None:
            raise AttributeError(f"{text}. {hint}", name=name, obj=self)
    raise AttributeError(text, name=name, obj=self)


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

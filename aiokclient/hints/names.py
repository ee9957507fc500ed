"""Classes, methods and serializers of other clients, and what to use here."""

from __future__ import annotations

from typing import Any, Final, NoReturn

__all__ = ["ATTRIBUTES", "CLASSES", "missing_attribute", "serializer_hint"]

CLASSES: Final = {
    name: f"{name} is a class of {whose}; write: from aiokclient import {ours}"
    for name, whose, ours in (
        ("AIOKafkaProducer", "aiokafka", "Producer"),
        ("AIOKafkaConsumer", "aiokafka", "Consumer"),
        ("AIOKafkaAdminClient", "aiokafka", "Admin"),
        ("AIOKafkaClient", "aiokafka", "Client"),
        ("KafkaProducer", "kafka-python and Java", "Producer"),
        ("KafkaConsumer", "kafka-python and Java", "Consumer"),
        ("KafkaShareConsumer", "Java", "Consumer (share consumers are not available yet)"),
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
        ("MockProducer", "Java", "Producer, and from aiokclient.testing import EmbeddedCluster"),
        ("MockConsumer", "Java", "Consumer, and from aiokclient.testing import EmbeddedCluster"),
        ("ConsumerRebalanceListener", "aiokafka and Java", "Consumer, and pass listener="),
        ("AbstractRebalanceListener", "aiokafka", "Consumer, and pass listener="),
        ("OffsetAndTimestampTuple", "other clients", "OffsetAndTimestamp"),
        ("KafkaException", "confluent-kafka and Java", "KafkaError"),
        ("Message", "confluent-kafka", "ConsumerRecord"),
        ("ConsumerRecords", "Java", "Records"),
        ("NewTopicRequest", "other clients", "NewTopic"),
        ("TopicPartitionInfo", "Java", "TopicPartition"),
        ("ConsumerGroupMetadata", "Java", "GroupMetadata"),
    )
}
"""Names that programs import from other clients."""

_START = "clients start by `async with`, `await x.start()` or `await x`"
_CLOSE = "await close(), or use `async with`"
_NO_TXN = "transactions are not available in this version"
_COMMON: Final = {
    "stop": _CLOSE,
    "shutdown": _CLOSE,
    "aclose": _CLOSE,
    "open": _START,
    "connect": _START,
    "bootstrap_connected": "read state, or call health()",
    "client_id": "it is in repr(x)",
    "set_sasl_credentials": "SASL is not available in this version",
    "list_topics": "use Admin.list_topics()",
    "create_topics": "use Admin.create_topics()",
    "stats": "call metrics()",
}

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "Consumer": {
        "getmany": "use `await consumer.poll(timeout, max_records=...)`, whose result has "
        "by_partition(); or loop over consumer.batches()",
        "getone": "use `await consumer.get(timeout)`, or loop: `async for record in consumer`",
        "consume": "use `await consumer.poll(timeout, max_records=...)`, or consumer.batches()",
        "poll_async": "use `await consumer.poll(timeout)`",
        "messages": "loop: `async for record in consumer`",
        "last_poll_timestamp": "metrics() has consumer.poll.age.seconds",
        "last_stable_offset": "use `await consumer.end_offsets(tps)` with "
        "isolation_level='read_committed'",
        "seek_to_committed": "seek(tp, offset) to what `await consumer.committed(tps)` returns",
        "topics": "use `await consumer.list_topics()`",
        "subscribe_pattern": "pass a compiled pattern: subscribe(re.compile(...))",
        "unassign": "use assign(()) or unsubscribe()",
        "incremental_assign": "assign() keeps the positions of partitions that stay",
        "incremental_unassign": "assign() keeps the positions of partitions that stay",
        "store_offsets": "a record counts as processed when the next one is requested; use "
        "tracked() and done(record)",
        "get_watermark_offsets": "use `await consumer.beginning_offsets(tps)` and end_offsets(tps)",
        "memberid": "use group_metadata().member_id",
        "consumer_group_metadata": "use group_metadata()",
        "commit_sync": "use `await consumer.commit()`",
        "commit_async": "use `await consumer.commit()` in a task",
        "commitSync": "use `await consumer.commit()`",
        "commitAsync": "use `await consumer.commit()` in a task",
        "wakeup": "use stop(), which any thread may call",
        "enforceRebalance": "rebalances are up to the group",
        "enforce_rebalance": "rebalances are up to the group",
        "partitionsFor": "use `await consumer.partitions_for(topic)`",
        "listTopics": "use `await consumer.list_topics()`",
        "seekToBeginning": "use seek_to_beginning()",
        "seekToEnd": "use seek_to_end()",
        "beginningOffsets": "use `await consumer.beginning_offsets(tps)`",
        "endOffsets": "use `await consumer.end_offsets(tps)`",
        "offsetsForTimes": "use `await consumer.offsets_for_times({tp: ms})`",
        "currentLag": "use `await consumer.lag(tps)`",
        "current_lag": "use `await consumer.lag(tps)`",
        "groupMetadata": "use group_metadata()",
        "acknowledge": "share consumers are not available in this version; use commit()",
        **{name: hint for name, hint in _COMMON.items() if name not in ("stop", "list_topics")},
    },
    "Producer": {
        "produce": "use send(topic, value, key=...); await the delivery that it returns",
        "send_batch": "use send_many(topic, values); batches are made by the producer",
        "create_batch": "use send_many(topic, values); batches are made by the producer",
        "poll": "there is nothing to poll for: deliveries complete in the event loop",
        "purge": "use close(0), which fails what is not sent",
        "sendOffsetsToTransaction": _NO_TXN,
        "send_offsets_to_transaction": _NO_TXN,
        "init_transactions": _NO_TXN,
        "begin_transaction": _NO_TXN,
        "commit_transaction": _NO_TXN,
        "abort_transaction": _NO_TXN,
        "transaction": _NO_TXN,
        "initTransactions": _NO_TXN,
        "beginTransaction": _NO_TXN,
        "commitTransaction": _NO_TXN,
        "abortTransaction": _NO_TXN,
        "partitionsFor": "use `await producer.partitions_for(topic)`",
        "partitions_for_topic": "use `await producer.partitions_for(topic)`",
        **_COMMON,
    },
    "Admin": {
        "create_topic": "use `await admin.create_topics([NewTopic(...)])`",
        "delete_topic": "use `await admin.delete_topics([name])`",
        "describe_consumer_groups": "use `await admin.describe_groups(groups)`",
        "list_consumer_groups": "use `await admin.list_groups()`",
        "delete_consumer_groups": "use `await admin.delete_groups(groups)`",
        "alter_consumer_group_offsets_async": "use `await admin.alter_consumer_group_offsets(...)`",
        "incremental_alter_configs": "use `await admin.alter_configs({resource: {name: change}})`",
        "list_offsets": "use Consumer.beginning_offsets(), end_offsets() and offsets_for_times()",
        "poll": "every call is awaited",
        **{
            name: hint
            for name, hint in _COMMON.items()
            if name not in ("list_topics", "create_topics")
        },
    },
    "Client": {
        "send_request": "use `await client.request(message, to=...)`",
        **_COMMON,
    },
    "GroupMember": dict(_COMMON),
}
"""By class: methods and attributes of other clients."""

_NUMBERS = {"Short": "h", "Integer": "i", "Long": "q", "Float": "f", "Double": "d", "Boolean": "?"}
_BYTES = ("ByteArray", "Bytes", "ByteBuffer", "Void")
_REGISTRY = ("Avro", "Protobuf", "JsonSchema", "Json")


def missing_attribute(self: Any, name: str) -> NoReturn:
    """Raise AttributeError, which names what to use instead of another client's method.

    The `__getattr__` of a class: called for what is not there.
    """
    kind = type(self)
    text = f"{kind.__name__!r} object has no attribute {name!r}"
    for one in kind.__mro__:
        hint = ATTRIBUTES.get(one.__name__, {}).get(name)
        if hint is not None:
            raise AttributeError(f"{text}: {hint}", name=name, obj=self)
    raise AttributeError(text, name=name, obj=self)


def serializer_hint(name: str) -> str | None:
    """Return what to pass instead of the name of a Java class of (de)serializers."""
    short = name.rpartition(".")[2]
    for ending in ("Deserializer", "Serializer"):
        if short.endswith(ending):
            return _hint(short.removesuffix(ending), reading=ending == "Deserializer")
    return None


def _hint(kind: str, *, reading: bool) -> str:
    if kind in _BYTES:
        return "leave it out: without one, keys and values are bytes"
    if kind == "String":
        what = "bytes.decode" if reading else "str.encode"
    elif kind in _NUMBERS:
        layout = f"struct.Struct('>{_NUMBERS[kind]}')"
        what = f"lambda data: {layout}.unpack(data)[0]" if reading else f"{layout}.pack"
    elif kind == "UUID":
        what = "lambda data: uuid.UUID(data.decode())" if reading else "lambda v: str(v).encode()"
    elif kind.removeprefix("Kafka") in _REGISTRY:
        what = "an object of a schema registry's client"
    else:
        what = "a function"
    return f"a Java class cannot be used here; pass {what} as an option"

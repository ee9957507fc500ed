"""The options of the Spark sink, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pytest

from aiokclient import Client, Producer
from aiokclient.errors import ConfigError
from aiokclient.spark.sink.columns import HEADERS, check_columns, check_topic, selected
from aiokclient.spark.sink.options import SinkOptions

pa = pytest.importorskip("pyarrow")

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}
CHECKPOINT = {"checkpointlocation": "/checkpoint"}
EXACTLY = {"deliveryguarantee": "exactly-once"}


def parse(streaming: bool = False, **options: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return SinkOptions.parse({**BROKER, **named}, streaming=streaming)


def test_defaults_of_the_sink_are_those_of_the_connector() -> None:
    found = parse()
    assert (found.topic, found.delivery_guarantee, found.exactly_once) == (
        None,
        "at-least-once",
        False,
    )
    assert dict(found.client) == {"bootstrap.servers": "localhost:9092"}
    assert found.producer == ()


def test_options_of_kafka_go_to_the_client_or_to_the_producer() -> None:
    found = parse(
        kafka__linger__ms="5",
        kafka__sasl__mechanism="PLAIN",
        kafka__acks="all",
        kafka__client__id="me",
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__jaas__config="org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="a" password="secret";',
    )
    assert dict(found.producer) == {"linger.ms": "5", "acks": "all"}
    client = Client.from_properties(dict(found.client))
    assert Producer.from_properties(dict(found.producer), client=client) is not None
    assert "secret" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topc": "a"}, "topc is not an option of the sink. Did you mean topic?"),
        ({"subscribe": "a"}, "subscribe is not an option of the sink, but of the source."),
        ({"topic": "a b"}, "topic: 'a b' is not allowed. It must be the name of a topic: "),
        ({"deliveryguarantee": "once"}, "deliveryGuarantee: 'once' is not allowed. It must be at-"),
        ({"writeid": "x"}, "writeId has no effect without deliveryGuarantee=exactly-once. "),
        ({"commitscope": "batch"}, "commitScope has no effect without deliveryGuarantee="),
        ({"commitscope": "task"}, "commitScope: 'task' is not allowed. A task cannot commit its"),
        (EXACTLY, "writeId is missing. deliveryGuarantee=exactly-once in a batch write needs"),
        ({**EXACTLY, "writeid": "a b"}, "writeId: 'a b' is not allowed. It must have 1 to 128 "),
        (
            {**EXACTLY, "writeid": "a", "commitscope": "all"},
            "commitScope: 'all' is not allowed. A task cannot commit its own rows: if what stands",
        ),
        (
            {**EXACTLY, "writeid": "a", "kafka.acks": "1"},
            "kafka.acks: '1' is not allowed. deliveryGuarantee=exactly-once needs the default.",
        ),
        ({"kafka.acks": "7"}, "kafka.acks: '7' is not allowed. It must be one of "),
        (
            {"kafka.linger.ms": "9", "kafka.delivery.timeout.ms": "1"},
            "kafka.delivery.timeout.ms: 1 is below kafka.linger.ms (9), so records would expire",
        ),
        (
            {"kafka.acks": "1", "kafka.enable.idempotence": "true"},
            "kafka.enable.idempotence: It needs kafka.acks='all'.",
        ),
        ({"kafka.transactional.id": "t"}, "kafka.transactional.id is not allowed. Set delivery"),
        ({"kafka.key.serializer": "t"}, "kafka.key.serializer is not allowed. Keys are written as"),
        ({"topic": ".."}, "topic: '..' is not allowed. It must be the name of a topic: 1 to 249"),
        ({"acks": "1"}, "acks is not an option of the sink. Did you mean kafka.acks?"),
        (
            {"compressionType": "gzip"},
            "compressiontype is not an option of the sink. Did you mean kafka.compression.type?",
        ),
        ({"partition": "3"}, "partition is not an option of the sink. It must be one of topic, "),
        ({"transactional.id": "x"}, "transactional.id is not an option of the sink. It must be on"),
        (
            {"truncate": "true"},
            "truncate is not an option of the sink. It must be one of topic, deliveryGuarantee, "
            "writeId, or begin with 'kafka.'.",
        ),
        (
            {"kafka.transaction.timeout.ms": "9" * 5_000},
            "kafka.transaction.timeout.ms: '999",
        ),
    ],
)
def test_batch_write_refuses_options_and_says_why(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse({**BROKER, **options}, streaming=False)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (EXACTLY, "checkpointLocation is missing. deliveryGuarantee=exactly-once recognizes a "),
        ({**EXACTLY, **CHECKPOINT, "writeid": "x"}, "writeId is only allowed in a batch write. "),
    ],
)
def test_stream_refuses_options_and_says_why(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse({**BROKER, **options}, streaming=True)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("scope", ["task", "TASK", " task "])
def test_commit_scope_of_a_task_is_refused_with_its_reason_and_names_batch(
    scope: str, streaming: bool
) -> None:
    options = {**BROKER, **EXACTLY, **(CHECKPOINT if streaming else {"writeid": "w"})}
    with pytest.raises(ConfigError) as caught:
        SinkOptions.parse({**options, "commitscope": scope}, streaming=streaming)
    assert str(caught.value) == (
        "commitScope: 'task' is not allowed. A task cannot commit its own rows: if what stands "
        "before the sink fails, or if the query is stopped, Spark ends the rows of the task as if "
        "they were complete. Use batch, which is the default: the driver commits when all tasks "
        "of a batch have succeeded."
    ).replace("'task'", repr(scope.strip()))


def test_commit_scope_of_a_batch_is_what_is_always_so() -> None:
    options = {**BROKER, **EXACTLY, **CHECKPOINT}
    found = SinkOptions.parse(options, streaming=True)
    assert SinkOptions.parse({**options, "commitscope": "Batch"}, streaming=True) == found
    assert found.transaction_timeout_ms == 60_000


@dataclass
class Type:
    """A data type of Spark, with the only method that the check uses."""

    name: str

    def simpleString(self) -> str:
        return self.name


@dataclass
class Field:
    name: str
    dataType: Type


@dataclass
class Schema:
    fields: list[Field]


def schema(**columns: str) -> Schema:
    return Schema([Field(name, Type(kind)) for name, kind in columns.items()])


@pytest.mark.parametrize(
    ("columns", "topic", "text"),
    [
        ({"value": "string"}, None, "topic is missing. Set the option topic, or add a column"),
        ({"key": "string"}, "a", "The column value is missing. The DataFrame has key; value must"),
        ({"value": "int"}, "a", "The column value has the type int. It must be string or binary."),
        ({"value": "binary", "partition": "bigint"}, "a", "The column partition has the type big"),
        ({"value": "binary", "topic": "int"}, None, "The column topic has the type int. It must"),
        ({"value": "binary", "headers": "map<string,string>"}, "a", "The column headers has the "),
        ({"value": "binary", "timestamp": "date"}, "a", "The column timestamp has the type date."),
    ],
)
def test_columns_are_refused_with_their_type(
    columns: dict[str, str], topic: str | None, text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_columns(schema(**columns), topic)
    assert str(caught.value).startswith(text)


def test_column_that_occurs_twice_is_refused() -> None:
    twice = Schema([Field("value", Type("string"))] * 2 + [Field("other", Type("int"))] * 2)
    with pytest.raises(ConfigError) as caught:
        check_columns(twice, "orders")
    assert str(caught.value) == (
        "The column value occurs more than once in the DataFrame. Keep one of them."
    )


def test_columns_of_the_source_are_accepted() -> None:
    columns = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": HEADERS,
    }
    check_columns(schema(**columns), None)
    # With the option `topic`, the type of the column does not matter.
    check_columns(schema(**{**columns, "topic": "int"}), "orders")


def test_record_without_a_timestamp_is_written_without_one() -> None:
    times = pa.array([-1_000, 5_000, None], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"value": pa.array([b"a", b"b", b"c"]), "timestamp": times})
    found = selected(batch, "orders").column("timestamp")
    assert found.cast(pa.int64()).to_pylist() == [None, 5_000, None]
    assert selected(batch.slice(1), "orders").column("timestamp").null_count == 1


@pytest.mark.parametrize("topic", ["", "a b", "..", "x" * 250])
def test_value_of_the_column_topic_that_is_no_topic_is_refused(topic: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_topic(topic)
    assert str(caught.value).startswith(f"The column topic is '{topic[:60]}")
    assert "in a row. It must be the name of a topic: 1 to 249 letters" in str(caught.value)

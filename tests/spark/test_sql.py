"""Topics in SQL: tables in Spark's catalog, views, patterns of topics, and limits."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from kafka_harness import KafkaCluster
from pyspark.errors import PySparkException

from aiokclient import Producer
from aiokclient.protocol import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(brokers: EmbeddedCluster) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    brokers.create_topic(name, 1)
    brokers.produce(name, [b"a", b"b"], 0)
    return name


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def named(brokers: EmbeddedCluster, topic: str) -> str:
    return f"(subscribe '{topic}', `kafka.bootstrap.servers` '{brokers.bootstrap_servers}')"


def values(rows: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows.select("value").collect())


def test_table_in_the_catalog_has_the_columns_and_is_read_with_the_options_of_a_query(
    spark: SparkSession, brokers: EmbeddedCluster, topic: str, table: str
) -> None:
    options = named(brokers, topic)
    properties = "COMMENT 'orders' TBLPROPERTIES ('team' = 'a')"
    spark.sql(f"CREATE TABLE {table} USING aiokclient OPTIONS {options} {properties}")
    assert [field.name for field in spark.table(table).schema][:3] == ["key", "value", "topic"]
    assert spark.sql(f"DESCRIBE EXTENDED {table}").count() > 7
    with pytest.raises(PySparkException, match="Spark does not pass the options of a table"):
        spark.sql(f"SELECT * FROM {table}").collect()
    assignments = options.replace(" '", " = '")
    assert values(spark.sql(f"SELECT * FROM {table} WITH {assignments}")) == [b"a", b"b"]
    reader = spark.read.option("subscribe", topic)
    reader = reader.option("kafka.bootstrap.servers", brokers.bootstrap_servers)
    assert values(reader.table(table)) == [b"a", b"b"]


def test_wrong_option_of_a_table_is_named(
    spark: SparkSession, brokers: EmbeddedCluster, topic: str, table: str
) -> None:
    options = named(brokers, topic).replace("(subscribe", "(minPartitons '3', subscribe")
    with pytest.raises(PySparkException, match=r"minpartitons is not .* Did you mean minPartiti"):
        spark.sql(f"CREATE TABLE {table} USING aiokclient OPTIONS {options}")


def test_temporary_view_reads_a_topic(
    spark: SparkSession, brokers: EmbeddedCluster, topic: str
) -> None:
    options = named(brokers, topic)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING aiokclient OPTIONS {options}")
    assert values(spark.sql("SELECT * FROM orders")) == [b"a", b"b"]


def test_pattern_selects_the_same_topics_as_with_the_connector(
    spark: SparkSession, spark_kafka: KafkaCluster
) -> None:
    prefix = f"p{uuid.uuid4().hex[:6]}"
    names = [f"{prefix}{rest}" for rest in ("-orders", "-orders-eu", "-order", ".x", "-x")]
    for name in names:
        spark_kafka.create_topic(name, 1)

    async def fill() -> None:
        async with Producer(bootstrap_servers=spark_kafka.bootstrap) as producer:
            for name in names:
                await producer.send(name, name.encode())

    asyncio.run(fill())
    for pattern in (
        "{}",
        "{}-orders",
        "^{}-order$",
        "{}.*eu",
        "{}.x",
        r"{}\.x",
        "^rders",
        "{}-o|y",
    ):
        found = []
        for source in ("kafka", "aiokclient"):
            reader = spark.read.format(source).option("subscribePattern", pattern.format(prefix))
            rows = reader.option("kafka.bootstrap.servers", spark_kafka.bootstrap).load()
            try:
                found.append(values(rows))
            except PySparkException:
                # The connector does not plan a query without a topic.
                found.append([])
        assert found[1] == found[0], pattern


def size(records: Any) -> int:
    """Return the bytes of the record batches in a response."""
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes) else sum(map(len, records))


def test_limit_fetches_only_the_first_records(
    spark: SparkSession, brokers: EmbeddedCluster, topic: str
) -> None:
    for _ in range(4000):
        brokers.produce(topic, [bytes(1000)] * 15, 0)
    fetched = 0

    def count(request: Any, response: Any) -> Any:
        nonlocal fetched
        for each in response.responses:
            fetched += sum(size(data.records) for data in each.partitions)
        return response

    reader = spark.read.format("aiokclient").option("subscribe", topic)
    rows = reader.option("kafka.bootstrap.servers", brokers.bootstrap_servers).load()
    with brokers.alter(ApiKey.FETCH, count):
        assert len(rows.limit(5).collect()) == 5
        # Spark stops the task after a fraction of a second. Until then, the task fills the buffers
        # of the socket to Spark, which hold up to five megabytes.
        assert fetched < 8_000_000
        fetched = 0
        assert rows.count() == 60_002
        assert fetched >= 60_000_000


def test_tasks_log_in_with_tokens_of_the_function_that_an_option_names(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = f"tokens_{uuid.uuid4().hex[:8]}"
    file = tmp_path_factory.mktemp("tokens") / f"{module}.py"
    file.write_text(
        "from aiokclient import OAuthToken\n"
        "from aiokclient.testing.tokens import unsecured_token\n"
        "async def token():\n"
        "    return OAuthToken(unsecured_token('alice'), 2**50)\n"
    )
    # As --py-files of spark-submit does, this makes the module importable on the executors.
    spark.sparkContext.addPyFile(str(file))
    listener = BrokerListener(mechanisms=["OAUTHBEARER"])
    with EmbeddedCluster(brokers=1, topics={"t": 1}, listeners={"SASL": listener}) as cluster:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers_for("SASL"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.provider": f"{module}:token",
        }
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("aiokclient").options(**options, topic="t")
        writer.mode("append").save()
        found = spark.read.format("aiokclient").options(**options, subscribe="t").load()
        assert values(found) == [b"0", b"1", b"2"]

"""The session of the tests: Spark finds both this data source and its own connector."""

from pyspark.sql import SparkSession


def test_spark_finds_the_format_without_registration(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
    ours = spark.read.format("aiokclient").options(**options).load()
    theirs = spark.read.format("kafka").options(**options).load()
    assert ours.schema == theirs.schema
    ours = spark.read.format("aiokclient").options(includeHeaders=True, **options).load()
    theirs = spark.read.format("kafka").options(includeHeaders=True, **options).load()
    assert ours.schema == theirs.schema

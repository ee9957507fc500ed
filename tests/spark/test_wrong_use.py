"""The first line after the frames of a traceback says what is wrong, and what is allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from secret_search import SecretSearch
from spark_topics import Sent, Step, fill, trimmed

from aiokclient.testing import BrokerListener, EmbeddedCluster

Options = dict[str, Any]

HARNESS = Path(__file__).resolve().parents[1] / "harness"
NOWHERE = "127.0.0.1:1"
TOPICS = {"orders": 1, "copies": 1, "again": 1}
TRACEBACK = "Traceback (most recent call last):"


def first_line(caught: pytest.ExceptionInfo[Any]) -> str:
    """Return the first line after the frames of the traceback, without the class of the error."""
    said = str(caught.value)
    assert said.count(TRACEBACK) == 1, said
    after = (line for line in said.partition(TRACEBACK)[2].splitlines()[1:] if line[:2] != "  ")
    kind, _, text = next(after).partition(": ")
    assert kind.startswith("aiokclient.errors."), kind
    return text


def refusal(spark: SparkSession, options: Options, schema: str | None = None) -> str:
    reader = spark.read.format("aiokclient").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(PySparkException) as caught:
        reader.load().collect()
    return first_line(caught)


@pytest.fixture(scope="module")
def topic(spark_kafka: KafkaCluster) -> str:
    """A topic of two partitions. Each had ten records, and its first three are deleted."""
    name = spark_kafka.create_topic(None, 2)
    fill(spark_kafka.bootstrap, name, [Step(tuple(Sent(n % 2, value=b"v") for n in range(20)))])
    for partition in (0, 1):
        trimmed(spark_kafka.bootstrap, name, partition, 3)
    return name


@pytest.fixture
def options(spark_kafka: KafkaCluster, topic: str) -> Options:
    return {"kafka.bootstrap.servers": spark_kafka.bootstrap, "subscribe": topic}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"kafka.bootstrap.servers": NOWHERE},
            "The topics are missing. Set exactly one of subscribe, subscribePattern, and assign.",
        ),
        (
            {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a", "subscribePattern": "a"},
            "subscribe and subscribePattern exclude each other. Set exactly one of subscribe, "
            "subscribePattern, and assign.",
        ),
        (
            {"subscribe": "a"},
            "kafka.bootstrap.servers is missing. It must be the addresses of one or more brokers, "
            "as host:port separated by commas.",
        ),
        (
            {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a", "minPartition": 3},
            "minpartition is not an option of the source. Did you mean minPartitions?",
        ),
        (
            {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a", "maxOffsetsPerTrigger": 0},
            "maxOffsetsPerTrigger: '0' is not allowed. It must be an integer of at least 1.",
        ),
        (
            {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a", "startingOffsets": "latest"},
            "startingOffsets: 'latest' is not allowed. In a batch query, nothing would be read.",
        ),
        (
            {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a", "startingOffsets": '{"a"}'},
            "startingOffsets: '{\"a\"}' is not allowed. It is not valid JSON: Expecting ':' "
            'delimiter at line 1, column 5. It must have the form {"topic": {"0": 23, "1": -2}}.',
        ),
        (
            {
                "kafka.bootstrap.servers": NOWHERE,
                "subscribe": "a",
                "kafka.enable.auto.commit": "true",
            },
            "kafka.enable.auto.commit is not allowed. Spark keeps the offsets. To commit them to a "
            "group, set commitOffsets=group and kafka.group.id in a stream.",
        ),
    ],
)
def test_options_are_refused(spark: SparkSession, given: Options, line: str) -> None:
    assert refusal(spark, given) == line


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        (
            "value binary, ofset bigint",
            "The source has no column 'ofset'. Did you mean offset?",
        ),
        (
            "value string",
            "The column value cannot have the type string. It must be binary.",
        ),
        (
            "headers array<struct<key:string,value:binary>>",
            "The column headers exists only with includeHeaders=true.",
        ),
    ],
)
def test_schemas_are_refused(spark: SparkSession, schema: str, line: str) -> None:
    given = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "a"}
    assert refusal(spark, given, schema) == line


def test_missing_topic_and_partition_are_named(spark: SparkSession, options: Options) -> None:
    found = refusal(spark, {**options, "subscribe": "no-such-topic"})
    assert found == (
        "subscribe: the topic no-such-topic does not exist. Name only topics that exist."
    )
    topic = options.pop("subscribe")
    found = refusal(spark, {**options, "assign": json.dumps({topic: [7]})})
    assert found == (
        f"assign: the partition {topic}-7 does not exist. Name only partitions that exist."
    )


def test_offsets_of_other_partitions_are_refused(spark: SparkSession, options: Options) -> None:
    topic = options["subscribe"]
    found = refusal(spark, {**options, "startingOffsets": json.dumps({topic: {"0": 5}})})
    assert found == (
        f"startingOffsets does not name {topic}-1. It must name all partitions that are read."
    )
    offsets = json.dumps({topic: {"0": 5, "1": 5, "2": 5}})
    found = refusal(spark, {**options, "startingOffsets": offsets})
    assert found.startswith(f"startingOffsets names {topic}-2, which the source does not read.")


@pytest.mark.parametrize(
    ("name", "offset", "given"),
    [("startingOffsets", 1, "1 to 10"), ("endingOffsets", 12, "3 to 12")],
)
def test_offsets_outside_of_the_log_are_an_error_or_left_out(
    spark: SparkSession, options: Options, name: str, offset: int, given: str
) -> None:
    topic = options["subscribe"]
    wrong = {**options, name: json.dumps({topic: {"0": offset, "1": 5}})}
    assert refusal(spark, wrong) == (
        f"The offsets {given} of {topic}-0 cannot all be read. Its log has the offsets 3 to 10. "
        "Correct startingOffsets or endingOffsets, or set failOnDataLoss to false to read the "
        "remaining records."
    )
    reader = spark.read.format("aiokclient").options(failOnDataLoss=False, **wrong)
    assert reader.load().where("partition = 0").count() == 7


def test_start_beyond_the_end_of_the_log_is_an_error(spark: SparkSession, options: Options) -> None:
    offsets = json.dumps({options["subscribe"]: {"0": 40, "1": 5}})
    assert refusal(spark, {**options, "startingOffsets": offsets}).startswith(
        f"startingOffsets: the start of {options['subscribe']}-0 is 40. Its log has the offsets 3 "
        "to 10. "
    )


def test_end_before_the_start_is_refused(spark: SparkSession, options: Options) -> None:
    topic = options["subscribe"]
    wrong = {
        "startingOffsets": json.dumps({topic: {"0": 7, "1": 3}}),
        "endingOffsets": json.dumps({topic: {"0": 5, "1": 5}}),
    }
    assert refusal(spark, {**options, **wrong}) == (
        f"endingOffsets: the end of {topic}-0 is the offset 5, before its start at 7 "
        "(startingOffsets). It must not be before the start."
    )


def test_starting_timestamp_without_a_record_is_refused(
    spark: SparkSession, options: Options
) -> None:
    topic = options["subscribe"]
    found = refusal(spark, {**options, "startingTimestamp": 1 << 45})
    assert found.startswith(
        f"startingTimestamp: no record of {topic}-0, {topic}-1 has the timestamp {1 << 45} or a "
        "later one."
    )


def test_unreachable_broker_is_one_error_after_the_timeout(spark: SparkSession) -> None:
    given = {
        "kafka.bootstrap.servers": NOWHERE,
        "subscribe": "a",
        "kafka.default.api.timeout.ms": 500,
    }
    began = time.monotonic()
    assert NOWHERE in refusal(spark, given)
    # The call took the timeout once. A retry by Spark would take it again.
    assert time.monotonic() - began > 0.5


@pytest.mark.long
def test_password_is_nowhere_in_what_spark_wrote(tmp_path: Path) -> None:
    password = "Zebra-quark-hunter2-8841"
    search = SecretSearch()
    search.add("password", password)
    search.add("wrong password", password[::-1])
    listener = BrokerListener(mechanisms=("PLAIN",), users={"alice": password})
    with EmbeddedCluster(listeners={"SASL_PLAINTEXT": listener}, topics=TOPICS) as cluster:
        cluster.produce("orders", [b"1", b"2"])
        done = subprocess.run(
            [
                sys.executable,
                str(HARNESS / "spark_secrets.py"),
                str(tmp_path),
                cluster.bootstrap_servers_for("SASL_PLAINTEXT"),
            ],
            env={**os.environ, "SPARK_SECRET": password},
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:].decode()
    assert b"rows 2" in done.stdout
    assert b"copied 3" in done.stdout
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for folder in ("events", "checkpoint"):
        assert any(folder in name for name in written)
    for name, data in {**written, "stdout": done.stdout, "stderr": done.stderr}.items():
        assert list(search.leaks(data)) == [], name
    assert list(search.leaks(b"log: " + password.encode()))

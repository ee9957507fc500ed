"""A standalone cluster, whose executors have only what an application ships to them.

The cluster is that of `spark_cluster`. Kafka's listener requires TLS and SCRAM.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import counting_fleet
import pytest
from kafka_harness import KafkaCluster
from pyarrow.dataset import dataset
from secured_kafka import PASSWORD, USER, Certificates
from spark_cluster import StandaloneCluster
from spark_topics import Sent, Step, fill

from aiokclient import Admin, Consumer, Producer, UserScramCredentialUpsertion

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tests" / "harness" / "spark_submitted.py"
PAGE = ROOT / "docs" / "telemetry-spark.md"
MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROWS = 80
ENOUGH_S = 600.0

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(
    java: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        # `--files` ships this file to the executors. The driver runs in this folder.
        (cluster.folder / "ca.pem").write_bytes(certificates.ca.read_bytes())
        yield cluster


@pytest.fixture(scope="module")
def secured(spark_kafka: KafkaCluster) -> dict[str, str]:
    """The options that log in to Kafka."""

    async def create_user() -> None:
        async with Admin(bootstrap_servers=spark_kafka.bootstrap) as admin:
            change = UserScramCredentialUpsertion(USER, PASSWORD, MECHANISM)
            (await admin.alter_user_scram_credentials([change])).raise_for_errors()

    asyncio.run(create_user())
    return {
        "kafka.bootstrap.servers": spark_kafka.listener("SECURED"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": f'{MODULE} required username="{USER}" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
    }


@pytest.fixture
def settings(spark_kafka: KafkaCluster, secured: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """The settings of a program that copies a topic with rows to an empty one."""
    source, sink = (spark_kafka.create_topic(None, 2) for _ in range(2))
    rows = tuple(Sent(n % 2, b"%d" % n, value.encode()) for n, value in enumerate(values()))
    fill(spark_kafka.bootstrap, source, [Step(rows)])
    return {
        "source": {**secured, "subscribe": source, "startingOffsets": "earliest"},
        "sink": {**secured, "topic": sink},
        "folder": str(tmp_path),
    }


def values() -> list[str]:
    return [f"{number:04}" for number in range(ROWS)]


async def _committed(servers: str, topic: str) -> list[str]:
    options: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        return [record.value.decode() async for record in consumer.until_end()]


def committed(kafka: KafkaCluster, settings: dict[str, Any]) -> list[str]:
    """Return the sorted values in the topic of the sink."""
    return sorted(asyncio.run(_committed(kafka.bootstrap, settings["sink"]["topic"])))


def submit(cluster: StandaloneCluster, task: str, settings: dict[str, Any]) -> Any:
    return cluster.submit(
        PROGRAM,
        task,
        json.dumps(settings),
        files=("ca.pem",),
        configs={"spark.sql.adaptive.streaming.stateless.enabled": "false"},
    )


def result(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


@pytest.mark.long
def test_executors_read_and_write_with_the_package_of_the_archive(
    cluster: StandaloneCluster, spark_kafka: KafkaCluster, settings: dict[str, Any]
) -> None:
    found = result(submit(cluster, "copy", settings).complete(ENOUGH_S))
    assert sorted(found["values"]) == values()
    assert committed(spark_kafka, settings) == values()
    for package, folders, native in found["imported"]:
        # The package must be only in the folder into which the worker has unpacked the archive.
        assert re.search(r"/work-\d/app-[^/]+/\d+/environment/lib/", package)
        assert folders == [str(Path(package).parents[1])]
        assert native


@pytest.mark.long
def test_batch_read_has_all_rows_once_though_an_executor_is_killed(
    cluster: StandaloneCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    application = submit(cluster, "read-stuck", settings)
    os.kill(int(application.await_file(tmp_path / "stuck")), signal.SIGKILL)
    assert sorted(result(application.complete(ENOUGH_S))) == values()


@pytest.mark.long
def test_exactly_once_stream_has_each_row_once_though_executors_are_killed(
    cluster: StandaloneCluster, spark_kafka: KafkaCluster, settings: dict[str, Any], tmp_path: Path
) -> None:
    settings["source"]["maxOffsetsPerTrigger"] = str(ROWS // 4)
    settings["sink"] |= {
        "deliveryGuarantee": "exactly-once",
        "checkpointLocation": str(tmp_path / "checkpoint"),
        # Even on a busy machine, another executor must begin the task again within this time.
        "kafka.transaction.timeout.ms": "600000",
        "aiokclient.test.points": str(tmp_path),
    }
    points = {"before-flush.1.0": "1.0", "before-handoff.2.1": "2.1"}
    for point in points:
        (tmp_path / point).write_text("wait")
    application = submit(cluster, "stream", settings)
    for point, task in points.items():
        application.await_file(tmp_path / f"{point}.reached")
        os.kill(int((tmp_path / f"executor.{task}").read_text()), signal.SIGKILL)
    assert result(application.complete(ENOUGH_S)) == 3
    assert committed(spark_kafka, settings) == values()


async def _push(servers: str, topic: str, pushes: list[counting_fleet.Pushed]) -> None:
    async with Producer(bootstrap_servers=servers, enable_metrics_push=False) as producer:
        for each in pushes:
            producer.send(topic, each.value, key=each.key, headers=list(each.headers))
        await producer.flush()


@pytest.mark.long
def test_telemetry_example_runs_as_its_page_says(
    cluster: StandaloneCluster, spark_kafka: KafkaCluster, tmp_path: Path
) -> None:
    counted = asyncio.run(counting_fleet.run_fleet(8))
    topic = spark_kafka.create_topic(None, 3)
    asyncio.run(_push(spark_kafka.bootstrap, topic, counted.records))
    (line,) = re.findall(r"spark-submit --master (?:.*\\\n)*.*", PAGE.read_text())
    program, _, arguments = line.replace("\\\n", "").partition("examples/")[2].partition(" ")
    given = {"kafka:9092": spark_kafka.bootstrap, "client-metrics": topic}
    given["s3a://metrics/kafka-clients"] = str(tmp_path)
    words = [given.get(word, word) for word in arguments.split()]
    output = cluster.submit(ROOT / "examples" / program, *words).complete(ENOUGH_S)
    assert f"slow: {counting_fleet.SLOW}, " in output
    points = dataset(tmp_path / "tables/points", partitioning="hive")
    read = points.to_table(columns=["partition", "offset"]).to_pylist()
    assert len({tuple(row.values()) for row in read}) == len(counted.records)

"""Tests that the transactional producers of other clients work with the embedded cluster."""

import subprocess

import pytest
from kafka_harness import KAFKA
from kafka_harness.files import CACHE, REPOSITORY, prepared
from kafka_harness.java import find

from aiokclient.protocol import ApiKey
from aiokclient.record.batch import walk
from aiokclient.testing import EmbeddedCluster
from aiokclient.types import TopicPartition

COUNT = 8
COMMITTED = [b"%d" % number for number in range(0, COUNT, 2)] + [b"%d" % (COUNT + 1)]
SOURCE = REPOSITORY / "tests" / "java" / "TransactionalProducer.java"
GROUP = "g"


@pytest.fixture(params=[2, 0])
def level(request):
    return request.param


@pytest.fixture
def cluster(level):
    with EmbeddedCluster(3, topics={"orders": 2}, transaction_version=level) as cluster:
        yield cluster


def committed_values(cluster, wire_to, partition):
    """Return the values that remain without the aborted transactions that the broker lists."""
    connection = wire_to(cluster).to(cluster.leader("orders", partition))
    answer = connection.fetch("orders", partitions=(partition,), committed=True)
    assert answer.last_stable_offset == answer.high_watermark
    open_of = {}
    for each in answer.aborted_transactions:
        open_of.setdefault(each.producer_id, []).append(each.first_offset)
    values = []
    for batch in walk(answer.records):
        waiting = open_of.get(batch.producer_id, [])
        if batch.is_control:
            if waiting and waiting[0] < batch.base_offset:
                del waiting[0]
        elif not (waiting and waiting[0] <= batch.base_offset):
            values += [record.value for record in batch.records("orders", partition)]
    return values


def check(cluster, wire_to, level):
    state = next(iter(cluster.transactions))
    cluster.wait_for(lambda: cluster.transactions[state].state == "CompleteCommit")
    for partition in (0, 1):
        assert committed_values(cluster, wire_to, partition) == COMMITTED
    offset = cluster.committed(GROUP)[TopicPartition("orders", 0)].offset
    assert offset == COUNT - 2
    assert cluster.pending_offsets(GROUP) == {}
    adds = [each for each in cluster.requests if each.api == ApiKey.ADD_PARTITIONS_TO_TXN]
    return bool(adds)


@pytest.mark.java
@pytest.mark.timeout(600)
def test_the_transactional_producer_of_java(cluster, level, wire_to, java):
    jars = KAFKA.class_path()

    def compile_into(folder):
        folder.mkdir()
        command = [find("javac"), "-nowarn", "-cp", jars, "-d", str(folder), str(SOURCE)]
        subprocess.run(command, check=True)

    classes = prepared(CACHE / f"transactional-producer-{SOURCE.stat().st_mtime_ns}", compile_into)
    silence = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    arguments = [cluster.bootstrap_servers, "orders", "t", GROUP, str(COUNT)]
    command = [find("java"), "-Xmx96m", "-XX:TieredStopAtLevel=1", silence]
    command += ["-cp", f"{jars}:{classes}", "TransactionalProducer", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "fenced\n"), done.stderr
    adds = check(cluster, wire_to, level)
    assert adds == (level == 0)


def test_the_transactional_producer_of_confluent(cluster, level, wire_to):
    confluent = pytest.importorskip("confluent_kafka")

    def producer():
        made = confluent.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "transactional.id": "t",
                "log_level": 0,
            }
        )
        made.init_transactions(60.0)
        return made

    def send(producer, number):
        for partition in (0, 1):
            producer.produce("orders", b"%d" % number, partition=partition)

    consumer = confluent.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP}
    )
    first = producer()
    for number in range(COUNT):
        first.begin_transaction()
        send(first, number)
        offsets = [confluent.TopicPartition("orders", 0, number)]
        first.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60.0)
        first.abort_transaction(60.0) if number % 2 else first.commit_transaction(60.0)
    first.begin_transaction()
    send(first, COUNT)
    first.flush(60.0)
    second = producer()
    with pytest.raises(confluent.KafkaException) as raised:
        first.commit_transaction(60.0)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    send(second, COUNT + 1)
    second.commit_transaction(60.0)
    consumer.close()
    check(cluster, wire_to, level)

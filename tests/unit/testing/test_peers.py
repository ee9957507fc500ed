"""Tests that confluent-kafka and aiokafka write to the embedded cluster and read from it."""

import gc
import logging

import pytest

from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 3000
PATIENCE_S = 60.0


@pytest.fixture
def servers():
    with EmbeddedCluster(brokers=3, topics={"orders": 3}) as cluster:
        yield cluster
    # Report here what a peer or the cluster left open, and not in a later test.
    gc.collect()


async def disconnected(cluster):
    """Wait until the peer has closed its connections and the brokers have noticed it."""
    await cluster.until(lambda: cluster.connections() == 0)


def expected(partition):
    return [b"%d" % number for number in range(COUNT) if number % 3 == partition]


def check(cluster):
    """Check that the log has each value once, and in order."""
    for partition in range(3):
        found = [record.value for record in cluster.records("orders", partition)]
        assert found == expected(partition)


class TestConfluent:
    peer = pytest.importorskip("confluent_kafka")

    def producer(self, cluster, **options):
        options = {key.replace("_", "."): value for key, value in options.items()}
        return self.peer.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **options}
        )

    def send_all(self, producer, between=lambda number: None):
        failed = []

        def delivered(error, message):
            if error is not None:
                failed.append(error)

        for number in range(COUNT):
            between(number)
            producer.produce("orders", b"%d" % number, partition=number % 3, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []

    def read_all(self, cluster, **options):
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"}
        settings |= {"enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}
        consumer = self.peer.Consumer(settings | options)
        values, ended = {0: [], 1: [], 2: []}, set()
        try:
            tp = self.peer.TopicPartition
            consumer.assign([tp("orders", partition, 0) for partition in range(3)])
            while len(ended) < 3:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is None:
                        values[message.partition()].append(message.value())
                    else:
                        assert message.error().code() == self.peer.KafkaError._PARTITION_EOF
                        ended.add(message.partition())
        finally:
            consumer.close()
        return values

    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("idempotent", [False, True])
    def test_librdkafka_writes_and_reads(self, servers, codec, idempotent):
        producer = self.producer(servers, enable_idempotence=idempotent, compression_type=codec)
        self.send_all(producer)
        check(servers)
        assert self.read_all(servers) == {each: expected(each) for each in range(3)}

    def test_librdkafka_writes_once_when_leaders_move_and_responses_are_lost(self, servers):
        options = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "linger_ms": 1}
        producer = self.producer(servers, enable_idempotence=True, **options)

        def between(number):
            if number == 3:
                # A broker accepts any first batch of a producer. If the first one were lost and
                # the leader moved, the second one could come before it, which would be fatal.
                producer.flush(PATIENCE_S)
                servers.drop(ApiKey.PRODUCE, when="after", times=3)
                servers.drop(ApiKey.PRODUCE, when="before", times=3)
            if number % 500 == 250:
                servers.move_leader("orders", number % 3)

        self.send_all(producer, between)
        check(servers)

    def test_librdkafka_continues_when_a_broker_restarts(self, servers):
        options = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "linger_ms": 1}
        producer = self.producer(servers, enable_idempotence=True, **options)

        def between(number):
            if number == 3:
                producer.flush(PATIENCE_S)  # As above.
            if number == 1000:
                servers.stop(2)
            if number == 2000:
                servers.start(2)

        self.send_all(producer, between)
        check(servers)
        assert self.read_all(servers) == {each: expected(each) for each in range(3)}

    def test_librdkafka_gets_offsets_by_time(self, servers):
        servers.produce("orders", [b"a", b"b"], timestamp=100)
        servers.produce("orders", [b"c"], timestamp=200)
        settings = {"bootstrap.servers": servers.bootstrap_servers, "group.id": "none"}
        consumer = self.peer.Consumer(settings | {"log_level": 0})
        tp = self.peer.TopicPartition
        try:
            assert consumer.get_watermark_offsets(tp("orders", 0), PATIENCE_S) == (0, 3)
            (found,) = consumer.offsets_for_times([tp("orders", 0, 150)], PATIENCE_S)
            assert found.offset == 2
        finally:
            consumer.close()

    def test_librdkafka_admin_calls_work(self, servers):
        from confluent_kafka import admin

        client = admin.AdminClient({"bootstrap.servers": servers.bootstrap_servers, "log_level": 0})
        made = client.create_topics([admin.NewTopic("made", 2, 3)])
        made["made"].result(PATIENCE_S)
        assert len(client.list_topics("made", PATIENCE_S).topics["made"].partitions) == 2
        client.create_partitions([admin.NewPartitions("made", 4)])["made"].result(PATIENCE_S)
        assert servers.topics["made"] == 4
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "made")
        resource.add_incremental_config(
            admin.ConfigEntry(
                "retention.ms", "5", incremental_operation=admin.AlterConfigOpType.SET
            )
        )
        client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        described = client.describe_configs(
            [admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "made")]
        )
        (configs,) = [future.result(PATIENCE_S) for future in described.values()]
        assert configs["retention.ms"].value == "5"
        client.delete_topics(["made"])["made"].result(PATIENCE_S)
        assert "made" not in servers.topics
        assert len(client.describe_cluster().result(PATIENCE_S).nodes) == 3


class TestAiokafka:
    peer = pytest.importorskip("aiokafka")

    @pytest.fixture(autouse=True)
    def quiet(self):
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        yield
        logging.getLogger("aiokafka").setLevel(logging.NOTSET)

    @pytest.mark.parametrize("codec", [None, *CODECS[1:]])
    async def test_aiokafka_writes_and_reads(self, servers, codec):
        producer = self.peer.AIOKafkaProducer(
            bootstrap_servers=servers.bootstrap_servers,
            enable_idempotence=True,
            compression_type=codec,
        )
        await producer.start()
        try:
            sent = [
                await producer.send("orders", b"%d" % number, partition=number % 3)
                for number in range(COUNT)
            ]
            for each in sent:
                await each
        finally:
            await producer.stop()
        await disconnected(servers)
        check(servers)
        assert await self.read(servers) == {each: expected(each) for each in range(3)}

    async def read(self, servers):
        consumer = self.peer.AIOKafkaConsumer(
            bootstrap_servers=servers.bootstrap_servers, enable_auto_commit=False
        )
        partitions = [self.peer.TopicPartition("orders", each) for each in range(3)]
        await consumer.start()
        try:
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            values = {0: [], 1: [], 2: []}
            while sum(map(len, values.values())) < COUNT:
                for tp, records in (await consumer.getmany(timeout_ms=10_000)).items():
                    values[tp.partition] += [record.value for record in records]
        finally:
            await consumer.stop()
        await disconnected(servers)
        return values

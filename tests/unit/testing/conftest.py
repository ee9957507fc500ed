"""Fixtures: an embedded cluster for each test, and a small client over blocking sockets."""

import itertools
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from parity import named

from aiokclient.protocol import messages
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages import create_topics
from aiokclient.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from aiokclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.record.batch import Compression, RecordBatchBuilder, walk
from aiokclient.testing import EmbeddedCluster

SETTLED_S = 60.0


class Connection:
    """A connection to one broker.

    It uses the latest version of each API unless a version is passed.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, SETTLED_S)
        self.pipeline = ClientPipeline("raw")
        self.buffer = b""

    def send(self, request: Any, version: int | None = None, *, expect: bool = True) -> None:
        if version is None:
            version = request.max_version
        _, segments = self.pipeline.encode_request(request, version, expect_response=expect)
        self.socket.sendall(b"".join(segments))

    def send_all(self, *requests: Any) -> None:
        """Send several requests in one write."""
        sent = [self.pipeline.encode_request(each, each.max_version)[1] for each in requests]
        self.socket.sendall(b"".join(segment for segments in sent for segment in segments))

    def receive(self) -> Any:
        """Return the next response.

        Raises EOFError if the broker closed the connection.
        """
        size = int.from_bytes(self._read(4), "big")
        frame = memoryview(self._read(size))
        return self.pipeline.match_response(frame).decode(frame)

    def _read(self, count: int) -> bytes:
        while len(self.buffer) < count:
            try:
                received = self.socket.recv(1 << 16)
            except ConnectionResetError:
                received = b""
            if not received:
                raise EOFError
            self.buffer += received
        result, self.buffer = self.buffer[:count], self.buffer[count:]
        return result

    def request(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    def silent(self) -> bool:
        """Return whether the connection has no unread data."""
        self.socket.setblocking(False)
        try:
            self.buffer += self.socket.recv(1 << 16)
        except BlockingIOError:
            pass
        self.socket.settimeout(SETTLED_S)
        return not self.buffer

    def closed(self) -> bool:
        """Wait for the broker to close the connection, and return whether it did."""
        try:
            self._read(1)
        except EOFError:
            return True
        return False

    # -- requests for one partition ---------------------------------------------------------

    def produce(
        self,
        topic: str | uuid.UUID,
        batch: Any,
        partition: int = 0,
        *,
        acks: int = -1,
        timeout_ms: int = 60_000,
        version: int | None = None,
        wait: bool = True,
    ) -> Any:
        """Produce a batch to one partition, and return the partition's response."""
        data = TopicProduceData(
            partition_data=[PartitionProduceData(index=partition, records=batch)]
        )
        if isinstance(topic, str):
            data.name = topic
            version = 12 if version is None else version
        else:
            data.topic_id = topic
        request = messages.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data])
        self.send(request, version, expect=acks != 0)
        if acks == 0 or not wait:
            return None
        return self.receive().responses[0].partition_responses[0]

    def fetch(self, topic: str | uuid.UUID, **options: Any) -> Any:
        """Send the request of `fetch_request`, and return the response of its only partition."""
        version = options.pop("version", 12 if isinstance(topic, str) else None)
        response = self.request(fetch_request(topic, **options), version)
        return response.responses[0].partitions[0]

    def list_offset(
        self,
        topic: str,
        timestamp: int,
        *,
        partition: int = 0,
        epoch: int = -1,
        isolation: int = 0,
        version: int | None = None,
    ) -> Any:
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
        request = messages.ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics
        )
        return self.request(request, version).topics[0].partitions[0]


def fetch_request(
    topic: str | uuid.UUID | None,
    offset: int = 0,
    partitions: Sequence[int] = (0,),
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    last_epoch: int = -1,
    committed: bool = False,
    rack: str = "",
    forget: tuple[str | uuid.UUID, list[int]] | None = None,
) -> messages.FetchRequest:
    def named(cls: Any, name: str | uuid.UUID, indexes: Any) -> Any:
        by = {"topic": name} if isinstance(name, str) else {"topic_id": name}
        return cls(partitions=indexes, **by)

    wanted = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=partition_max_bytes,
        )
        for index in partitions
    ]
    return messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[] if topic is None else [named(FetchTopic, topic, wanted)],
        forgotten_topics_data=[] if forget is None else [named(ForgottenTopic, *forget)],
        rack_id=rack,
    )


def batch_of(
    *values: bytes | None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    timestamp: int = 1_000,
    compression: Compression = Compression.NONE,
    key: bytes | None = None,
) -> bytes:
    """Return a record batch.

    `producer` has the producer id, epoch, and first sequence.
    """
    builder = RecordBatchBuilder(compression=compression, limit=1 << 30)
    for index, value in enumerate(values):
        builder.append(timestamp + index, key, value)
    builder.close()
    return bytes(builder.seal(*producer, transactional=transactional))


def values_of(answer: Any) -> list[bytes | None]:
    """Return the values of the records in a partition's fetch response."""
    return [
        record.value
        for batch in walk(answer.records or b"")
        if not batch.is_control
        for record in batch.records("", 0)
    ]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics={"orders": 3}, seed=7) as cluster:
        yield cluster


class Wire:
    """A factory of connections, which closes them at the end.

    By default, a connection is to the leader of orders-0.
    """

    batch = staticmethod(batch_of)
    values = staticmethod(values_of)
    fetch_request = staticmethod(fetch_request)

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.connections: list[Connection] = []

    def to(self, broker: int) -> Connection:
        return self.at(self.cluster.address(broker))

    def at(self, address: tuple[str, int]) -> Connection:
        connection = Connection(address)
        self.connections.append(connection)
        return connection

    def leader(self, topic: str = "orders", partition: int = 0) -> Connection:
        return self.to(self.cluster.leader(topic, partition))

    def follower(self, topic: str = "orders", partition: int = 0) -> Connection:
        leader = self.cluster.leader(topic, partition)
        replicas = self.cluster.replicas(topic, partition)
        return self.to(next(each for each in replicas if each != leader))

    def close(self) -> None:
        for each in self.connections:
            each.socket.close()


@pytest.fixture
def wire(cluster: EmbeddedCluster) -> Iterator[Wire]:
    wire = Wire(cluster)
    yield wire
    wire.close()


@pytest.fixture
def wire_to() -> Iterator[Any]:
    """Return `wire_to(cluster)`, which makes a `Wire` for a cluster that the test makes itself."""
    made: list[Wire] = []

    def make(cluster: EmbeddedCluster) -> Wire:
        made.append(Wire(cluster))
        return made[-1]

    yield make
    for each in made:
        each.close()


_names = itertools.count()


class ScenarioBroker:
    """One broker for a scenario: a connection to it, new topics, and short forms of requests."""

    def __init__(self, wire, address):
        self.wire, self.address = wire, address
        self.connection = wire.at(address)
        self.request = self.connection.request

    def again(self):
        return self.wire.at(self.address)

    def topic(self, partitions=1, *, prefix="parity-", **configs):
        """Create a topic with a new name, wait until it can be used, and return its name and id."""
        name = f"{prefix}{next(_names)}-{uuid.uuid4().hex[:6]}"
        values = [
            create_topics.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=values
        )
        (made,) = self.request(messages.CreateTopicsRequest(topics=[topic])).topics
        assert made.error_code == 0, made
        deadline = time.monotonic() + 60
        for partition in range(partitions):
            while self.connection.list_offset(name, -1, partition=partition).error_code:
                assert time.monotonic() < deadline
        return name, made.topic_id

    def produced(self, topic, *values, **options):
        answer = self.connection.produce(topic, self.wire.batch(*values, **options))
        return named(answer.error_code), answer.base_offset

    def list_offset(self, topic, timestamp, **options):
        answer = self.connection.list_offset(topic, timestamp, **options)
        return named(answer.error_code), answer.offset, answer.timestamp, answer.leader_epoch

    def fetched(self, topic, **options):
        answer = self.connection.fetch(topic, **options)
        return (
            named(answer.error_code),
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            answer.diverging_epoch.end_offset,
            len(answer.records or b""),
        )


@pytest.fixture
def scenario_broker() -> type[ScenarioBroker]:
    """Return `scenario_broker(wire, address)`, which makes a `ScenarioBroker` for one broker."""
    return ScenarioBroker


@pytest.fixture
def parity(kafka: Any, wire_to: Any) -> Any:
    """Return a function that runs a scenario on both clusters.

    It checks that the embedded cluster and the real broker give the same results.
    """
    host, port = kafka.bootstrap.split(",")[0].split(":")

    def compare(scenario: Callable[[ScenarioBroker], Any], **options: Any) -> None:
        with EmbeddedCluster(**options) as cluster:
            wire = wire_to(cluster)
            ours = scenario(ScenarioBroker(wire, cluster.address(1)))
        theirs = scenario(ScenarioBroker(wire, (host, int(port))))
        if isinstance(ours, list):
            assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
        assert ours == theirs

    return compare

"""Clients whose real brokers are all killed, and that find a cluster by their bootstrap name.

The brokers return with their data at other ports, or the name then resolves to another cluster.
"""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from at_work import NAME, PARTITIONS, AtWork, Names, Reader, at_work, read_log
from kafka_harness import KAFKA, KafkaCluster
from ledger import Ledger, Payload, pack, unpack
from metadata_proxy import MetadataProxy
from rebootstrap_peers import JavaReader, OurReader, of_coordinator, reading, rebootstrap

from aiokclient import Admin, AnyBroker, Client, Consumer, Producer, State, TopicPartition
from aiokclient.errors import ClusterChangedError
from aiokclient.events import ClusterChanged, Rebootstrapped
from aiokclient.protocol import messages

pytestmark = pytest.mark.timeout(600)
"""The timeout is long: to kill and start all brokers takes over a minute on a busy machine."""

IN_SYNC = {"min.insync.replicas": 2}
OTHER = 9
"""The producer number of the payloads that are already in the other cluster when clients find
it."""
BEGIN: Mapping[str, list[int]] = {
    "classic": [7, 0, 0],
    "KIP-848": [0, 11, 0],
    "assigned": [0, 0, 0],
}
"""The offsets at which consumers begin in the other cluster: the offsets committed there, or 0."""


@pytest.fixture(scope="module")
def moving(java: str) -> Iterator[KafkaCluster]:
    """Three brokers and a controller, whose ports change."""
    with KafkaCluster(KAFKA, brokers=3, properties={"broker.session.timeout.ms": 3000}) as cluster:
        yield cluster


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments)


def kill_brokers(kafka: KafkaCluster) -> None:
    for node in (1, 2, 3):
        kafka.kill(node)


def return_elsewhere(kafka: KafkaCluster) -> None:
    """Kill the brokers if they run, and start them at other ports."""
    kill_brokers(kafka)
    kafka.move()
    kafka.heal()


def new_topics() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"t-{name}", f"x-{name}"


def options(names: Names, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": f"{NAME}:9092", "connector": names, **more}


@asynccontextmanager
async def clients_of(
    kafka: KafkaCluster, names: Names, topics: tuple[str, str], **more: Any
) -> AsyncIterator[AtWork]:
    for topic in topics:
        await in_thread(kafka.create_topic, topic, PARTITIONS, 3, IN_SYNC)
    async with at_work(*topics, **options(names, **more)) as work:
        await work.progress()
        yield work


def events_of(work: AtWork) -> dict[str, Any]:
    return {kind: client.events() for kind, client in work.clients.items()}


async def emitted(events: Mapping[str, Any], kind: type) -> dict[str, list[Any]]:
    """Return all events of a kind for each client.

    All clients must be closed, which ends the events.
    """
    return {
        name: [each async for each in found if isinstance(each, kind)]
        for name, found in events.items()
    }


@pytest.mark.fault(28)
async def test_clients_find_their_brokers_at_other_ports(moving: KafkaCluster) -> None:
    topics = new_topics()
    names = Names(moving.addresses())
    async with clients_of(moving, names, topics) as work:
        events = events_of(work)
        await in_thread(kill_brokers, moving)
        await in_thread(return_elsewhere, moving)
        names.addresses = moving.addresses()
        await work.progress()
        await work.stop_writing()
        await work.read_all()
    rebootstraps = await emitted(events, Rebootstrapped)
    assert all(each[0].trigger == "unavailable" for each in rebootstraps.values())
    assert not work.ledger.failed
    for found in (await read_log(moving.bootstrap, topics[0])).values():
        work.ledger.consume_all(found)
    work.ledger.check()
    work.transactions.check(await read_committed(moving.bootstrap, topics[1]))
    # The positions did not change, so nothing was read twice.
    for kind, reader in work.readers.items():
        for partition in range(PARTITIONS):
            offsets = [each.offset for each in reader.of(partition)]
            assert offsets == list(range(len(offsets))), kind


# -- another cluster


@asynccontextmanager
async def other_cluster(topics: tuple[str, str]) -> AsyncIterator[KafkaCluster]:
    """Start a cluster with the same topics, which are empty."""
    other = KafkaCluster(KAFKA)
    try:
        await in_thread(other.__enter__)
        for topic in topics:
            await in_thread(other.create_topic, topic, PARTITIONS)
        yield other
    finally:
        await in_thread(other.close)


async def fill(other: KafkaCluster, topic: str, ledger: Ledger, count: int) -> set[Payload]:
    """Write `count` payloads of another producer to each partition."""
    payloads = [
        ledger.payload(OTHER, topic, partition)
        for partition in range(PARTITIONS)
        for _ in range(count)
    ]
    async with Producer(bootstrap_servers=other.bootstrap) as producer:
        for each in payloads:
            producer.send(topic, pack(each), partition=each.partition)
            if producer.full:
                await producer.drain()
    return {*payloads}


async def commit(other: KafkaCluster, group: str, topic: str, begin: list[int]) -> None:
    """Commit the offsets that are above 0."""
    wanted = {TopicPartition(topic, p): offset for p, offset in enumerate(begin) if offset}
    async with Admin(bootstrap_servers=other.bootstrap) as admin:
        await admin.alter_consumer_group_offsets(group, wanted)


def check_log(log: Mapping[int, list[Any]], topic: str) -> set[Payload]:
    """Check that a log has no payload twice, and has them in the order of sending.

    Return the payloads.
    """
    found: list[Payload] = []
    for partition, records in log.items():
        payloads = [unpack(bytes(each.value)) for each in records]
        assert {each[:2] for each in payloads} <= {(topic, partition)}
        mine = [each.sequence for each in payloads if each.producer != OTHER]
        assert mine == sorted(mine)
        found += payloads
    assert len(found) == len({*found})
    return {*found}


def check_reading(reader: Reader, kind: str, log: Mapping[int, list[Any]]) -> None:
    """Check that a consumer has read the log of the other cluster from its BEGIN offset on."""
    for partition, begin in enumerate(BEGIN[kind]):
        read = reader.of(partition)
        there = [unpack(bytes(each.value)).producer == OTHER for each in read].index(True)
        former, present = read[:there], read[there:]
        assert [each.offset for each in former] == list(range(len(former))), kind
        assert [(each.offset, bytes(each.value)) for each in present] == [
            (each.offset, bytes(each.value)) for each in log[partition][begin:]
        ], kind


@pytest.mark.fault(28)
async def test_clients_continue_in_another_cluster_when_it_is_accepted(
    moving: KafkaCluster,
) -> None:
    """The other cluster has more records, so each offset of the former cluster exists there."""
    topics = topic, tx_topic = new_topics()
    names = Names(moving.addresses())
    try:
        async with clients_of(moving, names, topics) as work:
            events = events_of(work)
            await in_thread(kill_brokers, moving)
            async with other_cluster(topics) as other:
                count = max(len(reader.records) for reader in work.readers.values()) + 50
                there = await fill(other, topic, work.ledger, count)
                for kind, group in work.groups.items():
                    await commit(other, group, topic, BEGIN[kind])
                names.addresses = other.addresses()
                await work.progress()
                await work.stop_writing()
                present = await read_log(other.bootstrap, topic)
                transactions = await read_committed(other.bootstrap, tx_topic)
                last = {unpack(bytes(records[-1].value)) for records in present.values()}
                await work.read(last)
                for kind, reader in work.readers.items():
                    check_reading(reader, kind, present)
                for kind in work.groups:
                    consumer = work.clients[kind]
                    await consumer.commit()
                    stored = await consumer.committed(work.tps())
                    offsets = {tp.partition: each.offset for tp, each in stored.items()}
                    assert offsets == {part: len(records) for part, records in present.items()}
    finally:
        await in_thread(return_elsewhere, moving)
    for kind, found in (await emitted(events, ClusterChanged)).items():
        ids = [(each.old_cluster_id, each.new_cluster_id) for each in found]
        assert ids == [(moving.cluster_id, other.cluster_id)], kind
    former = check_log(await read_log(moving.bootstrap, topic), topic)
    payloads = check_log(present, topic)
    assert there <= payloads
    assert not there & former
    assert not work.ledger.failed
    assert {*work.ledger.acknowledged} <= former | payloads
    before = await read_committed(moving.bootstrap, tx_topic)
    assert before
    assert transactions
    work.transactions.check([*before, *transactions])


async def read_committed(bootstrap: str, topic: str) -> list[Any]:
    log = await read_log(bootstrap, topic, isolation_level="read_committed")
    return [each for records in log.values() for each in records]


# -- with cluster_id_change="fail"


async def send(producer: Producer[Any, Any], topic: str) -> None:
    for partition in itertools.cycle(range(PARTITIONS)):
        await producer.send(topic, b"from a client", partition=partition)
        await asyncio.sleep(0.02)


async def transact(producer: Producer[Any, Any], topic: str) -> None:
    while True:
        async with producer.transaction() as transaction:
            await transaction.send(topic, b"from a client", partition=0)


async def read(consumer: Consumer[Any, Any], topic: str) -> None:
    async for record in consumer:
        assert record.value == b"from a client"


async def list_topics(admin: Admin, topic: str) -> None:
    while True:
        assert topic in await admin.list_topics()
        await asyncio.sleep(0.1)


async def list_groups(client: Client, topic: str) -> None:
    while True:
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        await asyncio.sleep(0.1)


Use = Callable[[Any, str], Coroutine[Any, Any, None]]


def users(topic: str, name: str, given: dict[str, Any]) -> dict[str, tuple[Any, Use]]:
    """Return clients of each kind, each with a function that uses it forever.

    `name` is the transactional id, and the beginning of each group id.
    """
    reading = {"auto_offset_reset": "earliest", **given}
    kip848 = {"group_id": f"{name}-848", "group_protocol": "consumer"}
    return {
        "producer": (Producer[Any, Any](**given), send),
        "transactional producer": (Producer[Any, Any](**given, transactional_id=name), transact),
        "consumer": (Consumer[Any, Any](topic, **reading), read),
        "classic": (Consumer[Any, Any](topic, group_id=name, **reading), read),
        "KIP-848": (Consumer[Any, Any](topic, **kip848, **reading), read),
        "admin": (Admin(**given), list_topics),
        "client": (Client(**given), list_groups),
    }


@pytest.mark.fault(28)
async def test_clients_fail_and_leave_nothing_in_another_cluster_when_it_is_not_accepted(
    moving: KafkaCluster,
) -> None:
    topics = topic, _ = new_topics()
    names, name = Names(moving.addresses()), f"g-{uuid.uuid4().hex[:8]}"
    await in_thread(moving.create_topic, topic, PARTITIONS, 3, IN_SYNC)
    given = options(names, cluster_id_change="fail", default_api_timeout_ms=240_000)
    clients = users(topic, name, given)
    try:
        for client, _ in clients.values():
            await client.start()
        tasks = {
            kind: asyncio.create_task(use(client, topic)) for kind, (client, use) in clients.items()
        }
        await until_log_grows(moving, topic)
        await in_thread(kill_brokers, moving)
        async with other_cluster(topics) as other:
            there = await fill(other, topic, Ledger(), 20)
            names.addresses = other.addresses()
            _, pending = await asyncio.wait(tasks.values(), timeout=240)
            assert not pending
            for kind, task in tasks.items():
                error = task.exception()
                assert isinstance(error, ClusterChangedError), (kind, error)
                ids = (error.old_cluster_id, error.new_cluster_id)
                assert ids == (moving.cluster_id, other.cluster_id)
                assert clients[kind][0].state is State.FAILED
            for client, _ in clients.values():
                await client.close()
            log = await read_log(other.bootstrap, topic)
            assert check_log(log, topic) == there
            async with Admin(bootstrap_servers=other.bootstrap) as admin:
                assert not await admin.list_groups()
                assert not await admin.list_transactions()
    finally:
        for client, _ in clients.values():
            await client.close()
        await in_thread(return_elsewhere, moving)


async def until_log_grows(kafka: KafkaCluster, topic: str) -> None:
    """Wait until the clients have written to each partition."""
    tps = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    options = {"bootstrap_servers": kafka.bootstrap, "auto_offset_reset": "earliest"}
    async with Consumer[Any, Any](**options) as consumer:
        consumer.assign(tps)
        seen = dict.fromkeys(tps, 0)
        async with asyncio.timeout(120):
            while min(seen.values()) < 20:
                record = await consumer.get(timeout=60)
                assert record is not None
                seen[TopicPartition(topic, record.partition)] += 1


# -- a proxy that requires it


@pytest.mark.fault(28)
@pytest.mark.parametrize("kind", [JavaReader, OurReader])
async def test_consumer_starts_again_from_its_bootstrap_server_when_a_proxy_requires_it(
    kafka: Any, java: str, kind: type[Any]
) -> None:
    """Java's consumer keeps the connection to its group coordinator. This library's closes it."""
    topic = await asyncio.to_thread(kafka.create_topic)
    group = f"g-{uuid.uuid4().hex[:8]}"
    async with MetadataProxy(kafka.addresses()[0]) as proxy:
        reader = kind(proxy.bootstrap, topic, group)
        async with reading(reader):
            before, coordinator = await rebootstrap(proxy, kafka, topic, reader)
            (former,) = coordinator
            (present,) = of_coordinator(proxy)
            others = [each for each in before if each is not former]
            assert others
            assert not any(each.is_open for each in others)
            if kind is JavaReader:
                assert former.is_open
                assert present is former
            else:
                assert not former.is_open
                assert present is not former
        if kind is OurReader:
            assert reader.assignments == 1
            triggers = [e.trigger async for e in reader.events if isinstance(e, Rebootstrapped)]
            assert triggers == ["required"]

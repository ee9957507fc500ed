"""Clients whose addresses lead to another cluster."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest
from driver import Writer, partitions_of
from ledger import unpack
from rebootstrapping import Plain, Watch
from two_clusters import (
    EVERY_CLUSTER,
    EVERY_STRATEGY,
    VERSIONS,
    in_two_clusters,
    read,
    replace_cluster,
)
from world import World, simulate

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    Consumer,
    GroupMember,
    Producer,
    State,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ClusterChangedError,
    CommitFailedError,
    InvalidConfigurationError,
    NoOffsetError,
)
from aiokclient.events import ClusterChanged, Rebootstrapped
from aiokclient.protocol import ApiKey, messages

T = TopicPartition("t", 0)
GROUPS = [("classic", version) for version in VERSIONS] + [("consumer", "Kafka 4.4")]
"""The group protocols, with the versions of brokers that support them."""


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.__dict__.get("event") == "cluster_changed"]


@EVERY_CLUSTER
@EVERY_STRATEGY
def test_change_is_one_warning_and_one_event_with_both_ids(
    limits: dict[Any, Any], strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        async with Client(**options) as client:
            events = client.events()
            former = replace_cluster(world)
            request = messages.MetadataRequest(topics=[])
            response = await client.request(request, to=AnyBroker())
            await client.cluster.updater.refresh(timeout=10)
            present = world.cluster.cluster_id
            assert response.cluster_id == present
            assert client.cluster.metadata.cluster_id == present
        found = [each async for each in events]
        changes = [each for each in found if isinstance(each, ClusterChanged)]
        assert [(each.old_cluster_id, each.new_cluster_id) for each in changes] == [
            (former, present)
        ]
        triggers = [each.trigger for each in found if isinstance(each, Rebootstrapped)]
        assert set(triggers) <= {"required", "unavailable"}
        assert bool(triggers) is (strategy == "rebootstrap")
        (warning,) = warnings(caplog)
        assert former in warning.getMessage()
        assert present in warning.getMessage()

    in_two_clusters(work, limits, strategy)


@EVERY_CLUSTER
@EVERY_STRATEGY
def test_every_acknowledged_record_is_in_one_of_the_two_logs(
    limits: dict[Any, Any], strategy: str
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        former: list[Any] = []
        async with Producer(**options) as producer:
            writer = Writer(producer, world.ledger, partitions_of({"t": 3}), pause=0.01)
            writing = asyncio.create_task(writer.run())
            await world.ledger.until(200)
            former += world.cluster.records("t")
            # Drop responses, so that the outcome of some records is unknown.
            with world.cluster.drop(ApiKey.PRODUCE, when="after", times=3):
                await asyncio.sleep(0.1)
                former[:] = world.cluster.records("t")
                replace_cluster(world)
            await world.ledger.until(len(world.ledger.sent) + 100)
            writer.stopped = True
            await writing
            await producer.flush()
        present = world.cluster.records("t")
        values = [bytes(each.value) for each in [*former, *present]]
        acknowledged = {payload.sequence for payload in world.ledger.acknowledged}
        assert len(acknowledged) > 100
        for log in (former, present):
            contents = [bytes(each.value) for each in log]
            assert len(contents) == len(set(contents)), "written twice"
        found = {unpack(value) for value in values}
        assert set(world.ledger.acknowledged) <= found

    in_two_clusters(work, limits, strategy)


@EVERY_CLUSTER
@EVERY_STRATEGY
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_offsets_of_the_old_cluster_are_not_used_even_if_they_exist(
    limits: dict[Any, Any], strategy: str, reset: str
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer(**options, auto_offset_reset=reset) as consumer:
            consumer.assign([T])
            consumer.seek(T, 0)
            assert len(await read(consumer, 5)) == 5
            consumer.pause([TopicPartition("t", 0)])
            replace_cluster(world, records=20)
            await consumer._cluster.updater.refresh(["t"], timeout=30)
            assert consumer.paused() == {T}
            consumer.resume([T])
            await asyncio.sleep(1)
            world.cluster.produce("t", [b"last"])
            found = await read(consumer, 21 if reset == "earliest" else 1)
            assert found[0].offset == (0 if reset == "earliest" else 20)
            assert b"old" not in [bytes(each.value) for each in found]

    in_two_clusters(work, limits, strategy)


@EVERY_STRATEGY
def test_consumer_without_a_reset_raises(strategy: str) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer(**options, auto_offset_reset="none") as consumer:
            consumer.assign([T])
            consumer.seek(T, 0)
            assert len(await read(consumer, 5)) == 5
            replace_cluster(world, records=20)
            with pytest.raises(NoOffsetError):
                await read(consumer, 20)

    in_two_clusters(work, {}, strategy)


@pytest.mark.parametrize(("protocol", "version"), GROUPS)
@EVERY_STRATEGY
def test_members_join_again_and_read_from_the_offsets_of_their_group_there(
    version: str, strategy: str, protocol: str
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        group = {**options, "group_id": "g", "group_protocol": protocol}
        consumer = Consumer("t", **group, auto_offset_reset="earliest")
        async with consumer:
            await read(consumer, 10)
            await consumer.commit()
            member = consumer.group_metadata().member_id
            with world.cluster.delay(ApiKey.OFFSET_FETCH, 3.0):
                replace_cluster(world, records=20)
                async with Admin(**world.options()) as admin:
                    await admin.alter_consumer_group_offsets("g", {T: 7})
            found = await read(consumer, 13 + 40)
            assert min(each.offset for each in found if each.partition == 0) == 7
            assert all(bytes(each.value).startswith(b"new") for each in found)
            assert consumer.group_metadata().member_id
            assert member
            await consumer.commit()
        async with Consumer(**group) as consumer:
            stored = await consumer.committed([T])
            assert stored[T] is not None
            assert stored[T].offset == 20

    in_two_clusters(work, VERSIONS[version], strategy)


@EVERY_STRATEGY
@pytest.mark.parametrize("state", ["open", "committing", "ready"])
def test_open_transaction_fails_and_the_next_one_has_a_producer_id_of_the_new_cluster(
    strategy: str, state: str
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        async with Producer(**options, transactional_id="tx") as producer:
            async with producer.transaction() as tx:
                await tx.send("t", b"first")
            if state == "ready":
                replace_cluster(world)
                await producer._cluster.updater.refresh(timeout=30)
            else:
                await producer.begin_transaction()
                await producer.send("t", b"second")
                if state == "committing":
                    with world.cluster.delay(ApiKey.END_TXN, 5.0):
                        committing = asyncio.create_task(producer.commit_transaction())
                        await asyncio.sleep(0.1)
                        replace_cluster(world)
                        with pytest.raises(ApplicationRecoverableError):
                            await committing
                else:
                    replace_cluster(world)
                    with contextlib.suppress(ApplicationRecoverableError):
                        await producer.send("t", b"third")
                    await asyncio.sleep(10)
                    with pytest.raises(ApplicationRecoverableError):
                        await producer.commit_transaction()
                await producer.restart()
            async with producer.transaction() as tx:
                await tx.send("t", b"last")
        assert [bytes(each.value) for each in world.cluster.records("t")] == [b"last"]
        assert set(world.cluster.transactions) == {"tx"}

    in_two_clusters(work, {}, strategy)


def test_transaction_with_a_consumer_in_another_cluster_is_aborted() -> None:
    """The producer is connected to the new cluster, and the consumer still to the former one."""

    async def scenario(world: World) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        group = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
        other = world.sim.cluster(brokers=1, topics={"t": 3}, port=19092)
        async with other, Consumer(**world.options(**group)) as consumer:
            consumer.assign([T])
            assert len(await read(consumer, 5)) == 5
            servers = other.bootstrap_servers
            async with world.producer(transactional_id="tx", bootstrap_servers=servers) as producer:
                transaction = producer.transaction()
                consumer.mark_processed()
                await asyncio.sleep(1)

                async def consume_and_produce(transaction: Any = transaction) -> None:
                    async with transaction as tx:
                        tx.add(consumer)
                        assert len(await read(consumer, 2)) == 2
                        await tx.send("t", b"output", partition=0)

                with pytest.raises(AbortableError, match="another cluster"):
                    await consume_and_produce()
                assert transaction.outcome is TransactionOutcome.ABORTED
            assert not other.committed("g")
            # The consumer reads the records of the transaction again.
            assert [each.offset for each in await read(consumer, 5)] == list(range(5, 10))

    simulate(scenario, brokers=3, topics={"t": 3}, replication=3)


def test_commit_of_the_application_that_began_in_the_old_cluster_fails() -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        async with Consumer(**options, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign([T])
            await read(consumer, 10)
            for broker in world.cluster.brokers:
                world.cluster.stop(broker)
            committing = asyncio.create_task(consumer.commit(timeout=30))
            await asyncio.sleep(1)
            replace_cluster(world, records=20)
            with pytest.raises(CommitFailedError):
                await committing
            assert not any(
                part.committed_offset == 10
                for each in world.requests(ApiKey.OFFSET_COMMIT)
                for topic in each.message.topics
                for part in topic.partitions
            )
            assert (await read(consumer, 20))[0].offset == 0

    in_two_clusters(work, {})


@EVERY_STRATEGY
def test_rewind_of_a_group_that_began_in_the_old_cluster_fails(strategy: str) -> None:
    """The owner of the partition cannot rewind, because it is processing a record."""

    async def work(world: World, options: dict[str, Any]) -> None:
        world.cluster.produce("t", [b"old"] * 10)
        group = {"group_id": "g", "auto_offset_reset": "earliest"}
        async with Consumer("t", **group, **options) as consumer:
            offsets: list[int] = []
            processed = asyncio.Event()

            async def process() -> None:
                async for record in consumer:
                    if record.value == b"old":
                        await processed.wait()
                    elif record.partition == 0:
                        offsets.append(record.offset)

            processing = asyncio.create_task(process())
            await asyncio.sleep(3)
            rewinding = asyncio.create_task(consumer.rewind_group({T: 7}, timeout=60))
            await asyncio.sleep(2)
            assert not rewinding.done()
            replace_cluster(world, records=20)
            await consumer._cluster.updater.refresh(["t"], timeout=30)
            processed.set()
            with pytest.raises(CommitFailedError):
                await rewinding
            await asyncio.sleep(30)
            processing.cancel()
            await asyncio.wait([processing])
            assert offsets == list(range(20))

    in_two_clusters(work, {}, strategy)


@EVERY_STRATEGY
def test_group_member_joins_again(strategy: str) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        member = GroupMember("w", protocol_type="plain", protocols=[Plain()], **options)
        async with member:
            ids = []
            async for generation in member.generations():
                async with generation as present:
                    ids.append(present.member_id)
                    if len(ids) == 2:
                        break
                    replace_cluster(world)
                    await asyncio.sleep(60)
            assert ids[0] != ids[1]

    in_two_clusters(work, {}, strategy)


# -- cluster_id_change="fail"


async def use_producer(world: World, client: Any) -> None:
    for number in range(600):
        await client.send("t", b"%d" % number, partition=number % 3)
        await asyncio.sleep(0.1)


async def use_transactions(world: World, client: Any) -> None:
    for number in range(600):
        async with client.transaction() as transaction:
            await transaction.send("t", b"%d" % number, partition=number % 3)
            await asyncio.sleep(0.1)


async def use_consumer(world: World, client: Any) -> None:
    async for _ in client:
        pass


async def use_admin(world: World, client: Any) -> None:
    for _ in range(60):
        await client.list_topics()
        await asyncio.sleep(1)


async def use_client(world: World, client: Any) -> None:
    for _ in range(60):
        await client.request(messages.ListGroupsRequest(), to=AnyBroker())
        await asyncio.sleep(1)


async def use_member(world: World, client: Any) -> None:
    async for generation in client.generations():
        async with generation:
            await asyncio.sleep(1000)


USERS: dict[str, tuple[Callable[[dict[str, Any]], Any], Any]] = {
    "producer": (lambda options: Producer(**options), use_producer),
    "transactional producer": (
        lambda options: Producer(transactional_id="tx", **options),
        use_transactions,
    ),
    "consumer": (lambda options: Consumer("t", **options), use_consumer),
    "consumer in a classic group": (
        lambda options: Consumer("t", group_id="g", **options),
        use_consumer,
    ),
    "consumer in a KIP-848 group": (
        lambda options: Consumer("t", group_id="g", group_protocol="consumer", **options),
        use_consumer,
    ),
    "admin": (lambda options: Admin(**options), use_admin),
    "client": (lambda options: Client(**options), use_client),
    "GroupMember": (
        lambda options: GroupMember("w", protocol_type="plain", protocols=[Plain()], **options),
        use_member,
    ),
}
ALLOWED = {ApiKey.API_VERSIONS, ApiKey.METADATA}


@EVERY_STRATEGY
@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (kind, each)
        for kind in USERS
        for each in VERSIONS
        if "848" not in kind or not VERSIONS[each]
    ],
)
def test_fail_reads_and_writes_nothing_in_the_new_cluster(
    kind: str, version: str, strategy: str
) -> None:
    make, use = USERS[kind]

    async def work(world: World, options: dict[str, Any]) -> None:
        for partition in range(3):
            world.cluster.produce("t", [b"old"] * 10, partition)
        client = make(options)
        await client.start()
        using = asyncio.create_task(use(world, client))
        await asyncio.sleep(3)
        assert not using.done()
        former = replace_cluster(world, records=5)
        changed = world.now
        with pytest.raises(ClusterChangedError) as raised:
            await asyncio.wait_for(using, 60)
        assert client.state is State.FAILED
        assert isinstance(raised.value, InvalidConfigurationError)
        present = world.cluster.cluster_id
        assert (raised.value.old_cluster_id, raised.value.new_cluster_id) == (former, present)
        await asyncio.sleep(5)
        await client.close()
        reached = {each.api for each in world.cluster.requests if each.at > changed}
        assert reached <= ALLOWED
        assert [len(world.cluster.records("t"))] == [15]
        assert not world.cluster.groups
        assert not world.cluster.transactions

    in_two_clusters(work, VERSIONS[version], strategy, cluster_id_change="fail")


@EVERY_STRATEGY
@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.END_TXN])
def test_close_raises_nothing_when_the_failure_has_interrupted_a_transaction(
    strategy: str, api: ApiKey
) -> None:
    async def work(world: World, options: dict[str, Any]) -> None:
        producer = Producer[Any, Any](transactional_id="tx", **options)
        await producer.start()
        using = asyncio.create_task(use_transactions(world, producer))
        await asyncio.sleep(3)
        since = world.now
        world.cluster.delay(api, 60.0)
        await world.cluster.until(lambda: world.requests(api, since), timeout=10)
        for broker in world.cluster.brokers:
            world.cluster.stop(broker)
        await asyncio.sleep(3)
        replace_cluster(world)
        with pytest.raises(ClusterChangedError):
            await asyncio.wait_for(using, 60)
        began = world.now
        await producer.close()
        assert world.now - began < 1
        assert not world.cluster.transactions

    in_two_clusters(work, {}, strategy, cluster_id_change="fail")


def test_fail_notices_one_address_that_leads_elsewhere_while_others_do_not() -> None:
    """A broker of another cluster takes over the address of one broker, and must get no records.

    The brokers are too old to check ids, and two of them still name the third one as a leader.
    """

    async def scenario(world: World) -> None:
        limits = {ApiKey.API_VERSIONS: (0, 3), ApiKey.PRODUCE: (3, 9)}
        world.cluster.limit_versions(limits)
        world.cluster.move_leader("t", 0, to=1)
        servers = ",".join(world.address(broker) for broker in (2, 3))
        options = {"cluster_id_change": "fail", "bootstrap_servers": servers}
        async with world.producer(**options) as producer:
            watch = Watch(world, producer._cluster)
            await producer.send("t", b"1", partition=0)
            port = world.cluster.address(1)[1]
            with world.cluster.hold_metadata(2), world.cluster.hold_metadata(3):
                world.cluster.stop(1)
                other = world.sim.cluster(brokers=1, topics={"t": 3}, port=port)
                async with other:
                    other.limit_versions(limits)
                    delivery = producer.send("t", b"2", partition=0)
                    await asyncio.sleep(20)
                    assert not delivery.done()
                    assert not other.records("t")
                    assert {each.api for each in other.requests} <= ALLOWED
                    assert watch.rebootstraps
            await delivery
        assert [bytes(each.value) for each in world.cluster.records("t")] == [b"1", b"2"]

    simulate(scenario, brokers=3, topics={"t": 3}, replication=3)

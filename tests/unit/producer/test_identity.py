"""Tests of producer ids and sequences when topics are recreated and clusters are replaced.

They run on a simulated cluster.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from produced import numbers, values
from world import World, simulate

from aiokclient.errors import (
    InvalidProducerEpochError,
    KafkaError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from aiokclient.producer.sending.sender import ProduceConnection
from aiokclient.protocol import ApiKey

NEWEST, BY_NAME = 13, 12


def limit(world: World, version: int) -> None:
    world.cluster.limit_versions({ApiKey.PRODUCE: (3, version)})


async def refreshed(producer: Any, *topics: str) -> None:
    await producer._cluster.updater.refresh(topics or ("t",), timeout=5, at_once=True)


# In the following tests, the cluster was replaced by another one.


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("first", ["the other", "the old one"])
def test_send_takes_a_new_producer_id_after_the_cluster_was_wiped(
    first: str, same_id: bool, version: int
) -> None:
    """The wiped cluster gives the same producer id to another producer."""

    async def scenario(world: World) -> None:
        limit(world, version)
        async with world.producer(linger_ms=0) as producer:
            for number in range(6):
                await producer.send("t", b"lost %d" % number)
            ((old, *_), *_) = numbers(world)
            world.cluster.wipe({"t": 1}, same_id=same_id)
            async with world.producer(linger_ms=0) as other:
                if first == "the other":
                    for number in range(10):
                        await other.send("t", b"other %d" % number)
                kept = [(await producer.send("t", b"kept %d" % n)).offset for n in range(6)]
                for number in range(10, 20):
                    await other.send("t", b"other %d" % number)
                kept += [(await producer.send("t", b"kept %d" % n)).offset for n in range(6, 9)]
        log = values(world)
        assert [log[offset] for offset in kept] == [b"kept %d" % n for n in range(9)]
        assert max(Counter(log).values()) == 1
        writers = Counter(producer_id for producer_id, _, _ in numbers(world))
        assert old in writers, "the other producer has the old producer id"
        assert 2 <= len(writers) <= 4, (
            "the producer sees the restart, the offsets, and the topic id"
        )

    simulate(scenario)


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
def test_what_was_in_flight_is_not_acknowledged_by_another_producers_batch(version: int) -> None:
    """The other producer wrote a batch with the same producer id, epoch, and sequence."""

    async def scenario(world: World) -> None:
        limit(world, version)
        async with world.producer(linger_ms=0) as producer:
            for number in range(5):
                await producer.send("t", b"lost %d" % number)
            with world.cluster.drop(ApiKey.PRODUCE, when="before", times=1) as fault:
                delivery = producer.send("t", b"in flight")
                await world.cluster.until(lambda: fault.hits)
                world.cluster.wipe({"t": 1}, same_id=True)
            async with world.producer(linger_ms=0) as other:
                # Send until the connection is open again, after its backoff.
                for number in range(6):
                    await other.send("t", b"other %d" % number)
            (result,) = await producer.gather([delivery], return_exceptions=True)
            if version == NEWEST:
                assert values(world)[result.offset] == b"in flight"
            else:
                # The request names the topic without its id, so it may have been written to either
                # topic.
                assert isinstance(result, KafkaError)
                assert "recreated" in str(result)
                assert b"in flight" not in values(world)
            offset = (await producer.send("t", b"next")).offset
            assert values(world)[offset] == b"next"

    simulate(scenario)


def test_a_partition_begins_with_a_new_producer_id_when_no_connection_survived() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("u", b"x")
            world.cluster.wipe({"t": 1, "u": 1}, same_id=True)
            async with world.producer(linger_ms=0) as other:
                await other.send("t", b"other")
                assert (await producer.send("t", b"own")).offset == 1
        assert values(world) == [b"other", b"own"]

    simulate(scenario, topics={"t": 1, "u": 1})


def test_the_producer_id_stays_when_one_of_several_brokers_restarts() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            for partition in range(3):
                await producer.send("t", b"x", partition=partition)
            leader = world.cluster.leader("t", 0)
            world.cluster.stop(leader)
            await asyncio.sleep(1)
            world.cluster.start(leader)
            for partition in range(3):
                await producer.send("t", b"y", partition=partition)
        assert len({each[:2] for partition in range(3) for each in numbers(world, partition)}) == 1

    simulate(scenario, brokers=3, topics={"t": 3})


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
def test_connections_are_made_anew_when_the_cluster_has_another_id(version: int) -> None:
    """The address leads to another cluster, while a connection to the old one may still be open."""

    async def scenario(world: World) -> None:
        limit(world, version)
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"0")
            world.cluster._state.cluster_id = "another"
            before = world.network.connections_made
            await refreshed(producer)
            await producer.send("t", b"1")
            assert world.network.connections_made == before + 2, (
                "one connection for control requests and one for produce requests"
            )
            assert len(world.network.connections) == 2
        (first, *_), (second, *_) = numbers(world)
        assert first != second

    simulate(scenario)


# In the following tests, the leader's state is not the state of this producer.


@pytest.mark.parametrize("error", [InvalidProducerEpochError, UnknownProducerIdError])
def test_a_refusal_leads_to_a_new_producer_id_when_the_state_is_not_this_producers(
    error: type[KafkaError],
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"0")
            with world.cluster.fail(ApiKey.PRODUCE, error, times=1):
                await producer.gather([producer.send("t", b"1"), producer.send("t", b"2")])
            await producer.send("t", b"3")
        assert values(world) == [b"0", b"1", b"2", b"3"]
        first, second, *_, last = numbers(world)
        assert second[0] != first[0]
        assert second[1:] == (0, 0)
        assert last[:2] == second[:2]

    simulate(scenario)


def test_all_partitions_change_their_producer_id_when_one_leader_has_a_newer_epoch() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            for partition in (0, 1):
                await producer.send("t", b"x", partition=partition)
            with world.cluster.fail(ApiKey.PRODUCE, InvalidProducerEpochError, times=1):
                await producer.send("t", b"y", partition=0)
            await producer.send("t", b"y", partition=1)
        assert numbers(world, 0)[1] == numbers(world, 1)[1]
        assert numbers(world, 0)[1] != numbers(world, 0)[0]

    simulate(scenario, topics={"t": 2})


def test_a_new_producer_id_is_taken_when_sequence_0_is_out_of_order() -> None:
    """Another producer has the same id and epoch.

    If both took the next epoch, they would be identical again.
    """

    async def scenario(world: World) -> None:
        async with (
            world.producer(linger_ms=0) as one,
            world.producer(linger_ms=0) as other,
        ):
            for number in range(8):
                await one.send("t", b"before %d" % number)
            # The producers get the same id, as if the cluster had been wiped unnoticed between
            # their starts.
            other._engine.ids.current = one._engine.ids.current
            offsets = {}
            for number in range(5):
                for name, producer in ((b"one", one), (b"other", other)):
                    value = b"%s %d" % (name, number)
                    offsets[value] = (await producer.send("t", value)).offset
        log = values(world)
        assert [log[offset] for offset in offsets.values()] == list(offsets)
        assert max(Counter(log).values()) == 1

    simulate(scenario)


def test_an_unexplained_gap_leads_to_the_next_epoch_when_the_leader_is_proven() -> None:
    """An acknowledgement on this connection proves that the id is this producer's (KIP-360)."""

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"0")
            with world.cluster.fail(ApiKey.PRODUCE, OutOfOrderSequenceError, times=1):
                await producer.send("t", b"1")
        first, second = numbers(world)
        assert second == (first[0], first[1] + 1, 0)

    simulate(scenario)


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
def test_an_unexplained_gap_leads_to_a_new_producer_id_when_it_may_be_another_topics(
    version: int,
) -> None:
    """On a new connection, only the topic id in the request shows that the topic is the same."""

    async def scenario(world: World) -> None:
        limit(world, version)
        async with world.producer(linger_ms=0) as producer:
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            world.cluster.disconnect(world.cluster.leader("t", 0))
            await asyncio.sleep(0.1)
            with world.cluster.fail(ApiKey.PRODUCE, OutOfOrderSequenceError, times=1):
                await producer.send("t", b"1", partition=0)
        (old, epoch, _), second = numbers(world)
        if version == NEWEST:
            assert second == (old, epoch + 1, 0)
        else:
            assert second[0] != old
            assert second[1:] == (0, 0)

    simulate(scenario, brokers=3, topics={"t": 3})


def test_an_unclean_election_leads_to_the_next_epoch_of_the_same_producer_id() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            for number in range(3):
                await producer.send("t", b"%d" % number)
            follower = next(n for n in world.cluster.isr("t") if n != world.cluster.leader("t"))
            with world.cluster.hold_replication("t", broker=follower, in_sync=False):
                for number in range(3, 6):
                    await producer.send("t", b"%d" % number)
                world.cluster.move_leader("t", to=follower)
            assert (await producer.send("t", b"6")).offset == 3
            await producer.send("t", b"7")
        first, *_, last = numbers(world)
        assert last == (first[0], first[1] + 1, 1)

    simulate(scenario, brokers=3)


# In the following tests, the topic was recreated, or metadata says that it was.


def test_a_recreated_topic_is_written_with_a_new_producer_id() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0) as producer:
            await producer.send("t", b"old")
            old, *_ = numbers(world)[0]
            world.cluster.delete_topic("t")
            world.cluster.create_topic("t")
            assert (await producer.send("t", b"new")).offset == 0
        ((new, epoch, sequence),) = numbers(world)
        assert new != old
        assert (epoch, sequence) == (0, 0)

    simulate(scenario)


def recreated(world: World, before: int, after: int) -> Any:
    """Recreate topic "t".

    Return a function that makes metadata responses describe the old topic.
    """
    world.cluster.delete_topic("t") if "t" in world.cluster.topics else None
    old = world.cluster.create_topic("t", before)
    world.cluster.delete_topic("t")
    world.cluster.create_topic("t", after)

    def stale(request: Any, response: Any) -> Any:
        for topic in response.topics:
            if topic.name == "t":
                topic.topic_id = old
                del topic.partitions[before:]
        return response

    return stale


@pytest.mark.parametrize("version", [NEWEST, BY_NAME])
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_stale_metadata_loses_nothing_when_it_names_a_deleted_topic(
    times: int, partitions: int, version: int
) -> None:
    async def scenario(world: World) -> None:
        limit(world, version)
        stale = recreated(world, partitions, 3)
        sent: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        async with world.producer(linger_ms=0, metadata_max_age_ms=700) as producer:

            def send() -> None:
                for partition, log in sent.items():
                    value = b"%d" % len(log)
                    try:
                        deliveries.append(producer.send("t", value, partition=partition))
                    except UnknownTopicOrPartitionError:
                        # The send is refused immediately while the partition seems to be missing.
                        continue
                    log.append(value)

            deliveries: list[Any] = []
            send()
            await producer.flush()
            with world.cluster.delay(ApiKey.PRODUCE, 0.2, when="after", times=9):
                send()
                with world.cluster.alter(ApiKey.METADATA, stale, times=times) as fault:
                    while fault.hits < times:
                        send()
                        await asyncio.sleep(0.1)
                for _ in range(30):
                    send()
                    await asyncio.sleep(0.1)
            await producer.gather(deliveries)
        assert {partition: values(world, partition) for partition in sent} == sent

    simulate(scenario, brokers=3, topics={})


def test_one_stale_response_changes_nothing_when_it_names_a_deleted_topic() -> None:
    async def scenario(world: World) -> None:
        stale = recreated(world, 1, 3)
        async with world.producer(linger_ms=0) as producer:
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            began = world.now
            with world.cluster.alter(ApiKey.METADATA, stale, times=1) as fault:
                await refreshed(producer)
                assert fault.hits == 1
                for partition in range(3):
                    await producer.send("t", b"1", partition=partition)
            await asyncio.sleep(5)
            assert len(world.requests(ApiKey.METADATA, since=began)) == 2, (
                "there was one more metadata request"
            )
        logs = [numbers(world, partition) for partition in range(3)]
        assert {len(log) for log in logs} == {2}
        assert len({each[:2] for log in logs for each in log}) == 1, (
            "all batches have the same producer id and epoch"
        )

    simulate(scenario, topics={})


def test_metadata_of_a_broker_that_lags_is_not_believed_while_another_answers() -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("t", 1)
        with world.cluster.hold_metadata(1):
            world.cluster.delete_topic("t")
            current = world.cluster.create_topic("t", 3)
            async with world.producer(linger_ms=0, metadata_max_age_ms=300) as producer:
                while (info := producer._cluster.metadata.find_topic("t")) is None or (
                    info.topic_id != current
                ):
                    await producer.prepare("t")
                    await asyncio.sleep(0.1)
                for _ in range(50):
                    await producer.send("t", b"x", partition=2)
                    info = producer._cluster.metadata.find_topic("t")
                    assert info is not None
                    assert info.topic_id == current
                    await asyncio.sleep(0.1)

    simulate(scenario, brokers=3, topics={})


def test_records_wait_for_a_partition_that_is_gone_until_max_block_ms() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, max_block_ms=5_000) as producer:
            for partition in range(2):
                await producer.send("t", b"0", partition=partition)
            world.cluster.delete_topic("t")
            late = [producer.send("t", b"1", partition=partition) for partition in range(2)]
            world.cluster.create_topic("t", 1)
            await late[0]
            assert not late[1].done()
            world.cluster.add_partitions("t", 2)
            assert (await late[1]).offset == 0
            world.cluster.delete_topic("t")
            late = [producer.send("t", b"2", partition=partition) for partition in range(2)]
            world.cluster.create_topic("t", 1)
            began = world.now
            with pytest.raises(UnknownTopicOrPartitionError, match=r"t-1.*1 partitions"):
                await late[1]
            assert 4 < world.now - began < 7

    simulate(scenario, topics={"t": 2})


def test_no_broker_is_connected_to_for_partitions_that_it_does_not_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = 0
    connect = ProduceConnection._connect

    async def counted(connection: ProduceConnection) -> None:
        nonlocal attempts
        attempts += 1
        await connect(connection)

    monkeypatch.setattr(ProduceConnection, "_connect", counted)

    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=0, max_block_ms=60_000) as producer:
            for partition in range(2):
                await producer.send("t", b"0", partition=partition)
            gone = world.cluster.leader("t", 1)
            assert gone != world.cluster.leader("t", 0)
            world.cluster.delete_topic("t")
            waiting = producer.send("t", b"1", partition=1)
            await asyncio.sleep(0.05)
            world.cluster.create_topic("t", 1)
            await producer.send("t", b"1", partition=0)
            world.cluster.disconnect(gone)
            before = attempts
            for _ in range(30):
                producer._topics["t"].absent[1].notify_sender()
                await asyncio.sleep(0.1)
            assert attempts - before < 5
            assert not waiting.done()
            world.cluster.add_partitions("t", 2)
            await waiting

    simulate(scenario, brokers=2, topics={"t": 2})

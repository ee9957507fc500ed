"""The admin client's view of transactions and producers, and what it does to them."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hanging_transactions import OPTION, hang_transaction, switch_verification
from kafka_harness import ToolHost
from raw_transactions import RawTransaction

from aiokclient import Admin, Client, Consumer, TopicPartition
from aiokclient.admin import (
    ActiveProducer,
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from aiokclient.errors import (
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidRegularExpressionError,
    KafkaError,
    TransactionalIdNotFoundError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokclient.testing import EmbeddedCluster

MINUTES_MS = 60_000


class Site:
    """A client, an admin client, a topic of three partitions, and a prefix of transactional ids."""

    def __init__(self, client: Client, admin: Admin, topic: str) -> None:
        self.client, self.admin, self.topic = client, admin, topic

    def id(self, name: str) -> str:
        return f"{self.topic}-{name}"

    def tp(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    @property
    def pattern(self) -> str:
        return f"{self.topic}-.*"

    async def begun(self, name: str, **options: Any) -> RawTransaction:
        transaction = RawTransaction(self.client, self.id(name), **options)
        await transaction.begin()
        return transaction

    async def opened(self, name: str, *partitions: int, **options: Any) -> RawTransaction:
        transaction = await self.begun(name)
        for partition in partitions or (0,):
            await transaction.produce(self.tp(partition), b"a", b"b", **options)
        return transaction

    async def state(self, name: str) -> TransactionDescription:
        results = await self.admin.describe_transactions([self.id(name)])
        return results.raise_for_errors()[self.id(name)]

    async def is_in(self, name: str, state: str) -> TransactionDescription:
        """Wait until a transaction is in the given state, and return its description."""
        async with asyncio.timeout(30):
            while True:
                described = await self.state(name)
                if described.state == state:
                    return described
                await asyncio.sleep(0.05)  # The state can only be polled.

    async def producers(self, partition: int = 0) -> tuple[ActiveProducer, ...]:
        results = await self.admin.describe_producers([self.tp(partition)])
        return results.raise_for_errors()[self.tp(partition)]

    async def committed_values(self) -> list[Any]:
        """Return the values that a read_committed consumer reads up to the end of the log."""
        options: Any = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        async with Consumer(self.topic, client=self.client, **options) as consumer:
            return [record.value async for record in consumer.until_end()]


@asynccontextmanager
async def opened_site(bootstrap: str, topic: str) -> AsyncIterator[Site]:
    async with Client(bootstrap_servers=bootstrap) as client, Admin(client=client) as admin:
        yield Site(client, admin, topic)


@pytest.fixture
async def site(cluster_servers: Any) -> AsyncIterator[Site]:
    topic = await cluster_servers.new_topic(3)
    async with opened_site(cluster_servers.bootstrap, topic) as site:
        yield site


class TestListTransactions:
    """`list_transactions` and each of its filters."""

    async def test_each_filter_selects_transactional_ids(self, site: Site) -> None:
        started = await site.begun("empty")
        ongoing = await site.opened("ongoing")
        ended = await site.opened("ended")
        await ended.end(commit=True)
        await site.is_in("ended", "CompleteCommit")
        admin, pattern = site.admin, site.pattern

        listed = await admin.list_transactions(pattern=pattern)
        assert {name: each.state for name, each in listed.items()} == {
            site.id("empty"): "Empty",
            site.id("ended"): "CompleteCommit",
            site.id("ongoing"): "Ongoing",
        }
        described = await site.state("ongoing")
        assert listed[site.id("ongoing")] == TransactionListing(
            site.id("ongoing"), ongoing.producer_id, "Ongoing", described.coordinator
        )
        everything = await admin.list_transactions()
        assert listed.items() <= everything.items()
        assert list(everything) == sorted(everything)

        found = await admin.list_transactions(states=["Ongoing", "Empty"], pattern=pattern)
        assert list(found) == [site.id("empty"), site.id("ongoing")]
        found = await admin.list_transactions(producer_ids={started.producer_id})
        assert list(found) == [site.id("empty")]
        assert (
            await admin.list_transactions(producer_ids=[ongoing.producer_id], states=["Dead"]) == {}
        )

    async def test_older_than_ms_selects_transactions_that_began_earlier(self, site: Site) -> None:
        """A transactional id without a transaction has no start time, so every age selects it."""
        await site.begun("empty")
        await site.opened("ongoing")

        async def names(older_than_ms: int, *states: str) -> list[str]:
            found = await site.admin.list_transactions(
                older_than_ms=older_than_ms, states=states, pattern=site.pattern
            )
            return [name.removeprefix(site.id("")) for name in found]

        assert await names(-1) == ["empty", "ongoing"]
        assert await names(0) == ["empty", "ongoing"]
        assert await names(0, "Ongoing") == ["ongoing"]
        assert await names(10 * MINUTES_MS) == ["empty"]
        assert await names(10 * MINUTES_MS, "Ongoing") == []

    async def test_a_pattern_matches_whole_ids(self, site: Site) -> None:
        await site.begun("one")
        assert await site.admin.list_transactions(pattern=site.id("on")) == {}
        assert list(await site.admin.list_transactions(pattern=site.id("on."))) == [site.id("one")]
        with pytest.raises(InvalidRegularExpressionError):
            await site.admin.list_transactions(pattern="[")

    async def test_an_unknown_state_raises(self, site: Site) -> None:
        with pytest.raises(IllegalStateError, match=r"transaction states ongoing\. Use Kafka's"):
            await site.admin.list_transactions(states=["ongoing"])

    @pytest.mark.parametrize(
        "wrong",
        [
            {"states": "Ongoing"},
            {"states": [1]},
            {"producer_ids": 7},
            {"producer_ids": ["7"]},
            {"older_than_ms": 1.5},
            {"pattern": b"a"},
        ],
        ids=str,
    )
    async def test_an_argument_of_a_wrong_type_raises(self, site: Site, wrong: Any) -> None:
        with pytest.raises(TypeError):
            await site.admin.list_transactions(**wrong)


class TestDescribeTransactions:
    """`describe_transactions` in each state, and for ids that do not exist."""

    async def test_an_open_transaction_has_its_start_and_partitions(self, site: Site) -> None:
        before = int(time.time() * 1000)
        ongoing = await site.opened("ongoing", 0, 2)
        described = await site.state("ongoing")
        assert described.start_time_ms is not None
        assert abs(described.start_time_ms - before) < MINUTES_MS
        assert described == replace(
            described,
            transactional_id=site.id("ongoing"),
            state="Ongoing",
            producer_id=ongoing.producer_id,
            producer_epoch=ongoing.producer_epoch,
            timeout_ms=60_000,
            partitions=frozenset({site.tp(0), site.tp(2)}),
        )
        assert described.coordinator in (await site.admin.describe_cluster()).brokers

    async def test_one_id_may_fail_while_others_succeed(self, site: Site) -> None:
        await site.begun("empty")
        results = await site.admin.describe_transactions([site.id("empty"), site.id("none")])
        empty, missing = results.values()
        assert isinstance(empty, TransactionDescription)
        assert (empty.state, empty.start_time_ms, empty.partitions) == ("Empty", None, frozenset())
        assert isinstance(missing, TransactionalIdNotFoundError)
        assert site.id("none") in str(missing)

    async def test_an_ended_transaction_has_no_partitions(self, site: Site) -> None:
        for name, commit, state in (
            ("kept", True, "CompleteCommit"),
            ("gone", False, "CompleteAbort"),
        ):
            transaction = await site.opened(name)
            await transaction.end(commit=commit)
            described = await site.is_in(name, state)
            assert described.partitions == frozenset()


class TestDescribeProducers:
    """`describe_producers` by the leader and by a chosen replica."""

    async def test_producers_show_their_open_transactions(self, site: Site) -> None:
        transaction = await site.opened("one")
        await transaction.end(commit=True)
        await site.is_in("one", "CompleteCommit")
        first, ended = transaction.producer_id, (await site.producers())[0]
        assert ended.producer_id == first
        assert ended.transaction_start_offset is None
        assert ended.coordinator_epoch is not None

        await transaction.produce(site.tp(), b"c", timestamp=1_700_000_000_000)
        [again] = await site.producers()
        assert (again.producer_id, again.producer_epoch) == (first, transaction.producer_epoch)
        assert again.transaction_start_offset == 3
        assert (again.last_sequence, again.last_timestamp) == (0, 1_700_000_000_000)

        await site.opened("two")
        assert len(await site.producers()) == 2
        assert await site.producers(1) == ()

    async def test_partitions_that_do_not_exist_fail_alone(self, site: Site) -> None:
        await site.opened("one", 2)
        missing = [site.tp(9), TopicPartition(f"no-{site.topic}", 0)]
        results = await site.admin.describe_producers([site.tp(2), *missing])
        assert [type(each) for each in results.values()] == [
            tuple,
            UnknownTopicOrPartitionError,
            UnknownTopicOrPartitionError,
        ]

    async def test_only_a_replica_answers_for_itself(self, site: Site) -> None:
        await site.opened("one")
        expected, answered = await site.producers(), 0
        for broker in (await site.admin.describe_cluster()).brokers:
            results = await site.admin.describe_producers([site.tp()], broker_id=broker.node_id)
            answered += results.ok
            if results.ok:
                assert results[site.tp()] == expected
            else:
                assert isinstance(results[site.tp()], IllegalStateError)
        assert answered == 1  # Only one broker has a replica of the partition.


class TestFenceProducers:
    """`fence_producers` and `force_terminate_transaction`."""

    async def test_open_transactions_are_aborted_and_their_producers_fenced(
        self, site: Site
    ) -> None:
        one, two = await site.opened("one"), await site.opened("two", 1)
        results = await site.admin.fence_producers([site.id("one"), site.id("two"), site.id("new")])
        fenced = results.raise_for_errors()
        assert list(fenced) == [site.id("one"), site.id("two"), site.id("new")]
        for name, old in (("one", one), ("two", two)):
            now = fenced[site.id(name)]
            assert isinstance(now, FencedProducer)
            assert (now.producer_id, now.producer_epoch) > (old.producer_id, old.producer_epoch)
            with pytest.raises(ApplicationRecoverableError):
                await old.produce(site.tp(), b"late")
            with pytest.raises(ApplicationRecoverableError):
                await old.end(commit=True)
        assert await site.committed_values() == []
        after = await site.opened("one")
        await after.end(commit=True)
        # The EndTxn response comes before the end of the transaction.
        await site.is_in("one", "CompleteCommit")
        assert await site.committed_values() == [b"a", b"b"]

    async def test_force_terminate_transaction_ends_the_transaction(self, site: Site) -> None:
        transaction = await site.opened("one")
        await site.admin.force_terminate_transaction(site.id("one"))
        described = await site.state("one")
        assert described.partitions == frozenset()
        assert described.producer_epoch > transaction.producer_epoch
        assert await site.committed_values() == []
        with pytest.raises(KafkaError):
            await transaction.end(commit=True)

    async def test_a_refused_id_fails_alone(self, site: Site) -> None:
        results = await site.admin.fence_producers(["", site.id("one")])
        assert list(results.errors) == [""]
        with pytest.raises(KafkaError):
            await site.admin.force_terminate_transaction("")


ON_BOTH = pytest.mark.parametrize("site", ["embedded", "kafka"], indirect=True)


class TestHangingTransactions:
    """`find_hanging_transactions` and `abort_transaction`."""

    @pytest.fixture(params=["embedded"])
    async def site(self, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
        """A cluster whose brokers accept records that belong to no transaction of a coordinator."""
        if request.param == "embedded":
            with EmbeddedCluster(2, {"t": 3}, replication=1, configs={OPTION: "false"}) as cluster:
                async with opened_site(cluster.bootstrap_servers, "t") as site:
                    yield site
            return
        kafka = request.getfixturevalue("kafka")
        topic = await asyncio.to_thread(kafka.create_topic, None, 3)
        await switch_verification(kafka.bootstrap, False)
        async with opened_site(kafka.bootstrap, topic) as site:
            yield site
        await switch_verification(kafka.bootstrap, True)

    async def _hanging(self, site: Site, name: str, partition: int = 0) -> RawTransaction:
        return await hang_transaction(site.client, site.id(name), site.tp(partition))

    @ON_BOTH
    async def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted(
        self, site: Site
    ) -> None:
        hanging = await self._hanging(site, "hanging", 1)
        old = int(time.time() * 1000) - 20 * MINUTES_MS
        healthy = await site.opened("healthy", timestamp=old)
        await self._hanging(site, "young")  # The search must not find it: it is too young.
        found = await site.admin.find_hanging_transactions(topic=site.topic, partition=1)
        [transaction] = found
        assert transaction == HangingTransaction(
            site.tp(1),
            hanging.producer_id,
            hanging.producer_epoch,
            None,
            0,
            transaction.last_timestamp,
            site.id("hanging"),
        )
        topics = (await site.admin.describe_topics([site.topic])).raise_for_errors()
        leader = topics[site.topic].partitions[1].leader
        assert leader is not None
        by_broker = await site.admin.find_hanging_transactions(broker_id=leader)
        assert transaction in by_broker
        assert healthy.producer_id not in {each.producer_id for each in by_broker}
        nobody = await site.admin.find_hanging_transactions(
            topic=site.topic, max_transaction_timeout_ms=60 * MINUTES_MS
        )
        assert nobody == ()

        await site.admin.abort_transaction(transaction)
        assert await site.admin.find_hanging_transactions(topic=site.topic, partition=1) == ()
        [producer] = await site.producers(1)
        assert producer.transaction_start_offset is None

    async def test_readers_continue_after_the_abort(self, site: Site) -> None:
        await self._hanging(site, "hanging")
        healthy = await site.opened("healthy")
        await healthy.end(commit=True)
        await site.is_in("healthy", "CompleteCommit")
        assert await site.committed_values() == []
        [transaction] = await site.admin.find_hanging_transactions(topic=site.topic)
        await site.admin.abort_transaction(transaction)
        assert await site.committed_values() == [b"a", b"b"]

    async def test_a_marker_that_is_too_old_is_refused(self, site: Site) -> None:
        hanging = await self._hanging(site, "hanging")
        [transaction] = await site.admin.find_hanging_transactions(topic=site.topic)
        await hanging.begin()
        await hanging.produce(site.tp(), b"in the next epoch", version=11)
        with pytest.raises(InvalidProducerEpochError):
            await site.admin.abort_transaction(transaction)
        [transaction] = await site.admin.find_hanging_transactions(
            topic=site.topic, max_transaction_timeout_ms=0
        )
        await site.admin.abort_transaction(replace(transaction, coordinator_epoch=5))
        with pytest.raises(TransactionCoordinatorFencedError):
            await site.admin.abort_transaction(replace(transaction, coordinator_epoch=4))

    @pytest.mark.parametrize("site", ["kafka"], indirect=True)
    async def test_the_calls_return_what_kafka_transactions_prints(
        self, kafka: Any, site: Site, tool_host: ToolHost
    ) -> None:
        """Kafka's own tool shows the same transactions, producers, and hanging transactions."""

        async def printed(*arguments: str) -> list[list[str]]:
            words = ("kafka-transactions", "--bootstrap-server", kafka.bootstrap, *arguments)
            lines = (await asyncio.to_thread(tool_host.run, *words)).out.splitlines()
            return [line.split() for line in lines[1:]]

        await self._hanging(site, "hanging", 1)
        await site.opened("open", 1, 2)
        selection = ("--topic", site.topic, "--partition", "1")
        [found] = await site.admin.find_hanging_transactions(topic=site.topic)
        [hanging] = await printed("find-hanging", "--topic", site.topic)
        assert hanging[:-1] == [
            site.topic,
            *(str(number) for number in (1, found.producer_id, found.producer_epoch, -1)),
            *(str(number) for number in (found.start_offset, found.last_timestamp)),
        ]
        listed = await site.admin.list_transactions()
        assert sorted(await printed("list")) == [
            [name, str(each.coordinator.node_id), str(each.producer_id), each.state]
            for name, each in listed.items()
        ]
        [described] = await printed("describe", "--transactional-id", site.id("open"))
        ours = await site.state("open")
        assert described[:7] == [
            str(ours.coordinator.node_id),
            ours.transactional_id,
            *map(str, (ours.producer_id, ours.producer_epoch, ours.state)),
            *map(str, (ours.timeout_ms, ours.start_time_ms)),
        ]
        assert set(described[8].split(",")) == {f"{site.topic}-1", f"{site.topic}-2"}
        assert sorted(await printed("describe-producers", *selection)) == sorted(
            [
                str(-1 if value is None else value)
                for value in (
                    each.producer_id,
                    each.producer_epoch,
                    each.coordinator_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.transaction_start_offset,
                )
            ]
            for each in await site.producers(1)
        )
        await site.admin.abort_transaction(found)
        assert await printed("find-hanging", "--topic", site.topic) == []

    @pytest.mark.parametrize(
        "wrong",
        [{}, {"partition": 1}, {"partition": 1, "broker_id": 1}],
        ids=str,
    )
    async def test_a_search_needs_a_topic_or_a_broker(self, site: Site, wrong: Any) -> None:
        with pytest.raises(IllegalStateError, match="topic="):
            await site.admin.find_hanging_transactions(**wrong)

    async def test_what_does_not_exist_raises(self, site: Site) -> None:
        missing = f"no-{site.topic}"
        for partition in (None, 0):
            with pytest.raises(UnknownTopicOrPartitionError):
                await site.admin.find_hanging_transactions(topic=missing, partition=partition)
        with pytest.raises(UnknownTopicOrPartitionError):
            await site.admin.abort_transaction(HangingTransaction((missing, 0), 1, 0))  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await site.admin.abort_transaction((site.tp(), 1, 0))  # type: ignore[arg-type]


@pytest.mark.kafka
async def test_a_broker_that_is_too_old_for_an_argument_is_named(kafka_old: Any) -> None:
    """Kafka 3.9 can filter transactions by duration, but not by a pattern."""
    async with Admin(bootstrap_servers=kafka_old.bootstrap) as admin:
        assert await admin.list_transactions(older_than_ms=0) == {}
        with pytest.raises(UnsupportedVersionError, match=r"pattern=.* needs brokers.* 4\.1"):
            await admin.list_transactions(pattern=uuid.uuid4().hex)

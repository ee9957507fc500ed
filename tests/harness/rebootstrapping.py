"""Clients of every kind during faults that trigger a rebootstrap, in virtual time.

A `ClusterFault` affects the brokers that the client knows, and ends after a while. The bootstrap
name then resolves to other addresses, so that a client that rebootstraps finds the cluster there. A
`ClientWork` does what a program does with a client: it writes or reads payloads, or makes calls,
and records the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from driver import Writer, partitions_of
from ledger import Payload, pack
from world import World

from aiokclient import (
    Admin,
    AnyBroker,
    Client,
    Consumer,
    GroupMember,
    GroupProtocol,
    Producer,
    TopicPartition,
)
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.recovery import Trigger
from aiokclient.cluster.requests.brokers import Brokers
from aiokclient.cluster.targets import Broker
from aiokclient.errors import KafkaError
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

TOPICS = {"t": 3}
PAUSED = TopicPartition("p", 0)
"""A partition that is assigned by hand, paused, and never read."""
POSITION = 7
NAME = "kafka.test"
OLD, NEW = "127.0.0.1", "127.0.0.2"
TRIGGER_S = 20.0
"""The trigger time of the clients, in seconds."""
REQUIRED = 129
CLIENT = "main"
"""The client id of the client under test."""
FAULT_S = 12.0
"""Seconds for which a fault lasts, if its class does not set another duration."""

OPTIONS: Mapping[str, Any] = {
    "metadata_recovery_rebootstrap_trigger_ms": int(TRIGGER_S * 1000),
    "metadata_max_age_ms": 3_000,
    "default_api_timeout_ms": 8_000,
}


def name_leads_to(world: World, host: str) -> None:
    """Make the bootstrap name lead to this address."""
    world.network.names[NAME] = [host]


def bootstrap_servers(world: World) -> str:
    return ",".join(
        f"{NAME}:{world.cluster.address(broker)[1]}" for broker in world.cluster.brokers
    )


def move_endpoints(cluster: EmbeddedCluster, host: str) -> None:
    """Let all brokers listen at another address from their next start on. None may be running."""
    for broker in cluster.brokers:
        endpoints = cluster._brokers[broker].endpoints
        endpoints |= {name: each._replace(host=host) for name, each in endpoints.items()}
    cluster._nodes._listen_host = host


def move_brokers(world: World, host: str) -> None:
    """Start all brokers at another address. None may be running."""
    move_endpoints(world.cluster, host)
    for broker in world.cluster.brokers:
        world.cluster.start(broker)
    name_leads_to(world, host)


def stop_all(world: World) -> None:
    for broker in world.cluster.brokers:
        world.cluster.stop(broker)


# -- the faults


class ClusterFault:
    """A fault that triggers a rebootstrap. Within `active`, the client cannot work as before."""

    trigger: ClassVar[Trigger]
    lasts_s = FAULT_S

    def __init__(self, world: World, *, moves: bool) -> None:
        self.world, self.moves = world, moves

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Return a context manager that begins the fault, and ends it at its exit."""
        yield

    def earliest_and_latest(self, began: float, attempted: float) -> tuple[float, float]:
        """Return the times between which the rebootstrap must begin.

        The fault began at `began`. The first request for metadata that failed began at `attempted`.
        """
        raise NotImplementedError


class AllRefuse(ClusterFault):
    """All brokers are killed, and refuse connections. Later they start at another address."""

    trigger = Trigger.UNAVAILABLE

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        stop_all(self.world)
        try:
            yield
        finally:
            move_brokers(self.world, NEW if self.moves else OLD)

    def earliest_and_latest(self, began: float, attempted: float) -> tuple[float, float]:
        return began, began + 2.0


class AllSilent(ClusterFault):
    """The packets of all brokers are dropped, while the cluster runs at another address."""

    trigger = Trigger.TIMEOUT
    lasts_s = TRIGGER_S + FAULT_S

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        world = self.world
        world.network.part({"client"}, {world.address(broker) for broker in world.cluster.brokers})
        if self.moves:
            stop_all(world)
            move_brokers(world, NEW)
        try:
            yield
        finally:
            world.network.heal()

    def earliest_and_latest(self, began: float, attempted: float) -> tuple[float, float]:
        return attempted + TRIGGER_S - 0.02, attempted + TRIGGER_S + 0.1


class RequiredByResponse(ClusterFault):
    """All brokers answer an API with REBOOTSTRAP_REQUIRED."""

    trigger = Trigger.REQUIRED
    api: ClassVar[ApiKey]

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        def refuse(request: Any, response: Any) -> Any:
            response.error_code = REQUIRED
            return response

        with self.world.cluster.alter(self.api, refuse):
            self.world.cluster.disconnect()
            yield

    def earliest_and_latest(self, began: float, attempted: float) -> tuple[float, float]:
        requests = self.world.requests(self.api, since=began)
        first = min(each.at for each in requests if each.client_id == CLIENT)
        assert first <= began + 4.0
        return first, first + 0.1


class RequiredByMetadata(RequiredByResponse):
    """All brokers answer Metadata with REBOOTSTRAP_REQUIRED."""

    api = ApiKey.METADATA


class RequiredByApiVersions(RequiredByResponse):
    """All brokers answer ApiVersions with REBOOTSTRAP_REQUIRED."""

    api = ApiKey.API_VERSIONS


FAULTS = (AllRefuse, AllSilent, RequiredByMetadata, RequiredByApiVersions)


# -- the observation of a client


class Watch:
    """A record of when a client first failed to get metadata, and of its rebootstraps."""

    def __init__(self, world: World, cluster: ClusterClient) -> None:
        self.world = world
        self.rebootstraps: list[tuple[float, Trigger]] = []
        self.attempted = math.inf
        self.missed: set[Trigger] = set()
        self.former: list[Any] = []
        """The connections that were open when rebootstraps began."""
        self._brokers = cluster.brokers
        self._recovery = cluster._metadata_requests._recovery
        self._begin = self._recovery.begin_rebootstrap
        self._recovery.begin_rebootstrap = self._note  # type: ignore[method-assign]

    def _note(self, now: float) -> Trigger:
        trigger = self._begin(now)
        self.former += open_connections(self._brokers)
        self.rebootstraps.append((now, trigger))
        return trigger

    async def run(self) -> None:
        """Check the client every 10 ms."""
        while True:
            since = self._recovery._since
            if since is not None and since >= self.began:
                self.attempted = min(self.attempted, since)
            self.missed.update(self._recovery.list_missed_triggers(self.world.now))
            await asyncio.sleep(0.01)

    def begin(self) -> None:
        """Note that the fault begins."""
        self.began = self.world.now


def open_connections(brokers: Brokers) -> list[Any]:
    pools = [*brokers._pools.values(), *brokers._retired]
    return [connection for pool in pools for connection in pool.open_connections()]


async def until_more(world: World, work: Any, count: int, timeout_s: float = 60.0) -> None:
    """Wait until the client has done more of its work."""
    wanted, until = work.progress() + count, world.now + timeout_s
    while work.progress() < wanted:
        assert world.now < until, f"no progress within {timeout_s} s: {work.progress()}"
        await asyncio.sleep(0.05)


async def until_healthy(world: World, client: Any, timeout_s: float = 5.0) -> None:
    """Wait until the client's health reports no problem."""
    until = world.now + timeout_s
    while client.health().reasons:
        assert world.now < until, client.health()
        await asyncio.sleep(0.1)


async def connect_to_all(world: World, client: Any) -> None:
    """Open a connection to each broker."""
    for broker in world.cluster.brokers:
        request = messages.MetadataRequest(topics=[])
        await client.cluster.request(request, Broker(broker))


# -- what the clients do


class ClientWork:
    """The work of one kind of client.

    The context `main` is entered before the fault, and left after it.
    """

    def __init__(self, world: World, options: Mapping[str, Any]) -> None:
        self.world = world
        given = world.options(bootstrap_servers=bootstrap_servers(world), client_id=CLIENT)
        self.options = {**given, **options}
        self.spare_options = {**self.options, "client_id": "spare"}
        self.late: list[tuple[str, float]] = []
        """The calls that did not end by their deadlines."""
        self.calls = 0

    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        """Return a context that opens the client."""
        yield

    async def run(self) -> None:
        """Work until cancelled."""

    def progress(self) -> int:
        """Return a count that increases as the client works."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Wait for all outcomes, and check that every payload is accounted for."""

    def spare(self) -> Any:
        """Return another client of this kind, which is closed during the fault."""
        raise NotImplementedError

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        """Return the client's calls that accept a timeout. Each is a function of the timeout."""
        return []

    async def make_calls(self) -> None:
        """Make the calls of `calls_by_timeout` with short and long timeouts, until cancelled."""
        for timeout in itertools.cycle((0.3, 2.0, 5.0)):
            calls = [partial(call, timeout) for call in self.calls_by_timeout()]
            await asyncio.gather(*(self.call(call, timeout) for call in calls))
            await asyncio.sleep(0.2)

    async def call(self, what: Callable[[], Any], timeout_s: float) -> None:
        """Make a call, and note it if it lasts longer than its deadline."""
        began = self.world.now
        self.calls += 1
        with contextlib.suppress(KafkaError):
            await what()
        if self.world.now - began > timeout_s + 0.1:
            self.late.append((repr(what), self.world.now - began))


class ProducerWork(ClientWork):
    """Two producers write. The second one has short timeouts, so that its records may fail."""

    IMPATIENT_S = 2.0

    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        timeout_ms = int(self.IMPATIENT_S * 1000)
        impatient = {"delivery_timeout_ms": timeout_ms, "request_timeout_ms": timeout_ms // 2}
        async with (
            Producer(**self.options) as self.producer,
            Producer(**{**self.spare_options, **impatient}, linger_ms=0) as self.impatient,
        ):
            ledger = self.world.ledger
            self.writer = Writer(self.producer, ledger, partitions_of(TOPICS), pause=0.05)
            yield self.producer

    def spare(self) -> Any:
        return Producer(**self.spare_options)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.run())
            for topic, partition in itertools.cycle(partitions_of(TOPICS)):
                self._send(topic, partition)
                await asyncio.sleep(0.2)

    def _send(self, topic: str, partition: int) -> None:
        payload = self.world.ledger.payload(1, topic, partition)
        delivery = self.impatient.send(topic, pack(payload, 60), partition=partition)
        delivery.add_done_callback(partial(self._sent, payload, self.world.now))
        self.calls += 1

    def _sent(self, payload: Payload, began: float, delivery: Any) -> None:
        error = delivery.exception()
        if error is None:
            self.world.ledger.acknowledge(payload, delivery.offset)
        else:
            self.world.ledger.fail(payload, error)
        if self.world.now - began > self.IMPATIENT_S + 0.1:
            self.late.append(("delivery", self.world.now - began))

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        return [partial(self.producer.partitions_for, "t")]

    def progress(self) -> int:
        return len(self.world.ledger.acknowledged)

    async def finish(self) -> None:
        self.writer.stopped = True
        await self.producer.flush()
        await self.impatient.flush()
        ledger = self.world.ledger
        assert {payload.producer for payload in ledger.failed} <= {1}, ledger.summary()
        self.world.check()


class TransactionalWork(ClientWork):
    API_S, DELIVERY_S, CLOSE_S = 8.0, 10.0, 3.0
    LONGEST_S = API_S + 0.1 + (DELIVERY_S + 1 + API_S) + CLOSE_S + 0.25
    """The time of a transaction that begins, sends, and ends as late as its timeouts permit."""

    committed: list[bytes]
    unknown: list[bytes]
    aborted: list[bytes]

    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        self.committed, self.unknown, self.aborted = [], [], []
        self.options |= {"transaction_timeout_ms": 60_000, "request_timeout_ms": 5_000}
        self.options |= {
            "default_api_timeout_ms": int(self.API_S * 1000),
            "delivery_timeout_ms": int(self.DELIVERY_S * 1000),
            "close_timeout_ms": int(self.CLOSE_S * 1000),
        }
        async with Producer(**self.options, transactional_id="tx") as self.producer:
            yield self.producer

    def spare(self) -> Any:
        return Producer(**self.spare_options, transactional_id="spare")

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        return [partial(self.producer.partitions_for, "t")]

    async def run(self) -> None:
        for number in range(100_000):
            values = [b"%d-%d" % (number, index) for index in range(3)]
            transaction = self.producer.transaction()
            began = self.world.now
            try:
                async with transaction as tx:
                    for partition, value in enumerate(values):
                        tx.send("t", value, partition=partition)
                        await asyncio.sleep(0.02)
            except KafkaError as error:
                self._check_duration(began)
                await self._recover(error)
            else:
                self._check_duration(began)
            outcome = None if transaction.outcome is None else transaction.outcome.value
            kept = {"committed": self.committed, "aborted": self.aborted}
            kept.get(str(outcome), self.unknown).extend(values)

    def _check_duration(self, began: float) -> None:
        self.calls += 1
        if self.world.now - began > self.LONGEST_S:
            self.late.append(("transaction", self.world.now - began))

    async def _recover(self, error: KafkaError) -> None:
        while error.fatal:
            try:
                return await self.producer.restart()
            except KafkaError as again:
                error = again
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.1)

    def progress(self) -> int:
        return len(self.committed)

    async def finish(self) -> None:
        found: list[bytes] = []
        options = self.world.options(
            bootstrap_servers=bootstrap_servers(self.world), isolation_level="read_committed"
        )
        async with Consumer(auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([TopicPartition(*each) for each in partitions_of(TOPICS)])
            async for record in consumer.until_end():
                assert record.value is not None
                found.append(bytes(record.value))
        assert len(found) == len(set(found))
        assert set(self.committed) <= set(found)
        assert not set(self.aborted) & set(found)
        # Of a transaction with an unknown outcome, all records are in the log, or none.
        assert set(Counter(value.split(b"-")[0] for value in found).values()) <= {
            len(partitions_of(TOPICS))
        }


class ReadingWork(ClientWork):
    """A consumer of records that the test appends to the brokers' logs like another producer."""

    more: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, world: World, options: Mapping[str, Any]) -> None:
        super().__init__(world, options)
        self.read: list[tuple[TopicPartition, int]] = []
        self.written = 0

    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        options = {"auto_offset_reset": "earliest", **self.options, **self.more}
        async with Consumer(**options) as self.consumer:
            self.choose(self.consumer)
            yield self.consumer

    def choose(self, consumer: Any) -> None:
        consumer.subscribe(["t"])

    def spare(self) -> Any:
        group = {"group_id": "spare"} if "group_id" in self.more else {}
        return Consumer("t", **{**self.spare_options, **self.more, **group})

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        tps = [TopicPartition(*each) for each in partitions_of(TOPICS)]
        calls: list[Callable[[float], Awaitable[Any]]] = [
            lambda timeout: self.consumer.end_offsets(tps, timeout),
            lambda timeout: self.consumer.lag(tps[:1], timeout),
            lambda timeout: self.consumer.partitions_for("t", timeout),
        ]
        if "group_id" in self.more:
            calls.append(lambda timeout: self.consumer.committed(tps, timeout))
            calls.append(lambda timeout: self.consumer.commit(timeout=timeout))
        return calls

    def append(self) -> None:
        """Append a payload to each partition that has a leader."""
        for topic, partition in partitions_of(TOPICS):
            payload = self.world.ledger.payload(0, topic, partition)
            try:
                found = self.world.cluster.produce(topic, [pack(payload, 60)], partition)
            except ValueError:  # All brokers are down.
                self.world.ledger.fail(payload, ValueError())
            else:
                self.world.ledger.acknowledge(payload, found[0].offset)
                self.written += 1

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            group.create_task(self._read())

    async def _write(self) -> None:
        while True:
            self.append()
            await asyncio.sleep(0.1)

    async def _read(self) -> None:
        async for record in self.consumer:
            self.world.ledger.consume(record)
            self.read.append((TopicPartition(record.topic, record.partition), record.offset))

    def progress(self) -> int:
        return len(self.read)

    async def finish(self) -> None:
        async with asyncio.timeout(60):
            while self.world.ledger.missing:
                record = await self.consumer.get(timeout=30)
                assert record is not None
                self.world.ledger.consume(record)
                self.read.append((TopicPartition(record.topic, record.partition), record.offset))
        self.world.ledger.check()
        # The positions were kept, so that no record was skipped or repeated.
        assert len(self.read) == len(set(self.read)) == self.written


class ClassicWork(ReadingWork):
    more: ClassVar[Mapping[str, Any]] = {"group_id": "g"}


class Kip848Work(ReadingWork):
    more: ClassVar[Mapping[str, Any]] = {"group_id": "g", "group_protocol": "consumer"}


class AssignedWork(ReadingWork):
    """Reading by assignment, with one more partition that is paused and never read."""

    def choose(self, consumer: Any) -> None:
        consumer.assign([*(TopicPartition(*each) for each in partitions_of(TOPICS)), PAUSED])
        consumer.seek(PAUSED, POSITION)
        consumer.pause([PAUSED])

    async def finish(self) -> None:
        await super().finish()
        assert self.consumer.paused() == {PAUSED}
        assert await self.consumer.position(PAUSED) == POSITION


class AdminWork(ClientWork):
    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        self.answers = 0
        async with Admin(**self.options) as self.admin:
            yield self.admin

    def spare(self) -> Any:
        return Admin(**self.spare_options)

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        return [
            lambda timeout: self.admin.list_topics(timeout=timeout),
            lambda timeout: self.admin.list_groups(timeout=timeout),
        ]

    async def _describe(self) -> None:
        described = await self.admin.describe_cluster(timeout=2.0)
        assert described.cluster_id == self.world.cluster.cluster_id
        self.answers += 1

    async def run(self) -> None:
        while True:
            await self.call(self._describe, 2.0)
            await asyncio.sleep(0.5)

    def progress(self) -> int:
        return self.answers


class Plain(GroupProtocol):
    """A group protocol that assigns nothing."""

    name = "plain"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(members, b"yours")


class MemberWork(ClientWork):
    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        self.confirmed = 0
        options = dict(self.options)
        async with GroupMember(
            "workers", protocol_type="plain", protocols=[Plain()], **options
        ) as self.member:
            yield self.member

    def spare(self) -> Any:
        return GroupMember(
            "spare", protocol_type="plain", protocols=[Plain()], **self.spare_options
        )

    async def run(self) -> None:
        async for generation in self.member.generations():
            async with generation as present:
                assert present.assignment == b"yours"
                while True:
                    view = self.world.cluster.groups.get("workers")
                    if view is not None and self.member.state.name == "RUNNING":
                        self.confirmed += self._is_member(present.member_id)
                    await asyncio.sleep(0.1)

    def _is_member(self, member_id: str) -> bool:
        view = self.world.cluster.groups["workers"]
        return any(member_id == getattr(each, "member_id", each) for each in view.members)

    def progress(self) -> int:
        return self.confirmed


class SharedWork(ReadingWork):
    """A client whose connections a producer, a consumer, and an admin share."""

    @contextlib.asynccontextmanager
    async def main(self) -> AsyncIterator[Any]:
        async with Client(**self.options) as client:
            consumer = Consumer(client=client, auto_offset_reset="earliest")
            async with Producer(client=client) as producer, consumer as self.consumer:
                self.writer = Writer(producer, self.world.ledger, partitions_of(TOPICS), pause=0.05)
                self.client, self.producer = client, producer
                consumer.assign([TopicPartition(*each) for each in partitions_of(TOPICS)])
                yield client

    def spare(self) -> Any:
        return Client(**self.spare_options)

    def calls_by_timeout(self) -> Sequence[Callable[[float], Awaitable[Any]]]:
        request = messages.ListGroupsRequest()
        return [
            *super().calls_by_timeout(),
            lambda timeout: self.client.request(request, AnyBroker(), timeout=timeout),
            lambda timeout: self.producer.partitions_for("t", timeout),
        ]

    async def _write(self) -> None:
        await self.writer.run()

    async def finish(self) -> None:
        self.writer.stopped = True
        await self.producer.flush()
        assert not self.world.ledger.failed, self.world.ledger.summary()
        self.written = len(self.world.ledger.acknowledged)
        await super().finish()


WORKS: Mapping[str, type[ClientWork]] = {
    "producer": ProducerWork,
    "transactional producer": TransactionalWork,
    "consumer in a classic group": ClassicWork,
    "consumer in a KIP-848 group": Kip848Work,
    "consumer by assignment": AssignedWork,
    "admin": AdminWork,
    "GroupMember": MemberWork,
    "shared client": SharedWork,
}

"""On a real Kafka, clients push what they have done, as Kafka's own clients do (KIP-714).

Clients of each kind, of this library and of Java, do the same work through a proxy that counts
their requests. Each client does this twice: with differences (delta), and with sums since the
beginning (cumulative), which the proxy requests in place of the broker. `-s` prints the tables.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import combinations, pairwise
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kafka_harness import KafkaCluster, Pushed, pushed
from metadata_proxy import ALTERED, MetadataProxy, ProxiedConnection, body_of
from pushed_metrics import Form, SeriesName, Totals, compare, forms, left_out, printed, values
from pushing_clients import JavaClients

from aiokclient import Admin, Consumer, Producer, TopicPartition
from aiokclient.admin import ConfigResource
from aiokclient.errors import RecordTooLargeError
from aiokclient.protocol import ApiKey, messages
from aiokclient.record.batch import walk

pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.timeout(900)]

PUSHES = "client-metrics"
SUBSCRIPTION = ConfigResource.client_metrics("compared")
MODES = ("delta", "cumulative")
CLIENTS = ("aiokclient", "java")
KINDS = ("producer", "transactional", "assigned", "classic", "kip848", "admin")
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
PATIENCE_S = 60.0

SIZE = 100
RECORDS = (60, 40)
"""For each partition of a topic, the number of records that clients send or read."""
RETRIED, FAILURES = 3, 2
"""The number of records in a batch that is refused, and the number of its refusals."""
COMMITTED, ABORTED = (10, 20), 5
"""The numbers of records in the committed transactions, and in the aborted one."""
LISTINGS = 3


class Identity(NamedTuple):
    client: str
    kind: str
    mode: str

    @property
    def name(self) -> str:
        return "-".join(("compared", *self))


class CountingProxy(MetadataProxy):
    """A proxy that can request cumulative values, and return an error for a written batch."""

    altered: Mapping[int, Any] = {
        **ALTERED,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: messages.GetTelemetrySubscriptionsResponse,
        ApiKey.PRODUCE: messages.ProduceResponse,
    }

    def __init__(self, broker: tuple[str, int], mode: str) -> None:
        super().__init__(broker)
        self._mode = mode
        self._topics: dict[UUID, str] = {}
        self.refusals: Counter[str] = Counter()
        """The number of batches that are still to be refused, by client id."""
        self.records: Counter[tuple[str, str]] = Counter()
        """The number of records in all Produce requests, by client id and topic."""
        self.bytes: Counter[tuple[str, str]] = Counter()
        """The size of the batches in all Produce requests, by client id and topic."""

    def passed(self, connection: ProxiedConnection, frame: bytes, key: int, version: int) -> None:
        if key == ApiKey.PRODUCE:
            tags = 1  # The header ends in an empty list of tags.
            request = messages.ProduceRequest.decode(frame[body_of(frame) + tags :], version)
            for topic in request.topic_data:
                name = connection.client_id, self._topics.get(topic.topic_id, topic.name)
                for partition in topic.partition_data:
                    self.bytes[name] += len(partition.records)
                    self.records[name] += sum(each.count for each in walk(partition.records))

    def alter(self, connection: ProxiedConnection, key: int, response: Any) -> None:
        super().alter(connection, key, response)
        if key == ApiKey.METADATA:
            self._topics |= {topic.topic_id: topic.name for topic in response.topics}
        if key == ApiKey.GET_TELEMETRY_SUBSCRIPTIONS:
            response.delta_temporality = self._mode == "delta"
        if key == ApiKey.PRODUCE and self.refusals[connection.client_id] > 0:
            self.refusals[connection.client_id] -= 1
            for topic in response.responses:
                for partition in topic.partition_responses:
                    partition.error_code = NOT_ENOUGH_REPLICAS_AFTER_APPEND


class Exchanged(NamedTuple):
    """The requests of one client and their responses, as the proxy has counted them.

    The last push is not counted, because its metrics were collected before it was sent.
    """

    requests: int
    responses: int
    sent_bytes: int
    received_bytes: int
    by_node: dict[str, int]
    connections: int
    last: list[int]
    """The size of the last response on each connection. A client that closes may not wait for it,
    for example if it is the response to the request that ends a fetch session."""


def exchanged(connections: list[ProxiedConnection]) -> Exchanged:
    """Add up what has passed through the connections of one client."""
    sent = [(each, *one) for each in connections for one in each.sent]
    received = [one for each in connections for one in each.received]
    pushing = next(each for each in connections if each.requests[ApiKey.PUSH_TELEMETRY])
    last = [size for key, size in pushing.sent if key == ApiKey.PUSH_TELEMETRY][-1]
    answer = [size for key, size in pushing.received if key == ApiKey.PUSH_TELEMETRY][-1]
    by_node = Counter("node--1" if each.is_bootstrap else "node-1" for each, _, _ in sent)
    by_node["node--1" if pushing.is_bootstrap else "node-1"] -= 1
    others = [
        [size for key, size in each.received if key != ApiKey.PUSH_TELEMETRY]
        for each in connections
    ]
    return Exchanged(
        len(sent) - 1,
        len(received) - 1,
        sum(size for *_, size in sent) - last,
        sum(size for _, size in received) - answer,
        dict(by_node),
        len(connections),
        [sizes[-1] for sizes in others if sizes],
    )


class PushLog:
    """All pushes that the broker's plugin has written, by client id."""

    def __init__(self, servers: str) -> None:
        self.pushes: dict[str, list[Pushed]] = {}
        self._consumer = Consumer(
            bootstrap_servers=servers, enable_metrics_push=False, auto_offset_reset="earliest"
        )
        self._changed = asyncio.Event()

    async def follow(self, began: asyncio.Event) -> None:
        async with self._consumer as consumer:
            partition = TopicPartition(PUSHES, 0)
            consumer.assign([partition])
            consumer.seek_to_end([partition])
            await consumer.position(partition)
            began.set()
            async for record in consumer:
                push = pushed(record.key, record.value, record.headers)
                self.pushes.setdefault(push.client["client_id"], []).append(push)
                self._changed.set()

    def count(self, name: str) -> int:
        return len(self.pushes.get(name, ()))

    def ended(self, name: str) -> bool:
        return any(push.terminating for push in self.pushes.get(name, ()))

    async def until(self, condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            counts = {name: len(pushes) for name, pushes in self.pushes.items()}
            raise AssertionError(
                f"Some clients have not pushed within {PATIENCE_S} s. Pushes: {counts}"
            ) from None

    async def two_more(self, name: str) -> None:
        """Wait for two more pushes. Only the second one was certainly made after this call."""
        count = self.count(name)
        await self.until(lambda: self.count(name) >= count + 2)


class Site:
    """The cluster, the proxies, and the topics."""

    def __init__(self, kafka: KafkaCluster, log: PushLog, proxies: dict[str, CountingProxy]):
        self.log, self.proxies = log, proxies
        self.topic = kafka.create_topic(partitions=len(RECORDS))
        self.written = kafka.create_topic(partitions=len(RECORDS))
        """A topic that was filled with the records for the consumers."""
        self.small = kafka.create_topic(configs={"max.message.bytes": 1000})
        self.servers = kafka.bootstrap
        self.assigned: Counter[str] = Counter()
        """The number of times that listeners of this library heard of new partitions, by client."""

    def options(self, who: Identity) -> dict[str, Any]:
        """Return the options that clients of both languages have."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.proxies[who.mode].bootstrap,
            "client_id": who.name,
        }
        if who.kind in ("producer", "transactional"):
            options |= {"linger_ms": 60_000, "batch_size": 1 << 20, "retry_backoff_ms": 10}
        if who.kind == "transactional":
            options["transactional_id"] = who.name
        if who.kind in ("assigned", "classic", "kip848"):
            options |= {"client_rack": "r1", "auto_offset_reset": "earliest"}
            options["enable_auto_commit"] = False if who.client == "aiokclient" else "false"
        if who.kind in ("classic", "kip848"):
            options |= {"group_id": who.name, "group_instance_id": f"{who.name}-1"}
            options["group_protocol"] = "classic" if who.kind == "classic" else "consumer"
        return options

    def refuse_twice(self, who: Identity) -> None:
        self.proxies[who.mode].refusals[who.name] = FAILURES

    async def write(self) -> None:
        async with Producer(bootstrap_servers=self.servers, enable_metrics_push=False) as producer:
            for partition, count in enumerate(RECORDS):
                sent = [
                    producer.send(self.written, bytes(SIZE), partition=partition)
                    for _ in range(count)
                ]
                await producer.gather(sent)


# -- the work, with this library


async def send(producer: Producer[Any, Any], topic: str, partition: int, count: int) -> None:
    for _ in range(count):
        producer.send(topic, bytes(SIZE), partition=partition)
    await producer.flush()


async def our_producer(site: Site, who: Identity) -> None:
    async with Producer(**site.options(who)) as producer:
        for partition, count in enumerate(RECORDS):
            await send(producer, site.topic, partition, count)
        refused = producer.send(site.small, bytes(5000), partition=0)
        await producer.flush()
        with pytest.raises(RecordTooLargeError):
            await refused
        site.refuse_twice(who)
        await send(producer, site.topic, 0, RETRIED)
        await site.log.two_more(who.name)


async def our_transactional(site: Site, who: Identity) -> None:
    async with Producer(**site.options(who)) as producer:
        for count in COMMITTED:
            await producer.begin_transaction()
            await send(producer, site.topic, 0, count)
            await producer.commit_transaction()
        await producer.begin_transaction()
        await send(producer, site.topic, 0, ABORTED)
        await producer.abort_transaction()
        await site.log.two_more(who.name)


class AssignmentCount:
    """A listener that counts how often partitions were assigned."""

    def __init__(self, site: Site, who: Identity) -> None:
        self._site, self._who = site, who

    def on_assigned(self, _: Sequence[TopicPartition]) -> None:
        self._site.assigned[self._who.name] += 1


async def our_consumer(site: Site, who: Identity) -> None:
    partitions = [TopicPartition(site.written, each) for each in range(len(RECORDS))]
    topics = () if who.kind == "assigned" else (site.written,)
    listener = AssignmentCount(site, who) if topics else None
    async with Consumer(*topics, listener=listener, **site.options(who)) as consumer:
        if who.kind == "assigned":
            consumer.assign(partitions)
        found = 0
        while found < sum(RECORDS):
            found += len(await consumer.poll(timeout=60.0))
        if who.kind != "assigned":
            await consumer.commit({each: RECORDS[each.partition] for each in partitions})
            await consumer.committed(partitions)
        consumer.pause(partitions)  # So that no fetch is in flight at the end.
        await site.log.two_more(who.name)


async def our_admin(site: Site, who: Identity) -> None:
    async with Admin(**site.options(who)) as admin:
        for _ in range(LISTINGS):
            await admin.list_topics()
        await site.log.two_more(who.name)


OURS: dict[str, Callable[[Site, Identity], Awaitable[None]]] = {
    "producer": our_producer,
    "transactional": our_transactional,
    "assigned": our_consumer,
    "classic": our_consumer,
    "kip848": our_consumer,
    "admin": our_admin,
}


# -- the same work, with Java's clients


async def java_work(java: JavaClients, site: Site, who: Identity) -> None:
    kind = {"transactional": "producer", "producer": "producer", "admin": "admin"}
    # An admin of Java pushes only if this option says so.
    name, options = who.name, {**site.options(who), "enable_metrics_push": "true"}
    if who.kind == "assigned":
        options["group_protocol"] = "classic"
    await java.do(kind.get(who.kind, "consumer"), name, **options)
    if who.kind == "producer":
        for partition, count in enumerate(RECORDS):
            assert await java.do("send", name, site.topic, partition, count, SIZE) == "0"
        assert await java.do("send", name, site.small, 0, 1, 5000) == "1"
        site.refuse_twice(who)
        assert await java.do("send", name, site.topic, 0, RETRIED, SIZE) == "0"
    elif who.kind == "transactional":
        await java.do("init", name)
        for count, end in [*((each, "commit") for each in COMMITTED), (ABORTED, "abort")]:
            await java.do("begin", name)
            assert await java.do("send", name, site.topic, 0, count, SIZE) == "0"
            await java.do(end, name)
    elif who.kind == "admin":
        for _ in range(LISTINGS):
            await java.do("topics", name)
    else:
        subscribed = ["subscribe", name, site.written]
        if who.kind == "assigned":
            subscribed = ["assign", name, site.written, *map(str, range(len(RECORDS)))]
        await java.do(*subscribed)
        assert await java.do("read", name, sum(RECORDS)) == str(sum(RECORDS))
        if who.kind != "assigned":
            await java.do("offsets", name)


async def java_pushes(java: JavaClients, site: Site, everyone: list[Identity]) -> None:
    """Let Java's clients push two more times, while the consumers poll. Then close them."""
    waiting = asyncio.gather(*(site.log.two_more(who.name) for who in everyone))
    consumers = [who for who in everyone if who.kind in ("assigned", "classic", "kip848")]
    while not waiting.done():
        for who in consumers:
            await java.do("poll", who.name, 20)
    await waiting
    for who in everyone:
        await java.do("close", who.name)
    await site.log.until(lambda: all(site.log.ended(who.name) for who in consumers))


# -- the run


class Run(NamedTuple):
    """The pushes of all clients, and the requests of this library's clients."""

    pushes: dict[Identity, list[Pushed]]
    exchanged: dict[Identity, Exchanged]
    records: Counter[tuple[str, str]]
    """The number of records in Produce requests, by client id and topic."""
    sizes: Counter[tuple[str, str]]
    """The size of the batches in Produce requests, by client id and topic."""
    topics: tuple[str, str, str]
    assigned: Counter[str]
    """The number of times that partitions were assigned to a client of this library."""

    def payloads(self, who: Identity) -> list[bytes]:
        return [push.data for push in self.pushes[who]]

    def totals(self, who: Identity) -> Totals:
        return Totals(self.payloads(who))


async def subscribe(servers: str, metrics: str) -> None:
    changes = {"metrics": metrics, "interval.ms": "1000", "match": "client_id=compared-.*"}
    async with Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin:
        if metrics:
            (await admin.alter_configs({SUBSCRIPTION: changes})).raise_for_errors()
        else:
            await admin.delete_client_metrics([SUBSCRIPTION.name])


async def run_all(kafka: KafkaCluster) -> Run:
    everyone = [Identity(c, kind, mode) for c in CLIENTS for kind in KINDS for mode in MODES]
    ours = [who for who in everyone if who.client == "aiokclient"]
    theirs = [who for who in everyone if who.client == "java"]
    await subscribe(kafka.bootstrap, "*")
    async with AsyncExitStack() as stack:
        address = kafka.addresses()[0]
        proxies = {
            mode: await stack.enter_async_context(CountingProxy(address, mode)) for mode in MODES
        }
        java = await stack.enter_async_context(JavaClients())
        log, began = PushLog(kafka.bootstrap), asyncio.Event()
        following = asyncio.create_task(log.follow(began))
        stack.callback(following.cancel)
        await began.wait()
        site = Site(kafka, log, proxies)
        await site.write()
        await asyncio.gather(*(OURS[who.kind](site, who) for who in ours))
        for who in theirs:
            await java_work(java, site, who)
        await java_pushes(java, site, theirs)
        await log.until(lambda: all(log.ended(who.name) for who in ours))
        following.cancel()
        await asyncio.wait([following])
        await subscribe(kafka.bootstrap, "")
        connections = [each for proxy in proxies.values() for each in proxy.connections]
        return Run(
            {who: log.pushes[who.name] for who in everyone},
            {
                who: exchanged([each for each in connections if each.client_id == who.name])
                for who in ours
            },
            sum((proxy.records for proxy in proxies.values()), Counter()),
            sum((proxy.bytes for proxy in proxies.values()), Counter()),
            (site.topic, site.written, site.small),
            site.assigned,
        )


@pytest.fixture(scope="module")
def run(kafka_telemetry: KafkaCluster, kafka_jars: Any) -> Iterator[Run]:
    return asyncio.run(run_all(kafka_telemetry))


# -- names, kinds, labels, attributes, and temporality


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_metrics_have_the_form_of_those_of_javas_clients(run: Run, kind: str, mode: str) -> None:
    ours, theirs = (forms(run.payloads(Identity(each, kind, mode))) for each in CLIENTS)
    found = compare(ours, theirs, left_out())
    print(printed(f"{kind}, {mode}", found))  # noqa: T201
    assert len(theirs) > 45
    assert not found.missing
    assert not found.extra
    assert not found.different


CHANGES: dict[str, Callable[[Form], Form]] = {
    "kind": lambda form: form._replace(kind=form.kind.replace("monotonic", "falling")),
    "temporality": lambda form: form._replace(kind=form.kind.replace("delta", "cumulative")),
    "attributes": lambda form: form._replace(attributes="group_id"),
    "unit": lambda form: form._replace(extras="ms"),
}


def test_comparison_reports_a_row_that_was_changed(run: Run) -> None:
    ours, theirs = (forms(run.payloads(Identity(c, "producer", "delta"))) for c in CLIENTS)
    listed = left_out()
    assert not compare(ours, theirs, listed)
    for series, form in theirs.items():
        if series not in ours:
            continue
        for what, change in CHANGES.items():
            if change(form) != form:
                changed = compare({**ours, series: change(form)}, theirs, listed)
                assert len(changed.different) == 1, (what, series)
        without = {each: form for each, form in ours.items() if each != series}
        assert len(compare(without, theirs, listed).missing) == 1
        renamed = {**without, SeriesName(series.name, "label"): form}
        assert len(compare(renamed, theirs, listed).extra) == 1


# -- values


def ours(kind: str, mode: str) -> Identity:
    return Identity("aiokclient", kind, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_requests_are_those_that_the_proxy_has_counted(run: Run, kind: str, mode: str) -> None:
    who, prefix = ours(kind, mode), "admin.client" if kind == "admin" else "producer"
    prefix = "consumer" if kind in ("assigned", "classic", "kip848") else prefix
    counted, totals = run.exchanged[who], run.totals(who)
    assert totals.value(f"{prefix}.request.total") == counted.requests
    assert totals.by(f"{prefix}.node.request.total", "node_id") == counted.by_node
    responses, received = counted.responses, counted.received_bytes
    missing = int(responses - totals.value(f"{prefix}.response.total"))
    sizes = {sum(some) for some in combinations(counted.last, missing)}
    assert received - totals.value(f"{prefix}.incoming.byte.total") in sizes
    if prefix != "consumer":
        assert not missing
    responses -= missing
    assert totals.value(f"{prefix}.network.io.total") == counted.requests + responses
    assert totals.value(f"{prefix}.outgoing.byte.total") == counted.sent_bytes
    assert totals.value(f"{prefix}.connection.creation.total") == counted.connections


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_producers_push_what_the_test_has_sent(run: Run, client: str, mode: str) -> None:
    totals, (topic, _, small) = run.totals(Identity(client, "producer", mode)), run.topics
    sent, retried = sum(RECORDS) + RETRIED, RETRIED * FAILURES
    expected = {
        "record.send.total": sent + retried + 1,
        "record.retry.total": retried,
        "record.error.total": 1,
        "batch.split.total": 0,
        "buffer.exhausted.total": 0,
    }
    assert {name: totals.value(f"producer.{name}") for name in expected} == expected
    expected = {"send": sent + retried, "retry": retried, "error": 0}
    for name, value in expected.items():
        assert totals.value(f"producer.topic.record.{name}.total", topic=topic) == value
    expected = {"send": 1, "retry": 0, "error": 1}
    for name, value in expected.items():
        assert totals.value(f"producer.topic.record.{name}.total", topic=small) == value
    check_sent(run, Identity(client, "producer", mode))


def check_sent(run: Run, who: Identity) -> None:
    """Check the pushed records and bytes against the Produce requests that the proxy has seen."""
    totals = run.totals(who)
    records = {topic: count for (name, topic), count in run.records.items() if name == who.name}
    assert totals.by("producer.topic.record.send.total", "topic") == records
    assert totals.value("producer.record.send.total") == sum(records.values())
    sizes = {topic: size for (name, topic), size in run.sizes.items() if name == who.name}
    assert totals.by("producer.topic.byte.total", "topic") == sizes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
def test_transactional_producers_push_what_the_test_has_sent(
    run: Run, client: str, mode: str
) -> None:
    totals = run.totals(Identity(client, "transactional", mode))
    # The broker may refuse the first batch of a transaction until the previous one has ended.
    retried = totals.value("producer.record.retry.total")
    assert totals.value("producer.record.send.total") - retried == sum(COMMITTED) + ABORTED
    check_sent(run, Identity(client, "transactional", mode))
    assert totals.value("producer.record.error.total") == 0
    for what in ("init", "commit", "abort"):
        assert totals.value(f"producer.txn.{what}.time.ns.total") > 0
    if client == "aiokclient":
        own = "producer.aiokclient.transactions.total"
        assert totals.by(own, "outcome") == {"committed": len(COMMITTED), "aborted": 1}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", ["assigned", "classic", "kip848"])
def test_consumers_push_what_the_test_has_read(run: Run, kind: str, client: str, mode: str) -> None:
    totals, topic = run.totals(Identity(client, kind, mode)), run.topics[1]
    fetches = "consumer.fetch.manager"
    assert totals.value(f"{fetches}.records.consumed.total") == sum(RECORDS)
    assert totals.value(f"{fetches}.records.consumed.total", topic=topic) == sum(RECORDS)
    if kind == "assigned":
        return
    expected = {"commit.total": 1, "failed.rebalance.total": 0}
    if kind == "classic":
        expected |= {"sync.total": 1, "rebalance.total": 1}
    found = {name: totals.value(f"consumer.coordinator.{name}") for name in expected}
    assert found == expected
    if kind == "kip848":
        # Java's consumer first takes over the part of its assignment whose topics it knows by name,
        # which may be empty, and counts that as a rebalance.
        assert totals.value(REBALANCES) >= 1
    if client == "aiokclient":
        assert totals.value(REBALANCES) <= run.assigned[Identity(client, kind, mode).name]


INCOMPARABLE = (
    *("time.ns", ".latency", ".time.", "heartbeat", "seconds.ago", ".age", ".idle."),
    *(".request.", ".response.", ".byte.", ".bytes.in", "connection.", "network.io", ".io."),
    *(".select.", "incoming", "outgoing", "requests.in.flight", "waiting", ".fetch.total"),
    *("kafka.count", "start.time", "event", "unsent", ".aiokclient."),
)
"""Parts of the names of metrics whose values depend on times, or on the use of connections."""
RETRIED_PARTS = ("record.send", "record.retry")
"""Parts of the names of metrics whose values depend on whether brokers refuse first attempts."""
SIZES = "producer.topic.byte"
"""Part of the name of metrics whose values depend on times, because a timestamp 64 ms after the
first one of its batch takes one more byte. `check_sent` compares these values with the requests."""
REBALANCES = "consumer.coordinator.rebalance.total"
"""A metric that is more than one in a member according to KIP-848 if it takes over its assignment
in several steps. `test_consumers_push_what_the_test_has_read` compares it with a listener."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_equal_those_of_javas_clients(run: Run, kind: str, mode: str) -> None:
    totals = [run.totals(Identity(each, kind, mode)).sums for each in CLIENTS]
    differing = {}
    for key in sorted({*totals[0]} & {*totals[1]}):
        if totals[0][key] != totals[1][key]:
            if any(part in key[0] for part in INCOMPARABLE) and ".topic." not in key[0]:
                continue
            if kind == "transactional" and any(part in key[0] for part in RETRIED_PARTS):
                continue
            if SIZES in key[0] or (kind == "kip848" and REBALANCES in key[0]):
                continue
            differing[key] = totals[0][key], totals[1][key]
    assert differing == {}


@pytest.mark.parametrize("kind", KINDS)
def test_delta_and_cumulative_pushes_have_their_times(run: Run, kind: str) -> None:
    for mode in MODES:
        starts: dict[Any, list[tuple[int, int]]] = {}
        for payload in run.payloads(ours(kind, mode)):
            taken = set()
            for value in values(payload):
                taken.add(value.time_ns)
                assert math.isfinite(value.number) or "gauge" in value.form.kind
                if "since" in value.form.kind:
                    key = value.name, value.labels, tuple(value.attributes.items())
                    starts.setdefault(key, []).append((value.start_ns, value.time_ns))
            assert len(taken) == 1
        for spans in starts.values():
            for (first, time), (second, later) in pairwise(spans):
                assert first <= time < later
                assert second == (time if mode == "delta" else first)


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_are_those_of_the_client(run: Run, kind: str) -> None:
    who = ours(kind, "delta")
    expected = {}
    if kind == "transactional":
        expected = {"transactional_id": who.name}
    if kind in ("assigned", "classic", "kip848"):
        expected = {"client_rack": "r1"}
    if kind in ("classic", "kip848"):
        expected |= {"group_id": who.name, "group_instance_id": f"{who.name}-1"}
    for value in values(run.payloads(who)[-1]):
        found = dict(value.attributes)
        member = found.pop("group_member_id", None)
        assert found == expected
        assert bool(member) == (kind in ("classic", "kip848"))
    for push in run.pushes[who]:
        assert push.client["client_id"] == who.name
        assert push.client["software_name"] == "aiokclient"

"""Tests that subscriptions to client metrics and pushes are answered as by a real Kafka.

Both clusters get the same random subscriptions and the same requests of raw clients. All responses
must be equal, including the subscription ids and the order of the metrics. The brokers must also
pass equal data to their receivers.
"""

from __future__ import annotations

import os
import random
import string
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_harness import KAFKA, KafkaCluster, pushed
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from parity import named

from aiokclient.config.codecs import Compression
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages import alter_configs
from aiokclient.protocol.messages import describe_configs as describing
from aiokclient.record.batch import walk
from aiokclient.record.compression import compress
from aiokclient.testing import EmbeddedCluster, TopicTelemetryReceiver

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900)]

SETS = 200 if os.environ.get("AIOKCLIENT_EXPLORE") else 30
GROWING = 20
"""The last GROWING sets may have so many subscriptions that hash tables grow."""
TOPIC = "client-metrics"
LIMIT = 1 << 20
CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

NAMES = [*string.ascii_letters, "orders", "größe", "x-1", "Aa", "BB", "a b", "日本", "all.of.them"]
METRICS = [
    *("org.apache.kafka.producer.", "org.apache.kafka.consumer.", "org.apache.kafka.admin."),
    *(f"org.apache.kafka.{a}.{b}" for a in ("producer", "consumer") for b in "abcdefgh"),
    *("AaAa", "BBBB", "AaBB", "BBAa", "größe.", "日本", "with space", "😀", "**"),
]
CLIENTS = [
    ("orders-1", ("aiokclient", "1.0.0")),
    ("payments", ("apache-kafka-java", "4.4.0")),
    (None, ("librdkafka", "v2.16.1")),
    ("", None),
]
MATCHES = {
    "client_id": ["orders-.*", "orders-1", "orders", ".*", "", "payments|orders-1", "(?i)ORDERS.*"],
    "client_software_name": ["apache-kafka-java", ".*kafka.*", "unknown", "[a-z]+", "lib\\w+"],
    "client_software_version": ["4\\.4\\.0", "4.*", "unknown", "v?\\d+(\\.\\d+){2}", "[^4].*"],
    "client_source_address": ["127\\.0\\.0\\.1", "127.*", "10\\..*"],
    "client_source_port": ["\\d{1}\\d+", "[0-9]+", "80"],
    "client_instance_id": [".*", "[A-Za-z0-9_-]{22}", "none"],
}
INTERVALS = ["60000", "60001", "300000", "3599999", "3600000", " 70000 ", "+80000"]


class Pair:
    """The embedded cluster and the real one, on which each step is run alike."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        self.ours, self.theirs = ours, theirs

    def both(self, step: Any) -> tuple[Any, Any]:
        return step(self.ours), step(self.theirs)

    def same(self, step: Any) -> Any:
        """Run a step on both clusters, check that the results are equal, and return the result."""
        ours, theirs = self.both(step)
        assert ours == theirs
        return ours


@pytest.fixture(scope="module")
def clusters(java: str) -> Iterator[tuple[EmbeddedCluster, KafkaCluster]]:
    # Both clusters must be new, because the order of a hash table depends on all earlier changes.
    embedded = EmbeddedCluster(telemetry=TopicTelemetryReceiver(TOPIC), retention_bytes=-1)
    with embedded, KafkaCluster(KAFKA, telemetry=TOPIC) as real:
        real.create_topic(TOPIC, configs={"max.message.bytes": 1 << 24})
        yield embedded, real


@pytest.fixture
def pair(clusters: Any, telemetry_broker: Any) -> Pair:
    embedded, real = clusters
    return Pair(telemetry_broker(embedded.address(1)), telemetry_broker(real.addresses()[0]))


def random_match(rng: random.Random) -> str:
    keys = rng.sample(list(MATCHES), rng.choice((1, 1, 2, 3)))
    # Patterns are trimmed. If there are two for the same property, the last one counts.
    if rng.random() < 0.1:
        keys.append(keys[0])
    items = [f"{key}{rng.choice(('=', ' = '))}{rng.choice(MATCHES[key])}" for key in keys]
    kept = [each for each in dict.fromkeys(items) if not each.endswith(("=", "= "))]
    return rng.choice((",", " , ")).join(each for each in kept if "{1," not in each)


def random_subscription(rng: random.Random) -> dict[str, str]:
    options: dict[str, str] = {}
    if rng.random() < 0.9:
        metrics = rng.sample(METRICS, rng.choice((0, 1, 2, 3, 5, 8, 13)))
        if rng.random() < 0.15:
            metrics.insert(rng.randrange(len(metrics) + 1), "*")
        options["metrics"] = rng.choice((",", ", ")).join(metrics)
    if rng.random() < 0.7:
        options["interval.ms"] = rng.choice(INTERVALS)
    if rng.random() < 0.5 or not options:
        options["match"] = random_match(rng)
    return options


def subscription(answer: Any) -> tuple[Any, ...]:
    """Return all fields of a response to GetTelemetrySubscriptions."""
    return (
        named(answer.error_code),
        answer.throttle_time_ms,
        answer.client_instance_id,
        answer.subscription_id,
        list(answer.accepted_compression_types),
        answer.push_interval_ms,
        answer.telemetry_max_bytes,
        answer.delta_temporality,
        list(answer.requested_metrics),
    )


def otlp(rng: random.Random) -> bytes:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="requests")
    metric.gauge.data_points.add(as_double=rng.random())
    encoded: bytes = data.SerializeToString()
    return encoded


def random_payload(rng: random.Random) -> tuple[int, bytes]:
    """Return a codec and bytes, which may not be valid in that codec."""
    codec = rng.choice((-1, 0, 0, 1, 2, 3, 4, 5))
    content = rng.choice((b"", otlp(rng), rng.randbytes(50), b"\0" * 2_000_000))
    kind = rng.random()
    if codec not in range(1, 5):
        return codec, content[: LIMIT + rng.choice((-1, 0, 1))]
    if kind < 0.15:
        return codec, rng.randbytes(30)
    return codec, bytes(compress(Compression(codec), content))


def random_requests(
    rng: random.Random, instance_id: uuid.UUID, subscription_id: int
) -> Iterator[tuple[str, Any]]:
    """Yield requests of one client, which all arrive before the push interval is over."""
    for _ in range(rng.randrange(1, 8)):
        if rng.random() < 0.25:
            yield "ask", instance_id
            continue
        identity = rng.choice((instance_id,) * 18 + (uuid.UUID(int=0), uuid.UUID(int=1)))
        number = subscription_id if rng.random() < 0.8 else rng.getrandbits(31)
        yield "push", (identity, number, *random_payload(rng), rng.random() < 0.2)


def send(client: Any, request: tuple[str, Any]) -> Any:
    kind, what = request
    if kind == "ask":
        return subscription(client.ask(what))
    identity, number, codec, metrics, terminating = what
    return client.push(identity, number, metrics, codec=codec, terminating=terminating)


def end_of_topic(broker: Any) -> int:
    offset: int = broker.connection.list_offset(TOPIC, -1).offset
    return offset


def exported(broker: Any, offset: int) -> list[tuple[Any, ...]]:
    """Return the records that the broker has written to its receiver's topic from an offset on."""
    found: list[tuple[Any, ...]] = []
    connection = broker.wire.at(broker.address)
    end = end_of_topic(broker)
    while offset < end:
        for batch in walk(connection.fetch(TOPIC, offset=offset, max_bytes=1 << 26).records):
            for record in batch.records(TOPIC, 0):
                if record.offset >= offset:
                    push = pushed(record.key, record.value, record.headers)
                    push.client.pop("push_interval_ms", None)
                    found.append(push)
            offset = batch.last_offset + 1
    return found


def test_random_subscriptions_and_requests_are_answered_as_by_kafka(pair: Pair) -> None:
    accepted = compared = 0
    seen: set[str] = set()
    pair.theirs.until(lambda: end_of_topic(pair.theirs) == end_of_topic(pair.ours))
    start = end_of_topic(pair.ours)
    for number in range(SETS):
        rng = random.Random(number)
        most = 20 if number >= SETS - GROWING else 5
        names = rng.sample(NAMES, rng.randrange(0, most))
        for name in names:
            options = random_subscription(rng)
            pair.both(lambda broker, n=name, o=options: broker.subscribe(n, **o))
        assert pair.same(lambda broker: broker.names()) is not None
        for client_id, software in CLIENTS:
            clients = pair.both(lambda broker, c=client_id, s=software: broker.client(c, s))
            instance_id = uuid.UUID(int=rng.getrandbits(128))
            answers = [subscription(each.ask(instance_id)) for each in clients]
            assert answers[0] == answers[1], (number, client_id)
            compared += 1
            for request in random_requests(rng, instance_id, answers[0][3]):
                results = [send(each, request) for each in clients]
                assert results[0] == results[1], (number, client_id, request[0])
                compared += 1
                if request[0] == "push":
                    seen.add(results[0])
                    accepted += results[0] == "ok" and bool(request[1][3])
            for each in clients:
                each.connection.socket.close()
        pair.both(lambda broker, n=names: broker.unsubscribe(*n))
    print(f"{SETS} sets of subscriptions, {compared} equal responses, {accepted} pushes")  # noqa: T201
    assert seen >= {
        *("ok", "INVALID_REQUEST", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_SUBSCRIPTION_ID"),
        *("UNSUPPORTED_COMPRESSION_TYPE", "TELEMETRY_TOO_LARGE", "INVALID_RECORD"),
    }
    ours = exported(pair.ours, start)
    pair.theirs.until(lambda: end_of_topic(pair.theirs) >= start + len(ours))
    assert exported(pair.theirs, start) == ours
    assert len(ours) == accepted


INVALID: list[list[tuple[str, int, str | None]]] = [
    [("interval.ms", SET, value)]
    for value in ("99", "3600001", "-1", "0", "x", "", "1.5", "2147483648", "100", "3600000")
]
INVALID += [
    [("metrics", SET, value)]
    for value in ("", " ", "a,", ",a", "a,,b", "a,a", "a, a,b", "*", "*,a")
]
INVALID += [
    [("match", SET, value)]
    for value in (
        *("", "client_id", "client_id=", "=x", "client_id=a=b", "client_id=a=", "client_id==a"),
        *("client=a", "CLIENT_ID=a", "client_id=[", "client_id=(", "client_id=*a", "client_id=a**"),
        *("client_id=a{2}", "client_id={", "client_id=a{1,2}", "client_id=(?P<n>a)"),
        *("client_id=(?<n>a)", "client_id=\\", "client_id=\\Qa.b\\E", "client_id=(?=a).*"),
        *("client_id=a,client_id=b", "client_id=a,client_id=a", "client_id=(a)\\1", "client_id=]"),
        *("client_id=(?i)a", "client_id=a)", "client_id=[b-a]", "client_id=a++", "client_id=\\y"),
    )
]
INVALID += [
    [("unknown", SET, "1")],
    [("unknown", DELETE, None)],
    [("unknown", SET, "1"), ("interval.ms", SET, "x")],
    [("interval.ms", SET, "1"), ("match", SET, "x")],
    [("interval.ms", SET, "x"), ("match", SET, "x")],
    [("interval.ms", SET, "1"), ("metrics", SET, "a,a")],
    [("interval.ms", SET, None)],
    [("interval.ms", SET, "1000"), ("interval.ms", SET, "2000")],
    [("interval.ms", APPEND, "1000")],
    [("metrics", APPEND, "a")],
    [("metrics", APPEND, "b,a")],
    [("metrics", SUBTRACT, "a")],
    [("match", APPEND, "client_id=a")],
    [],
]


def state(broker: Any, name: str) -> list[tuple[Any, ...]]:
    """Return the options of a subscription as the broker describes them."""
    wanted = describing.DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    request = messages.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    (answer,) = broker.connection.request(request).results
    assert answer.error_code == 0, answer
    return sorted(
        (
            *(each.name, each.value, each.config_source, each.config_type),
            *(each.is_sensitive, each.read_only),
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
        )
        for each in answer.configs
    )


@pytest.mark.parametrize("changes", INVALID, ids=str)
def test_changes_of_subscriptions_are_answered_as_by_kafka(pair: Pair, changes: Any) -> None:
    name = f"invalid-{uuid.uuid4().hex}"

    def change(broker: Any) -> tuple[str, str | None]:
        answer = broker.alter(name, changes)
        return named(answer.error_code), answer.error_message and "text"

    pair.same(change)
    ours = state(pair.ours, name)
    pair.theirs.until(lambda: state(pair.theirs, name) == ours)
    pair.same(lambda broker: broker.unsubscribe(name))


def test_a_subscription_without_a_name_is_refused_as_by_kafka(pair: Pair) -> None:
    def outcomes(broker: Any) -> list[Any]:
        wanted = describing.DescribeConfigsResource(
            resource_type=CLIENT_METRICS, resource_name="", configuration_keys=None
        )
        request = messages.DescribeConfigsRequest(resources=[wanted])
        (described,) = broker.connection.request(request).results
        altered = broker.alter("", [("interval.ms", SET, "1000")])
        return [named(described.error_code), named(altered.error_code)]

    pair.same(outcomes)


def test_replaced_options_are_answered_as_by_kafka(pair: Pair) -> None:
    name = f"replaced-{uuid.uuid4().hex}"

    def replace(broker: Any, **options: str | None) -> str:
        resource = alter_configs.AlterConfigsResource(
            resource_type=CLIENT_METRICS,
            resource_name=name,
            configs=[
                alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
                for key, value in options.items()
            ],
        )
        request = messages.AlterConfigsRequest(resources=[resource])
        (answer,) = broker.connection.request(request).responses
        return named(answer.error_code)

    for options in ({"metrics": "a"}, {"interval_ms": "1000"}, {"interval_ms": "1"}, {}):
        pair.same(lambda broker, o=options: replace(broker, **o))
        ours = state(pair.ours, name)
        pair.theirs.until(lambda ours=ours: state(pair.theirs, name) == ours)


@pytest.mark.parametrize("types", [[], [16], [2, 16], [32], [4, 8], [99], [16, 1], [0]], ids=str)
@pytest.mark.parametrize("version", [0, 1])
def test_resources_are_listed_as_by_kafka(pair: Pair, types: Any, version: int) -> None:
    pair.both(lambda broker: broker.subscribe("listed", metrics="a"))

    def listed(broker: Any) -> Any:
        wanted = types if version else []
        request = messages.ListConfigResourcesRequest(resource_types=wanted)
        answer = broker.connection.request(request, version)
        return named(answer.error_code), [
            (each.resource_type, each.resource_name)
            for each in answer.config_resources
            if not each.resource_name.startswith("__")
        ]

    pair.same(listed)
    pair.both(lambda broker: broker.unsubscribe("listed"))


def test_a_changed_subscription_may_be_requested_immediately_as_by_kafka(pair: Pair) -> None:
    def outcomes(broker: Any) -> list[Any]:
        client, identity = broker.client("changed"), uuid.UUID(int=77)
        broker.subscribe("changed", metrics="a", interval_ms="60000")
        first = subscription(client.ask(identity))
        seen = [first, client.push(identity, first[3], b"x"), client.push(identity, first[3])]
        broker.subscribe("changed-again", metrics="b", interval_ms="50000")
        seen.append(client.push(identity, first[3]))
        seen.append(second := subscription(client.ask(identity)))
        # The request for the changed subscription does not count as a request at the interval.
        seen += [client.push(identity, second[3]), subscription(client.ask(identity))]
        broker.unsubscribe("changed", "changed-again")
        seen += [subscription(client.ask(identity)), subscription(client.ask(identity))]
        return seen

    pair.same(outcomes)


def test_pushes_around_a_terminating_one_are_answered_as_by_kafka(pair: Pair) -> None:
    def outcomes(broker: Any) -> list[Any]:
        client, identity = broker.client("ending"), uuid.UUID(int=78)
        broker.subscribe("ending", metrics="a", interval_ms="100")
        number = client.ask(identity).subscription_id
        seen = [client.push(identity, number, terminating=each) for each in (False, True)]
        seen += [client.push(identity, number, terminating=each) for each in (True, False)]
        # The refused push was not a terminating one, so the client may push again.
        broker.until(lambda: client.push(identity, number) == "ok")
        broker.until(lambda: client.ask(identity).error_code == 0)
        seen.append(client.push(identity, number, codec=7))
        broker.unsubscribe("ending")
        return seen

    pair.same(outcomes)


def test_an_instance_ends_with_its_connection_as_by_kafka(pair: Pair) -> None:
    def outcomes(broker: Any) -> list[Any]:
        identity = uuid.UUID(int=79)
        client, other = broker.client(), broker.client()
        seen = [named(client.ask(identity).error_code), named(other.ask(identity).error_code)]
        client.connection.socket.close()
        broker.until(lambda: other.ask(identity).error_code == 0)
        return seen

    pair.same(outcomes)


def test_brokers_without_a_receiver_announce_and_answer_as_kafka(
    kafka: Any, telemetry_broker: Any
) -> None:
    host, port = kafka.bootstrap.split(",")[0].split(":")

    def outcomes(broker: Any) -> list[Any]:
        answer = broker.connection.request(messages.ApiVersionsRequest(), 0)
        keys = {each.api_key for each in answer.api_keys}
        client, identity = broker.client(), uuid.UUID(int=80)
        found = client.ask(identity)
        packed = bytes(compress(Compression.GZIP, b"\0" * (LIMIT + 1)))
        return [
            [ApiKey(key).name for key in (71, 72, 74) if key in keys],
            named(found.error_code),
            client.push(identity, found.subscription_id, packed, codec=Compression.GZIP),
            client.push(identity, found.subscription_id, b"x", terminating=True),
        ]

    with EmbeddedCluster() as cluster:
        ours = outcomes(telemetry_broker(cluster.address(1)))
    assert ours == outcomes(telemetry_broker((host, int(port))))
    assert ours == [["LIST_CONFIG_RESOURCES"], "ok", "INVALID_RECORD", "ok"]

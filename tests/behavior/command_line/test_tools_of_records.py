"""The commands of records beside Kafka's own tools, on a real Kafka.

What has no counterpart: classes of Java (`--formatter`, `--line-reader`, deserializers other than
those of integers and texts); `--enable-systest-events`, which is for Kafka's own tests;
`--date-format`; and `--socket-buffer-size`, because the operating system sizes the buffers of
sockets; and `--message-send-max-retries`, because `-X delivery.timeout.ms` bounds them. Options of
clients have Kafka's names: `-X linger.ms=5` is `--timeout 5` of the console producer, and so on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from kafka_harness import JavaTool

Run = Callable[..., Any]
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
ALL = ("-o", "start", "--until", "end")
INTEGERS = "org.apache.kafka.common.serialization.IntegerDeserializer"
LINES = [
    {"key": {"base64": "AAAAAQ=="}, "value": "one", "timestamp": 1000, "headers": [["h", "x"]]},
    {"key": {"base64": "AAAAAg=="}, "value": "two", "timestamp": 2000},
    {"key": {"base64": "AAAAAw=="}, "value": None, "timestamp": 3000},
]
ALL_FIELDS = [
    word
    for name in ("timestamp", "partition", "offset", "headers")
    for word in ("--formatter-property", f"print.{name}=true")
]

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_tools_jars")]


class Reading(NamedTuple):
    """Options of the console consumer and of `consume` that mean the same; T is the topic."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]


READINGS = {
    "values": Reading(
        ("--topic", "T", "--from-beginning", "--max-messages", "3"),
        ("T", "-o", "start", "-n", "3", "--null", "null"),
    ),
    "offset": Reading(
        ("--topic", "T", "--partition", "0", "--offset", "1", "--max-messages", "1"),
        ("T", "-p", "0", "-o", "1", "-n", "1"),
    ),
    "keys": Reading(
        (
            *("--topic", "T", "--from-beginning", "--max-messages", "3"),
            *("--key-deserializer", INTEGERS),
            *("--formatter-property", "print.key=true"),
            *("--formatter-property", "key.separator=:"),
        ),
        ("T", "-o", "start", "-n", "3", "-K", ":", "--key-format", "int", "--null", "null"),
    ),
    "fields": Reading(
        ("--topic", "T", "--from-beginning", "--max-messages", "1", *ALL_FIELDS),
        (
            *("T", "-o", "start", "-n", "1", "-f"),
            r"CreateTime:%T\tPartition:%p\tOffset:%o\t%h{%k:%v}\t%s\n",
        ),
    ),
    "pattern": Reading(
        ("--include", "T.*", "--from-beginning", "--max-messages", "2"),
        ("T.*", "--regex", "-o", "start", "-n", "2"),
    ),
    "group": Reading(
        ("--topic", "T", "--group", "T-theirs", "--from-beginning", "--max-messages", "2"),
        ("T", "-g", "T-ours", "-X", "auto.offset.reset=earliest", "-n", "2", "--commit"),
    ),
    "isolation": Reading(
        (
            *("--topic", "T", "--from-beginning", "--max-messages", "2"),
            *("--isolation-level", "read_committed"),
        ),
        ("T", "-o", "start", "-n", "2", "--isolation-level", "read_committed"),
    ),
}


@pytest.fixture
def run_kafka(kafka: Any, run_on: Callable[[str], Run], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Type a command for a real Kafka."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 600.0)
    return run_on(kafka.bootstrap)


@pytest.fixture
def new_topic(kafka: Any) -> Callable[[], str]:
    def create() -> str:
        return str(kafka.create_topic(f"tools-{uuid.uuid4().hex[:12]}", 1))

    return create


def run_tools(bootstrap: str, tools: dict[str, tuple[str, tuple[str, ...], bytes]]) -> Any:
    """Return the output of each tool, by its name here. Two run at a time."""

    def run(tool: tuple[str, tuple[str, ...], bytes]) -> bytes:
        main, words, stdin = tool
        return JavaTool(main, "--bootstrap-server", bootstrap, *words).run(stdin)

    with ThreadPoolExecutor(2) as threads:
        return dict(zip(tools, threads.map(run, tools.values()), strict=True))


def named(words: tuple[str, ...], topic: str) -> tuple[str, ...]:
    return tuple(word.replace("T", topic) if word[:1] == "T" else word for word in words)


def test_consume_writes_what_the_console_consumer_writes(
    kafka: Any, run_kafka: Run, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    sent = run_kafka("produce", topic, "--jsonl", typed="\n".join(map(json.dumps, LINES)))
    assert (sent.code, sent.err) == (0, "")
    tools = {name: (CONSUMER, named(each.theirs, topic), b"") for name, each in READINGS.items()}
    expected = run_tools(kafka.bootstrap, tools)
    for name, each in READINGS.items():
        ended = run_kafka("consume", *named(each.ours, topic))
        assert (ended.code, ended.out.encode()) == (0, expected[name]), name
    groups = [f"{topic}-theirs", f"{topic}-ours"]
    described = json.loads(run_kafka("groups", "describe", *groups, "--json").out)
    assert len({row["committed"] for row in described}) == 1


def read(run: Run, topic: str) -> Iterator[tuple[Any, ...]]:
    ended = run("consume", topic, *ALL, "--jsonl")
    assert (ended.code, ended.err) == (0, "")
    for line in ended.out.splitlines():
        row = json.loads(line)
        yield row["key"], row["value"], row["headers"]


SENDINGS = {
    "lines": Reading((), ()),
    "keys": Reading(
        (
            *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
            *("--reader-property", "null.marker=NULL"),
        ),
        ("-K", ":", "--null", "NULL"),
    ),
    "options": Reading(
        (
            *("--compression-codec", "gzip", "--request-required-acks", "1", "--sync"),
            *("--batch-size", "1000", "--timeout", "5", "--max-block-ms", "30000"),
            *("--message-send-max-retries", "5", "--request-timeout-ms", "20000"),
            *("--retry-backoff-ms", "50", "--socket-buffer-size", "65536"),
            *("--max-memory-bytes", "1000000", "--metadata-expiry-ms", "60000"),
        ),
        (
            *("-z", "gzip", "--acks", "1", "--sync", "-X", "batch.size=1000", "-X", "linger.ms=5"),
            *("-X", "max.block.ms=30000", "-X", "request.timeout.ms=20000"),
            *("-X", "retry.backoff.ms=50"),
            *("-X", "buffer.memory=1000000", "-X", "metadata.max.age.ms=60000"),
        ),
    ),
}
TYPED = "k:v:w\n\nNULL:x\nk:NULL\n"


def test_produce_sends_what_the_console_producer_sends(
    kafka: Any, run_kafka: Run, new_topic: Callable[[], str]
) -> None:
    topics = {name: new_topic() for name in SENDINGS}
    # With parse.key, Kafka's tool refuses a line without the separator.
    typed = {name: TYPED.replace("\n\n", "\n") if name == "keys" else TYPED for name in SENDINGS}
    tools = {
        name: (PRODUCER, ("--topic", topics[name], *each.theirs), typed[name].encode())
        for name, each in SENDINGS.items()
    }
    run_tools(kafka.bootstrap, tools)
    for name, each in SENDINGS.items():
        topic = new_topic()
        ended = run_kafka("produce", topic, *each.ours, typed=typed[name])
        assert (ended.code, ended.err) == (0, ""), name
        assert list(read(run_kafka, topic)) == list(read(run_kafka, topics[name])), name


def test_perf_sends_and_reads_as_many_records_as_kafkas_tools(
    kafka: Any, run_kafka: Run, new_topic: Callable[[], str]
) -> None:
    theirs, ours = new_topic(), new_topic()
    package = "org.apache.kafka.tools"
    words = ("--topic", theirs, "--num-records", "20", "--payload-monotonic", "--throughput=-1")
    run_tools(kafka.bootstrap, {"produce": (f"{package}.ProducerPerformance", words, b"")})
    words = ("-n", "20", "--payload-monotonic")
    assert run_kafka("perf", "produce", ours, *words).code == 0
    assert list(read(run_kafka, ours)) == list(read(run_kafka, theirs))
    words = ("--topic", theirs, "--num-records", "20", "--hide-header", "--timeout", "20000")
    latency = ("--topic", theirs, "--num-records", "3", "--producer-acks", "all")
    found = run_tools(kafka.bootstrap, {"consume": (f"{package}.ConsumerPerformance", words, b"")})
    count = int(found["consume"].decode().split(",")[4])
    (row,) = json.loads(run_kafka("perf", "consume", theirs, "-n", "20", "--json").out)
    assert row["records"] == count == 20
    run_tools(
        kafka.bootstrap,
        {"latency": (f"{package}.EndToEndLatency", (*latency, "--record-size", "8"), b"")},
    )
    more = ("-n", "3", "--size", "8", "--acks", "all")
    assert run_kafka("perf", "latency", ours, *more).code == 0
    assert len(list(read(run_kafka, theirs))) == len(list(read(run_kafka, ours))) == 23

"""The console producer and consumer, and the tools that measure, beside our commands."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from raw_transactions import RawTransaction
from tool_sides import Sides

from aiokclient import Client, TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
CONSUMER, PRODUCER = "kafka-console-consumer", "kafka-console-producer"
PERF_PRODUCER, PERF_CONSUMER = "kafka-producer-perf-test", "kafka-consumer-perf-test"
LATENCY = "kafka-e2e-latency"
ALL = ("-o", "start", "--until", "end")
SERIALIZATION = "org.apache.kafka.common.serialization"
INTEGERS = f"{SERIALIZATION}.IntegerDeserializer"
FORMATTERS = "org.apache.kafka.tools.consumer"
LINES = [
    {"key": {"base64": "AAAAAQ=="}, "value": "one", "timestamp": 1000, "headers": [["h", "x"]]},
    {"key": {"base64": "AAAAAg=="}, "value": "two", "timestamp": 2000},
    {"key": {"base64": "AAAAAw=="}, "value": None, "timestamp": 3000},
]
GZIP = 1


class Pair(NamedTuple):
    """Options of Kafka's tool and of ours that mean the same; T is the topic, F a file."""

    theirs: str
    ours: str


def words_of(text: str, topic: str, file: Path) -> list[str]:
    words = (word.replace("\\s", " ") for word in text.split())
    named = (re.sub(r"^T(?=$|-|\.)", topic, word) for word in words)
    return [str(file) if word == "F" else word for word in named]


@pytest.fixture
def new_topic(tool_kafka: KafkaCluster) -> Callable[[], str]:
    return lambda: tool_kafka.create_topic(None, 1, 1)


@pytest.fixture
def filled(sides: Sides, new_topic: Callable[[], str]) -> str:
    """A topic with the records of LINES."""
    topic = new_topic()
    sent = sides.run_ours("produce", topic, "--jsonl", typed="\n".join(map(json.dumps, LINES)))
    assert (sent.code, sent.err) == (0, "")
    return topic


def read(sides: Sides, topic: str) -> list[Any]:
    """Return the records of a topic as our command writes them."""
    ended = sides.run_ours("consume", topic, *ALL, "--jsonl")
    assert (ended.code, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def contents(sides: Sides, topic: str) -> list[tuple[Any, ...]]:
    return [(row["key"], row["value"], row["headers"]) for row in read(sides, topic)]


class Batch(NamedTuple):
    """The fields in the head of a batch."""

    codec: int
    producer_id: int
    records: int


def batches(kafka: KafkaCluster, topic: str) -> list[Batch]:
    """Return the batches in the log of the leader."""
    leader = kafka.nodes[kafka.leader(topic)]
    (file,) = leader.folder.glob(f"*/{topic}-0/{0:020}.log")
    data = file.read_bytes()
    found: list[Batch] = []
    position = 0
    while position + 61 <= len(data) and (size := int.from_bytes(data[position + 8 :][:4])):
        codec = int.from_bytes(data[position + 21 :][:2]) & 7
        producer_id = int.from_bytes(data[position + 43 :][:8], signed=True)
        found.append(Batch(codec, producer_id, int.from_bytes(data[position + 57 :][:4])))
        position += 12 + size
    return found


# -- the console consumer ------------------------------------------------------------------------

ALL_FIELDS = " ".join(
    f"--formatter-property print.{name}=true"
    for name in ("timestamp", "partition", "offset", "headers")
)
READINGS = [
    Pair("--topic T --from-beginning --max-messages 3", "T -o start -n 3 --null null"),
    Pair("--topic T --from-beginning --timeout-ms 10000", "T -o start --idle 3 --null null"),
    Pair(
        "--topic T --partition 0 --offset 1 --max-messages 1",
        "T -p 0 -o 1 -n 1",
    ),
    Pair(
        "--topic T --partition 0 --offset earliest --max-messages 1",
        "T -p 0 -o start -n 1",
    ),
    Pair(
        f"--topic T --from-beginning --max-messages 3 --key-deserializer {INTEGERS} "
        "--formatter-property print.key=true --formatter-property key.separator=:",
        "T -o start -n 3 -K : --key-format int --null null",
    ),
    Pair(
        f"--topic T --from-beginning --max-messages 3 --key-deserializer {INTEGERS} "
        "--property print.key=true --property key.separator=:",
        "T -o start -n 3 -K : --key-format int --null null",
    ),
    Pair(
        "--topic T --from-beginning --max-messages 2 --formatter-config F",
        r"T -o start -n 2 -f Offset:%o\t%s\n",
    ),
    Pair(
        f"--topic T --from-beginning --max-messages 1 {ALL_FIELDS}",
        r"T -o start -n 1 -f CreateTime:%T\tPartition:%p\tOffset:%o\t%h{%k:%v}\t%s\n",
    ),
    Pair(
        f"--topic T --from-beginning --max-messages 2 "
        f"--formatter {FORMATTERS}.DefaultMessageFormatter",
        "T -o start -n 2",
    ),
    Pair(
        f"--topic T --from-beginning --max-messages 2 --value-deserializer "
        f"{SERIALIZATION}.StringDeserializer",
        "T -o start -n 2 --value-format text",
    ),
    Pair("--include T.* --from-beginning --max-messages 2", "T.* --regex -o start -n 2"),
    Pair(
        "--topic T --from-beginning --max-messages 2 --isolation-level read_committed",
        "T -o start -n 2 --isolation-level read_committed",
    ),
]


def test_records_are_consumed_alike_as_lines(sides: Sides, filled: str, tmp_path: Path) -> None:
    file = tmp_path / "formatter.properties"
    file.write_text("print.offset=true\n")
    for pair in READINGS:
        expected = sides.theirs(CONSUMER, *words_of(pair.theirs, filled, file))
        warning, _, rest = expected.partition("\n")
        expected = rest if warning.startswith("Option ") else expected
        ended = sides.run_ours("consume", *words_of(pair.ours, filled, file))
        assert (ended.code, ended.out) == (0, expected), pair
        assert expected != ""


def test_options_of_consumers_are_given_alike(sides: Sides, filled: str, tmp_path: Path) -> None:
    """Without the option, a new group would begin at the end, and read nothing."""
    option = "auto.offset.reset=earliest"
    file = tmp_path / "consumer.properties"
    file.write_text(f"{option}\n")
    read_two = ("--topic", filled, "--max-messages", "2", "--group")
    ours = ("consume", filled, "-n", "2", "-g")
    for number, (theirs_words, words) in enumerate(
        (
            (("--from-beginning",), ("-X", option, "--commit")),
            (("--command-property", option), ("-X", option, "--commit")),
            (("--consumer-property", option), ("-X", option, "--commit")),
            (("--consumer.config", str(file)), ("--config", str(file), "--commit")),
            (("--command-config", str(file)), ("--config", str(file), "--commit")),
        )
    ):
        groups = [f"{filled}-{kind}-{number}" for kind in ("theirs", "ours")]
        expected = sides.theirs(CONSUMER, *read_two, groups[0], *theirs_words)
        ended = sides.run_ours(*ours, groups[1], *words)
        assert ended.code == 0
        assert ended.out.splitlines() == expected.splitlines()[-2:] == ["one", "two"]
        rows = sides.ours("groups", "describe", *groups)
        assert [row["committed"] for row in rows] == [rows[0]["committed"]] * 2


def test_records_in_a_wrong_form_are_skipped_alike(
    sides: Sides, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    rows = [{"value": {"base64": each}} for each in ("AAAABw==", "eHl6", "AAAACA==")]
    sides.run_ours("produce", topic, "--jsonl", typed="\n".join(map(json.dumps, rows)))
    words = ("--from-beginning", "--value-deserializer", INTEGERS, "--max-messages", "3")
    expected = sides.theirs(CONSUMER, "--topic", topic, *words, "--skip-message-on-error")
    ended = sides.run_ours("consume", topic, *ALL, "--value-format", "int", "--skip-errors")
    assert ended.out.split() == expected.split() == ["7", "8"]
    stopped = sides.run_theirs(CONSUMER, "--topic", topic, *words)
    ended = sides.run_ours("consume", topic, *ALL, "--value-format", "int")
    assert ended.out.split() == stopped.out.split() == ["7"]
    assert ended.code == 1


def test_aborted_and_open_transactions_are_hidden_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()

    async def write() -> None:
        async with Client(bootstrap_servers=tool_kafka.bootstrap) as client:
            transaction = RawTransaction(client, topic)
            for value, end in ((b"aborted", False), (b"kept", True), (b"open", None)):
                await transaction.begin()
                await transaction.produce(TopicPartition(topic, 0), value)
                if end is not None:
                    await transaction.end(commit=end)

    asyncio.run(write())
    for level, shown in (
        ("read_committed", ["kept"]),
        ("read_uncommitted", ["aborted", "kept", "open"]),
    ):
        words = ("--from-beginning", "--max-messages", str(len(shown)), "--isolation-level", level)
        expected = sides.theirs(CONSUMER, "--topic", topic, *words).split()
        ended = sides.run_ours("consume", topic, *ALL, "--isolation-level", level)
        assert ended.out.split() == expected == shown
    sides.ours("transactions", "terminate", topic, "--yes")


def test_internal_topics_are_decoded_alike(sides: Sides, filled: str) -> None:
    """Our JSON has, without an option, what classes of `--formatter` print of internal topics."""
    group = f"{filled}-decoded"
    sides.ours("groups", "reset", group, filled, "--to", "2", "--yes")
    words = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "10000")
    printed = sides.theirs(CONSUMER, *words, "--formatter", f"{FORMATTERS}.OffsetsMessageFormatter")
    # It writes one document after the other, without a line feed between them.
    documents = json.loads("[" + re.sub(r"}\s*{", "},{", printed) + "]")
    theirs = {
        (key["group"], key["topic"], key["partition"], (value or {}).get("data", {}).get("offset"))
        for row in documents
        for key, value in [(row["key"]["data"], row["value"])]
    }
    ours = {
        (key["group"], key["topic"], key["partition"], (row["value"] or {}).get("offset"))
        for row in read(sides, "__consumer_offsets")
        for key in [row["key"]]
        if isinstance(key, dict) and "topic" in key
    }
    assert (group, filled, 0, 2) in theirs
    assert theirs <= ours


# -- the console producer ------------------------------------------------------------------------

TYPED = "k:v:w\nNULL:x\nk:NULL\n"
SENDINGS = [
    Pair("", ""),
    Pair(
        "--reader-property parse.key=true --reader-property key.separator=: "
        "--reader-property null.marker=NULL",
        "-K : --null NULL",
    ),
    Pair("--property parse.key=true --property key.separator=:", "-K :"),
    Pair("--reader-config F", "-K :"),
    Pair("--line-reader org.apache.kafka.tools.LineMessageReader", ""),
    Pair(
        "--request-required-acks 1 --request-timeout-ms 20000 --retry-backoff-ms 50 "
        "--max-block-ms 30000 --max-memory-bytes 1000000 --metadata-expiry-ms 60000",
        "--acks 1 -X request.timeout.ms=20000 -X retry.backoff.ms=50 "
        "-X max.block.ms=30000 -X buffer.memory=1000000 -X metadata.max.age.ms=60000",
    ),
    Pair("--request-required-acks 0", "--acks 0"),
]
CONFIGURED = [
    Pair("--command-property enable.idempotence=false", "-X enable.idempotence=false"),
    Pair("--producer-property enable.idempotence=false", "-X enable.idempotence=false"),
    Pair("--producer.config F", "--config F"),
    Pair("--command-config F", "--config F"),
]
LONG_LINES = f"{'v' * 90}\n" * 3
BATCHED = [
    Pair("--sync", "--sync"),
    Pair("--batch-size 100 --timeout 1000", "-X batch.size=100 -X linger.ms=1000"),
    Pair("--max-partition-memory-bytes 100 --timeout 1000", "-X batch.size=100 -X linger.ms=1000"),
    Pair("--timeout 2000", "-X linger.ms=2000"),
]


def send(sides: Sides, pair: Pair, topics: tuple[str, str], typed: str, file: Path) -> None:
    """Send lines to one topic with Kafka's tool, and to the other one with ours."""
    words = words_of(pair.theirs, topics[0], file)
    sides.theirs(PRODUCER, "--topic", topics[0], *words, stdin=typed.encode())
    ended = sides.run_ours("produce", topics[1], *words_of(pair.ours, topics[1], file), typed=typed)
    assert (ended.code, ended.err) == (0, ""), pair


def test_records_are_produced_alike_from_lines(
    sides: Sides, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    file = tmp_path / "reader.properties"
    file.write_text("parse.key=true\nkey.separator=:\n")
    for pair in SENDINGS:
        topics = new_topic(), new_topic()
        send(sides, pair, topics, TYPED, file)
        wait_until("the records", lambda t=topics[0]: len(read(sides, t)) == 3, 30)
        assert contents(sides, topics[1]) == contents(sides, topics[0]), pair


def test_options_of_producers_are_given_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Batches have no producer id if the option arrives, and one by default."""
    file = tmp_path / "producer.properties"
    file.write_text("enable.idempotence=false\n")
    for pair in (Pair("", ""), *CONFIGURED):
        topics = new_topic(), new_topic()
        send(sides, pair, topics, TYPED, file)
        assert contents(sides, topics[1]) == contents(sides, topics[0]), pair
        ids = [{batch.producer_id for batch in batches(tool_kafka, topic)} for topic in topics]
        assert [each == {-1} for each in ids] == [pair.theirs != ""] * 2, pair
    topics = new_topic(), new_topic()
    pair = Pair("--compression-codec gzip", "-z gzip")
    send(sides, pair, topics, "v" * 1000 + "\n", file)
    codecs = [{batch.codec for batch in batches(tool_kafka, topic)} for topic in topics]
    assert codecs == [{GZIP}, {GZIP}], pair


def test_records_are_batched_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    for pair in BATCHED:
        topics = new_topic(), new_topic()
        send(sides, pair, topics, LONG_LINES, tmp_path)
        counts = [[batch.records for batch in batches(tool_kafka, topic)] for topic in topics]
        assert counts == ([[3]] * 2 if pair is BATCHED[-1] else [[1, 1, 1]] * 2), pair


def test_a_record_beyond_the_memory_is_refused_alike(
    sides: Sides, new_topic: Callable[[], str]
) -> None:
    topics = new_topic(), new_topic()
    line = "v" * 50_000 + "\n"
    words = ("--max-memory-bytes", "20000", "--topic", topics[0])
    refused = sides.run_theirs(PRODUCER, *words, stdin=line.encode())
    assert "RecordTooLargeException" in refused.out + refused.err
    ended = sides.run_ours("produce", topics[1], "-X", "buffer.memory=20000", typed=line)
    assert ended.code == 1
    assert read(sides, topics[0]) == read(sides, topics[1]) == []


# -- measurements --------------------------------------------------------------------------------


def sizes(sides: Sides, topic: str) -> list[tuple[Any, ...]]:
    """Return the sizes of the keys, of the values, and of the headers of all records.

    Without a size of keys, Kafka's tool for latencies sends empty ones, and ours none.
    """

    def size(data: Any) -> int | None:
        if data is None:
            return None
        return len(base64.b64decode(data["base64"])) if isinstance(data, dict) else len(data)

    return [
        (
            size(row["key"]) or 0,
            size(row["value"]),
            [(len(name), size(value)) for name, value in row["headers"]],
        )
        for row in read(sides, topic)
    ]


def test_records_of_measurements_are_sent_alike(
    sides: Sides, tool_kafka: KafkaCluster, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    file, options = tmp_path / "payloads", tmp_path / "producer.properties"
    file.write_text("one;two;three")
    options.write_text("compression.type=gzip\n")
    gzip = "compression.type=gzip"
    pairs = [
        ("--payload-monotonic", "--payload-monotonic", contents),
        ("--record-size 20", "--size 20", sizes),
        ("--record-size 20 --throughput 100", "--size 20 --rate 100", sizes),
        (f"--record-size 500 --command-property {gzip}", f"--size 500 -X {gzip}", sizes),
        (f"--record-size 500 --producer-props {gzip}", f"--size 500 -X {gzip}", sizes),
        (f"--record-size 500 --command-config {options}", f"--size 500 --config {options}", sizes),
        (f"--record-size 500 --producer.config {options}", f"--size 500 --config {options}", sizes),
    ]
    for theirs, ours, view in pairs:
        topics = new_topic(), new_topic()
        throughput = () if "throughput" in theirs else ("--throughput", "-1")
        words = ("--topic", topics[0], "--num-records", "20", *throughput, *theirs.split())
        sides.theirs(PERF_PRODUCER, *words)
        (row,) = sides.ours("perf", "produce", topics[1], "-n", "20", *ours.split())
        assert row["records"] == 20
        assert view(sides, topics[0]) == view(sides, topics[1])
        assert len(read(sides, topics[1])) == 20
        codecs = [{batch.codec for batch in batches(tool_kafka, topic)} for topic in topics]
        assert codecs == [{GZIP if "500" in ours else 0}] * 2
    topics = new_topic(), new_topic()
    words = ("--num-records", "40", "--throughput", "-1", "--payload-file", str(file))
    sides.theirs(PERF_PRODUCER, "--topic", topics[0], *words, "--payload-delimiter", ";")
    words = ("-n", "40", "--payload-file", str(file), "--payload-delimiter", ";")
    sides.ours("perf", "produce", topics[1], *words)
    found = [{row["value"] for row in read(sides, topic)} for topic in topics]
    assert found == [{"one", "two", "three"}] * 2


def test_measurements_of_producers_report_alike(sides: Sides, new_topic: Callable[[], str]) -> None:
    topics = new_topic(), new_topic()
    words = ("--topic", topics[0], "--num-records", "30", "--record-size", "10")
    words += ("--warmup-records", "10", "--print-metrics", "--throughput", "20")
    printed = sides.theirs(PERF_PRODUCER, *words, "--reporting-interval", "400")
    counts = [
        int(each) for each in re.findall(r"^(\d+) (?:steady state )?records sent", printed, re.M)
    ]
    words = ("-n", "30", "--size", "10", "--warmup", "10", "--metrics", "--rate", "20")
    ended = sides.run_ours("perf", "produce", topics[1], *words, "--interval", "400ms", "--json")
    rows = json.loads(ended.out)
    assert [row["records"] for row in rows] == [30, 20]
    assert counts[-2:] == [30, 20]
    # Both say how far they are before they end.
    assert len(counts) > 2
    assert ended.err.count("records/s") > 0
    (sent,) = re.findall(r"producer-metrics:record-send-total:\S+\s*: (\S+)", printed)
    assert float(sent) == 30
    assert len(rows[0]["metrics"]) > 10


def test_measurements_of_transactions_commit_alike(
    sides: Sides, new_topic: Callable[[], str]
) -> None:
    topics = new_topic(), new_topic()
    words = (
        "--topic",
        topics[0],
        "--num-records",
        "10",
        "--record-size",
        "5",
        "--throughput",
        "20",
    )
    words += ("--transactional-id", f"{topics[0]}-perf", "--transaction-duration-ms", "100")
    sides.theirs(PERF_PRODUCER, *words)
    words = ("-n", "10", "--size", "5", "--rate", "20", "--transactional-id", f"{topics[1]}-perf")
    sides.ours("perf", "produce", topics[1], *words, "--transaction-duration", "100ms")
    assert sizes(sides, topics[0]) == sizes(sides, topics[1]) != []

    def states() -> list[str]:
        ids = [f"{topic}-perf" for topic in topics]
        return [row["state"] for row in sides.ours("transactions", "describe", *ids)]

    wait_until("the markers", lambda: states() == ["CompleteCommit"] * 2, 30)
    # Several transactions: markers take offsets between the records.
    for topic in topics:
        offsets = [row["offset"] for row in read(sides, topic)]
        assert offsets[-1] >= len(offsets)


def test_measurements_of_consumers_count_alike(
    sides: Sides, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    sides.ours("perf", "produce", topic, "-n", "50", "--size", "10")
    file = tmp_path / "consumer.properties"
    file.write_text("fetch.min.bytes=1\n")

    def theirs(*words: str) -> int:
        limits = ("--hide-header", "--timeout", "4000")
        printed = sides.theirs(PERF_CONSUMER, *words, *limits)
        (line,) = [each for each in printed.splitlines() if each.count(",") == 9]
        return int(line.split(",")[4])

    def ours(*words: str) -> int:
        ended = sides.run_ours("perf", "consume", *words, "--idle", "4s", "--json")
        (row,) = json.loads(ended.out)
        assert ended.code == (row["records"] < 50)
        return int(row["records"])

    for their_words, words in (
        (f"--topic {topic} --num-records 50", f"{topic} -n 50"),
        (f"--topic {topic} --messages 50", f"{topic} -n 50"),
        (f"--topic {topic} --num-records 50 --group {topic}-t", f"{topic} -n 50 -g {topic}-o"),
        (f"--include {topic}.* --num-records 50", f"{topic}.* --regex -n 50"),
        (
            f"--topic {topic} --num-records 50 --fetch-size 2000",
            f"{topic} -n 50 -X max.partition.fetch.bytes=2000",
        ),
        (
            f"--topic {topic} --num-records 50 --command-config {file}",
            f"{topic} -n 50 --config {file}",
        ),
        (
            f"--topic {topic} --num-records 50 --consumer.config {file}",
            f"{topic} -n 50 --config {file}",
        ),
        (
            f"--topic {topic} --num-records 50 --command-property fetch.min.bytes=1",
            f"{topic} -n 50 -X fetch.min.bytes=1",
        ),
        (f"--topic {topic} --num-records 50 --from-latest", f"{topic} -n 50 -o end"),
    ):
        expected = 0 if "latest" in their_words else 50
        assert theirs(*their_words.split()) == ours(*words.split()) == expected, words


def test_measurements_of_consumers_report_alike(sides: Sides, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    sides.ours("perf", "produce", topic, "-n", "20000", "--size", "10")
    words = ("--topic", topic, "--num-records", "20001", "--timeout", "4000", "--print-metrics")
    words += ("--show-detailed-stats", "--reporting-interval", "1")
    printed = sides.theirs(PERF_CONSUMER, *words)
    words = ("-n", "20001", "--idle", "4s", "--interval", "1ms", "--metrics")
    ended = sides.run_ours("perf", "consume", topic, *words, "--json")
    # Both say how far they are, several times, and end when nothing comes any more.
    reports = [each for each in printed.splitlines() if each.count(",") == 9 and each[:2] == "20"]
    assert len(reports) > 1
    assert ended.err.count("records/s") > 1
    (row,) = json.loads(ended.out)
    assert (row["records"], len(row["metrics"]) > 10) == (20_000, True)
    (consumed,) = re.findall(
        r"consumer-fetch-manager-metrics:records-consumed-total:\{client-id=[^,}]*\}\s*: (\S+)",
        printed,
    )
    assert float(consumed) == 20_000


def test_records_of_latencies_are_sent_alike(
    sides: Sides, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    options = tmp_path / "both.properties"
    options.write_text("client.id=both\n")
    sized = "--record-size 8 --record-key-size 4 --num-headers 2 --record-header-key-size 3"
    pairs = [
        (
            f"--num-records 3 --producer-acks all {sized} --record-header-size 5",
            "-n 3 --acks all --size 8 --key-size 4 --headers 2 --header-key-size 3 --header-size 5",
        ),
        (
            f"--num-records 2 --producer-acks 1 --record-size 8 --command-config {options}",
            f"-n 2 --acks 1 --size 8 --config {options}",
        ),
    ]
    for theirs, ours in pairs:
        topics = new_topic(), new_topic()
        sides.theirs(LATENCY, "--topic", topics[0], *theirs.split())
        (row,) = sides.ours("perf", "latency", topics[1], *ours.split())
        assert sizes(sides, topics[0]) == sizes(sides, topics[1])
        assert row["records"] == len(read(sides, topics[1])) == int(ours.split()[1])
    assert len(sizes(sides, topics[1])) == 2

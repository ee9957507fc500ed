"""The log of a client: logger names, events, the wire log, and no warnings without a reason."""

import ast
import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

import aiokclient
from aiokclient import Client, Consumer, Producer
from aiokclient.errors import InvalidRecordError, KafkaError, OutOfOrderSequenceError
from aiokclient.log.client_log import EVENTS, ClientLog
from aiokclient.protocol.api import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation

SECRET = b"hunter2-very-secret"


def test_every_line_names_the_client_the_group_and_an_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation) -> None:
        async with sim.cluster(topics={"orders": 2}) as cluster:
            shared = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "connector": sim.connector,
                "clock": sim.clock,
                "client_id": "billing-%d-app",
            }
            for protocol in ("classic", "consumer"):
                consumer = Consumer(
                    "orders", "missing", group_id="100% g", group_protocol=protocol, **shared
                )
                async with Producer(**shared) as producer, consumer:
                    cluster.produce("orders", [b"v"] * 3)
                    with cluster.fail(ApiKey.PRODUCE, InvalidRecordError, times=1):
                        delivery = producer.send("orders", b"v")
                        with pytest.raises(KafkaError):
                            await delivery
                    await consumer.poll(timeout=1.0)
                    cluster.stop(1)
                    await asyncio.sleep(60)
                    cluster.start(1)
                    await asyncio.sleep(60)

    caplog.set_level(logging.DEBUG, "aiokclient")
    Simulation(1).run(main)
    lines = [r for r in caplog.records if not r.name.startswith("aiokclient.testing")]
    seen = {record.__dict__.get("event") for record in lines}
    assert {"brokers_unreachable", "brokers_back", "topic_missing", "wire_request"} <= seen
    assert seen <= set(EVENTS)
    alone = {record.name for record in lines if record.__dict__["group_id"] is None}
    assert alone <= {"aiokclient", "aiokclient.wire", "aiokclient.producer"}
    reached = {r.__dict__["group_id"] for r in lines if r.__dict__["event"] == "brokers_back"}
    assert reached == {None, "100% g"}
    for record in lines:
        assert record.getMessage().startswith("client billing-%d-app"), record.getMessage()
        assert record.__dict__["client_id"] == "billing-%d-app"
        if record.name in ("aiokclient.consumer", "aiokclient.group"):
            assert record.__dict__["group_id"] == "100% g"
            assert "group 100% g: " in record.getMessage()
        assert record.pathname.endswith(".py")
        assert "log.py" not in record.filename


def test_a_line_has_its_callers_position_and_extra_attributes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = ClientLog("aiokclient.test", "app", "g")
    log.warning("%s is gone", "broker 1", extra={"event": "task_died", "broker": 1})
    log.debug("not shown")
    (record,) = caplog.records
    assert record.getMessage() == "client app, group g: broker 1 is gone"
    assert (record.__dict__["event"], record.__dict__["broker"]) == ("task_died", 1)
    assert record.filename == "test_logs.py"


def test_every_event_that_the_code_uses_is_listed() -> None:
    used = set()
    for path in Path(aiokclient.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if "testing" in path.parts or path.name == "client_log.py" or '"event"' not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Dict):
                continue
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "event":
                    used |= {c.value for c in ast.walk(value) if isinstance(c, ast.Constant)}
    used.discard("partitions_")  # This is the constant part of an f-string.
    assert used
    assert used <= set(EVENTS)
    assert set(EVENTS) - used <= {"partitions_assigned", "partitions_revoked", "partitions_lost"}


def test_the_page_about_logs_lists_every_event_with_its_fields() -> None:
    text = (Path(aiokclient.__file__).parents[1] / "docs" / "logs.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| ([^|]+) \|$", text, re.M)
    assert {name: meaning for name, _, meaning in rows} == EVENTS
    listed = {name: set(re.findall(r"`(\w+)`", fields)) for name, fields, _ in rows}
    used: dict[str, set[str]] = {name: set() for name in EVENTS}
    for path in Path(aiokclient.__file__).parent.rglob("*.py"):
        code = path.read_text()
        if "testing" in path.parts or '"event"' not in code:
            continue
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.Dict):
                continue
            fields = {key.value: value for key, value in zip(node.keys, node.values, strict=True)
                      if isinstance(key, ast.Constant)}  # fmt: skip
            for part in ast.walk(fields.pop("event", ast.Constant(None))):
                if isinstance(part, ast.Constant) and part.value in used:
                    used[part.value] |= {str(field) for field in fields}
    assert listed == used


def test_modules_log_only_through_the_clients_log() -> None:
    for path in Path(aiokclient.__file__).parent.rglob("*.py"):
        # The command line sets up the log, because it is a program. The Spark source uses only
        # public names. An adapter logs when it is installed, before there is a client.
        others = {"adapters", "cli", "spark", "testing"}
        if not others & set(path.parts) and path.name != "client_log.py":
            assert "getLogger" not in path.read_text(), path


@pytest.fixture
async def cluster() -> Any:
    async with EmbeddedCluster(topics={"orders": 2}) as cluster:
        yield cluster


async def test_the_wire_shows_requests_and_responses_and_never_values(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    options = {"bootstrap_servers": cluster.bootstrap_servers, "client_id": "app"}
    async with (
        Producer(**options) as producer,
        Consumer("orders", auto_offset_reset="earliest", **options) as consumer,
    ):
        await producer.send("orders", SECRET, key=SECRET, headers=[("h", SECRET)])
        await producer.gather(producer.send_many("orders", [SECRET * 1000] * 50))
        assert await consumer.get() is not None
        with (
            cluster.fail(ApiKey.PRODUCE, InvalidRecordError, times=1),
            pytest.raises(InvalidRecordError),
        ):
            await producer.send("orders", SECRET)
    wire = [record.__dict__ for record in caplog.records if record.name == "aiokclient.wire"]
    for record in caplog.records:
        assert SECRET.decode() not in record.getMessage()
        assert SECRET.decode() not in repr(record.__dict__)
    by_event: dict[str, set[str]] = {}
    for entry in wire:
        by_event.setdefault(entry["event"], set()).add(entry["api"])
    apis = {"ApiVersions", "Metadata", "InitProducerId", "Produce", "Fetch", "ListOffsets"}
    assert apis <= by_event["wire_request"]
    assert apis <= by_event["wire_response"]
    for entry in wire:
        if entry["event"] != "wire_failure":
            assert entry["size"] > 0
            assert entry["version"] >= 0
            assert entry["broker"] in ("1", "bootstrap")
        if entry["event"] == "wire_response":
            assert entry["seconds"] >= 0
    assert "INVALID_RECORD" in {entry.get("error") for entry in wire}
    answered = [r.getMessage() for r in caplog.records if "Produce" in r.getMessage()]
    assert any(re.search(r"Produce v\d+ from broker 1 \(.*\d\): response of", a) for a in answered)


async def test_the_wire_shows_requests_that_have_no_response(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            await producer.send("orders", b"v")
    failures = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "wire_failure"]
    assert ("Produce", "DisconnectedError") in {(f["api"], f["error"]) for f in failures}


async def test_nothing_is_logged_at_the_default_level_without_faults(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokclient.wire")
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    async with (
        Producer(**options) as producer,
        Consumer("orders", auto_offset_reset="earliest", group_id="g", **options) as consumer,
    ):
        await producer.send("orders", b"v")
        assert await consumer.get(timeout=10) is not None
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_one_refused_record_is_followed_by_no_warning_about_others(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        linger_ms=0,
        batch_size=1,
        on_delivery_error=lambda delivery: None,
    ) as producer:
        await producer.send("orders", b"first", partition=0)
        with cluster.fail(ApiKey.PRODUCE, InvalidRecordError, times=1):
            deliveries = [producer.send("orders", b"v", partition=0) for _ in range(20)]
            results = await producer.gather(deliveries, return_exceptions=True)
    failed = [result for result in results if isinstance(result, KafkaError)]
    assert [type(error) for error in failed] == [InvalidRecordError]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("code", [OutOfOrderSequenceError])
async def test_recoverable_errors_do_not_advise_to_close_the_producer(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture, code: type[KafkaError]
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient")
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"first", partition=0)
        with cluster.fail(ApiKey.PRODUCE, code, times=1):
            await producer.send("orders", b"second", partition=0)
        await producer.send("orders", b"third", partition=0)
    for record in caplog.records:
        text = record.getMessage().lower()
        assert not re.search(r"close (it|this producer)|make a new one|create a new", text), text
        assert "may be lost" not in text


async def test_extra_of_every_line_fits_json(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient")
    plain = set(logging.makeLogRecord({}).__dict__)
    async with Client(bootstrap_servers=cluster.bootstrap_servers):
        pass
    assert caplog.records
    for record in caplog.records:
        extra = {k: v for k, v in record.__dict__.items() if k not in plain}
        json.dumps(extra)

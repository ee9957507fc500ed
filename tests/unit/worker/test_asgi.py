"""The ASGI application of workers, called as a server calls it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from aiokclient import Consumer, TopicPartition
from aiokclient.errors import ConfigError
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker import Worker, asgi
from aiokclient.worker.health import OldestRecord, WorkerHealth

READY = WorkerHealth(
    name="billing",
    live=True,
    ready=True,
    reasons=(),
    lag={TopicPartition("orders", 1): 5},
    oldest=OldestRecord(TopicPartition("orders", 1), 17, 1.23456, "File service.py, line 3"),
    lanes_busy=1,
    lanes_waiting=2,
    retries_waiting=3,
    last_commit_ms=1_700_000_000_000,
)


def handle(record: Any) -> None:
    raise AssertionError("No record is handled here.")


def made(health: WorkerHealth, servers: str = "localhost:1") -> Worker:
    worker = Worker(Consumer("orders", bootstrap_servers=servers, group_id="billing"), handle)
    worker.health = lambda: health
    return worker


class Answer:
    def __init__(self, sent: list[dict[str, Any]]) -> None:
        begin, *parts = sent
        assert begin["type"] == "http.response.start"
        assert [part["type"] for part in parts] == ["http.response.body"]
        self.status = int(begin["status"])
        self.headers = {name.decode(): text.decode() for name, text in begin["headers"]}
        self.body = parts[0]["body"]

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


async def ask(app: Any, path: str, method: str = "GET", root: str = "") -> Answer:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "root_path": root}, receive, send)
    return Answer(sent)


async def test_ready_shows_the_state_of_each_worker_when_all_are_ready() -> None:
    answer = await ask(asgi(made(READY)), "/ready")
    assert answer.status == 200
    assert answer.json == {
        "ready": True,
        "reasons": [],
        "workers": [
            {
                "name": "billing",
                "live": True,
                "ready": True,
                "reasons": [],
                "lag": {"orders-1": 5},
                "oldest": {"topic": "orders", "partition": 1, "offset": 17, "age_s": 1.235},
                "lanes_busy": 1,
                "lanes_waiting": 2,
                "retries_waiting": 3,
                "last_commit_ms": 1_700_000_000_000,
            }
        ],
    }


async def test_ready_says_503_and_why_when_one_of_two_workers_is_not_ready() -> None:
    waiting = replace(READY, name="mail", ready=False, reasons=("no partition", "no broker"))
    app = asgi(made(READY), made(waiting))
    ready, live = await ask(app, "/ready"), await ask(app, "/live")
    assert ready.status == 503
    assert ready.json["reasons"] == ["mail: no partition", "mail: no broker"]
    assert [shown["ready"] for shown in ready.json["workers"]] == [True, False]
    assert live.status == 200
    assert live.json["live"] is True
    assert live.json["reasons"] == []


async def test_live_says_503_when_a_worker_has_failed() -> None:
    failed = replace(READY, live=False, ready=False, reasons=("the run has failed",))
    answer = await ask(asgi(made(failed)), "/live")
    assert answer.status == 503
    assert answer.json["reasons"] == ["billing: the run has failed"]


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    app = asgi(made(READY))
    get, head = await ask(app, "/ready"), await ask(app, "/ready", "HEAD")
    assert head.status == 200
    assert head.body == b""
    assert head.headers == get.headers
    assert int(head.headers["content-length"]) == len(get.body)


@pytest.mark.parametrize("path", ["/", "", "/liveness", "/live/x", "/other/ready"])
async def test_another_path_is_not_found(path: str) -> None:
    answer = await ask(asgi(made(READY)), path)
    assert answer.status == 404
    assert "/live, /ready, /metrics" in answer.json["reasons"][0]


async def test_other_methods_are_not_allowed() -> None:
    answer = await ask(asgi(made(READY)), "/live", "POST")
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "root"), [("/w/live", "/w"), ("/live", "/w"), ("/live/", ""), ("/w/live", "/w/")]
)
async def test_paths_are_below_that_of_the_mount(path: str, root: str) -> None:
    assert (await ask(asgi(made(READY)), path, root=root)).status == 200


async def test_a_path_that_only_begins_like_the_mount_is_kept() -> None:
    assert (await ask(asgi(made(READY)), "/live", root="/li")).status == 200


async def test_the_lifespan_of_the_server_is_answered() -> None:
    asked = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> dict[str, str]:
        return asked.pop(0)

    async def send(message: dict[str, str]) -> None:
        sent.append(message["type"])

    await asgi(made(READY))({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asgi(made(READY))({"type": "websocket", "path": "/live"}, None, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_metrics_are_text_of_prometheus() -> None:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        worker = made(READY, cluster.bootstrap_servers)
        app = asgi(worker)
        before = await ask(app, "/metrics")
        assert before.body == b""
        async with worker._consumer:
            answer = await ask(app, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.body.decode().splitlines()
    assert "# TYPE aiokclient_client_connections gauge" in lines
    assert any(line.startswith("aiokclient_client_connections{client_id=") for line in lines)


async def test_metrics_are_those_that_prometheus_client_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    from aiokclient.telemetry.prometheus import Collector

    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        worker = made(READY, cluster.bootstrap_servers)
        async with worker._consumer as consumer:
            consumer.register_metric("odd.name", lambda: 3.5, {"lab el": 'a"b\\c\nd'})
            answer = await ask(asgi(worker), "/metrics")
            collected = {family.name: family for family in Collector(consumer).collect()}
    read = {
        family.name: family
        for family in parser.text_string_to_metric_families(answer.body.decode())
    }
    # Numbers may change between both readings, names and labels do not.
    shown = [
        {name: (f.type, f.documentation, {(s.name, *s.labels.items()) for s in f.samples})}
        for families in (read, collected)
        for name, f in sorted(families.items())
    ]
    assert len(read) > 20
    assert shown[: len(read)] == shown[len(read) :]
    (sample,) = read["odd_name"].samples
    assert sample.value == 3.5
    assert sample.labels["lab_el"] == 'a"b\\c\nd'


def test_asgi_refuses_what_is_no_worker() -> None:
    with pytest.raises(TypeError, match="is not a Worker"):
        asgi("billing")
    with pytest.raises((ValueError, ConfigError), match="no worker to show"):
        asgi()

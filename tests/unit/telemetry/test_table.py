"""The table of metrics has exactly what Kafka's own clients push, except what the docs list."""

from __future__ import annotations

import csv
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pushed_metrics import left_out

from aiokclient.telemetry.table import PREFIX, ROWS, SHARED_ROWS, Row, Way

FACTS = Path(__file__).with_name("kafka_metrics.csv")
"""The metrics that Kafka's Java clients 4.4.0 push to a broker, by kind of client."""

LEFT_OUT = (
    "*.io.*",
    "*.select.*",
    "*.waiting.threads",
    "*.bufferpool.wait.*",
    "*.application.event*",
    "*.background.event*",
    "*.unsent.requests*",
    "*.time.between.network.thread.*",
)
"""Metrics of threads, selectors, and queues between threads, which aiokclient does not have."""

CLIENTS = {
    "producer": ("producer", ""),
    "transactional producer": ("producer", ""),
    "consumer: assigned": ("consumer", "assigned"),
    "consumer: classic": ("consumer", "classic"),
    "consumer: consumer": ("consumer", "consumer"),
    "share consumer": ("consumer", "share"),
    "admin": ("admin", ""),
}


def facts() -> list[dict[str, str]]:
    with FACTS.open() as file:
        return list(csv.DictReader(file))


def is_left_out(name: str) -> bool:
    return ".network.io." not in name and any(fnmatch(name, pattern) for pattern in LEFT_OUT)


def described(row: Row) -> tuple[str, str, str, str]:
    kind = "sum" if row.way in (Way.TOTAL, Way.SUM) else "gauge"
    type_ = "int" if row.way is Way.INT else "double"
    return row.name.removeprefix(PREFIX), kind, " ".join(sorted(row.labels)), type_


def rows_of(client: str) -> list[Row]:
    kind, membership = CLIENTS[client]
    own = [row for row in ROWS[kind] if not membership or membership in row.groups]
    return [*own, *SHARED_ROWS[kind]]


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_has_exactly_the_metrics_of_kafkas_client(client: str) -> None:
    wanted = {
        (fact["name"], fact["kind"], fact["labels"], fact["type"])
        for fact in facts()
        if client in fact["clients"].split(", ") and not is_left_out(fact["name"])
    }
    found = [described(row) for row in rows_of(client) if ".aiokclient." not in row.name]
    assert len(found) == len(set(found))
    assert set(found) == wanted
    assert len(wanted) > 40


@pytest.mark.parametrize("client", CLIENTS)
def test_metrics_of_this_library_alone_are_under_its_own_name(client: str) -> None:
    known = {fact["name"] for fact in facts()}
    kind, _ = CLIENTS[client]
    own = [row.name for row in rows_of(client) if row.name.removeprefix(PREFIX) not in known]
    assert own
    assert all(name.startswith(f"{PREFIX}{kind}.aiokclient.") for name in own)


def test_the_docs_list_every_metric_that_is_left_out() -> None:
    names = {fact["name"] for fact in facts() if is_left_out(fact["name"])}
    assert left_out() == {f"{PREFIX}{name}" for name in names}
    assert len(names) == 59


def test_no_other_metrics_are_missing() -> None:
    pushed = {row.name.removeprefix(PREFIX) for client in CLIENTS for row in rows_of(client)}
    missing = {fact["name"] for fact in facts()} - pushed
    assert missing
    assert all(is_left_out(name) for name in missing)

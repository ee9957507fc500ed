"""The lines that `consume --jsonl` writes are sent again by `produce --jsonl`, byte for byte."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokclient import ProducerRecord
from aiokclient.testing import EmbeddedCluster

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no line about the connection, however slow the machine is."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 600.0)


CONTENT = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
LOOKALIKES = st.sampled_from([b'{"base64": "YQ=="}', b"null", b"\xff", b"\r\n", "\u2028".encode()])
RECORDS = st.lists(
    st.builds(
        ProducerRecord,
        topic=st.just("from"),
        key=CONTENT,
        value=CONTENT | LOOKALIKES,
        timestamp=st.integers(0, 1_700_000_000_000),
        headers=st.lists(st.tuples(st.text(max_size=5), CONTENT | LOOKALIKES), max_size=3),
        partition=st.integers(0, 1),
    ),
    min_size=1,
    max_size=20,
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@given(records=RECORDS)
@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_copy_has_the_same_keys_values_headers_times_and_tombstones(
    cluster: EmbeddedCluster, run_on: Callable[[str], Any], records: list[ProducerRecord]
) -> None:
    run = run_on(cluster.bootstrap_servers)
    number = next(_numbers)
    source, target = f"from-{number}", f"to-{number}"
    for topic in (source, target):
        cluster.create_topic(topic, 2)
    cluster.produce(source, [record._replace(topic=source) for record in records])
    read = run("consume", source, "-o", "start", "--until", "end", "--jsonl")
    assert (read.code, read.err) == (0, "")
    sent = run("produce", target, "--jsonl", "--keep-partitions", typed=read.out)
    assert (sent.code, sent.out, sent.err) == (0, "", "")
    again = run("consume", target, "-o", "start", "--until", "end", "--jsonl")
    assert again.out.replace(target, source) == read.out

    def contents(topic: str, partition: int) -> list[Any]:
        return [
            (record.key, record.value, record.timestamp, list(record.headers))
            for record in cluster.records(topic, partition)
        ]

    for partition in range(2):
        assert contents(target, partition) == contents(source, partition)

"""`aiokclient consume --share-group`, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aiokclient import Admin, Producer


async def fill(servers: str, topic: str, group: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        (await admin.create_share_group(group, [topic], start="earliest")).raise_for_errors()
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.gather([producer.send(topic, b"job %d" % n, partition=0) for n in range(6)])


def test_records_of_a_share_group_are_settled_when_they_are_written(
    cluster_servers: Any, run_on: Any
) -> None:
    topic, group = asyncio.run(cluster_servers.new_topic()), f"jobs-{time.time_ns()}"
    asyncio.run(fill(cluster_servers.bootstrap, topic, group))
    run = run_on(cluster_servers.bootstrap)
    read = "consume", topic, "--share-group", group
    assert run(*read, "-n", "2") == (0, "job 0\njob 1\n", "")
    assert run(*read, "-n", "1", "--ack", "release") == (0, "job 2\n", "")
    assert run(*read, "-n", "1", "--ack", "reject", "-f", "%o %s\n") == (0, "2 job 2\n", "")
    assert run(*read, "--idle", "2") == (0, "job 3\njob 4\njob 5\n", "")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("-o", "start"), "does not go with -o"),
        (("-g", "g", "--commit"), "does not go with -g, --commit"),
        (("--grep", "v:x"), "does not go with --grep"),
        (("--regex",), "does not go with --regex"),
        (("-p", "0"), "does not go with -p"),
        (("--ack", "gone"), "'accept', 'release', 'reject'"),
    ],
)
def test_what_a_share_group_decides_is_refused(run_on: Any, words: Any, text: str) -> None:
    ended = run_on("localhost:1")("consume", "jobs", "--share-group", "g", *words)
    assert ended.code == 2
    assert text in ended.err


def test_settling_needs_a_share_group(run_on: Any) -> None:
    ended = run_on("localhost:1")("consume", "jobs", "--ack", "accept")
    assert (ended.code, "--share-group" in ended.err) == (2, True)

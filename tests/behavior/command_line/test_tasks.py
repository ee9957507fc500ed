"""The twenty tasks of operators, typed in pipes and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_process import variables
from operator_tasks import PAGE, TASKS, cluster_of_tasks, screens, type_in_pipe, write_page

from aiokclient.testing import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster that all tasks use, in their order."""
    with cluster_of_tasks() as cluster:
        yield cluster


def test_the_tasks_work_in_pipes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    for task in TASKS:
        ended = type_in_pipe(task, environment)
        assert ended.code == 0, f"{task.title}: {ended.err}"
        assert re.search(task.expected, ended.out), f"{task.title}: {ended.out}"
        assert "\x1b" not in ended.out
    copied = [(record.value, record.headers) for record in cluster.records("w", 0)]
    assert [value for value, _ in copied] == [f"tea {number}".encode() for number in range(12)]
    assert all(list(headers) == [("source", b"shop")] for _, headers in copied)
    keyed = [record for partition in range(3) for record in cluster.records("u", partition)]
    assert sorted((record.key, record.value) for record in keyed) == [(b"a", b"1"), (b"b", b"2")]
    assert "v" not in cluster.topics


def test_the_page_has_the_screens_of_a_terminal() -> None:
    assert write_page(screens()) == PAGE.read_text(), (
        "Run python tests/harness/operator_tasks.py, and look at what it has changed in the page."
    )


def test_no_two_tasks_have_the_same_title() -> None:
    assert len({task.title for task in TASKS}) == len(TASKS) == 21

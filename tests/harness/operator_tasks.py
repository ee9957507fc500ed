"""The twenty tasks of operators, as they are typed, and what a terminal shows for them.

`tests/behavior/command_line/test_tasks.py` types them on a terminal and in pipes, and compares the
screens with those in `docs/command-line.md`. `python tests/harness/operator_tasks.py` writes the
screens anew.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from command_forks import run_fork, run_fork_on_terminal
from command_process import Ended, Screen, variables

from aiokclient import Admin, ProducerRecord, TopicPartition
from aiokclient.testing import EmbeddedCluster

__all__ = ["PAGE", "TASKS", "Task", "cluster_of_tasks", "screens", "type_in_pipe", "write_page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
START, END = "<!-- screens -->\n", "<!-- end of screens -->\n"
NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01 in UTC, in milliseconds since the epoch."""
QUARTER_MS = 900_000


class Task(NamedTuple):
    """A task: what it is for, the words after `aiokclient`, and what the output must have."""

    title: str
    words: tuple[str, ...]
    expected: str
    """A regular expression for the output, in a pipe and on a terminal."""
    asks: bool = False
    """Whether a terminal is asked whether to go on. In a pipe, the task has --yes."""
    typed: str = ""
    """The text on standard input."""
    following: tuple[str, ...] = ()
    """The words of a second command, which reads the output of the first one."""


TASKS = (
    Task("list topics", ("topics", "list"), r"\bt\b"),
    Task("one topic", ("topics", "describe", "t"), r"\bt\b.*\b1\b.*\b2\b"),
    Task(
        "create",
        ("topics", "create", "v", "-p", "6", "-r", "3", "--config", "retention.ms=1000"),
        r"\bv\b.*\b6\b.*\b3\b",
    ),
    Task("more partitions", ("topics", "set-partitions", "v", "12"), r"\bv\b.*\b6\b.*\b12\b"),
    Task("delete", ("topics", "delete", "v"), r"\bv\b", asks=True),
    Task("under-replicated", ("topics", "describe", "--only", "under-replicated"), r"topic"),
    Task(
        "change a config",
        ("configs", "set", "topic:t", "retention.ms=604800000"),
        r"retention\.ms.*604800000",
    ),
    Task("show changed configs", ("configs", "describe", "topic:t"), r"retention\.ms.*604800000"),
    Task("groups", ("groups", "list"), r"\bg\b"),
    Task("lag", ("groups", "describe", "g"), r"\bt\b.*\b5\b.*\b12\b.*\b7\b"),
    Task(
        "reset to a time",
        ("groups", "reset", "g", "t", "--to", "2026-01-01"),
        r"\bt\b",
        asks=True,
    ),
    Task("reset back one hour", ("groups", "reset", "g", "--to", "-1h"), r"\bt\b", asks=True),
    Task("offsets at a time", ("offsets", "list", "t", "--at", "2026-01-01"), r"\bt\b"),
    Task("last 10 records", ("consume", "t", "-o", "-10", "--until", "end"), r"tea 11"),
    Task("all records", ("consume", "t", "-o", "start", "--until", "end"), r"tea 0"),
    Task(
        "with key, headers, offset",
        ("consume", "t", "-o", "start", "--until", "end", "-f", r"%k %h %o %s\n"),
        r"customer-0 source=shop 0 tea 0",
    ),
    Task(
        "a time range",
        ("consume", "t", "-o", "2026-01-01", "--until", "2026-01-01T01:00"),
        r"tea 3",
    ),
    Task("produce lines with keys", ("produce", "u", "-K:"), r"", typed="a:1\nb:2\n"),
    Task(
        "copy a topic",
        ("consume", "t", "--jsonl", "-o", "start", "--until", "end"),
        r"",
        following=("produce", "w", "--jsonl"),
    ),
    Task("plan the move of a broker's load", ("brokers", "drain", "3", "--dry-run"), r"\bu\b"),
    Task("move a broker's load", ("brokers", "drain", "3"), r"\bu\b"),
)


@contextmanager
def cluster_of_tasks() -> Iterator[EmbeddedCluster]:
    """Provide a cluster with twelve records in a topic, and a group without members."""
    topics = {"t": 1, "u": 3, "w": 1}
    # Plans for a broker include the partitions of this topic.
    configs = {"offsets.topic.num.partitions": 1}
    with EmbeddedCluster(
        brokers=4, topics=topics, seed=4, replication=2, configs=configs
    ) as cluster:
        for number in range(12):
            record = ProducerRecord(
                "t",
                f"tea {number}".encode(),
                key=f"customer-{number % 3}".encode(),
                headers=[("source", b"shop")],
            )
            moment = NEW_YEAR_MS + number * QUARTER_MS
            cluster.produce("t", [record], timestamp=moment)
        asyncio.run(_commit(cluster.bootstrap_servers))
        yield cluster


async def _commit(servers: str) -> None:
    async with Admin(bootstrap_servers=servers) as admin:
        offsets = {TopicPartition("t", 0): 5}
        (await admin.alter_consumer_group_offsets("g", offsets)).raise_for_errors()


def type_in_pipe(task: Task, environment: dict[str, str]) -> Ended:
    """Run a task whose output is a pipe."""
    words = [*task.words, *(["--yes"] if task.asks else [])]
    ended = run_fork(words, environment, typed=task.typed)
    if task.following and ended.code == 0:
        return run_fork(task.following, environment, typed=ended.out)
    return ended


def type_on_terminal(task: Task, environment: dict[str, str]) -> Screen:
    """Run a task on a terminal, and answer its question with yes."""
    if task.typed or task.following:  # A terminal is not the standard input of these.
        return Screen(*type_in_pipe(task, environment)[:2])
    answers = {"[y/N]": "y"} if task.asks else {}
    return run_fork_on_terminal(task.words, environment, answers)


def command_line_of(task: Task) -> str:
    """Return what is typed for a task."""
    start = f"printf {task.typed!r} | " if task.typed else ""
    end = f" | aiokclient {quoted(task.following)}" if task.following else ""
    return f"{start}aiokclient {quoted(task.words)}{end}"


def quoted(words: tuple[str, ...]) -> str:
    return " ".join(f"'{word}'" if re.search(r"[ \\%]", word) else word for word in words)


def screens() -> str:
    """Run all tasks on a terminal, and return the screens as Markdown."""
    parts = []
    with cluster_of_tasks() as cluster, tempfile.TemporaryDirectory() as folder:
        environment = variables(Path(folder), cluster.bootstrap_servers)
        for task in TASKS:
            screen = type_on_terminal(task, environment)
            assert screen.code == 0, f"{task.title}: {screen.text}"
            lines = [f"$ {command_line_of(task)}", *settled(screen.text).splitlines()]
            text = "\n".join(line.rstrip() for line in lines)
            parts.append(f"{task.title[0].upper()}{task.title[1:]}:\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def settled(text: str) -> str:
    """Return a screen without styles, and with the same ports and times in each run."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")
    # A loaded machine may take a second to connect.
    text = re.sub(r"^aiokclient: Connecting to .*\n", "", text, flags=re.MULTILINE)
    # The progress of a move may be shown more than once.
    moved = r"^aiokclient: \d+ of \d+ partitions have been moved.*\n"
    text = re.sub(f"{moved}(?={moved[1:]})", "", text, flags=re.MULTILINE)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9092", text)
    text = re.sub(r"\b20(2[7-9]|[3-9]\d)-\d\d-\d\dT[\d:.]+Z", "2026-11-29T12:00:00.000Z", text)
    return text.strip("\n")


def write_page(text: str) -> str:
    """Return the page with other screens."""
    page = PAGE.read_text()
    before, _, rest = page.partition(START)
    _, end, after = rest.partition(END)
    return f"{before}{START}\n{text}\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(write_page(screens()))

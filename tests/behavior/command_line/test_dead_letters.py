"""Dead letters are listed, shown, and put back."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from aiokclient import ConsumerRecord, Producer
from aiokclient.types import TimestampType
from aiokclient.worker import DeadLetter
from aiokclient.worker.dead_letters import dead_letter_of
from aiokclient.worker.retry import Failure

Run = Callable[..., Any]


async def write_letters(servers: str, main: str, letters: str) -> None:
    """Write three dead letters of different errors."""
    async with Producer(bootstrap_servers=servers) as producer:
        for offset, error in enumerate(
            (ValueError("no stock"), TimeoutError(), ValueError("late"))
        ):
            record = ConsumerRecord(
                main, 0, offset, 1_000, TimestampType.CREATE_TIME, b"k%d" % offset, b"v%d" % offset
            )
            failure = Failure(error, 3, 1_700_000_000_000 + offset, "billing")
            await producer.send(*dead_letter_of(record, failure, DeadLetter(letters)))


class Letters:
    """A topic for dead letters, and the topic from which they came."""

    def __init__(self, run: Run, servers: str) -> None:
        self.run, self.servers = run, servers
        self.main = f"orders-{uuid.uuid4().hex[:12]}"
        self.letters = f"{self.main}.dlq"
        for name in (self.main, self.letters):
            assert run("topics", "create", name, "-p", "1", "-r", "1").code == 0

    def read_main(self) -> list[str]:
        ended = self.run("consume", self.main, "-o", "start", "--until", "end")
        assert ended.code == 0, ended.err
        return list(ended.out.split())

    def ask(self, verb: str, *words: str) -> Any:
        ended = self.run("dead-letters", verb, self.letters, *words, "--json")
        assert (ended.code, ended.err) == (0, "")
        return json.loads(ended.out)


@pytest.fixture
def letters(embedded_servers: Any, run_on: Callable[[str], Run]) -> Letters:
    letters = Letters(run_on(embedded_servers.bootstrap), embedded_servers.bootstrap)
    asyncio.run(write_letters(letters.servers, letters.main, letters.letters))
    return letters


def test_list_shows_where_letters_came_from_and_why_they_failed(letters: Letters) -> None:
    rows = letters.ask("list")
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert rows[0] == {
        "topic": letters.letters,
        "partition": 0,
        "offset": 0,
        "timestamp": 1000,
        "timestamp_iso": "1970-01-01T00:00:01.000Z",
        "key": "k0",
        "origin_topic": letters.main,
        "origin_partition": 0,
        "origin_offset": 0,
        "origin_timestamp": 1000,
        "origin_group": "billing",
        "error_type": "ValueError",
        "error_message": "no stock",
        "attempts": 3,
        "failed_at": 1_700_000_000_000,
        "replays": 0,
        "dropped": [],
        "failed_at_iso": "2023-11-14T22:13:20.000Z",
    }
    ended = letters.run("dead-letters", "list", letters.letters)
    lines = [line.split("\t") for line in ended.out.splitlines()]
    assert lines[0][:3] == ["partition", "offset", "key"]
    assert lines[1][:7] == ["0", "0", "k0", letters.main, "0", "0", "ValueError"]


def test_list_chooses_letters(letters: Letters) -> None:
    def listed(*words: str) -> list[int]:
        return [row["offset"] for row in letters.ask("list", *words)]

    assert listed("--error", "ValueError") == [0, 2]
    assert listed("--error", "Value") == []
    assert listed("--grep", "k:k[12]") == [1, 2]
    assert listed("--grep", "h:aiokclient.error.message=late") == [2]
    assert listed("--origin", letters.main, "-n", "2") == [0, 1]
    assert listed("--origin", "other") == []


def test_summary_counts_letters_by_topic_and_error(letters: Letters) -> None:
    assert letters.ask("list", "--summary") == [
        {
            "origin_topic": letters.main,
            "error_type": "ValueError",
            "letters": 2,
            "first_failed_at": 1_700_000_000_000,
            "last_failed_at": 1_700_000_000_002,
            "first_failed_at_iso": "2023-11-14T22:13:20.000Z",
            "last_failed_at_iso": "2023-11-14T22:13:20.002Z",
        },
        {
            "origin_topic": letters.main,
            "error_type": "TimeoutError",
            "letters": 1,
            "first_failed_at": 1_700_000_000_001,
            "last_failed_at": 1_700_000_000_001,
            "first_failed_at_iso": "2023-11-14T22:13:20.001Z",
            "last_failed_at_iso": "2023-11-14T22:13:20.001Z",
        },
    ]


def test_show_has_the_value_the_headers_and_the_traceback(letters: Letters) -> None:
    (shown,) = letters.ask("show", "0:2")
    assert (shown["value"], shown["headers"], shown["error_message"]) == ("v2", [], "late")
    assert shown["traceback"] == "ValueError: late\n"
    ended = letters.run("dead-letters", "show", letters.letters, "0:2", "0:9", "5:0")
    assert ended.code == 3
    assert f"{letters.letters}-0@9: There is no record with this offset." in ended.err
    assert f"{letters.letters}-5@0: The topic has 1 partitions." in ended.err
    assert "traceback\tValueError: late" in ended.out.splitlines()


def test_replay_puts_letters_back(cluster_servers: Any, run: Run) -> None:
    letters = Letters(run, cluster_servers.bootstrap)
    asyncio.run(write_letters(letters.servers, letters.main, letters.letters))
    report = letters.ask("replay", "--yes", "--error", "ValueError")
    assert report == {
        "topics": [{"topic": letters.main, "replayed": 2}],
        "read": 3,
        "replayed": 2,
        "skipped": 1,
        "failed": 0,
        "dry_run": False,
    }
    assert letters.read_main() == ["v0", "v2"]


def test_replay_needs_yes_without_a_terminal(letters: Letters) -> None:
    ended = letters.run("dead-letters", "replay", letters.letters)
    assert (ended.code, ended.out) == (2, "")
    assert (
        f"Put 3 records back into {letters.main}? Without a terminal, this needs --yes."
        in ended.err
    )
    assert letters.read_main() == []


def test_replay_asks_on_a_terminal_and_leaves_later_letters_alone(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        ended = letters.run("produce", letters.letters, typed="late letter\n")
        assert ended.code == 0, ended.err
        return "y"

    monkeypatch.setattr("aiokclient.cli.asking.is_interactive", lambda: True)
    monkeypatch.setattr("aiokclient.cli.asking.read_answer", answer)
    monkeypatch.setattr("aiokclient.cli.records.dead_letters.confirm", _confirm_in_thread)
    report = letters.ask("replay", "--to", letters.main)
    assert asked == [f"Put 3 records back into {letters.main}? [y/N] "]
    assert (report["replayed"], report["skipped"]) == (3, 1)


def _confirm_in_thread(given: Any, question: str) -> None:
    """Ask in a thread, in which another command can run its event loop."""
    from concurrent.futures import ThreadPoolExecutor

    from aiokclient.cli.asking import confirm

    with ThreadPoolExecutor(1) as pool:
        pool.submit(confirm, given, question).result()


def test_dry_run_of_a_replay_changes_nothing(letters: Letters) -> None:
    ended = letters.run("dead-letters", "replay", letters.letters, "--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines() == ["topic\treplayed", f"{letters.main}\t3"]
    assert "This was a dry run: nothing was changed." in ended.err
    assert letters.read_main() == []


def test_single_letters_are_replayed_and_a_group_remembers_them(letters: Letters) -> None:
    assert letters.ask("replay", "-y", "--letter", "0:1", "--to", letters.main)["replayed"] == 1
    assert letters.read_main() == ["v1"]
    assert letters.ask("replay", "-y", "-g", letters.main, "-n", "2")["replayed"] == 2
    assert letters.ask("replay", "-y", "-g", letters.main)["read"] == 1
    assert letters.read_main() == ["v1", "v0", "v1", "v2"]


def test_letters_that_cannot_be_put_back_are_failures(letters: Letters) -> None:
    assert letters.run("produce", letters.letters, typed="foreign\n").code == 0
    ended = letters.run("dead-letters", "replay", letters.letters, "--yes")
    assert ended.code == 1
    assert f"{letters.letters}-0@3: " in ended.err
    assert "No header names the topic it came from." in ended.err
    assert letters.read_main() == ["v0", "v1", "v2"]


def test_wrong_use_and_unknown_topics_have_their_exit_codes(letters: Letters) -> None:
    assert letters.run("dead-letters", "list", "no-such-topic").code == 3
    assert letters.run("dead-letters", "list", f"{letters.letters}:7").code == 3
    assert letters.run("dead-letters", "replay", letters.letters, "--yes", "--to", "none").code == 3
    ended = letters.run("dead-letters", "show", letters.letters, "17")
    assert ended.code == 2
    assert "is not PARTITION:OFFSET, such as 0:17" in ended.err

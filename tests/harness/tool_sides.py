"""A tool of Kafka, or kcat, and our command line, side by side on one cluster."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kafka_harness import ToolHost, ToolRun

TABLE = Path(__file__).parents[1] / "behavior" / "command_line" / "tools" / "options.csv"


class Option(NamedTuple):
    """An option of a tool: a row of the table.

    Either the test that compares it is named, or the reason why none does.
    """

    tool: str
    option: str
    """The option, or the action; after the subcommand, if the tool has some."""
    ours: str
    """Words that our command has instead. Empty if there are none."""
    compared_by: str
    reason: str


def read_table() -> list[Option]:
    with TABLE.open(newline="") as file:
        heading, *rows = csv.reader(file)
    assert tuple(heading) == Option._fields
    return [Option(*row) for row in rows]


def has_words(typed: Iterable[str], text: str) -> bool:
    """Return whether a command contains each word of `text`; a value may contain it as a part."""
    words = tuple(typed)
    return all(
        part in words
        or any(word.startswith(f"{part}=") for word in words)
        or (not part.startswith("-") and any(part in word for word in words))
        for part in text.split()
    )


class Sides:
    """Both command lines for one cluster. What is typed is recorded for the check of the table."""

    def __init__(self, host: ToolHost, run: Callable[..., Any], bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._host, self._run = host, run
        self._theirs: list[tuple[str, tuple[str, ...]]] = []
        self._ours: list[tuple[str, ...]] = []

    def run_theirs(self, tool: str, *words: str, stdin: bytes = b"") -> ToolRun:
        """Run a tool of Kafka on the cluster, unless the words name another one."""
        if not has_words(words, "--bootstrap-server") and not has_words(
            words, "--bootstrap-controller"
        ):
            servers = ("--bootstrap-server", self.bootstrap)
            after = 1 if tool == "kafka-cluster" else 0
            words = (*words[:after], *servers, *words[after:])
        self._theirs.append((tool, words))
        return self._host.run(tool, *words, stdin=stdin)

    def theirs(self, tool: str, *words: str, stdin: bytes = b"") -> str:
        """Run a tool of Kafka, which must succeed, and return its output."""
        ended = self.run_theirs(tool, *words, stdin=stdin)
        assert ended.code == 0, f"{tool} {' '.join(words)}\n{ended.out}\n{ended.err}"
        return ended.out

    def kcat(self, *words: str, stdin: bytes = b"") -> bytes:
        """Run kcat, which must succeed, and return its output."""
        if not has_words(words, "-F"):
            words = ("-b", self.bootstrap, *words)
        self._theirs.append(("kcat", words))
        done = subprocess.run(
            ["kcat", *words], input=stdin, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"kcat {' '.join(words)}\n{done.stderr.decode()}"
        return done.stdout

    def run_ours(self, *words: str, typed: str = "") -> Any:
        """Type one of our commands, and return its exit code and output."""
        self._ours.append(words)
        return self._run(*words, typed=typed)

    def ours(self, *words: str, typed: str = "") -> Any:
        """Type one of our commands, which must succeed, and return its result as JSON."""
        ended = self.run_ours(*words, "--json", typed=typed)
        assert ended.code == 0, f"{' '.join(words)}\n{ended.out}\n{ended.err}"
        return json.loads(ended.out)

    def untyped(self, options: Iterable[Option]) -> list[str]:
        """Return the options of these that were not typed, or whose counterpart was not."""
        return [
            f"{each.tool} {each.option} | {each.ours}"
            for each in options
            if not any(
                tool == each.tool and has_words(words, each.option) for tool, words in self._theirs
            )
            or not any(has_words(words, each.ours) for words in self._ours)
        ]


_OPTION = re.compile(r"^[ *]{0,2}(?:-\w(?: [\w-]+)?, )?(--[a-z][\w.-]*)", re.MULTILINE)
_SUBCOMMAND = re.compile(r"^ {4}([a-zA-Z-]+)(?:  |$)", re.MULTILINE)
WITH_SUBCOMMANDS = frozenset(
    ("kafka-cluster", "kafka-features", "kafka-metadata-quorum", "kafka-transactions")
)


def options_of(host: ToolHost, tool: str) -> set[str]:
    """Return the options that the help of a tool names; after the subcommand, if it has some."""

    def ask(*words: str) -> str:
        ended = host.run(tool, *words, "--help")
        return ended.out + ended.err

    # This tool takes a single word for the first of its former arguments.
    text = ask("--topic", "t") if tool == "kafka-e2e-latency" else ask()
    found = set(_OPTION.findall(text))
    for name in _SUBCOMMAND.findall(text) if tool in WITH_SUBCOMMANDS else ():
        found |= {name, *(f"{name} {option}" for option in _OPTION.findall(ask(name)))}
    return found

"""The commands in the pages of the documentation: their nouns, verbs, arguments, and options."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokclient.cli.grammar import find_noun, find_verb, parse_words
from aiokclient.cli.program import NOUNS, load_commands

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "docs" / "operators-day.md", ROOT / "docs" / "command-line.md")
FILES = {
    "plan.json": '{"version": 1, "partitions": []}',
    "plan.csv": "orders,0,0\n",
    "order.avsc": '"string"',
}


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command in a page, without those that the shell takes."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.M | re.S):
        for line in block.replace("\\\n", "").splitlines():
            typed = re.sub(r"( [<>] ?\S+)+$", "", re.sub(r"\s+# .*", "", line))
            for part in re.split(r" \| | <\(|\)$", typed):
                words = shlex.split(part, comments=True)
                if words[:1] == ["aiokclient"]:
                    yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_are_right(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    found = 0
    for typed in commands_of(page):
        monkeypatch.setattr("sys.stdin", io.StringIO("topic:orders\n"))
        words = find_noun(typed)
        assert words.noun in NOUNS or not words.noun, typed
        if words.noun and "--help" not in typed:
            by_verb = {each.verb: each for each in load_commands(words.noun)}
            words = find_verb(words, list(by_verb.values()))
            assert (words.verb or "") in by_verb, typed
            parse_words(words.noun or "", by_verb[words.verb or ""], words.others)
            found += 1
    assert found > 20

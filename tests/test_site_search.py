"""Checks of the site's search: the first three hits answer the questions of newcomers.

The search script of the site runs in Node, on the index that the site has. In the built site,
`node build/docs/_static/search.js "question"` prints the hits.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from site_text import search_index

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "docs" / "_static" / "search.js"
QUESTIONS = [
    (row["question"], row["pages"].split())
    for row in csv.DictReader((ROOT / "tests" / "site_questions.csv").read_text().splitlines())
]
HITS = 3


def run_search(queries: list[str]) -> list[list[dict[str, Any]]]:
    """Return the hits of each query, best first."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    program = f"""
        const {{ Search }} = require({json.dumps(str(SCRIPT))});
        const {{ index, queries }} = JSON.parse(require("fs").readFileSync(0));
        const search = new Search(index);
        console.log(JSON.stringify(queries.map((query) => search.find(query, 10))));
    """
    done = subprocess.run(
        [node, "-e", program],
        input=json.dumps({"index": search_index(), "queries": queries}),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return list(json.loads(done.stdout))


NAMES = {
    "auto_offset_reset": "reference/options.html",
    "auto.offset.reset": "reference/options.html",
    "BootstrapError": "reference/errors.html#bootstraperror",
    "NOT_LEADER_OR_FOLLOWER": "reference/errors.html#notleaderorfollowererror",
    "MESSAGE_TOO_LARGE": "reference/errors.html#recordtoolargeerror",
    "offset out of range": "reference/errors.html#offsetoutofrangeerror",
}
MISSPELLED = "gracefull shutdwon"
UNKNOWN = "xyzzyplugh"
EMPTY = ""


@cache
def answers() -> dict[str, list[str]]:
    """Return the addresses that the search finds for each query of these tests, best first."""
    queries = [question for question, _ in QUESTIONS]
    queries += [*NAMES, MISSPELLED, UNKNOWN, EMPTY]
    found = run_search(queries)
    return {query: [hit["url"] for hit in hits] for query, hits in zip(queries, found, strict=True)}


@pytest.mark.parametrize(("question", "pages"), QUESTIONS, ids=lambda value: str(value)[:50])
def test_the_first_three_hits_answer_a_question(question: str, pages: list[str]) -> None:
    found = [url.split(".html")[0] for url in answers()[question][:HITS]]
    assert set(found) & set(pages), f"found {found}"


def test_the_questions_are_many_and_their_pages_exist() -> None:
    assert len({question for question, _ in QUESTIONS}) >= 60
    pages = {page for _, expected in QUESTIONS for page in expected}
    assert sorted(page for page in pages if not (ROOT / "docs" / f"{page}.md").exists()) == []


def test_every_option_and_error_is_found_by_its_name() -> None:
    lost = [
        name
        for name, expected in NAMES.items()
        if not any(url.startswith(expected) for url in answers()[name][:HITS])
    ]
    assert lost == []


def test_misspelled_and_unknown_words_do_not_break_the_search() -> None:
    assert answers()[MISSPELLED][0].startswith("graceful-stop.html")
    assert answers()[UNKNOWN] == []
    assert answers()[EMPTY] == []

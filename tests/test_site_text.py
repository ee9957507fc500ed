"""Checks of the site as text: `llms.txt`, `llms-full.txt`, and the sections of the pages."""

from __future__ import annotations

import re

import pytest
from site_text import SitePage, contents, everything, pages, plain, sections

LONG = 150
"""Lines of a page that fill about three screens."""


def test_the_list_of_pages_has_each_page_once_with_a_sentence() -> None:
    text = contents()
    listed = re.findall(r"^- \[(.+)\]\((.+)\.html\): (.+)$", text, re.M)
    assert [name for _, name, _ in listed] == [page.name for page in pages()[1:]]
    assert [name for _, name, sentence in listed if len(sentence) < 12] == []
    assert text.startswith("# aiokclient\n\n> An asyncio-native client for Apache Kafka")
    assert "(llms-full.txt)" in text


def test_the_whole_text_has_every_page_and_no_directive_of_sphinx() -> None:
    text = everything()
    for page in pages():
        assert f"<!-- {page.url} -->" in text
        assert f"# {page.title}" in text.replace("`", "")
    # Mermaid's diagrams and notes are readable as they are.
    assert set(re.findall(r"^```\{([\w-]+)\}", text, re.M)) <= {"code-block", "note"}
    # Options, errors, and classes are generated into it.
    assert "#### linger_ms" in text
    assert "### BootstrapError" in text
    assert "#### Producer.send_many" in text
    assert "html_meta" not in text


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_page_over_three_screens_has_headings_for_its_table_of_contents(page: SitePage) -> None:
    if page.text.count("\n") > LONG:
        assert len([section for section in sections(page) if section.heading]) >= 3


@pytest.mark.parametrize("page", pages()[1:], ids=lambda page: page.name)
def test_the_first_text_of_a_page_says_something(page: SitePage) -> None:
    assert any(len(plain(section.text)) > 40 for section in sections(page))


def test_pages_for_users_have_the_words_that_users_search_for() -> None:
    # Others find a page only by the words that we use ourselves.
    parts = {"Start", "Tasks", "Security", "Concepts"}
    assert [page.name for page in pages() if page.part in parts and not page.keywords] == []

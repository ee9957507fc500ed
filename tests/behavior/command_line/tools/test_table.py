"""The table of the options of Kafka's tools, kcat, and kcl: nothing is missing, and all is true.

Each row of options.csv names the test that compares the option with ours, or the reason why none
does. A test that is named must have typed the option, which conftest.py checks. The tools of Kafka
are those of 4.3.1, because those of 4.4 are not published; rows that they lack say so.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from kafka_harness import ToolHost
from kafka_harness.tool_host import MAIN
from tool_sides import Option, options_of, read_table

from aiokclient.cli.grammar import make_parser
from aiokclient.cli.program import load_commands

FOLDER = Path(__file__).parent
LEAST_COMPARED = 250
"""The number of options to compare. Those of connecting count once for each tool."""
CONNECTING = re.compile(r"--bootstrap-(server|controller)$|--(command-|admin\.)?config$")
NEWER = "New in Kafka 4.4"


@pytest.fixture(scope="module")
def options() -> list[Option]:
    return read_table()


def test_each_option_has_a_test_or_a_reason(options: list[Option]) -> None:
    tests = {
        node.name
        for path in FOLDER.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    for each in options:
        assert bool(each.compared_by) is not bool(each.reason), each
        assert each.compared_by in tests | {""}, each
        assert each.ours or each.reason, each
    counts = Counter((each.tool, each.option) for each in options)
    assert [key for key, count in counts.items() if count > 1] == []
    files = [ast.parse(path.read_text()).body for path in FOLDER.glob("test_*.py")]
    named = Counter(
        node.name
        for body in files
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
    assert [name for name, count in named.items() if count > 1] == []


def test_enough_options_are_compared(options: list[Option]) -> None:
    compared = [each for each in options if each.compared_by]
    connecting = {each.tool for each in compared if CONNECTING.search(each.option)}
    others = [each for each in compared if not CONNECTING.search(each.option)]
    assert len(others) + len(connecting) >= LEAST_COMPARED


def test_our_commands_have_the_options_of_the_table(options: list[Option]) -> None:
    for words in sorted({each.ours for each in options}):
        if not words or words.startswith(("--", "python")):
            continue
        noun, *others = words.split()
        commands = load_commands(noun)
        verb = others.pop(0) if commands[0].verb else ""
        (command,) = [each for each in commands if each.verb == verb]
        known = {
            name for action in make_parser(noun, command)._actions for name in action.option_strings
        }
        typed = {each for each in others if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", each)}
        assert typed <= known, words


def test_each_option_that_the_tools_print_is_in_the_table(
    tool_host: ToolHost, options: list[Option]
) -> None:
    for tool in MAIN:
        printed = options_of(tool_host, tool)
        assert printed
        known = {each.option for each in options if each.tool == tool}
        assert printed <= known, tool
        others = [each for each in options if each.tool == tool and each.option not in printed]
        assert [
            each for each in others if "--" in each.option and not each.reason.startswith(NEWER)
        ] == [], f"{tool} has no such option"

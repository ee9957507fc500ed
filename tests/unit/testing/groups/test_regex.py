"""Tests of patterns for topic names, which are matched in linear time."""

import random
import re

import pytest

from aiokclient.testing.broker.groups.regex import LONGEST, check_pattern, is_match

PATTERNS = [
    "a",
    "",
    "a|",
    "a*",
    "(a|b)*c",
    "^orders-.*$",
    "[a-c]+x?",
    "(ab){2,3}",
    "(ab){2,}c",
    "a?b?c?",
    "(a*)*b",
    "(|a)+b",
    "(a{0,2}){0,2}",
    "[^ab]+",
    r"\w+\d",
    r"[\w.-]+",
    r"\bab\b.*",
    r".*\B1",
    "(?i)AB.*",
    "(?i)[^a]b",
    "(?i:a)b",
    "a+?b*?",
    ".{2,5}",
    "(?P<name>a|bc)+",
    r"ab\Z",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_python(pattern: str) -> None:
    rng = random.Random(pattern)
    for _ in range(500):
        name = "".join(rng.choice("abcABx1.-") for _ in range(rng.randrange(7)))
        assert is_match(pattern, name) == (re.fullmatch(pattern, name) is not None), name


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "(.*)*x(.*)*y.*.*.*.*z", "(a?){200}a{200}b"]
)
def test_a_match_takes_linear_time_where_python_backtracks(pattern: str) -> None:
    assert not is_match(pattern, "a" * 249)
    assert not is_match(pattern, "b" + "a" * 248)


@pytest.mark.parametrize(
    "pattern",
    [
        "([",
        "(" * 5_000 + ")" * 5_000,
        "(a{900}){900}",
        "a{2,99999999999999999999}",
        "a" * LONGEST * 2,
    ],
)
def test_an_unsupported_pattern_raises(pattern: str) -> None:
    with pytest.raises(re.error):
        check_pattern(pattern)

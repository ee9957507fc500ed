"""Matching of topic names with regular expressions in linear time, as in RE2.

Python's own matching may take hours for a pattern such as `(a+)+b`, in one call that cannot be
interrupted. So Python only parses the pattern. It is compiled to a small program that reads the
name once and follows all alternatives at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONGEST = 2_000
"""The maximum number of steps of a program. RE2 has a limit as well."""

Test = Callable[[str], bool]
PositionTest = Callable[[str, int], bool]

_CATEGORIES = {
    kinds.CATEGORY_DIGIT: r"[0-9]",
    kinds.CATEGORY_NOT_DIGIT: r"[^0-9]",
    kinds.CATEGORY_SPACE: r"[\t\n\f\r ]",
    kinds.CATEGORY_NOT_SPACE: r"[^\t\n\f\r ]",
    kinds.CATEGORY_WORD: r"[0-9A-Za-z_]",
    kinds.CATEGORY_NOT_WORD: r"[^0-9A-Za-z_]",
}


def check_pattern(regex: str) -> None:
    """Raise re.error for a pattern that is not supported."""
    _compile_program(regex)


@lru_cache(maxsize=10_000)
def is_match(regex: str, name: str) -> bool:
    """Return whether a pattern matches a whole name. Remembers the result."""
    return is_match_uncached(regex, name)


def is_match_uncached(regex: str, text: str) -> bool:
    """Return whether a pattern matches a whole text of any length."""
    program = _compile_program(regex)
    steps = program.find_reachable([0], text, 0)
    for position, character in enumerate(text, start=1):
        taken = [step + 1 for step in steps if program.is_taken(step, character)]
        steps = program.find_reachable(taken, text, position)
        if not steps:
            return False
    return len(program.steps) in steps


class _Program:
    """A compiled pattern. Each step matches a character (Test) or a string position, or jumps."""

    def __init__(self, folds: bool) -> None:
        self.steps: list[tuple[str, Any]] = []
        self._folds = folds
        """Whether the steps that are added now ignore case."""

    def is_taken(self, step: int, character: str) -> bool:
        if step == len(self.steps) or self.steps[step][0] != "take":
            return False
        return bool(self.steps[step][1](character))

    def find_reachable(self, begun: Iterable[int], name: str, position: int) -> dict[int, None]:
        """Return the steps that can be reached from `begun` without consuming a character."""
        found: dict[int, None] = {}
        open_steps = list(begun)
        while open_steps:
            step = open_steps.pop()
            if step in found:
                continue
            found[step] = None
            if step == len(self.steps):
                continue
            kind, what = self.steps[step]
            if kind == "jump":
                open_steps += what
            elif kind == "at" and what(name, position):
                open_steps.append(step + 1)
        return found

    def add_step(self, kind: str, what: Any) -> int:
        if len(self.steps) == LONGEST:
            raise re.error("the pattern is too large")
        self.steps.append((kind, what))
        return len(self.steps) - 1

    def add_jump(self) -> tuple[int, list[int]]:
        """Add a jump whose targets are set later."""
        targets: list[int] = []
        return self.add_step("jump", targets), targets

    def add_sequence(self, nodes: Any) -> None:
        for kind, what in nodes:
            self.add_node(kind, what)

    def add_node(self, kind: Any, what: Any) -> None:
        if kind is kinds.SUBPATTERN:
            _, added, removed, part = what
            before = self._folds
            self._folds = bool((before or added & re.IGNORECASE) and not removed & re.IGNORECASE)
            self.add_sequence(part)
            self._folds = before
        elif kind is kinds.BRANCH:
            self.add_branches(what[1])
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            self.add_repetition(*what)
        elif kind is kinds.AT and what in _POSITION_TESTS:
            self.add_step("at", _POSITION_TESTS[what])
        else:
            self.add_step("take", _make_test(kind, what, self._folds))

    def add_branches(self, parts: Any) -> None:
        _, starts = self.add_jump()
        ends = []
        for part in parts:
            starts.append(len(self.steps))
            self.add_sequence(part)
            ends.append(self.add_jump()[1])
        for end in ends:
            end.append(len(self.steps))

    def add_repetition(self, least: int, most: Any, part: Any) -> None:
        for _ in range(least):
            # An empty part has no steps. With this one, too many repetitions of it reach `LONGEST`.
            self.add_step("jump", [len(self.steps) + 1])
            self.add_sequence(part)
        if most is kinds.MAXREPEAT:
            again, targets = self.add_jump()
            targets.append(again + 1)
            self.add_sequence(part)
            self.add_step("jump", [again])
            targets.append(len(self.steps))
            return
        skips = []
        for _ in range(most - least):
            here, targets = self.add_jump()
            targets.append(here + 1)
            skips.append(targets)
            self.add_sequence(part)
        for skip in skips:
            skip.append(len(self.steps))


@lru_cache(maxsize=256)
def _compile_program(regex: str) -> _Program:
    try:
        tree = parser.parse(regex.replace(r"\z", r"\Z"))
        made = _Program(folds=bool(tree.state.flags & re.IGNORECASE))
        made.add_sequence(tree)
    except (RecursionError, OverflowError) as error:
        raise re.error(f"the pattern is too large ({type(error).__name__})") from None
    return made


def _make_test(kind: Any, what: Any, folds: bool) -> Test:
    """Return a function that tells whether a node matches a character."""
    if kind is kinds.NOT_LITERAL:
        return _make_negated_test([_make_test(kinds.LITERAL, what, folds)])
    if kind is kinds.IN:
        negated = what[0][0] is kinds.NEGATE
        tests = [_make_test(inner, value, folds) for inner, value in what[negated:]]
        return (
            _make_negated_test(tests)
            if negated
            else lambda letter: any(test(letter) for test in tests)
        )
    test = _make_single_test(kind, what)
    return (lambda letter: test(letter.lower()) or test(letter.upper())) if folds else test


def _make_negated_test(tests: list[Test]) -> Test:
    return lambda letter: not any(test(letter) for test in tests)


def _make_single_test(kind: Any, what: Any) -> Test:
    if kind is kinds.LITERAL:
        return chr(what).__eq__
    if kind is kinds.ANY:
        return lambda letter: letter != "\n"
    if kind is kinds.RANGE:
        low, high = what
        return lambda letter: bool(low <= ord(letter) <= high)
    if kind is kinds.CATEGORY and what in _CATEGORIES:
        found = re.compile(_CATEGORIES[what]).match
        return lambda letter: found(letter) is not None
    raise re.error(f"{str(kind).lower()} is not supported")


def _is_boundary(name: str, position: int) -> bool:
    around = name[max(position - 1, 0) : position], name[position : position + 1]
    before, after = (bool(re.match(r"[0-9A-Za-z_]", each)) for each in around)
    return before != after


def _is_at_start(name: str, position: int) -> bool:
    return position == 0


def _is_at_end(name: str, position: int) -> bool:
    return position == len(name)


_POSITION_TESTS: dict[Any, PositionTest] = {
    kinds.AT_BEGINNING: _is_at_start,
    kinds.AT_BEGINNING_STRING: _is_at_start,
    kinds.AT_BOUNDARY: _is_boundary,
    kinds.AT_NON_BOUNDARY: lambda name, position: not _is_boundary(name, position),
    kinds.AT_END: _is_at_end,
    kinds.AT_END_STRING: _is_at_end,
}

r"""The syntax of RE2, the regular expressions of subscriptions (KIP-848), and its check.

Brokers compile these expressions with RE2/J. Python's own expressions differ: RE2 has no
lookaround, no backreferences, no possessive quantifiers, and no atomic groups, and counts at most
1000 repetitions. Python in turn does not know `\\Q...\\E` and `\\pL`, which are valid here.
"""

from __future__ import annotations

import re
from argparse import Namespace

from aiokclient.cli.grammar import Argument, Command, WrongUseError
from aiokclient.cli.output import rows_result, write_result

MOST_REPETITIONS = 1000
_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(?:P?<(\w*)>|([a-zA-Z-]*)([:)]))", re.ASCII)
_FLAGS = re.compile(r"[imsU]*(?:-[imsU]+)?")
_POSIX = re.compile(r"\[:\^?(\w+):\]")
_POSIX_NAMES = frozenset(
    {
        *("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph"),
        *("lower", "print", "punct", "space", "upper", "word", "xdigit"),
    }
)
_ESCAPE = re.compile(
    r"\\(?:[1-7][0-7]{1,2}|0[0-7]{0,2}|x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]{1,6}\}|[aftnrv]|[dDsSwW])"
)
_PROPERTY = re.compile(r"\\[pP](?:\{\^?\w+\}|[CLMNPSZ])")
_ASSERTION = re.compile(r"\\[AbBz]")


class SyntaxProblem(Exception):
    """An error raised if a regular expression is not RE2."""


class CheckRegex(Command):
    """Check whether a regular expression has the syntax of RE2, which subscriptions use.

    This asks no broker. The names of scripts and categories of Unicode are not checked. The exit
    code is 2 for a wrong one.
    """

    verb = "check-regex"
    connects = False
    arguments = (Argument("REGEX", "The regular expression."),)

    def run(self, given: Namespace) -> int:
        """Print the regular expression. Raises WrongUseError for one that is not RE2."""
        require_re2(given.regex)
        return write_result(rows_result(["regex"], [{"regex": given.regex}]), given)


def require_re2(regex: str) -> None:
    """Raise WrongUseError, which says what is wrong and where, if a text is not RE2."""
    try:
        check_syntax(regex)
    except SyntaxProblem as problem:
        raise WrongUseError(f"{regex!r} is no regular expression of RE2. {problem}") from None


def check_syntax(regex: str) -> None:
    """Raise SyntaxProblem if a text is not RE2."""
    position = 0
    open_groups: list[int] = []
    names: set[str] = set()
    is_repeatable = is_repeated = False
    while position < len(regex):
        start, char = position, regex[position]
        count = _COUNT.match(regex, position)
        if char in "*+?" or count:
            _require_repeatable(regex, start, is_repeatable, is_repeated, count)
            position = count.end() if count else position + 1
            # A question mark after a repetition makes it take as little as possible.
            position += regex[position : position + 1] == "?"
            is_repeated = True
            continue
        depth, before = len(open_groups), is_repeatable
        is_repeated, is_repeatable = False, True
        if char == "(":
            position = _skip_group_start(regex, start, open_groups, names)
            # Flags such as (?i) are no group. What comes before them can be repeated after them.
            is_repeatable = before and len(open_groups) == depth
        elif char == ")":
            if not open_groups:
                raise SyntaxProblem(f"Position {start}: this ) closes no group.")
            open_groups.pop()
            position += 1
        elif char == "|":
            is_repeatable = False
            position += 1
        elif char == "[":
            position = _skip_class(regex, start)
        elif char == "\\":
            position = _skip_escape(regex, start)
        else:
            position += 1
    if open_groups:
        raise SyntaxProblem(f"Position {open_groups[-1]}: this group is not closed.")


def _require_repeatable(
    regex: str,
    start: int,
    is_repeatable: bool,
    is_repeated: bool,
    count: re.Match[str] | None,
) -> None:
    text = count[0] if count else regex[start]
    if not is_repeatable:
        raise SyntaxProblem(f"Position {start}: there is nothing that {text} could repeat.")
    if is_repeated:
        raise SyntaxProblem(f"Position {start}: {text} follows another repetition.")
    if count is None:
        return
    least, most = int(count[1]), int(count[3] or count[1])
    if most < least or max(least, most) > MOST_REPETITIONS:
        raise SyntaxProblem(
            f"Position {start}: {text} is no valid number of repetitions. The most are "
            f"{MOST_REPETITIONS}."
        )


def _skip_group_start(regex: str, start: int, open_groups: list[int], names: set[str]) -> int:
    """Return the position after the start of a group, or after flags, which are no group."""
    if not regex.startswith("(?", start):
        open_groups.append(start)
        return start + 1
    group = _GROUP.match(regex, start)
    if group is None:
        kind = regex[start : start + 4]
        raise SyntaxProblem(
            f"Position {start}: RE2 has no groups that begin with {kind}, such as lookaround."
        )
    name, flags, end = group.groups()
    if name is not None:
        if not name or name in names:
            raise SyntaxProblem(f"Position {start}: the name of this group is empty or not unique.")
        names.add(name)
    elif not _FLAGS.fullmatch(flags) or (end == ")" and not flags):
        raise SyntaxProblem(f"Position {start}: {group[0]} has flags other than i, m, s, and U.")
    if end != ")":
        open_groups.append(start)
    return group.end()


def _skip_escape(regex: str, start: int) -> int:
    """Return the position after an escape outside of brackets."""
    if regex.startswith("\\Q", start):
        end = regex.find("\\E", start)
        return len(regex) if end < 0 else end + 2
    assertion = _ASSERTION.match(regex, start)
    return assertion.end() if assertion else _skip_character_escape(regex, start)


def _skip_character_escape(regex: str, start: int) -> int:
    for pattern in (_ESCAPE, _PROPERTY):
        if escape := pattern.match(regex, start):
            return escape.end()
    escaped = regex[start + 1 : start + 2]
    if not escaped:
        raise SyntaxProblem(f"Position {start}: nothing follows the backslash.")
    # A backslash before a letter or a digit has a meaning, but one before any other character not.
    if escaped.isascii() and escaped.isalnum():
        raise SyntaxProblem(f"Position {start}: RE2 does not know \\{escaped}.")
    return start + 2


def _skip_class(regex: str, start: int) -> int:
    """Return the position after the characters in brackets."""
    position = start + 1 + regex.startswith("^", start + 1)
    first = position
    while position < len(regex):
        if regex[position] == "]" and position > first:
            return position + 1
        if posix := _POSIX.match(regex, position):
            if posix[1] not in _POSIX_NAMES:
                raise SyntaxProblem(f"Position {position}: RE2 does not know {posix[0]}.")
            position = posix.end()
            continue
        low, position = _read_character(regex, position)
        if regex[position : position + 1] == "-" and regex[position + 1 : position + 2] != "]":
            if position + 1 >= len(regex):
                break
            high, position = _read_character(regex, position + 1)
            if low is None or high is None or high < low:
                raise SyntaxProblem(f"Position {position}: this range of characters is wrong.")
    raise SyntaxProblem(f"Position {start}: this [ is not closed.")


def _read_character(regex: str, position: int) -> tuple[int | None, int]:
    r"""Return the number of a character in brackets, and the position after it.

    The number is None for a set of characters, such as `\\d`.
    """
    if regex[position] != "\\":
        return ord(regex[position]), position + 1
    end = _skip_character_escape(regex, position)
    text = regex[position + 1 : end]
    if text[0] in "dDsSwWpP":
        return None, end
    if text[0] == "x":
        return int(text[1:].strip("{}"), 16), end
    if text[0] in "01234567":
        return int(text, 8), end
    return ord(
        {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}.get(text, text)
    ), end

"""Only the policy and the tables of state machines decide what to do about a broker's error.

Tables keyed by an error class or a code are data, which is allowed, and so is the comparison of a
code with the code of a class, where that is the clearest code. It is not allowed to catch one of
these classes or a category above them (also with `suppress`, or under another name), to test for
one with `isinstance`, `issubclass`, or `type(e) is`, or to compare a code with a bare number.
`policy.classify` returns the category in a scope.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiokclient
from aiokclient.errors import ERRORS_BY_CODE, KafkaError

PACKAGE = Path(aiokclient.__file__).parent
BROKER_ERRORS = {
    kind.__name__
    for error in ERRORS_BY_CODE.values()
    for kind in error.__mro__
    if issubclass(kind, KafkaError) and kind is not KafkaError
}
"""The classes of the error codes, and the categories from which they derive."""
CODE_NAMES = {"code", "error_code", "errorcode"}
FREE = {
    *(PACKAGE / name for name in ("errors", "testing", "policy.py")),
    *(PACKAGE / name for name in ("cli", "adapters")),
}
"""The modules that need not follow the rule.

These are error classes, the embedded cluster, the policy, the command line, and the adapters. The
last two are programs that use the library: they tell their user what an error means, and leave it
to the library what to try again.
"""

RAISED_HERE = {"CorruptRecordError", "UnsupportedVersionError"}
"""Errors that the decoder of records and the negotiation of versions raise.

An `except` for them does not handle a broker's response.
"""

MAY_OFFEND = re.compile(rf"\b({'|'.join(sorted(BROKER_ERRORS | CODE_NAMES))})\b")
"""A pattern in the text of each module with an offence. Half of the modules need no parsing."""

ALIASED = (ast.Tuple, ast.Name, ast.Attribute, ast.BinOp)
Aliases = dict[str, set[str]]
"""The names that a module gives to broker errors, each with the errors that it stands for."""


def named(node: ast.AST | None, aliases: Aliases | None = None) -> set[str]:
    """Return the broker errors in an expression: a class, a tuple, or a union of classes."""
    if node is None:
        return set()
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    names |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    meant = [(aliases or {}).get(name, set()) for name in names]
    return (names & BROKER_ERRORS).union(*meant)


def aliases_in(tree: ast.AST) -> Aliases:
    """Return the broker errors that a module has imported or assigned under other names."""
    found: Aliases = {}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(names=imports):
                for each in imports:
                    if each.asname and each.name in BROKER_ERRORS:
                        found[each.asname] = {each.name}
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if value is not None and isinstance(value, ALIASED) and not has_code(value):
                if named(value):
                    found[name] = named(value)
    return found


def has_code(node: ast.AST) -> bool:
    """Return whether the expression contains error codes rather than error classes."""
    return any(is_code(part) for part in ast.walk(node))


def function_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


ASKING = {"isinstance", "issubclass"}
CATCHING = {"suppress", "subgroup", "split"}
"""Functions that select errors by their class."""


def is_code(node: ast.AST) -> bool:
    name = getattr(node, "attr", getattr(node, "id", ""))
    return name in CODE_NAMES


def is_number(node: ast.AST) -> bool:
    """Return whether a node is a literal number other than 0 (success), or contains one."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(is_number(part) for part in node.elts)
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value != 0


def offences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    aliases = aliases_in(tree)
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught) if named(caught, aliases) - RAISED_HERE:
                yield node.lineno, f"catches {named(caught, aliases)}"
            case ast.Call(args=[_, kinds]) if function_of(node) in ASKING and named(kinds, aliases):
                yield node.lineno, f"asks for {named(kinds, aliases)}"
            case ast.Call(args=kinds) if function_of(node) in CATCHING:
                caught_here = set[str]().union(*(named(kind, aliases) for kind in kinds))
                if caught_here - RAISED_HERE:
                    yield node.lineno, f"catches {caught_here}"
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                if any(map(is_code, sides)) and any(map(is_number, sides)):
                    yield node.lineno, "compares a code with a number"
                for side in sides:
                    if not has_code(side) and named(side, aliases):
                        yield node.lineno, f"compares with {named(side, aliases)}"
            case ast.MatchClass(cls=kind) if named(kind, aliases):
                yield node.lineno, f"matches {named(kind, aliases)}"


def modules() -> list[Path]:
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in FREE and not any(free in path.parents for free in FREE)
    ]


def test_no_module_decides_by_the_name_of_a_broker_error() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {what}"
        for path in modules()
        if MAY_OFFEND.search(text := path.read_text())
        for line, what in offences(ast.parse(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "offence",
    [
        "try: pass\nexcept NotLeaderOrFollowerError: pass",
        "try: pass\nexcept (ValueError, errors.NotLeaderOrFollowerError): pass",
        "isinstance(e, OffsetOutOfRangeError)",
        "isinstance(e, RetriableError | OffsetOutOfRangeError)",
        "issubclass(kind, errors.OffsetOutOfRangeError)",
        "type(e) is UnknownMemberIdError",
        "type(e) in (UnknownMemberIdError, ValueError)",
        "isinstance(e, AuthorizationError)",
        "builtins.isinstance(e, AuthorizationError)",
        "from aiokclient.errors import AuthorizationError as A\nisinstance(e, A)",
        "KINDS = (ValueError, AuthorizationError)\nisinstance(e, KINDS)",
        "KINDS: tuple[type, ...] = (InvalidMetadataError,)\ntry: pass\nexcept KINDS: pass",
        "try: pass\nexcept InvalidMetadataError: pass",
        "try: pass\nexcept* errors.InvalidOffsetError: pass",
        "with contextlib.suppress(InvalidMetadataError): pass",
        "group.subgroup(AuthorizationError)",
        "try: pass\nexcept RefreshRetriableError: pass",
        "match e:\n  case errors.KafkaTimeoutError(): pass",
        "e.code == 6",
        "response.error_code != 16",
        "error_code in (14, 15)",
        "error_code == -1",
        "match e:\n  case NotCoordinatorError(): pass",
    ],
)
def test_an_offence_is_found(offence: str) -> None:
    assert MAY_OFFEND.search(offence)
    assert list(offences(ast.parse(offence)))


@pytest.mark.parametrize(
    "allowed",
    [
        "try: pass\nexcept (KafkaError, ApiTimeoutError, DisconnectedError): pass",
        "try: pass\nexcept CorruptRecordError: pass",
        "isinstance(e, ApiTimeoutError)",
        "with suppress(KafkaError, OSError): pass",
        "text.split(',')",
        "EVENTS = {OffsetOutOfRangeError: Event.RESET, 27: Event.REJOIN}",
        "EVENTS.get(response.error_code)",
        "response.error_code == 0",
        "response.error_code == NotCoordinatorError.code",
        "UnsupportedVersionError.code in {error.code for error in errors}",
        "response.error_code != NONE",
        "raise RecordTooLargeError('text')",
    ],
)
def test_what_is_allowed_is_let_through(allowed: str) -> None:
    assert not list(offences(ast.parse(allowed)))

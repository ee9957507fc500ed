"""The commands of ACLs, beside Kafka's own tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_harness.probe import wait_until

Run = Callable[..., Any]
JAVA = "org.apache.kafka.tools.AclCommand"
_numbers = itertools.count(1)


@pytest.fixture
def user(run_secured: Run) -> Iterator[str]:
    """A principal whose ACLs are removed after the test."""
    principal = f"User:acl-{next(_numbers)}"
    yield principal
    remove = ("acls", "remove", "--yes")
    assert run_secured(*remove, "--allow", principal, "--deny", principal).code == 0


def acls_of(run: Run, user: str, *words: str) -> list[tuple[str, ...]]:
    """Return the ACLs of a user, without the user."""
    ended = run("acls", "list", "--principal", user, "--json", *words)
    assert (ended.code, ended.err) == (0, "")
    names = ("permission", "operation", "resource", "pattern_type", "host")
    return sorted(tuple(row[name] for name in names) for row in json.loads(ended.out))


def becomes(run: Run, user: str, expected: list[tuple[str, ...]]) -> None:
    """Wait until a user has these ACLs. A broker may learn of a change a moment later."""
    wait_until(str(expected), lambda: acls_of(run, user) == sorted(expected), 30)


def test_acls_are_listed_after_they_were_added_and_not_after_they_were_removed(
    run_secured: Run, user: str
) -> None:
    added = run_secured(
        *("acls", "add", "--allow", user, "--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2"),
        *("--on", "topic:orders-", "--on", "group:g", "--prefixed", "--operation", "Read"),
    )
    assert added.code == 0
    assert added.out.splitlines()[0] == (
        "principal\tpermission\toperation\tresource\tpattern_type\thost"
    )
    expected: list[tuple[str, ...]] = [
        ("allow", "read", resource, "prefixed", host)
        for resource in ("topic:orders-", "group:g")
        for host in ("10.0.0.1", "10.0.0.2")
    ]
    becomes(run_secured, user, expected)
    words = ("acls", "add", "--deny", user, "--on", "cluster", "--operation", "alter-configs")
    assert run_secured(*words).code == 0
    denied = ("deny", "alter_configs", "cluster", "literal", "*")
    becomes(run_secured, user, [*expected, denied])
    applied = acls_of(run_secured, user, "--on", "topic:orders-1", "--match", "match")
    assert [acl[2] for acl in applied] == ["topic:orders-"] * 2
    assert acls_of(run_secured, user, "--on", "topic:orders-1") == []
    removed = run_secured(
        "acls", "remove", "--yes", "--allow", user, "--on", "topic:orders-", "--prefixed"
    )
    assert (removed.code, len(removed.out.splitlines())) == (0, 3)
    becomes(run_secured, user, [*expected[2:], denied])


def test_an_acl_has_the_fields_of_the_library(run_secured: Run, user: str) -> None:
    words = ("acls", "add", "--allow", user, "--on", "token:t1", "--operation", "describe")
    assert json.loads(run_secured(*words, "--json").out) == [
        {
            "pattern": {"type": "delegation_token", "name": "t1", "pattern_type": "literal"},
            "principal": user,
            "operation": "describe",
            "permission": "allow",
            "host": "*",
            "resource": "token:t1",
            "pattern_type": "literal",
        }
    ]


@pytest.mark.parametrize(
    ("role", "resources", "expected"),
    [
        ("consumer", ("topic:t", "group:g"), "topic:t read, topic:t describe, group:g read"),
        ("producer", ("topic:t",), "topic:t write, topic:t describe, topic:t create"),
        (
            "idempotent-producer",
            ("topic:t", "transactional-id:x"),
            "topic:t write, topic:t describe, topic:t create, transactional-id:x write, "
            "transactional-id:x describe, cluster idempotent_write",
        ),
    ],
)
def test_a_role_has_the_acls_that_its_clients_need(
    run_secured: Run, user: str, role: str, resources: tuple[str, ...], expected: str
) -> None:
    words = ("--allow", user, "--role", role, *(w for each in resources for w in ("--on", each)))
    assert run_secured("acls", "add", *words).code == 0
    parts = [tuple(each.split()) for each in expected.split(", ")]
    acls: list[tuple[str, ...]] = [
        ("allow", operation, resource, "literal", "*") for resource, operation in parts
    ]
    becomes(run_secured, user, acls)
    assert run_secured("acls", "remove", "--yes", *words).code == 0
    becomes(run_secured, user, [])


def test_a_dry_run_of_acls_changes_nothing(run_secured: Run, user: str) -> None:
    words = ("--allow", user, "--on", "topic:t", "--operation", "read")
    note = "aiokclient: This was a dry run: nothing was changed.\n"
    added = run_secured("acls", "add", *words, "--dry-run")
    assert (added.code, len(added.out.splitlines()), added.err) == (0, 2, note)
    assert acls_of(run_secured, user) == []
    assert run_secured("acls", "add", *words).code == 0
    becomes(run_secured, user, [("allow", "read", "topic:t", "literal", "*")])
    removed = run_secured("acls", "remove", *words, "--dry-run")
    assert (removed.code, len(removed.out.splitlines()), removed.err) == (0, 2, note)
    refused = run_secured("acls", "remove", *words)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"aiokclient: Remove the ACL (ALLOW {user} READ on topic t, host *)? "
        "Without a terminal, this needs --yes.\n"
    )
    assert len(acls_of(run_secured, user)) == 1


def test_an_operation_that_a_resource_lacks_is_refused_unless_unchecked(
    run_secured: Run, user: str
) -> None:
    words = ("acls", "add", "--allow", user, "--on", "group:g", "--operation", "write")
    refused = run_secured(*words)
    assert (refused.code, refused.out) == (2, "")
    assert "group:g has no operation write" in refused.err
    assert run_secured(*words, "--no-check").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("add", "--allow", "User:a", "--operation", "read"), "--on"),
        (("add", "--on", "topic:t", "--operation", "read"), "--allow or --deny"),
        (("add", "--on", "topic:t", "--allow", "User:a"), "--operation"),
        (("add", "--on", "topic:t", "--allow", "alice", "--operation", "read"), "User:alice"),
        (("add", "--on", "topic", "--allow", "User:a", "--operation", "read"), "'topic' is none"),
        (("add", "--on", "topic:t", "--allow", "User:a", "--operation", "eat"), "'eat'"),
        (("add", "--on", "topic:t", "--allow", "User:a", "--role", "consumer"), "--on group:NAME"),
        (("add", "--on", "topic:t", "--deny", "User:a", "--role", "producer"), "--deny"),
        (("add", "--on", "cluster", "--prefixed", "--allow", "User:a"), "--prefixed"),
        (("remove",), "--on, --allow, or --deny"),
        (("remove", "--on", "topic:t", "--allow-host", "::1"), "--allow-host needs --allow"),
        (("remove", "--on", "topic:t", "--prefixed", "--match", "any"), "--prefixed or --match"),
        (("list", "--match", "match"), "--on"),
        (("list", "--match", "some"), "'some'"),
    ],
)
def test_wrong_use_of_acls_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("acls", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_acls_of_a_cluster_without_an_authorizer_are_refused(run: Run) -> None:
    ended = run("acls", "list")
    assert (ended.code, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == 1

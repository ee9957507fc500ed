"""kafka-acls and kafka-delegation-tokens beside `acls` and `tokens`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import KafkaCluster
from kafka_harness.probe import wait_until
from tool_sides import Sides

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ACLS, TOKENS = "kafka-acls", "kafka-delegation-tokens"
HOUR_MS = 3_600_000
ADDED = [
    (
        "--allow-principal PRINCIPAL --topic c1 --operation Read --operation DescribeConfigs",
        "--allow PRINCIPAL --on topic:c1 --operation read --operation describe-configs",
    ),
    (
        "--allow-principal PRINCIPAL --allow-host 10.0.0.8 --topic c1 --operation Write",
        "--allow PRINCIPAL --allow-host 10.0.0.8 --on topic:c1 --operation write",
    ),
    (
        "--deny-principal PRINCIPAL --deny-host 10.0.0.9 --group c2 "
        "--resource-pattern-type prefixed --operation Delete",
        "--deny PRINCIPAL --deny-host 10.0.0.9 --on group:c2 --prefixed --operation delete",
    ),
    (
        "--allow-principal PRINCIPAL --cluster --transactional-id c3 --operation All",
        "--allow PRINCIPAL --on cluster --on transactional-id:c3 --operation all",
    ),
    (
        "--allow-principal PRINCIPAL --delegation-token c4 --operation Describe",
        "--allow PRINCIPAL --on token:c4 --operation describe",
    ),
    (
        "--allow-principal PRINCIPAL --user-principal User:bob --operation CreateTokens",
        "--allow PRINCIPAL --on user:User:bob --operation create-tokens",
    ),
    (
        "--allow-principal PRINCIPAL --producer --topic c5",
        "--allow PRINCIPAL --role producer --on topic:c5",
    ),
    (
        "--allow-principal PRINCIPAL --producer --idempotent --topic c6",
        "--allow PRINCIPAL --role idempotent-producer --on topic:c6",
    ),
    (
        "--allow-principal PRINCIPAL --consumer --topic c7 --group c8",
        "--allow PRINCIPAL --role consumer --on topic:c7 --on group:c8",
    ),
]


def acls_in(text: str) -> list[tuple[str, ...]]:
    """Return the ACLs that Kafka's tool has listed, without the principal."""
    found = []
    resource: tuple[str, ...] = ()
    for line in text.splitlines():
        if pattern := re.search(r"resourceType=(\w+), name=(.*), patternType=(\w+)", line):
            resource = pattern.groups()
        elif acl := re.search(r"host=(.*), operation=(\w+), permissionType=(\w+)", line):
            found.append((*resource, *acl.groups()))
    return sorted(found)


def test_acls_are_added_listed_and_removed_alike(sides: Sides) -> None:
    first, second = "User:tool-theirs", "User:tool-ours"

    def listed(principal: str, *words: str) -> list[tuple[str, ...]]:
        """Return the ACLs of a principal as Kafka's tool lists them."""
        return acls_in(sides.theirs(ACLS, "--list", "--principal", principal, *words))

    def ours(principal: str, *words: str) -> list[tuple[str, ...]]:
        names = ("host", "operation", "permission")
        return sorted(
            tuple(
                value if key in ("name", "host") else value.upper().replace("-", "_")
                for key, value in [*row["pattern"].items(), *((name, row[name]) for name in names)]
            )
            for row in sides.ours("acls", "list", "--principal", principal, *words)
        )

    def in_order(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        return sorted((kind, name, form, *rest) for kind, name, form, *rest in rows)

    for their_words, our_words in ADDED:
        sides.theirs(ACLS, "--add", "--force", *their_words.replace("PRINCIPAL", first).split())
        sides.ours("acls", "add", "--yes", *our_words.replace("PRINCIPAL", second).split())
    wait_until("the ACLs of both", lambda: listed(first) == listed(second), 30)
    assert len(listed(second)) > 15
    assert in_order(ours(second)) == in_order(listed(first))
    for their_words, our_words in (
        ("--topic c1", "--on topic:c1"),
        ("--group c2 --resource-pattern-type prefixed", "--on group:c2 --prefixed"),
        ("--group c2x --resource-pattern-type match", "--on group:c2x --match match"),
        ("--group c2 --resource-pattern-type any", "--on group:c2 --match any"),
        ("--cluster", "--on cluster"),
        ("--transactional-id c3", "--on transactional-id:c3"),
    ):
        found = listed(second, *their_words.split())
        assert in_order(ours(second, *our_words.split())) == in_order(found) != []
    remove = ("--remove", "--force", "--topic", "c1")
    sides.theirs(ACLS, *remove, "--allow-principal", first, "--operation", "Read")
    words = ("--on", "topic:c1", "--operation", "read", "--yes")
    sides.ours("acls", "remove", "--allow", second, *words)
    wait_until("the removal", lambda: len(listed(first)) == len(listed(second)), 30)
    assert listed(first) == listed(second)
    assert ("TOPIC", "c1", "LITERAL", "*", "READ", "ALLOW") not in listed(second)
    for principal in (first, second):
        sides.ours("acls", "remove", "--allow", principal, "--deny", principal, "--yes")


def test_delegation_tokens_are_created_renewed_and_expired_alike(
    sides: Sides, tool_kafka: KafkaCluster, login_file: Callable[[str, str], str], tmp_path: Path
) -> None:
    words = ("users", "set", "tool-alice", "--password-file", "-")
    assert sides.run_ours(*words, typed="p").code == 0
    login, servers = login_file("tool-alice", "p"), tool_kafka.listener("SASL")
    logged_in = ("-b", servers, "--config", login)
    wait_until("a login", lambda: sides.run_ours("cluster", "describe", *logged_in).code == 0, 30)

    def theirs(*words: str) -> str:
        named = ("--bootstrap-server", servers, "--command-config", login)
        return sides.theirs(TOKENS, *named, *words)

    def ours() -> dict[str, Any]:
        rows = sides.ours("tokens", "list", "--owner", "User:tool-alice", *logged_in)
        return {row["token_id"]: row for row in rows}

    def described() -> dict[str, list[str]]:
        """Return the columns of the tokens that Kafka's tool describes, by the id of the token."""
        text = theirs("--describe", "--owner-principal", "User:tool-alice")
        rows = [line.split() for line in text.splitlines()]
        return {row[0]: row for row in rows if len(row) > 7 and row[0] != "TOKENID"}

    created = theirs(
        *("--create", "--max-life-time-period", "7200000", "--renewer-principal", "User:bob"),
        *("--owner-principal", "User:tool-alice"),
    )
    hmac_of_theirs = next(word for word in created.split() if word.endswith("=") and len(word) > 40)
    hmac_file = tmp_path / "hmac"
    sides.ours(
        *("tokens", "create", "--max-lifetime", "2h", "--renewer", "User:bob"),
        *("--owner", "User:tool-alice", "--hmac-file", str(hmac_file), *logged_in),
    )
    wait_until("both tokens", lambda: len(ours()) == 2, 30)
    assert described().keys() == ours().keys()
    for token in ours().values():
        assert token["renewers"] == ["User:bob"]
        assert token["max_timestamp"] == token["issue_timestamp"] + 2 * HOUR_MS
    (first,) = [each for each in ours() if each in created]
    (second,) = ours().keys() - {first}
    theirs("--renew", "--hmac", hmac_of_theirs, "--renew-time-period", str(HOUR_MS))
    sides.ours("tokens", "renew", "--hmac-file", str(hmac_file), "--period", "1h", *logged_in)

    def lives() -> set[int]:
        """Return the minutes for which the tokens are valid."""
        tokens = ours().values()
        return {(each["expiry_timestamp"] - each["issue_timestamp"]) // 60_000 for each in tokens}

    wait_until("both renewals", lambda: lives() == {60}, 30)
    theirs("--expire", "--hmac", hmac_of_theirs, "--expiry-time-period", "-1")
    wait_until("the end of the first", lambda: ours().keys() == {second}, 30)
    hmac = hmac_file.read_text()
    words = ("tokens", "expire", "--hmac-file", "-", "--yes", *logged_in)
    assert sides.run_ours(*words, typed=hmac).code == 0
    wait_until("the end of the second", lambda: ours() == {} and described() == {}, 30)

"""The commands of client quotas, beside Kafka's own tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from kafka_harness.probe import wait_until

Run = Callable[..., Any]
DEFAULT = {"default": True}
TYPED = ("--entity-type",)
_numbers = itertools.count(1)


@pytest.fixture
def user() -> str:
    return f"quota-{next(_numbers)}"


def listed(run: Run, *words: str) -> list[Any]:
    ended = run("quotas", "list", *words, "--json")
    assert (ended.code, ended.err) == (0, "")
    rows: list[Any] = json.loads(ended.out)
    return rows


def becomes(run: Run, expected: list[Any], *words: str) -> None:
    """Wait until these quotas are listed. A broker may learn of a change a moment later."""
    wait_until(str(expected), lambda: listed(run, *words) == expected, 30)


def test_quotas_are_listed_after_they_were_set_and_unset(run: Run, user: str) -> None:
    words = ("producer_byte_rate=1000", "request_percentage=12.5")
    ended = run("quotas", "set", "--user", user, *words)
    assert (ended.code, ended.out.splitlines()) == (
        0,
        [
            "user\tclient_id\tip\tname\tbefore\tafter",
            f"{user}\t-\t-\tproducer_byte_rate\t-\t1000",
            f"{user}\t-\t-\trequest_percentage\t-\t12.5",
        ],
    )
    alone = {"user": user, "client_id": None, "ip": None}
    quotas = {"producer_byte_rate": 1000, "request_percentage": 12.5}
    becomes(run, [{**alone, "quotas": quotas}], "--user", user)
    run("quotas", "set", "--user", user, "--client-id-default", "producer_byte_rate=5")
    both = {**alone, "client_id": DEFAULT, "quotas": {"producer_byte_rate": 5}}
    becomes(run, [both], "--user", user, "--client-id-default")
    assert listed(run, "--user", user, "--strict") == [{**alone, "quotas": quotas}]
    table = run("quotas", "list", "--user", user).out.splitlines()
    assert f"{user}\t<default>\t-\tproducer_byte_rate=5" in table
    ended = run("quotas", "unset", "--user", user, *quotas, "--json")
    assert json.loads(ended.out)[0] == {
        **alone,
        "name": "producer_byte_rate",
        "before": 1000,
        "after": None,
    }
    becomes(run, [both], "--user", user)
    assert run("quotas", "unset", "--user", user, "--client-id-default", "producer_byte_rate").out
    becomes(run, [], "--user", user)


def test_a_dry_run_of_quotas_changes_nothing_and_is_checked(run: Run, user: str) -> None:
    ended = run("quotas", "set", "--user", user, "consumer_byte_rate=7", "--dry-run")
    assert (ended.code, ended.out.splitlines()[1].split("\t")[3:]) == (
        0,
        ["consumer_byte_rate", "-", "7"],
    )
    assert ended.err == "aiokclient: This was a dry run: nothing was changed.\n"
    assert listed(run, "--user", user) == []
    refused = run("quotas", "set", "--user", user, "nope=7", "--dry-run")
    assert (refused.code, refused.out) == (1, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "producer_byte_rate=1"), "--user, --client-id, or --ip"),
        (("set", "--user", "a"), "QUOTA"),
        (("set", "--user", "a", "producer_byte_rate"), "NAME=NUMBER"),
        (("set", "--user", "a", "producer_byte_rate=nan"), "NAME=NUMBER"),
        (("set", "--user", "", "producer_byte_rate=1"), "--user-default"),
        (("set", "--user", "a", "--user-default", "producer_byte_rate=1"), "either --user or"),
        (("unset", "--ip", "::1", "--user", "a", "producer_byte_rate"), "IP address"),
        (("list", "--client-id", "a", "--client-id-default"), "either --client-id or"),
    ],
)
def test_wrong_use_of_quotas_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("quotas", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err

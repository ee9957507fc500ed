"""The commands of subscriptions to the metrics of clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka_harness.probe import wait_until

Run = Callable[..., Any]


@pytest.fixture
def subscription(run: Run) -> Iterator[str]:
    """A subscription that every broker knows, and that is deleted after the test."""
    name = "cli-orders"
    assert run("client-metrics", "set", name, "--interval", "1000", "--metrics", "a.,b.").code == 0
    wait_until(name, lambda: bool(configs_of(run, name)), 30)
    yield name
    run("client-metrics", "delete", name, "--yes")


def configs_of(run: Run, name: str) -> Any:
    """Return the options of a subscription, or None if it does not exist."""
    ended = run("client-metrics", "describe", name, "--json")
    assert ended.code in (0, 3)
    rows = json.loads(ended.out)
    assert [row["name"] for row in rows] == ([name] if ended.code == 0 else [])
    return rows[0]["configs"] if rows else None


def test_a_subscription_is_described_after_it_was_set(run: Run, subscription: str) -> None:
    expected = {"interval.ms": "1000", "match": "", "metrics": "a.,b."}
    assert configs_of(run, subscription) == expected
    listed = run("client-metrics", "list")
    assert listed.out.splitlines()[0] == "name"
    assert subscription in listed.out.splitlines()
    assert subscription in run("client-metrics", "list", "-q").out.splitlines()


def test_setting_a_subscription_prints_the_values_before_and_after(
    run: Run, subscription: str
) -> None:
    words = ("client-metrics", "set", subscription, "--match", "client_id=y", "--json")
    ended = run(*words, "--interval", "", "--metrics", "a.", "--metrics", "c.")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == [
        {
            "name": subscription,
            "before": {"metrics": "a.,b.", "interval.ms": "1000", "match": ""},
            "after": {"metrics": "a.,c.", "interval.ms": None, "match": "client_id=y"},
        }
    ]


def test_a_dry_run_of_a_subscription_changes_nothing(run: Run, subscription: str) -> None:
    before = configs_of(run, subscription)
    for words in (("set", subscription, "--interval", "2000"), ("delete", subscription)):
        ended = run("client-metrics", *words, "--dry-run")
        assert (ended.code, ended.out.splitlines()[1].split("\t")[0]) == (0, subscription)
        assert ended.err == "aiokclient: This was a dry run: nothing was changed.\n"
    assert configs_of(run, subscription) == before
    refused = run("client-metrics", "set", subscription, "--interval", "5", "--dry-run")
    assert (refused.code, refused.out) == (1, "")


def test_generated_names_of_subscriptions_are_printed(run: Run) -> None:
    ended = run("client-metrics", "set", "--generate-name", "--metrics", "*", "-q")
    name = ended.out.strip()
    assert (ended.code, len(name)) == (0, 22)
    deleted = run("client-metrics", "delete", "-", "--yes", typed=f"{name}\n")
    assert (deleted.code, deleted.out) == (0, f"name\n{name}\n")


def test_a_subscription_is_not_deleted_without_a_terminal_or_yes(
    run: Run, subscription: str
) -> None:
    ended = run("client-metrics", "delete", subscription)
    assert (ended.code, ended.out) == (2, "")
    assert "--yes" in ended.err
    assert configs_of(run, subscription)["interval.ms"] == "1000"


def test_subscriptions_that_do_not_exist_end_with_three(run: Run, subscription: str) -> None:
    for verb in ("describe", "delete"):
        ended = run("client-metrics", verb, "cli-nope", "--yes" if verb == "delete" else "-q")
        assert ended.code == 3
        assert ended.err.startswith("aiokclient: cli-nope: There is no such subscription.")
    both = run("client-metrics", "describe", "cli-nope", subscription, "-q")
    assert (both.code, both.out) == (3, f"{subscription}\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "--metrics", "*"), "--generate-name"),
        (("set", "a", "--generate-name", "--metrics", "*"), "--generate-name"),
        (("set", "a"), "at least one of --metrics, --interval, --match"),
        (("set", "a", "--interval", "soon"), "'soon' is no number of milliseconds"),
        (("delete", "--yes"), "NAME"),
        (("remove", "a"), "There are list, describe, set, delete."),
    ],
)
def test_wrong_use_of_client_metrics_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("client-metrics", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err

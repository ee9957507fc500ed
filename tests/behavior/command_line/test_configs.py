"""The commands of configs, beside Kafka's own tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness.probe import wait_until

from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]
_numbers = itertools.count(1)


@pytest.fixture
def topic(run: Run) -> str:
    """A new topic that has no configs of its own."""
    name = f"cli-configs-{next(_numbers)}"
    assert run("topics", "create", name, "-p", "1").code == 0
    wait_until(name, lambda: run("configs", "describe", f"topic:{name}").code == 0, 30)
    return name


def rows_of(run: Run, *words: str) -> Any:
    """Return the rows of a command that succeeds."""
    ended = run(*words, "--json")
    assert (ended.code, ended.err) == (0, "")
    return json.loads(ended.out)


def own_configs(run: Run, resource: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows_of(run, "configs", "describe", resource)}


def becomes(run: Run, resource: str, expected: dict[str, str]) -> None:
    """Wait until a resource has these configs. A broker may learn of a change a moment later."""
    wait_until(str(expected), lambda: own_configs(run, resource) == expected, 30)


def test_configs_are_described_after_they_were_set_and_unset(run: Run, topic: str) -> None:
    resource = f"topic:{topic}"
    words = (
        "configs",
        "set",
        resource,
        "max.message.bytes=2000000",
        "cleanup.policy=compact,delete",
    )
    rows = rows_of(run, *words)
    assert [(row["resource"], row["name"], row["after"]) for row in rows] == [
        (resource, "max.message.bytes", "2000000"),
        (resource, "cleanup.policy", "compact,delete"),
    ]
    assert [row["before"] for row in rows] == ["1048588", "delete"]
    becomes(run, resource, {"max.message.bytes": "2000000", "cleanup.policy": "compact,delete"})
    (row,) = rows_of(run, "configs", "unset", resource, "max.message.bytes")
    expected = {"name": "max.message.bytes", "before": "2000000", "after": "1048588"}
    assert row == {"resource": resource, **expected}
    becomes(run, resource, {"cleanup.policy": "compact,delete"})


def test_items_are_appended_to_a_list_and_subtracted(run: Run, topic: str) -> None:
    resource = f"topic:{topic}"
    (row,) = rows_of(run, "configs", "append", resource, "cleanup.policy=compact")
    assert (row["before"], row["after"]) == ("delete", "delete,compact")
    becomes(run, resource, {"cleanup.policy": "delete,compact"})
    (row,) = rows_of(run, "configs", "subtract", resource, "cleanup.policy=delete")
    assert (row["before"], row["after"]) == ("delete,compact", "compact")
    becomes(run, resource, {"cleanup.policy": "compact"})


def test_a_described_config_has_the_fields_of_the_library(
    run: Run, topic: str, cluster_servers: Any
) -> None:
    rows = rows_of(run, "configs", "describe", f"topic:{topic}", "--all", "--docs")
    (row,) = [row for row in rows if row["name"] == "max.message.bytes"]
    # The embedded cluster has no documentation.
    assert row["documentation"] or cluster_servers.kind == "embedded"
    assert row["synonyms"][-1]["source"] == "default"
    row.pop("documentation")
    row.pop("synonyms")
    assert row == {
        "resource": f"topic:{topic}",
        "name": "max.message.bytes",
        "value": "1048588",
        "source": "default",
        "read_only": False,
        "sensitive": False,
        "type": "int",
    }
    table = run("configs", "describe", f"topic:{topic}", "--all").out.splitlines()
    assert table[0] == "resource\tname\tvalue\tsource"
    assert f"topic:{topic}\tretention.ms\t604800000\tdefault" in table


def test_a_dry_run_of_configs_changes_nothing_and_is_checked(run: Run, topic: str) -> None:
    resource = f"topic:{topic}"
    for words in (
        ("set", resource, "retention.ms=5"),
        ("append", resource, "cleanup.policy=compact"),
        ("unset", resource, "retention.ms"),
    ):
        ended = run("configs", *words, "--dry-run")
        assert (ended.code, len(ended.out.splitlines())) == (0, 2)
        assert ended.err == "aiokclient: This was a dry run: nothing was changed.\n"
    assert own_configs(run, resource) == {}
    refused = run("configs", "set", resource, "retention.ms=soon", "--dry-run")
    assert (refused.code, refused.out) == (1, "")


def test_resources_are_read_from_standard_input(run: Run, topic: str) -> None:
    listed = run("configs", "list", "topic", "-q")
    assert f"topic:{topic}" in listed.out.splitlines()
    described = run("configs", "describe", "-", "--json", typed=f"topic:{topic}\n\nbroker:\n")
    assert (described.code, described.err) == (0, "")
    wrong = run("configs", "describe", "-", typed="nope\n")
    assert (wrong.code, wrong.out) == (2, "")
    assert "'nope' is none of topic:NAME" in wrong.err


def test_resources_that_do_not_exist_end_with_three(run: Run, topic: str) -> None:
    missing = ("configs", "describe", "topic:cli-nope")
    ended = run(*missing)
    assert ended.code == 3
    assert ended.err.startswith("aiokclient: topic:cli-nope: ")
    run("configs", "set", f"topic:{topic}", "retention.ms=7")
    becomes(run, f"topic:{topic}", {"retention.ms": "7"})
    both = run(*missing, f"topic:{topic}")
    assert (both.code, f"topic:{topic}\tretention.ms\t7\ttopic" in both.out) == (3, True)
    assert run("configs", "set", "topic:cli-nope", "retention.ms=7").code == 3
    for words in (
        ("describe", "broker:77"),
        ("describe", "logger:77"),
        ("set", "broker:77", "log.retention.ms=7"),
        ("diff", "broker:77", "broker:"),
    ):
        ended = run("configs", *words)
        assert (ended.code, "There is no broker 77 that runs." in ended.err) == (3, True)


def test_what_has_no_effect_is_sent_only_without_a_check(run: Run, topic: str) -> None:
    words = ("configs", "unset", f"topic:{topic}", "nope")
    refused = run(*words)
    assert (refused.code, refused.out) == (1, "")
    assert "'nope'" in refused.err
    assert "Pass --no-check" in refused.err
    assert run(*words, "--no-check").code == 0


def test_settings_of_a_file_are_set_and_arguments_count_more(
    run: Run, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "topic.properties"
    path.write_text("# a comment\nretention.ms: 5\nsegment.ms = 60\\\n  000\n")
    rows = rows_of(run, "configs", "set", f"topic:{topic}", "--from-file", str(path))
    assert {row["name"]: row["after"] for row in rows} == {
        "retention.ms": "5",
        "segment.ms": "60000",
    }
    words = ("configs", "set", f"topic:{topic}", "retention.ms=6", "--from-file", str(path))
    assert rows_of(run, *words)[0]["after"] == "6"
    becomes(run, f"topic:{topic}", {"retention.ms": "6", "segment.ms": "60000"})


def test_configs_that_differ_are_shown_side_by_side(run: Run, topic: str) -> None:
    other = f"cli-configs-{next(_numbers)}"
    assert run("topics", "create", other, "-p", "1", "--config", "retention.ms=9").code == 0
    becomes(run, f"topic:{other}", {"retention.ms": "9"})
    words = ("configs", "diff", f"topic:{topic}", f"topic:{other}")
    assert rows_of(run, *words) == [
        {
            "name": "retention.ms",
            "first": "604800000",
            "second": "9",
            "first_source": "default",
            "second_source": "topic",
        }
    ]
    assert run(*words).out == "name\tfirst\tsecond\nretention.ms\t604800000\t9\n"


def test_a_secret_of_a_broker_is_neither_an_argument_nor_shown(run: Run, tmp_path: Path) -> None:
    name = "listener.name.internal.ssl.key.password"
    refused = run("configs", "set", "broker:", f"{name}=hush", "--dry-run")
    assert (refused.code, refused.out) == (2, "")
    assert "--from-file" in refused.err
    path = tmp_path / "broker.properties"
    path.write_text(f"{name}=hush\n")
    shown = run("configs", "set", "broker:", "--from-file", str(path), "--dry-run", "--json")
    assert "hush" not in refused.err + shown.out + shown.err


def test_defaults_of_brokers_are_set_and_unset(run: Run) -> None:
    before = own_configs(run, "broker:")
    rows_of(run, "configs", "set", "broker:", "log.cleaner.threads=1")
    becomes(run, "broker:", {**before, "log.cleaner.threads": "1"})
    rows_of(run, "configs", "unset", "broker:", "log.cleaner.threads")
    becomes(run, "broker:", before)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("describe",), "RESOURCE"),
        (("describe", "orders"), "'orders' is none of topic:NAME"),
        (("describe", "topic:"), "is none of"),
        (("describe", "broker:one"), "is none of"),
        (("describe", "logger:"), "is none of"),
        (("list", "topics"), "'topics' is none of topic, broker"),
        (("set", "topic:a"), "at least one NAME=VALUE"),
        (("set", "topic:a", "retention.ms"), "'retention.ms' is not NAME=VALUE"),
        (("unset", "topic:a"), "NAME"),
        (("diff", "topic:a", "group:b"), "topic:a and group:b"),
        (("set", "topic:a", "--from-file", "/nowhere.properties"), "/nowhere.properties"),
    ],
)
def test_wrong_use_of_configs_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("configs", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_configs_of_loggers_and_groups_are_described(run_on: Callable[[str], Run]) -> None:
    with EmbeddedCluster() as cluster:
        run = run_on(cluster.bootstrap_servers)
        assert run("configs", "set", "group:g", "consumer.session.timeout.ms=50000").code == 0
        assert own_configs(run, "group:g") == {"consumer.session.timeout.ms": "50000"}
        assert "group:g" in run("configs", "list", "group", "-q").out.split()

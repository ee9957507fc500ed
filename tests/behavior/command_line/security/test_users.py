"""The commands of users with SCRAM credentials, beside Kafka's own tool."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_harness.probe import wait_until

Run = Callable[..., Any]
_numbers = itertools.count(1)


@pytest.fixture
def user(run_secured: Run) -> Iterator[str]:
    """A name for a user who is deleted after the test."""
    name = f"cli-user-{next(_numbers)}"
    yield name
    assert run_secured("users", "delete", name, "--yes").code in (0, 3)


def credentials_of(run: Run, user: str) -> dict[str, int]:
    ended = run("users", "list", user, "--json")
    assert ended.code in (0, 3)
    rows = json.loads(ended.out)
    assert {row["user"] for row in rows} <= {user}
    return {row["mechanism"]: row["iterations"] for row in rows}


def becomes(run: Run, user: str, expected: dict[str, int]) -> None:
    """Wait until a user has these credentials. A broker may learn of a change a moment later."""
    wait_until(str(expected), lambda: credentials_of(run, user) == expected, 30)


def test_a_user_logs_in_with_the_password_of_a_file_until_it_is_rotated(
    run_secured: Run,
    user: str,
    secured: Any,
    tmp_path: Path,
    login_file: Callable[[str, str], str],
) -> None:
    path = tmp_path / "password"
    path.write_text("first-secret\n")
    ended = run_secured("users", "set", user, "--password-file", str(path))
    assert (ended.code, ended.out.splitlines()) == (
        0,
        ["user\tmechanism\tbefore\tafter", f"{user}\tSCRAM-SHA-512\t-\t4096"],
    )

    def logs_in(password: str) -> bool:
        login = ("-b", secured.sasl, "--config", login_file(user, password))
        return bool(run_secured("topics", "list", *login).code == 0)

    wait_until("a login", lambda: logs_in("first-secret"), 30)
    assert run_secured("users", "set", user, "--password-file", "-", typed="second\n").code == 0
    wait_until("the new password", lambda: logs_in("second"), 30)
    assert not logs_in("first-secret")


def test_credentials_are_listed_after_they_were_set_and_deleted(
    run_secured: Run, user: str, tmp_path: Path
) -> None:
    path = tmp_path / "password"
    path.write_text("a-secret")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "SCRAM-SHA-512")
    words = ("users", "set", user, "--password-file", str(path), "--iterations", "8192", *both)
    ended = run_secured(*words, "--json")
    assert json.loads(ended.out) == [
        {"user": user, "mechanism": "SCRAM-SHA-256", "before": None, "after": 8192},
        {"user": user, "mechanism": "SCRAM-SHA-512", "before": None, "after": 8192},
    ]
    assert "a-secret" not in ended.out + ended.err
    becomes(run_secured, user, {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192})
    assert user in {row["user"] for row in json.loads(run_secured("users", "list", "--json").out)}
    ended = run_secured("users", "delete", user, "--yes", *both[:2])
    assert (ended.code, ended.out) == (0, f"user\tmechanism\n{user}\tSCRAM-SHA-256\n")
    becomes(run_secured, user, {"SCRAM-SHA-512": 8192})
    missing = run_secured("users", "delete", user, "--yes", *both[:2])
    assert missing.code == 3
    assert "no credential for SCRAM-SHA-256" in missing.err
    assert run_secured("users", "delete", "-", "--yes", typed=f"{user}\n").code == 0
    becomes(run_secured, user, {})


def test_a_dry_run_of_users_changes_nothing(run_secured: Run, user: str) -> None:
    note = "aiokclient: This was a dry run: nothing was changed.\n"
    ended = run_secured("users", "set", user, "--dry-run")
    assert (ended.code, ended.err) == (0, note)
    assert credentials_of(run_secured, user) == {}
    run_secured("users", "set", user, "--password-file", "-", typed="a-secret")
    becomes(run_secured, user, {"SCRAM-SHA-512": 4096})
    ended = run_secured("users", "delete", user, "--dry-run")
    assert (ended.code, ended.out) == (0, f"user\tmechanism\n{user}\tSCRAM-SHA-512\n")
    refused = run_secured("users", "delete", user)
    assert (refused.code, refused.out) == (2, "")
    assert f"Delete the credentials of the user {user}?" in refused.err
    assert credentials_of(run_secured, user) == {"SCRAM-SHA-512": 4096}


def test_users_that_do_not_exist_end_with_three(run_secured: Run) -> None:
    for words in (("list", "cli-nobody"), ("delete", "cli-nobody", "--yes")):
        ended = run_secured("users", *words)
        assert ended.code == 3
        assert ended.err.startswith("aiokclient: cli-nobody: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set",), "NAME"),
        (("set", ""), "name of the user is empty"),
        (("set", "a"), "Give --password-file"),
        (("set", "a", "--password-file", "-"), "is empty"),
        (("set", "a", "--password-file", "/nowhere/password"), "/nowhere/password"),
        (("set", "a", "--password", "p"), "--password"),
        (("set", "a", "--iterations", "4095"), "'4095' is no number from 4096 to 16384"),
        (("set", "a", "--mechanism", "PLAIN"), "'PLAIN'"),
        (("delete", "--yes"), "NAME"),
    ],
)
def test_wrong_use_of_users_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("users", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_a_password_is_typed_twice_and_never_shown(
    run_secured: Run, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answers = iter(["typed-once", "typed-otherwise", "typed-twice", "typed-twice"])

    def answer(subject: str) -> str:
        asked.append(subject)
        return next(answers)

    monkeypatch.setattr("aiokclient.cli.profiles.ask_secret", answer)
    refused = run_secured("users", "set", user)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "aiokclient: The two passwords differ. Nothing was changed.\n"
    done = run_secured("users", "set", user)
    assert (done.code, done.err) == (0, "")
    assert "typed" not in done.out
    assert asked == [f"The password of {user}", "The same again"] * 2

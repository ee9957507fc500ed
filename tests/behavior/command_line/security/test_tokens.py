"""The commands of delegation tokens. No command but `create` shows the HMAC of a token."""

from __future__ import annotations

import itertools
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_harness.probe import wait_until

Run = Callable[..., Any]
JAVA = "org.apache.kafka.tools.DelegationTokenCommand"
HOUR_MS = 3_600_000
_numbers = itertools.count(1)


@pytest.fixture
def run_alice(
    run_secured: Run, secured: Any, login_file: Callable[[str, str], str]
) -> Callable[..., Any]:
    """Type a command as a new user, who is logged in."""
    name = f"cli-alice-{next(_numbers)}"
    assert run_secured("users", "set", name, "--password-file", "-", typed="p").code == 0
    login = ("-b", secured.sasl, "--config", login_file(name, "p"))

    def run(*words: str, typed: str = "") -> Any:
        return run_secured(*login, *words, typed=typed)

    wait_until("a login", lambda: run("topics", "list").code == 0, 30)
    return run


def tokens_of(run: Run) -> list[Any]:
    ended = run("tokens", "list", "--json")
    assert (ended.code, ended.err) == (0, "")
    rows: list[Any] = json.loads(ended.out)
    return rows


def create(run: Run, *words: str) -> Any:
    """Create a token, and wait until the brokers know it."""
    ended = run("tokens", "create", "--json", *words)
    assert (ended.code, ended.err) == (0, "")
    (token,) = json.loads(ended.out)
    ids = [token["token_id"]]
    wait_until("the token", lambda: [each["token_id"] for each in tokens_of(run)] == ids, 30)
    return token


def renew(run: Run, *words: str, typed: str = "") -> list[Any]:
    ended = run("tokens", "renew", "--json", *words, typed=typed)
    assert (ended.code, ended.err) == (0, "")
    rows: list[Any] = json.loads(ended.out)
    return rows


def test_a_token_is_listed_without_its_hmac_until_it_expires(run_alice: Run) -> None:
    token = create(run_alice, "--renewer", "User:bob", "--max-lifetime", "2d")
    hmac = token.pop("hmac")
    assert len(hmac) > 20
    assert token["renewers"] == ["User:bob"]
    assert token["max_timestamp"] == token["issue_timestamp"] + 48 * HOUR_MS
    assert token["issue_timestamp_iso"].endswith("Z")
    assert tokens_of(run_alice) == [token]
    assert run_alice("tokens", "list", "--owner", token["owner"], "-q").out.split() == [
        token["token_id"]
    ]
    assert hmac not in run_alice("tokens", "list").out
    expired = run_alice("tokens", "expire", token["token_id"], "--yes", "--json")
    assert (expired.code, hmac in expired.out) == (0, False)
    wait_until("the end of the token", lambda: tokens_of(run_alice) == [], 30)
    assert run_alice("tokens", "expire", token["token_id"], "--yes").code == 3


def test_a_token_is_renewed_by_its_id_and_by_its_hmac(run_alice: Run, tmp_path: Path) -> None:
    path = tmp_path / "hmac"
    token = create(run_alice, "--hmac-file", str(path))
    assert token["hmac"] is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (row,) = renew(run_alice, token["token_id"], "--period", "1h")
    assert row["token_id"] == token["token_id"]
    assert row["expiry_timestamp"] < row["expiry_timestamp_before"] == token["expiry_timestamp"]
    (from_file,) = renew(run_alice, "--period", "2h", "--hmac-file", str(path))
    assert from_file["expiry_timestamp"] > row["expiry_timestamp"]
    (typed,) = renew(run_alice, "--period", "2h", typed=path.read_text())
    assert typed["expiry_timestamp"] >= from_file["expiry_timestamp"]
    again = run_alice("tokens", "create", "--hmac-file", str(path))
    assert (again.code, again.out) == (2, "")
    assert len(tokens_of(run_alice)) == 1
    assert run_alice("tokens", "expire", "--yes", "--hmac-file", str(path)).code == 0


def test_a_dry_run_of_tokens_changes_nothing(run_alice: Run) -> None:
    ended = run_alice("tokens", "create", "--max-lifetime", "1d", "--dry-run", "--json")
    assert json.loads(ended.out) == [
        {"owner": None, "renewers": [], "max_lifetime_ms": 24 * HOUR_MS}
    ]
    assert tokens_of(run_alice) == []
    token = create(run_alice)
    before = tokens_of(run_alice)
    for verb in ("renew", "expire"):
        assert run_alice("tokens", verb, token["token_id"], "--dry-run").code == 0
    refused = run_alice("tokens", "expire", token["token_id"])
    assert (refused.code, refused.out) == (2, "")
    assert f"Let the token {token['token_id']} expire?" in refused.err
    assert tokens_of(run_alice) == before
    assert run_alice("tokens", "expire", token["token_id"], "--yes").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("renew",), "The HMAC of the token is empty"),
        (("renew", "id", "--hmac-file", "f"), "either TOKEN_ID or --hmac-file"),
        (("renew", "--hmac-file", "/nowhere/hmac"), "/nowhere/hmac"),
        (("expire", "id", "--period", "soon"), "'soon' is no time span"),
        (("create", "--owner", "alice"), "User:alice"),
        (("create", "--hmac", "x"), "--hmac"),
    ],
)
def test_wrong_use_of_tokens_ends_with_two(
    run_on: Callable[[str], Run], words: tuple[str, ...], says: str
) -> None:
    ended = run_on("127.0.0.1:1")("tokens", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_tokens_of_a_client_without_a_login_are_refused(run_secured: Run) -> None:
    ended = run_secured("tokens", "create")
    assert (ended.code, ended.out) == (1, "")
    assert len(ended.err.splitlines()) == 1

"""The commands of schemas, on a registry in this process."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from registry_stub import RegistryStub, StubThread

Run = Callable[..., Any]
HEAD = "subject\tversions\n"
USER = "alice:Kx7-plain-pass-w0rd"


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with StubThread() as stub:
        yield stub


@pytest.fixture
def run(run_on: Callable[[str], Run], stub: RegistryStub, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that types a command for the registry, without any brokers."""
    monkeypatch.setenv("AIOKCLIENT_SCHEMA_REGISTRY_URL", stub.url)
    return run_on("")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text('"string"')
    return str(path)


def test_schemas_are_registered_listed_and_shown(run: Run, file: str, tmp_path: Path) -> None:
    done = run("schemas", "register", "orders-value", file, "--json")
    assert (done.code, done.err) == (0, "")
    (registered,) = json.loads(done.out)
    assert registered["id"] == 1
    assert registered["version"] == 1
    assert registered["type"] == "AVRO"
    other = tmp_path / "user.proto"
    other.write_text('syntax = "proto3";')
    words = ("--reference", "order.proto=orders-value:1")
    assert run("schemas", "register", "users", str(other), *words).code == 0
    listed = run("schemas", "list")
    assert listed.out == f"{HEAD}orders-value\t1\nusers\t1\n"
    assert run("schemas", "list", "use", "--quiet").out == "users\n"
    (shown,) = json.loads(run("schemas", "show", "users", "--json").out)
    assert shown["type"] == "PROTOBUF"
    assert shown["references"] == [{"name": "order.proto", "subject": "orders-value", "version": 1}]
    assert run("schemas", "show", "orders-value", "1", "--raw").out == '"string"\n'
    assert run("schemas", "show", "--id", "1", "--raw").out == '"string"\n'
    assert run("schemas", "show", "--guid", registered["guid"], "--raw").out == '"string"\n'


def test_a_schema_is_read_from_standard_input(run: Run) -> None:
    words = ("schemas", "register", "orders", "-", "--type", "JSON", "--json")
    assert json.loads(run(*words, typed="{}").out)[0]["type"] == "JSON"


def test_a_check_ends_with_1_if_the_schema_is_not_compatible(
    run: Run, stub: RegistryStub, file: str
) -> None:
    done = run("schemas", "check", "orders", file)
    assert done.code == 0
    assert done.out.splitlines()[1] == "orders\tlatest\ttrue\t-"
    assert "has no schema yet" in done.err
    run("schemas", "register", "orders", file)
    assert run("schemas", "check", "orders", file, "--version", "all").code == 0
    stub.incompatible.add('"string"')
    done = run("schemas", "check", "orders", file, "--json")
    assert done.code == 1
    (checked,) = json.loads(done.out)
    assert not checked["compatible"]
    assert checked["messages"]


def test_a_dry_run_of_a_registration_checks_the_schema_only(
    run: Run, stub: RegistryStub, file: str
) -> None:
    done = run("schemas", "register", "orders", file, "--dry-run")
    assert done.code == 0
    assert run("schemas", "list").out == HEAD
    assert not [each for each in stub.targets() if each.startswith("POST /subjects")]


def test_subjects_are_deleted_after_a_question(run: Run, file: str) -> None:
    for subject in ("a", "b"):
        run("schemas", "register", subject, file)
    refused = run("schemas", "delete", "a")
    assert refused.code == 2
    assert "Delete the subject a?" in refused.err
    planned = run("schemas", "delete", "a", "--dry-run")
    assert (planned.code, planned.out) == (0, f"{HEAD}a\t1\n")
    done = run("schemas", "delete", "a", "unknown", "--yes")
    assert (done.code, done.out) == (3, f"{HEAD}a\t1\n")
    assert done.err.startswith("aiokclient: unknown: SUBJECT_NOT_FOUND (40401)")
    assert run("schemas", "delete", "b", "--version", "1", "--yes").out == f"{HEAD}b\t1\n"
    assert run("schemas", "list").out == HEAD
    assert run("schemas", "list", "--deleted").out == f"{HEAD}a\t1\nb\t1\n"
    assert run("schemas", "delete", "a", "--permanent", "--yes").code == 0
    assert run("schemas", "list", "--deleted").out == f"{HEAD}b\t1\n"


def test_wrong_arguments_of_schemas_send_nothing(run: Run, stub: RegistryStub, file: str) -> None:
    for words in (
        ("show",),
        ("show", "a", "0"),
        ("show", "a", "all"),
        ("show", "a", "1", "--id", "1"),
        ("register", "a", "no-such-file"),
        ("register", "a", file, "--reference", "wrong"),
        ("delete", "a", "b", "--version", "1", "--yes"),
        ("list", "--registry", "http://alice:secret@localhost"),
        ("list", "-X", "schema.registry.basic.auth.user.info=alice:secret"),
    ):
        done = run("schemas", *words)
        assert done.code == 2, words
        assert "secret@" not in done.err
    assert stub.requests == []


def test_what_does_not_exist_ends_with_3(run: Run) -> None:
    done = run("schemas", "show", "unknown")
    assert done.code == 3
    assert done.err.startswith("aiokclient: SUBJECT_NOT_FOUND (40401) in GET http://127.0.0.1:")


def test_without_a_registry_the_command_says_how_to_give_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIOKCLIENT_SCHEMA_REGISTRY_URL")
    done = run("schemas", "list")
    assert done.code == 2
    assert done.err.startswith("aiokclient: No schema registry is known. Give --registry URL")


def test_a_registry_that_is_down_is_one_line(run: Run, stub: RegistryStub) -> None:
    done = run("schemas", "list", "--registry", "http://127.0.0.1:1", "--timeout", "0.2")
    assert done.code == 1
    assert done.err.startswith("aiokclient: The schema registry is not available. ")
    assert done.err.count("\n") == 1
    assert stub.requests == []


def test_a_deletion_without_an_answer_ends_with_4(run: Run, stub: RegistryStub, file: str) -> None:
    run("schemas", "register", "orders", file)
    stub.answer(hangs_up=True)
    done = run("schemas", "delete", "orders", "--yes")
    assert done.code == 4
    assert "may have carried out DELETE /subjects/orders" in done.err


def test_the_registry_and_its_user_come_from_the_profile(
    run: Run, stub: RegistryStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIOKCLIENT_SCHEMA_REGISTRY_URL")
    monkeypatch.setenv("REGISTRY_USER", USER)
    path = tmp_path / "profiles.toml"
    path.write_text(
        f'[profiles.prod]\nprotected = true\n[profiles.prod.registry]\nurl = "{stub.url}"\n'
        'basic_auth_user_info = { env = "REGISTRY_USER" }\n'
    )
    path.chmod(0o600)
    stub.authorization = f"Basic {base64.b64encode(USER.encode()).decode()}"
    assert run("schemas", "list", "--profile", "prod").code == 0
    properties = tmp_path / "registry.properties"
    properties.write_text("basic.auth.user.info=alice:wrong\n")
    refused = run("schemas", "list", "--profile", "prod", "--config", str(properties))
    assert refused.code == 1
    assert refused.err.startswith("aiokclient: HTTP status 401 in GET")
    # The profile is protected, and this is no terminal.
    assert run("schemas", "delete", "a", "--profile", "prod", "--yes").code == 3
    changed = run("schemas", "register", "a", "-", "--profile", "prod", typed="{}")
    assert changed.code == 2
    assert "is protected" in changed.err

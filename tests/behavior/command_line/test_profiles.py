"""Named clusters, where their secrets come from, and files of kcat."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_process import run_on_terminal, run_process, variables

from aiokclient.testing import BrokerListener, EmbeddedCluster

PASSWORD = "Kx7-pl\"ain\\pass ' %w0rd"
LOGIN = """
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "SCRAM-SHA-256"
sasl_username = "alice"
"""
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    listener = BrokerListener(mechanisms=("PLAIN", "SCRAM-SHA-256"), users={"alice": PASSWORD})
    with EmbeddedCluster(topics={"orders": 1}, listeners={"SASL": listener}) as cluster:
        yield cluster


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file of profiles, which does not exist yet."""
    return tmp_path / "profiles.toml"


@pytest.fixture
def write(path: Path) -> Callable[[str], None]:
    def write(text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)

    return write


@pytest.fixture
def run(
    run_on: Callable[[str], Run], cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return a function that runs a command with the profiles alone, without a variable."""
    run = run_on("")

    def run_without_servers(*words: str, **more: Any) -> Any:
        return run(*words, **more)

    return run_without_servers


def of_cluster(cluster: EmbeddedCluster, more: str = "") -> str:
    return f'[profiles.prod]\nbootstrap_servers = "{cluster.bootstrap_servers_for("SASL")}"\n{more}'


def test_a_list_names_the_default_and_what_is_protected(
    run: Run, write: Callable[[str], None]
) -> None:
    write(
        'default = "b"\n[profiles.a]\nbootstrap_servers = "a:1"\n'
        '[profiles.b]\nbootstrap_servers = "b:1"\nprotected = true\n'
    )
    assert run("profiles", "list").out.splitlines() == [
        "name\tdefault\tprotected\tbootstrap_servers",
        "a\tfalse\tfalse\ta:1",
        "b\ttrue\ttrue\tb:1",
    ]
    assert json.loads(run("profiles", "list", "--json").out)[0] == {
        "name": "a",
        "default": False,
        "protected": False,
        "bootstrap_servers": "a:1",
    }


def test_no_file_is_an_empty_list(run: Run) -> None:
    ended = run("profiles", "list", "--json")
    assert (ended.code, ended.out, ended.err) == (0, "[]\n", "")


def test_secrets_and_unknown_options_are_not_shown(run: Run, write: Callable[[str], None]) -> None:
    write(
        '[profiles.prod]\nbootstrap_servers = "k:1"\nsasl_username = "ops"\n'
        'sasl_password = "hunter-2"\nssl_key_password = { env = "HUNTER" }\n'
        'sasl_jaas_config = "hunter-3"\npasword = "hunter-4"\nretry_backoff_ms = 5\n'
        '[profiles.prod.registry]\nurl = "https://u:hunter-5@r:1/x"\ntoken = "hunter-6"\n'
    )
    ended = run("profiles", "show", "prod", "--json")
    assert json.loads(ended.out) == {
        "name": "prod",
        "protected": False,
        "options": {
            "bootstrap_servers": "k:1",
            "sasl_username": "ops",
            "sasl_password": "***",
            "ssl_key_password": "***",
            "sasl_jaas_config": "***",
            "pasword": "***",
            "retry_backoff_ms": 5,
        },
        "registry": {"url": "https://***@r:1/x", "token": "***"},
    }
    lines = run("profiles", "show", "prod").out.splitlines()
    assert "sasl_password\t***" in lines
    assert "registry.url\thttps://***@r:1/x" in lines


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '# mine\ndefault = "a" # for now\n\n[profiles.a]\nx = 1\n[profiles."b-2"]\n',
            '# mine\ndefault = "b-2" # for now\n\n[profiles.a]\nx = 1\n[profiles."b-2"]\n',
        ),
        (
            "# mine\n[profiles.a]\n[profiles.b-2] # the other\n",
            'default = "b-2"\n# mine\n[profiles.a]\n[profiles.b-2] # the other\n',
        ),
        ("default='b-2'\n[profiles.b-2]\n", 'default="b-2"\n[profiles.b-2]\n'),
    ],
)
def test_the_default_changes_and_the_rest_of_the_file_does_not(
    run: Run, write: Callable[[str], None], path: Path, before: str, after: str
) -> None:
    write(before)
    ended = run("profiles", "use", "b-2")
    assert (ended.code, ended.err) == (0, "")
    assert path.read_text() == after
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.glob(".*")) == []


def test_a_file_that_is_hard_to_change_stays_as_it_is(
    run: Run, write: Callable[[str], None], path: Path
) -> None:
    text = '"default" = "a"\n[profiles.a]\n[profiles.b]\n'
    write(text)
    ended = run("profiles", "use", "b")
    assert ended.code == 2
    assert 'default = "b"' in ended.err
    assert path.read_text() == text


def test_an_unknown_profile_is_wrong_use_that_names_the_others(
    run: Run, write: Callable[[str], None]
) -> None:
    write("[profiles.a]\n")
    for words in (("use", "b"), ("show", "b"), ("check", "b")):
        ended = run("profiles", *words)
        assert ended.code == 2
        assert "Known: a." in ended.err


def test_a_file_that_others_can_read_gets_a_warning(
    run: Run, write: Callable[[str], None], path: Path
) -> None:
    write("[profiles.a]\n")
    path.chmod(0o644)
    ended = run("profiles", "list")
    assert ended.code == 0
    assert f"chmod 600 {path}" in ended.err


def test_a_check_of_a_profile_warns_once(
    run: Run, write: Callable[[str], None], path: Path, cluster: EmbeddedCluster
) -> None:
    write(f'[profiles.a]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n')
    path.chmod(0o644)
    ended = run("profiles", "check", "a")
    assert ended.code == 0
    assert ended.err.count("chmod 600") == 1


def test_a_file_that_is_not_toml_is_wrong_use(run: Run, write: Callable[[str], None]) -> None:
    write("[profiles.a\n")
    ended = run("topics", "list")
    (line,) = ended.err.splitlines()
    assert "TOML" in line
    assert ended.code == 2


@pytest.mark.parametrize("how", ["text", "command", "env", "file", "two variables"])
def test_a_secret_comes_from_where_the_profile_says(
    run: Run,
    write: Callable[[str], None],
    cluster: EmbeddedCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    source = {
        "text": json.dumps(PASSWORD),
        "command": f'{{ command = ["cat", "{secret}"] }}',
        "env": '{ env = "THE_PASSWORD" }',
        "file": f'{{ file = "{secret}" }}',
    }
    line = f"sasl_password = {source[how]}\n" if how in source else ""
    if not line:
        monkeypatch.setenv("AIOKCLIENT_SASL_PASSWORD", PASSWORD)
    write(of_cluster(cluster, LOGIN + line))
    ended = run("profiles", "check", "prod", "--json")
    assert (ended.code, ended.err) == (0, "")
    (checked,) = json.loads(ended.out)
    assert checked["name"] == "prod"
    assert checked["cluster_id"] == cluster.cluster_id
    assert len(checked["brokers"]) == 1
    assert run("topics", "list", "--profile", "prod").out == "name\norders\n"


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ('{ command = ["false"] }', "exit code 1"),
        ('{ command = ["/nowhere/at-all"] }', "/nowhere/at-all"),
        ('{ env = "NOT_SET_AT_ALL" }', "NOT_SET_AT_ALL"),
        ('{ file = "/nowhere/at-all" }', "/nowhere/at-all"),
        ("{ ask = true }", "no terminal"),
        ('{ vault = "x" }', "command, env, file, ask"),
    ],
)
def test_a_secret_that_cannot_be_read_is_wrong_use(
    run: Run, write: Callable[[str], None], cluster: EmbeddedCluster, source: str, hint: str
) -> None:
    write(of_cluster(cluster, f"{LOGIN}sasl_password = {source}\n"))
    ended = run("topics", "list", "--profile", "prod")
    (line,) = ended.err.splitlines()
    assert hint in line
    assert ended.code == 2


def test_a_password_is_typed_on_the_terminal_without_an_echo(
    write: Callable[[str], None], cluster: EmbeddedCluster, path: Path, tmp_path: Path
) -> None:
    write(of_cluster(cluster, f"{LOGIN}sasl_password = {{ ask = true }}\n"))
    environment = variables(tmp_path, AIOKCLIENT_PROFILES=str(path), AIOKCLIENT_PROFILE="prod")
    words = ["topics", "list", "--csv"]
    screen = run_on_terminal(words, environment, {"sasl_password of the profile prod": PASSWORD})
    assert screen.code == 0
    assert "orders" in screen.text
    assert PASSWORD not in screen.text


def test_a_user_without_a_password_is_wrong_use(
    run: Run, write: Callable[[str], None], cluster: EmbeddedCluster
) -> None:
    write(of_cluster(cluster, LOGIN))
    ended = run("topics", "list", "--profile", "prod")
    assert ended.code == 2
    assert "sasl.username is given without sasl.password." in ended.err
    assert "AIOKCLIENT_SASL_PASSWORD" in ended.err


def test_a_file_of_kcat_is_read_as_it_is(
    run: Run, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    path = tmp_path / "kcat.conf"
    path.write_text(
        f"# of kcat\nmetadata.broker.list = {cluster.bootstrap_servers_for('SASL')}\n"
        "security.protocol=sasl_plaintext\nsasl.mechanisms=PLAIN\nsasl.username=alice\n"
        f"sasl.password={PASSWORD}\ndebug=all\ntopic.request.required.acks=-1\n\n"
    )
    ended = run("topics", "list", "--config", str(path))
    assert (ended.code, ended.out, ended.err) == (0, "name\norders\n", "")


def test_what_a_file_of_kcat_asks_for_and_the_client_cannot_do_is_an_error(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "kcat.conf"
    path.write_text("metadata.broker.list=a:1\nenable.ssl.certificate.verification=false\n")
    ended = run("topics", "list", "--config", str(path))
    assert ended.code == 2
    assert "enable.ssl.certificate.verification" in ended.err


def test_a_certificate_of_kcat_is_read_from_its_files(tmp_path: Path) -> None:
    path = tmp_path / "kcat.conf"
    path.write_text(
        "metadata.broker.list=localhost:1\nsecurity.protocol=ssl\n"
        f"ssl.certificate.location={tmp_path / 'no.pem'}\nssl.key.location=/nowhere\n"
    )
    ended = run_process(["topics", "list", "--config", str(path)], variables(tmp_path))
    (line,) = ended.err.splitlines()
    assert f"{tmp_path / 'no.pem'} cannot be read" in line
    assert ended.code == 2
    assert os.listdir(tmp_path) == ["kcat.conf"]

"""The command line does what Kafka's own tools do, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_harness import ToolHost

from aiokclient.cli import main
from aiokclient.testing import BrokerListener, EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., str]


@pytest.fixture(autouse=True)
def _never_say_who_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine, connecting takes more than the second after which a line says so."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 60.0)


@pytest.fixture
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def client_metrics(servers: str, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run our command on the embedded cluster, and return its output."""
    return ours(servers, capsys)


def ours(servers: str, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> str:
        code = main(["client-metrics", "--bootstrap-server", servers, *arguments])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return str(out)

    return run


def theirs(servers: str, host: ToolHost) -> Command:
    def run(*arguments: str) -> str:
        return host.run("kafka-client-metrics", "--bootstrap-server", servers, *arguments).out

    return run


def test_a_subscription_is_created_changed_and_deleted(client_metrics: Command) -> None:
    alter = ("--alter", "--name", "orders")
    assert client_metrics("--list") == ""
    done = client_metrics(
        *alter, "--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=y"
    )
    assert done == "Altered orders.\n"
    assert client_metrics("--describe", "--name", "orders").splitlines() == [
        "orders:",
        "  interval.ms=1000",
        "  match=client_id=y",
        "  metrics=a.,b.",
    ]
    # Options that are not given do not change. An empty text restores the default.
    client_metrics(*alter, "--metrics", "c.", "--metrics", "d.", "--match", "", "--interval", "")
    assert client_metrics("--describe").splitlines()[1:] == [
        "  interval.ms=300000",
        "  match=",
        "  metrics=c.,d.",
    ]
    assert client_metrics("--list") == "orders\n"
    deleted = client_metrics("--delete", "--name", "orders")
    assert deleted == "Deleted orders.\n"
    assert client_metrics("--list") == ""
    assert client_metrics("--describe", "--name", "orders") == "orders does not exist.\n"
    assert client_metrics("--describe", "--name", "orders", "--json") == "[]\n"


def test_json_has_what_the_text_has(client_metrics: Command) -> None:
    alter = ("--alter", "--interval", "1000", "--json")
    assert json.loads(client_metrics(*alter, "--name", "b")) == {"altered": "b"}
    assert json.loads(client_metrics(*alter, "--name", "a")) == {"altered": "a"}
    assert json.loads(client_metrics("--list", "--json")) == ["a", "b"]
    configs = {"interval.ms": "1000", "match": "", "metrics": ""}
    assert json.loads(client_metrics("--describe", "--json")) == [
        {"name": "a", "configs": configs},
        {"name": "b", "configs": configs},
    ]
    assert json.loads(client_metrics("--delete", "--name", "a", "--json")) == {"deleted": "a"}


def test_generated_names_are_random_uuids(client_metrics: Command) -> None:
    generate = ("--alter", "--generate-name", "--metrics", "*", "--json")
    names = {json.loads(client_metrics(*generate))["altered"] for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) == 22 and name[0] != "-" for name in names)
    assert set(client_metrics("--list").split()) == names


def test_what_the_cluster_refuses_ends_with_one(
    servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    alter = ("--alter", "--name", "orders", "--interval", "5")
    assert main(["client-metrics", "--bootstrap-server", servers, *alter]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "interval must be between" in line


def test_the_properties_file_has_the_login(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = BrokerListener(mechanisms=("PLAIN",), users={"alice": "secret"})
    path = tmp_path / "admin.properties"
    with EmbeddedCluster(listeners={"SASL": listener}) as cluster:
        servers = cluster.bootstrap_servers_for("SASL")
        for password, code in (("secret", 0), ("wrong", 1)):
            path.write_text(
                "security.protocol=SASL_PLAINTEXT\n"
                "sasl.mechanism=PLAIN\n"
                "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
                f'required username="alice" password="{password}";\n'
            )
            command = ["client-metrics", "--bootstrap-server", servers, "--list"]
            assert main([*command, "--command-config", str(path)]) == code
    assert "secret" not in "".join(capsys.readouterr())


def test_the_module_runs_as_a_program(servers: str) -> None:
    def run(*arguments: str) -> Any:
        command = [sys.executable, "-m", "aiokclient", "client-metrics", *arguments]
        environment = {**os.environ, "FORCE_COLOR": "1"}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )

    server = ("--bootstrap-server", servers)
    done = run(*server, "--alter", "--name", "orders", "--metrics", "*")
    said = [line for line in done.stderr.splitlines() if ": Connecting to " not in line]
    assert (done.returncode, said) == (0, [])
    described = run(*server, "--describe")
    assert described.stdout.splitlines()[-1] == "  metrics=*"
    assert "\x1b" not in described.stdout
    failed = run(*server, "--delete")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "Traceback" not in failed.stderr


def test_a_terminal_has_styles_and_the_same_text(servers: str, client_metrics: Command) -> None:
    client_metrics("--alter", "--name", "orders", "--interval", "1000")
    command = [sys.executable, "-m", "aiokclient", "client-metrics", "--describe"]
    ours_, terminal = pty.openpty()
    with subprocess.Popen(
        [*command, "--bootstrap-server", servers],
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm"},
        stdout=terminal,
    ) as process:
        os.close(terminal)
        printed = b""
        while True:
            try:
                part = os.read(ours_, 4096)
            except OSError:  # The program has closed its side of the terminal.
                break
            if not part:
                break
            printed += part
    os.close(ours_)
    assert process.returncode == 0
    assert b"\x1b[1m" in printed
    plain = printed.decode().replace("\r\n", "\n")
    for style in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        plain = plain.replace(style, "")
    assert plain == client_metrics("--describe")


@pytest.mark.timeout(600)
def test_kafkas_own_tool_and_ours_see_the_same_state(
    cluster_servers: Any, tool_host: ToolHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each tool performs each action. Then both tools must list and describe the same state."""
    tools = {
        "ours": ours(cluster_servers.bootstrap, capsys),
        "theirs": theirs(cluster_servers.bootstrap, tool_host),
    }

    def both(*arguments: str) -> list[list[str]]:
        return [sorted(tool(*arguments).split("\n")) for tool in tools.values()]

    def names() -> set[str]:
        """Return the names that both tools list."""
        first, second = ({each for each in lines if each} for lines in both("--list"))
        assert first == second
        return first

    def described(*arguments: str) -> list[str]:
        """Return the options that both tools describe."""
        first, second = (
            [line.strip() for line in lines if line.startswith("  ")]
            for lines in both("--describe", *arguments)
        )
        assert first == second
        return first

    others = names()  # Subscriptions of other tests on the same cluster.
    for name, tool in tools.items():
        options = ("--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=x")
        tool("--alter", "--name", name, *options)
        assert names() - others == {name}
        expected = ["interval.ms=1000", "match=client_id=x", "metrics=a.,b."]
        assert described("--name", name) == expected
        tool("--alter", "--name", name, "--metrics", "c.", "--match", "", "--interval", "")
        assert described("--name", name) == ["interval.ms=300000", "match=", "metrics=c."]
        tool("--delete", "--name", name)
        assert names() == others
        assert all("exist" in "".join(lines) for lines in both("--describe", "--name", name))
    generated = [tool("--alter", "--generate-name", "--metrics", "*") for tool in tools.values()]
    made = names() - others
    assert {each.rstrip(".\n").rpartition(" ")[2] for each in generated} == made
    assert described().count("metrics=*") >= 2
    for name in made:
        tools["ours"]("--delete", "--name", name)
    assert names() == others

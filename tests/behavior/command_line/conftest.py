"""The command line in this process, on the embedded cluster and on a real Kafka."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokclient.cli import main


class Ended(NamedTuple):
    """The exit code of a command that has ended, and its output."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(autouse=True)
def _never_say_who_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine, connecting takes more than the second after which a line says so."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 60.0)


@pytest.fixture
def run_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], Run]:
    """Return a function that makes `run` for the servers of a cluster."""

    def make(servers: str) -> Run:
        def run(*words: str, typed: str = "") -> Ended:
            """Type a command, and `typed` on standard input."""
            monkeypatch.setenv("AIOKCLIENT_BOOTSTRAP_SERVERS", servers)
            monkeypatch.setenv("AIOKCLIENT_PROFILES", str(tmp_path / "profiles.toml"))
            monkeypatch.setattr("sys.stdin", io.StringIO(typed))
            # On a loaded machine, a connection may take longer than the time of the notice.
            monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 3600.0)
            capsys.readouterr()
            code = main(words)
            return Ended(code, *capsys.readouterr())

        return run

    return make


@pytest.fixture
def run(cluster_servers: Any, run_on: Callable[[str], Run]) -> Run:
    """Type a command for the embedded cluster, and in another test for a real Kafka."""
    return run_on(cluster_servers.bootstrap)


@pytest.fixture
def run_kafka(kafka: Any, run_on: Callable[[str], Run]) -> Run:
    """Type a command for a real Kafka."""
    return run_on(kafka.bootstrap)


@pytest.fixture
def group() -> str:
    """The id of a group that does not exist."""
    return f"typed-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def login_file(tmp_path: Path) -> Callable[[str, str], str]:
    """Return a function that writes the file for the login of a user, and returns its path."""

    def write(user: str, password: str) -> str:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM} required username="{user}" password="{password}";\n'
        )
        return str(path)

    return write

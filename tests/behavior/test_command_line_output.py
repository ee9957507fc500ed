"""The output of the command line when it is closed, full, or of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokclient.testing import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
LIST = ("client-metrics", "--list")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def run(
    servers: str, redirection: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a shell, with a redirection such as ``>&-``."""
    command = [sys.executable, "-m", "aiokclient", *arguments]
    if arguments[0] == "client-metrics":
        command += ["--bootstrap-server", servers]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    script = f'exec "$@" {redirection}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command],
        capture_output=True,
        timeout=60,
        env=variables,
        check=False,
    )
    # On a loaded machine, connecting may take longer than the second after which a line says so.
    done.stderr = b"".join(
        line for line in done.stderr.splitlines(True) if b": Connecting to " not in line
    )
    return done


def alter(servers: str, name: str) -> None:
    done = run(servers, "", "client-metrics", "--alter", "--name", name, "--interval", "1000")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize("arguments", [LIST, (*LIST, "--json"), ("--version",)])
def test_an_output_that_cannot_be_written_is_one_line(
    servers: str, redirection: str, arguments: tuple[str, ...]
) -> None:
    if redirection == ">/dev/full" and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    alter(servers, "orders")
    done = run(servers, redirection, *arguments)
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("aiokclient: The output cannot be written: ")
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [("--help",), ("client-metrics", "--help")])
def test_a_help_that_cannot_be_written_has_no_traceback(
    servers: str, arguments: tuple[str, ...]
) -> None:
    for redirection in (">&-", ">/dev/full"):
        done = run(servers, redirection, *arguments)
        assert len(done.stderr.splitlines()) <= 1, done.stderr


def test_a_command_without_any_output_ends_with_its_exit_code(servers: str) -> None:
    assert run(servers, ">&- 2>&-", *LIST).returncode == 1
    assert run(servers, "2>&-", *LIST).returncode == 0
    assert run(servers, "2>/dev/full", "client-metrics", "--nothing").returncode == 2


@pytest.mark.parametrize("json", [(), ("--json",)], ids=["text", "json"])
def test_a_name_outside_the_encoding_of_the_output_is_escaped(
    servers: str, json: tuple[str, ...]
) -> None:
    alter(servers, "caf\u00e9")
    done = run(servers, "", *LIST, *json, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    escaped = b"caf\\u00e9" if json else b"caf\\xe9"
    assert escaped in done.stdout


def test_a_name_that_is_not_utf_8_is_refused_in_one_line(servers: str) -> None:
    command = [sys.executable, "-m", "aiokclient", "client-metrics", "--alter"]
    command += ["--bootstrap-server", servers, "--interval", "1000", "--name"]
    done = subprocess.run(
        [*map(os.fsencode, command), b"caf\xe9"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    (line,) = done.stderr.decode().splitlines()
    assert "surrogate" in line
    assert done.returncode in (1, 2)

"""The completion scripts of zsh and fish, in these shells. Those of bash are in test_completion."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_process import command_of, variables

from aiokclient.testing import EmbeddedCluster

IN_FISH = """
function aiokclient; $PYTHON -m aiokclient $argv; end
aiokclient completion fish | source
complete -C $argv[1]
"""
IN_ZSH = """aiokclient() { "$PYTHON" -m aiokclient "$@"; }
autoload -U compinit; compinit -u -D
source <(aiokclient completion zsh); print READ""Y
"""
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        yield cluster


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("aiokclient topics de", ["delete", "describe"]),
        ("aiokclient topics describe o", ["orders"]),
        ("aiokclient configs set topic:orders cleanup.policy=c", ["cleanup.policy=compact"]),
        ("aiokclient topics list --config {folder}/client.", ["{folder}/client.properties"]),
    ],
)
def test_fish_offers_the_words(
    line: str, offered: list[str], cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "client.properties").touch()
    done = subprocess.run(
        ["fish", "--no-config", "-c", IN_FISH, line.format(folder=tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=variables(tmp_path, cluster.bootstrap_servers, PYTHON=command_of([])[0]),
    )
    assert done.stdout.splitlines() == [word.format(folder=tmp_path) for word in offered]


def read_until(terminal: int, wanted: str) -> str:
    """Return what a terminal shows, up to a text. Raises AssertionError if that does not come."""
    shown = ""
    while wanted not in shown:
        assert select.select([terminal], [], [], LIMIT_S)[0], f"{wanted!r} is not in {shown!r}"
        shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("aiokclient topics des", "cribe "),
        ("aiokclient topics describe or", "ders "),
        ("aiokclient configs set topic:orders cleanup.policy=c", "ompact "),
        ("aiokclient topics list --config {folder}/client.", "properties "),
    ],
)
def test_zsh_completes_the_words(
    line: str, rest: str, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "client.properties").touch()
    ours, terminal = pty.openpty()
    environment = variables(tmp_path, cluster.bootstrap_servers, PYTHON=command_of([])[0])
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        # A wide terminal, on which no line is wrapped.
        env={**environment, "TERM": "dumb", "COLUMNS": "400"},
        start_new_session=True,
    )
    os.close(terminal)
    try:
        os.write(ours, IN_ZSH.encode())
        read_until(ours, "READY")
        typed = line.format(folder=tmp_path)
        os.write(ours, f"{typed}\t".encode())
        read_until(ours, rest)
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)

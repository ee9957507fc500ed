"""Tests of the modules that a command imports, which is most of its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from command_process import run_process, variables

from aiokclient.testing import BrokerListener, EmbeddedCluster

NEEDLESS = {
    "_ssl",
    "anyio",
    "base64",
    "dataclasses",
    "difflib",
    "ipaddress",
    "pathlib",
    "rich",
    "typing_extensions",
    "aiokclient.client",
    "aiokclient.consumer",
    "aiokclient.producer",
    "aiokclient.protocol.messages.push_telemetry",
    "aiokclient.telemetry.reporter",
}
"""Modules that a command that lists topics does not need. anyio alone takes as long as asyncio."""
MOST_MODULES = 140
"""The most modules of the library that such a command may import. It imports a few less."""


LISTING = """
import sys
others = set(sys.modules)
import aiokclient.cli as cli
cli.owns_process = True
code = cli.main(["topics", "list"])
print(*sorted(sys.modules.keys() - others))
sys.exit(code)
"""


def test_a_command_that_lists_topics_imports_only_what_it_needs(tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"orders": 3}) as cluster:
        done = subprocess.run(
            [sys.executable, "-c", LISTING],
            capture_output=True,
            text=True,
            timeout=120,
            env=variables(tmp_path, cluster.bootstrap_servers),
        )
    assert done.returncode == 0, done.stderr[-2000:]
    *names, modules = done.stdout.splitlines()
    assert names == ["name", "orders"]
    imported = set(modules.split())
    assert {"asyncio", "aiokclient.admin.topics"} <= imported
    assert imported & NEEDLESS == set()
    assert len([name for name in imported if name.startswith("aiokclient.")]) <= MOST_MODULES


def test_a_command_with_tls_imports_it_before_asyncio(tmp_path: Path) -> None:
    """Otherwise, asyncio would take the interpreter for one without TLS."""
    with EmbeddedCluster(topics={"orders": 3}, listeners={"SSL": BrokerListener(tls=True)}) as tls:
        authority, file = tmp_path / "ca.pem", tmp_path / "client.properties"
        authority.write_text(tls.client_certificate("ops").authority)
        options = {
            "bootstrap.servers": tls.bootstrap_servers_for("SSL"),
            "security.protocol": "SSL",
            "ssl.truststore.location": authority,
            "ssl.truststore.type": "PEM",
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        ended = run_process(["topics", "list", "--config", str(file)], variables(tmp_path))
    assert (ended.code, ended.out) == (0, "name\norders\n"), ended.err

"""The words that shells offer."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_forks import run_fork
from command_process import command_of, run_process, variables

from aiokclient.cli.completion import CACHE_S, find_candidates, split_words
from aiokclient.cli.program import NOUNS
from aiokclient.testing import EmbeddedCluster

IN_BASH = r"""
aiokclient() { "$PYTHON" -m aiokclient "$@"; }
source <(aiokclient completion bash)
COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2))
_aiokclient
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, topics={"orders": 1, "orders-dead": 1, "other": 1}) as cluster:
        yield cluster


def offered(line: str, environment: dict[str, str]) -> list[str]:
    """Return the words that a process offers, which must be silent otherwise."""
    ended = run_fork(["__complete", line], environment)
    assert (ended.code, ended.err) == (0, "")
    return ended.out.splitlines()


# -- fixed words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("aiokclient ", list(NOUNS)),
        ("aiokclient top", ["topics"]),
        ("aiokclient --js", ["--json", "--jsonl"]),
        ("aiokclient --json top", ["topics"]),
        ("aiokclient topics de", ["describe", "delete"]),
        ("aiokclient --timeout 3 topics de", ["describe", "delete"]),
        ("aiokclient topics describe --on", ["--only"]),
        ("aiokclient topics describe --only under", ["under-replicated", "under-min-isr"]),
        ("aiokclient topics describe --only=off", ["--only=offline"]),
        ("aiokclient 'topics' \"describe\" --only off", ["offline"]),
        ("aiokclient topics list --config ", [":files"]),
        ("aiokclient topics list --timeout ", []),
        ("aiokclient topics create new ", []),
        ("aiokclient topics nothing ", []),
        ("aiokclient nothing ", []),
        ("aiokclient completion ", ["bash", "zsh", "fish"]),
        ("aiokclient request DescribeQ", ["DescribeQuorum"]),
        ("aiokclient request Metadata --coordinator gr", ["group:"]),
    ],
)
def test_fixed_words_are_those_of_the_tables(tmp_path: Path, line: str, words: list[str]) -> None:
    assert offered(line, variables(tmp_path)) == words


def test_an_option_that_is_given_is_not_offered_again(tmp_path: Path) -> None:
    environment = variables(tmp_path)
    assert "--json" in offered("aiokclient topics list --", environment)
    assert "--json" not in offered("aiokclient topics list --json --", environment)
    # This one may be repeated.
    assert "--config" in offered("aiokclient topics list --config a --", environment)


def test_profiles_are_offered_unless_a_shell_would_interpret_them(tmp_path: Path) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text('[profiles.prod]\n[profiles.dev]\n[profiles."$(reboot)"]\n[profiles."a b"]\n')
    environment = variables(tmp_path, AIOKCLIENT_PROFILES=str(path))
    for line in ("aiokclient profiles use ", "aiokclient topics list --profile "):
        assert offered(line, environment) == ["prod", "dev"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("a b", ["a", "b"]),
        ("a b ", ["a", "b", ""]),
        ('a \'b c\' "d\\"e" f\\ g', ["a", "b c", 'd"e', "f g"]),
        ("a 'b c", ["a", "b c"]),
        ("a ''", ["a", ""]),
        ("a \\", ["a", ""]),
    ],
)
def test_a_line_is_split_as_a_shell_splits_it(line: str, words: list[str]) -> None:
    assert split_words(line) == words


def test_fixed_words_and_the_cache_need_neither_asyncio_nor_the_client(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    assert offered("aiokclient topics describe ord", environment) == ["orders", "orders-dead"]
    program = """
import sys
from aiokclient.cli.completion import find_candidates
print(find_candidates("aiokclient topics de"), find_candidates("aiokclient topics delete oth"))
assert not {"asyncio", "anyio", "aiokclient.admin"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['describe', 'delete'] ['other']\n"
    # Any number of names may follow each other.
    assert offered("aiokclient topics delete orders --yes oth", environment) == ["other"]


# -- names of the cluster


def test_names_come_from_the_cluster_and_then_from_the_cache(tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"orders": 1}) as cluster:
        environment = variables(tmp_path, cluster.bootstrap_servers)
        assert offered("aiokclient topics delete ", environment) == ["orders"]
    # The cluster has ended, so that only the cache can have the name.
    assert offered("aiokclient topics delete ", environment) == ["orders"]
    (file,) = (tmp_path / "cache" / "aiokclient").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    old = file.stat().st_mtime - CACHE_S - 1
    os.utime(file, (old, old))
    environment["AIOKCLIENT_COMPLETION_TIMEOUT"] = ""
    assert offered("aiokclient topics delete ", environment) == []


def test_another_profile_has_another_cache(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with EmbeddedCluster(topics={"only-here": 1}) as second:
        path = tmp_path / "profiles.toml"
        path.write_text(
            f'[profiles.a]\nbootstrap_servers = "{cluster.bootstrap_servers}"\n'
            f'[profiles.b]\nbootstrap_servers = "{second.bootstrap_servers}"\n'
        )
        environment = variables(tmp_path, AIOKCLIENT_PROFILES=str(path))
        line = "aiokclient --profile {} topics describe o"
        assert "orders" in offered(line.format("a"), environment)
        assert offered(line.format("b"), environment) == ["only-here"]
        servers = second.bootstrap_servers
        assert offered(f"aiokclient -b {servers} topics delete ", environment) == ["only-here"]


def test_brokers_configs_and_their_values_are_offered(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    assert offered("aiokclient request ListGroups --broker ", environment) == ["1", "2"]
    line = "aiokclient topics create new --config "
    assert "retention.ms=" in offered(line, environment)
    assert offered(f"{line}cleanup.po", environment) == ["cleanup.policy="]
    policies = offered(f"{line}cleanup.policy=", environment)
    assert {"cleanup.policy=compact", "cleanup.policy=delete"} <= set(policies)
    assert offered(f"{line}preallocate=t", environment) in ([], ["preallocate=true"])


def test_a_cluster_that_does_not_answer_offers_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        environment = variables(tmp_path, servers, AIOKCLIENT_COMPLETION_TIMEOUT="")
        assert offered("aiokclient topics describe ", environment) == []
    assert offered("aiokclient topics describe ", environment) == []
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "profile",
    [
        'bootstrap_servers = "127.0.0.1:1"\nsasl_username = "a"\nsasl_password = { ask = true }\n',
        'bootstrap_servers = "127.0.0.1:1"\n'
        'sasl_password = { command = ["sh", "-c", "echo x >&2; exit 1"] }\n',
        "no_such_option = 1\n",
    ],
    ids=["asked for", "a failing command", "wrong"],
)
def test_what_is_wrong_with_a_profile_is_not_said(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text(f'default = "a"\n[profiles.a]\n{profile}')
    more = {"AIOKCLIENT_PROFILES": str(path), "AIOKCLIENT_COMPLETION_TIMEOUT": ""}
    assert offered("aiokclient topics describe ", variables(tmp_path, **more)) == []


def test_a_secret_among_the_words_reaches_no_file(tmp_path: Path) -> None:
    environment = variables(tmp_path, "127.0.0.1:1", AIOKCLIENT_COMPLETION_TIMEOUT="")
    assert offered("aiokclient -X sasl.password=hunter-2 topics describe ", environment) == []
    assert not (tmp_path / "cache").exists()


# -- shells


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_accepted_by_their_shells(tmp_path: Path, shell: str) -> None:
    ended = run_process(["completion", shell], variables(tmp_path))
    assert (ended.code, ended.err) == (0, "")
    assert "aiokclient __complete" in ended.out
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=ended.out, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["aiokclient", "topics", "de"], ["describe", "delete"]),
        (["aiokclient", "topics", "describe", "ord"], ["orders", "orders-dead"]),
        (["aiokclient", "request", "Metadata", "--coordinator", "gr"], ["group:"]),
        # bash has split these words at = and :, and replaces only the last part.
        (["aiokclient", "topics", "describe", "--only", "=", "off"], ["offline"]),
        (["aiokclient", "topics", "nothing", ""], [""]),
    ],
)
def test_bash_gets_the_words(
    cluster: EmbeddedCluster, tmp_path: Path, words: list[str], replies: list[str]
) -> None:
    line = " ".join(words).replace(" = ", "=")
    done = subprocess.run(
        ["bash", "-c", IN_BASH, "bash", line, *words],
        capture_output=True,
        text=True,
        env=variables(tmp_path, cluster.bootstrap_servers, PYTHON=command_of([])[0]),
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == replies


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_files_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "client.properties").touch()
    words = ["aiokclient", "topics", "list", "--config", "cli"]
    done = subprocess.run(
        ["bash", "-c", IN_BASH, "bash", " ".join(words), *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables(tmp_path, PYTHON=command_of([])[0]),
    )
    assert done.stdout == "client.properties\n"


def test_candidates_of_an_unknown_noun_are_an_error_that_the_process_hides() -> None:
    with pytest.raises(Exception, match="nothing"):
        find_candidates("aiokclient nothing ")

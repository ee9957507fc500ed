"""The rules for every command: options, output, exit codes, errors, and questions."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_process import command_of, run_on_terminal, run_process, variables

from aiokclient.cli.grammar import Argument, Command, Option, WrongUseError, parse_words
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Run = Callable[..., Any]
HELP = """
import contextlib, io, json, sys
from aiokclient.cli import main
from aiokclient.cli.grammar import options_of
from aiokclient.cli.program import NOUNS, load_commands

def help_of(*words):
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert main([*words, "--help"]) == 0, words
    return written.getvalue()

pages = [["", help_of(), list(NOUNS)]]
for noun in NOUNS:
    commands = load_commands(noun)
    shown = [each for each in commands if not each.is_hidden]
    if commands[0].verb:
        pages.append([noun, help_of(noun), [each.verb for each in shown]])
    for command in commands:
        words = [noun, *([command.verb] if command.verb else [])]
        names = [each.name for each in command.arguments]
        for option in options_of(command):
            names += [] if option.hidden else option.names
        if not command.is_hidden:
            pages.append([" ".join(words), help_of(*words), names])
print(json.dumps({"pages": pages, "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics={"orders": 3, "payments": 1}) as cluster:
        yield cluster


@pytest.fixture
def embedded(cluster: EmbeddedCluster, run_on: Callable[[str], Run]) -> Iterator[Run]:
    """A function that runs a command in this process, on the embedded cluster."""
    yield run_on(cluster.bootstrap_servers)
    cluster.reset()


class Moving(Command):
    """Move to a position."""

    verb = "move"
    arguments = (Argument("NAME", "A name."),)
    options = (Option(("-o", "--to"), "The position.", "PLACE"),)


def without_notice(err: str) -> list[str]:
    """Return the lines without the one that a loaded machine may add after a second."""
    return [line for line in err.splitlines() if "aiokclient: Connecting to " not in line]


# -- words


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "topics", "list"),
        ("topics", "--json", "list"),
        ("topics", "list", "--json"),
        ("--timeout", "20", "topics", "list", "--json", "--timeout=30"),
    ],
)
def test_options_of_all_commands_stand_before_the_noun_or_after_it(
    embedded: Run, words: tuple[str, ...]
) -> None:
    ended = embedded(*words)
    assert (ended.code, ended.err) == (0, "")
    assert [each["name"] for each in json.loads(ended.out)] == ["orders", "payments"]


@pytest.mark.parametrize(
    "words", [("--to", "-1h"), ("--to=-1h",), ("-o", "-1h"), ("-o-1h",)], ids=" ".join
)
def test_a_value_may_begin_with_a_minus(words: tuple[str, ...]) -> None:
    for typed in (["g", *words], [*words, "g"]):
        given = parse_words("groups", Moving, typed)
        assert (given.name, given.to) == ("g", "-1h")


@pytest.mark.parametrize("following", [[], ["--json"], ["-q"], ["--", "g"], ["--help"]])
def test_an_option_without_its_value_is_refused(following: list[str]) -> None:
    with pytest.raises(WrongUseError, match=r"--to|-o"):
        parse_words("groups", Moving, ["g", "--to", *following])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ((), "A command is missing"),
        (("--json",), "A command is missing after --json"),
        (("topic",), "Did you mean topics?"),
        (("topics",), "needs a verb"),
        (("topics", "lst"), "Did you mean list?"),
        (("topics", "create"), "NAME"),
        (("topics", "list", "--nothing"), "--nothing"),
        (("topics", "set-partitions", "orders", "many"), "many"),
        (("topics", "list", "--timeout", "0"), "--timeout"),
        (("topics", "list", "--timeout", "soon"), "soon"),
        (("topics", "list", "--json", "--csv"), "--json"),
        (("topics", "list", "--columns", "color"), "color"),
        (("topics", "list", "--profile", "nowhere"), "nowhere"),
        (("topics", "list", "-X", "retries"), "NAME=VALUE"),
        (("topics", "list", "-X", "retry.backof.ms=1"), "retry.backoff.ms"),
        (("topics", "list", "--config", "/nowhere"), "/nowhere"),
    ],
)
def test_wrong_use_is_one_line_that_says_what_to_do(
    embedded: Run, words: tuple[str, ...], hint: str
) -> None:
    ended = embedded(*words)
    (line,) = ended.err.splitlines()
    assert hint in line
    assert (ended.code, ended.out) == (2, "")


def test_missing_servers_name_the_option_the_variable_and_the_profile(tmp_path: Path) -> None:
    ended = run_process(["topics", "list"], variables(tmp_path))
    (line,) = ended.err.splitlines()
    for way in ("--bootstrap-server", "AIOKCLIENT_BOOTSTRAP_SERVERS", "--profile"):
        assert way in line
    assert (ended.code, ended.out) == (2, "")


# -- options of the client


def test_options_come_from_arguments_before_files_before_the_environment(
    cluster: EmbeddedCluster, embedded: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=of-the-file\n")
    ways: list[tuple[str, tuple[str, ...]]] = [
        ("of-the-variable", ()),
        ("of-the-file", ("--config", str(path))),
        ("of-the-argument", ("--command-config", str(path), "-X", "client.id=of-the-argument")),
    ]
    monkeypatch.setenv("AIOKCLIENT_CLIENT_ID", "of-the-variable")
    for client_id, words in ways:
        cluster.reset()
        assert embedded("topics", "list", *words).code == 0
        assert {each.client_id for each in cluster.requests} == {client_id}


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "sasl_jaas_config", "ssl.key.password", "sasl.password"]
)
def test_a_secret_as_an_argument_is_refused_and_not_shown(
    cluster: EmbeddedCluster, tmp_path: Path, name: str
) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    ended = run_process(["topics", "list", "-v", "-X", f"{name}=hunter-2"], environment)
    assert ended.code == 2
    assert f"-X {name}" in ended.err
    assert "AIOKCLIENT_" in ended.err
    assert "hunter-2" not in ended.out + ended.err


# -- output


def test_each_format_has_the_same_rows(embedded: Run) -> None:
    names = ["orders", "payments"]
    out = embedded("topics", "list").out
    assert out == "name\norders\npayments\n"
    assert [each["name"] for each in json.loads(embedded("topics", "list", "--json").out)] == names
    lines = embedded("topics", "list", "--jsonl").out.splitlines()
    assert [json.loads(each)["name"] for each in lines] == names
    rows = list(csv.DictReader(io.StringIO(embedded("topics", "list", "--csv").out)))
    assert [each["name"] for each in rows] == names
    yaml = embedded("topics", "list", "--yaml").out
    assert re.findall(r"^- name: (\w+)$", yaml, re.MULTILINE) == names
    assert embedded("topics", "list", "-q").out == "orders\npayments\n"
    chosen = embedded("topics", "list", "--columns", "internal,name").out
    assert chosen == "internal\tname\nfalse\torders\nfalse\tpayments\n"


def test_a_terminal_gets_a_table(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    screen = run_on_terminal(["topics", "describe", "orders"], environment)
    assert screen.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", screen.text)
    assert "\t" not in plain
    assert re.search(r"name +topic id +partition count +replication factor +configs", plain)
    assert re.search(r"^ ?orders +\S{22} +3 +1 +-$", plain, re.MULTILINE)


# -- exit codes


def test_exit_codes_of_success_wrong_use_and_unknown_names(embedded: Run) -> None:
    assert embedded("topics", "list").code == 0
    assert embedded("topics", "list", "--no").code == 2
    ended = embedded("topics", "describe", "nothing")
    assert ended.code == 3
    assert ended.err.startswith("aiokclient: nothing: ")
    partly = embedded("topics", "describe", "orders", "nothing")
    assert partly.code == 3
    assert "orders" in partly.out


def test_a_refusal_has_exit_code_1(embedded: Run) -> None:
    ended = embedded("topics", "create", "orders")
    (line,) = ended.err.splitlines()
    assert "orders" in line
    assert ended.code == 1


def test_a_change_with_unknown_outcome_has_exit_code_4(
    cluster: EmbeddedCluster, embedded: Run
) -> None:
    with cluster.delay(ApiKey.CREATE_TOPICS, 60.0, when="after"):
        ended = embedded("topics", "create", "late", "--timeout", "0.5")
    assert ended.code == 4, ended.err


def test_no_permission_has_exit_code_1(run_on: Callable[[str], Run]) -> None:
    configs = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with EmbeddedCluster(topics={"orders": 1}, configs=configs) as cluster:
        run = run_on(cluster.bootstrap_servers)
        ended = run("topics", "create", "a")
        (line,) = ended.err.splitlines()
        assert "uthoriz" in line
        assert ended.code == 1
        cluster.allow("User:ANONYMOUS", "DESCRIBE", topic="orders")
        described = run("topics", "describe", "orders", "--json")
        assert described.code == 0, described.err


@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_an_output_that_cannot_be_written_has_exit_code_1(
    cluster: EmbeddedCluster, tmp_path: Path, redirection: str
) -> None:
    if redirection == ">/dev/full" and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    environment = variables(tmp_path, cluster.bootstrap_servers)
    ended = run_process(["topics", "list"], environment, redirection=redirection)
    (line,) = without_notice(ended.err)
    assert line.startswith("aiokclient: The output cannot be written: ")
    assert ended.code == 1


def test_records_that_were_sent_are_counted_if_the_output_cannot_be_written(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    words = ["produce", "payments", "--tee"]
    ended = run_process(words, environment, typed="a\nb\n", redirection=">&-")
    counted, line = without_notice(ended.err)
    assert counted == "aiokclient: 2 of 2 records were acknowledged."
    assert line.startswith("aiokclient: The output cannot be written: ")
    assert ended.code == 1


@pytest.mark.parametrize("words", [("topics", "list"), ("--help",), ("topics", "list", "--help")])
def test_a_closed_pipe_has_exit_code_141_without_a_word(
    cluster: EmbeddedCluster, tmp_path: Path, words: tuple[str, ...]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run(
            command_of(words),
            stdout=pipe,
            stderr=subprocess.PIPE,
            env=variables(tmp_path, cluster.bootstrap_servers),
            timeout=60,
        )
    assert (done.returncode, without_notice(done.stderr.decode())) == (141, [])


# -- brokers that do not answer


def test_a_silent_broker_is_named_on_stderr_and_an_interrupt_ends_the_command(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            command_of(["topics", "list"]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=variables(tmp_path, servers),
        )
        with process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith(f"aiokclient: Connecting to {servers}. {servers}: ")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_the_servers_of_a_file_are_named_if_they_are_the_ones_that_are_tried(
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
    file.write_text(f"bootstrap.servers={servers}\n")
    words = ["topics", "list", "--timeout", "5", "--config", str(file)]
    ended = run_process(words, variables(tmp_path, "127.0.0.1:1"))
    assert ended.err.startswith(f"aiokclient: Connecting to {servers}.")


def test_a_wrong_port_is_named_on_stderr_before_the_time_is_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
    ended = run_process(["topics", "list", "--timeout", "5"], variables(tmp_path, servers))
    first, last = ended.err.splitlines()
    assert first.startswith(f"aiokclient: Connecting to {servers}. {servers}: unreachable ")
    assert first.endswith(" s ago: Connection refused.")
    assert servers in last
    assert (ended.code, ended.out) == (1, "")


# -- questions


def test_a_terminal_is_asked_before_topics_are_deleted(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    environment = variables(tmp_path, cluster.bootstrap_servers)
    cluster.create_topic("old", 1)
    words = ["topics", "delete", "old"]
    kept = run_on_terminal(words, environment, {"Delete the topic old": "n"})
    assert kept.code == 2
    assert "Nothing was changed." in kept.text
    assert "old" in cluster.topics
    gone = run_on_terminal(words, environment, {"Delete the topic old": "y"})
    assert gone.code == 0
    assert "old" not in cluster.topics


def test_without_a_terminal_deleting_needs_yes(cluster: EmbeddedCluster, embedded: Run) -> None:
    cluster.create_topic("old", 1)
    refused = embedded("topics", "delete", "old", typed="y\n")
    assert refused.code == 2
    assert "--yes" in refused.err
    assert "old" in cluster.topics
    assert embedded("topics", "delete", "old", "--dry-run").code == 0
    assert "old" in cluster.topics
    assert embedded("topics", "delete", "old", "--yes").code == 0
    assert "old" not in cluster.topics


def test_a_protected_profile_asks_for_its_name_before_a_change(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "aiokclient").mkdir()
    path = tmp_path / "aiokclient" / "profiles.toml"
    path.write_text(
        f'default = "prod"\n[profiles.prod]\nprotected = true\n'
        f'bootstrap_servers = "{cluster.bootstrap_servers}"\n'
    )
    path.chmod(0o600)
    environment = variables(tmp_path)
    assert run_process(["topics", "list"], environment).code == 0
    words = ["topics", "create", "guarded"]
    refused = run_process(words, environment)
    assert refused.code == 2
    assert "The profile prod is protected." in refused.err
    assert run_on_terminal(words, environment, {"Type its name": "dev"}).code == 2
    assert "guarded" not in cluster.topics
    assert run_process([*words, "--dry-run"], environment).code == 0
    assert run_on_terminal(words, environment, {"Type its name": "prod"}).code == 0
    assert "guarded" in cluster.topics
    assert run_process([*words, "--yes"], environment).code == 1  # It exists.


# -- help


def test_help_names_everything_in_ascii_without_importing_the_client(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP],
        capture_output=True,
        text=True,
        timeout=60,
        env=variables(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for words, page, names in found["pages"]:
        assert page.isascii(), words
        assert "SUPPRESS" not in page, words
        assert page.startswith("usage: aiokclient"), words
        assert max(map(len, page.splitlines())) <= 120, words
        missing = [name for name in names if name not in page]
        assert missing == [], words
    heavy = {"asyncio", "anyio", "ssl", "rich", "aiokclient.admin", "aiokclient.client"}
    assert heavy.isdisjoint(found["modules"])


@pytest.mark.parametrize(
    "words", [("--version",), ("topics", "lst"), ("topics", "list", "--nothing"), ("nothing",)]
)
def test_what_needs_no_cluster_does_not_import_asyncio(words: tuple[str, ...]) -> None:
    program = f"""
import sys
from aiokclient.cli import main
main({list(words)!r})
assert not {{"asyncio", "anyio", "aiokclient.admin"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

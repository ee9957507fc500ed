"""Each error of the command line is one line on standard error, and an exit code."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import aiokclient
from aiokclient.cli import main

SERVER = ("--bootstrap-server", "127.0.0.1:1")
LIST = ("client-metrics", *SERVER, "--list")


@pytest.fixture(autouse=True)
def _never_say_who_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine, connecting takes more than the second after which a line says so."""
    monkeypatch.setattr("aiokclient.cli.connection.NOTICE_S", 60.0)


@pytest.fixture
def impatient(tmp_path: Path) -> str:
    """A properties file with a short timeout."""
    path = tmp_path / "admin.properties"
    path.write_text("default.api.timeout.ms=200\nrequest.timeout.ms=100\n")
    return str(path)


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the only line on standard error, and check that standard output is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("aiokclient: ")
    return str(line)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("client-metrics", *SERVER), "needs a verb: list, describe, set, delete"),
        (("client-metrics", *SERVER, "--list", "--describe"), "exactly one action"),
        (("client-metrics", "--list"), "--bootstrap-server"),
        ((*LIST, "--name", "a"), "--list does not have the option --name"),
        (("client-metrics", *SERVER, "--delete"), "--delete needs --name"),
        (("client-metrics", *SERVER, "--delete", "--generate-name"), "--generate-name"),
        (("client-metrics", *SERVER, "--describe", "--interval", "1000"), "--interval"),
        (("client-metrics", *SERVER, "--alter", "--interval", "1000"), "--name"),
        (("client-metrics", *SERVER, "--alter", "--name", "a"), "at least one of --metrics"),
        (
            ("client-metrics", *SERVER, "--alter", "--name", "a", "--generate-name"),
            "either --name or --generate-name",
        ),
        (("client-metrics", *SERVER, "--alter", "--name", "a", "--interval", "x"), "--interval"),
        ((*LIST, "--nonsense"), "--nonsense"),
        ((*LIST, "--command-config", "/nowhere.properties"), "/nowhere.properties"),
        (("client-metrics", "--list", "--bootstrap-server", "nothing"), "nothing"),
        (("nonsense",), "nonsense"),
        ((), "ommand"),
    ],
)
def test_wrong_use_ends_with_two(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in failure(capsys)


def test_all_mistakes_in_a_properties_file_are_in_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "admin.properties"
    path.write_text("request.timeout.ms=soon\nretry.backoff.ms=later\n")
    assert main([*LIST, "--command-config", str(path)]) == 2
    line = failure(capsys)
    assert "request.timeout.ms" in line
    assert "retry.backoff.ms" in line


def test_a_cluster_that_cannot_be_reached_ends_with_one(
    impatient: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*LIST, "--command-config", impatient]) == 1
    assert "127.0.0.1:1" in failure(capsys)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("aiokclient.cli.connection.call_admin", fail)
    with pytest.raises(ZeroDivisionError):
        main(LIST)


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aiokclient.cli.connection.call_admin", interrupt)
    assert main(LIST) == 130


@pytest.mark.parametrize("arguments", [("--help",), ("client-metrics", "--help")])
def test_help_is_plain_text_on_standard_output(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.isascii()
    assert "\x1b" not in out
    assert "client-metrics" in out


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for words, names in (
        (("set",), "metrics interval match generate-name dry-run yes json bootstrap-server"),
        (("--list",), "alter describe delete list name json command-config"),
    ):
        assert main(["client-metrics", *words, "--help"]) == 0
        out = capsys.readouterr().out
        assert [name for name in names.split() if f"--{name}" not in out] == []


def test_the_version_is_that_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"aiokclient {aiokclient.__version__}\n"


def test_help_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from aiokclient.cli import main\n"
        "sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "client-metrics" in done.stdout


def test_the_program_that_is_installed_is_the_command_line() -> None:
    project = Path(__file__).resolve().parents[3] / "pyproject.toml"
    scripts = tomllib.loads(project.read_text())["project"]["scripts"]
    module, _, name = scripts["aiokclient"].partition(":")
    assert getattr(import_module(module), name) is main

"""Named clusters in a file, and where their secrets come from.

    default = "local"
    [profiles.local]
    bootstrap_servers = "localhost:9092"
    [profiles.prod]
    bootstrap_servers = "kafka:9093"
    security_protocol = "SASL_SSL"
    sasl_mechanism = "SCRAM-SHA-512"
    sasl_username = "ops"
    sasl_password = { command = ["pass", "kafka/prod"] }
    protected = true

A secret is a text, or a table with one of `command` (its standard output), `env` (a variable),
`file`, and `ask = true` (typed on the terminal). The commands that change the cluster of a profile
that is `protected` ask for its name.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokclient.cli.grammar import WrongUseError
from aiokclient.cli.output import write_error

FILE_VARIABLE = "AIOKCLIENT_PROFILES"
NAME_VARIABLE = "AIOKCLIENT_PROFILE"
SOURCES = ("command", "env", "file", "ask")
OWN = ("protected", "registry")
"""The entries of a profile that are no options of a client."""
COMMAND_TIMEOUT_S = 60.0


class Profile(NamedTuple):
    """A named cluster: the options of its clients under Kafka's names."""

    name: str = ""
    properties: Mapping[str, str] = {}
    is_protected: bool = False
    registry: Mapping[str, Any] = {}


def profiles_path() -> str:
    """Return the path of the file of profiles."""
    if path := os.environ.get(FILE_VARIABLE):
        return path
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(folder, "aiokclient", "profiles.toml")


def read_document(*, warns: bool = True) -> dict[str, Any]:
    """Return the file of profiles, or an empty one. Raises WrongUseError for one that is wrong.

    If others can read the file, a line says so, unless `warns` is false.
    """
    import tomllib

    path = profiles_path()
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            document = tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise WrongUseError(f"The profiles {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise WrongUseError(f"The profiles {path} are not valid TOML: {error}.") from error
    if warns and os.name == "posix" and mode & 0o077:
        write_error(f"The profiles {path} can be read by others. Run: chmod 600 {path}")
    profiles = document.get("profiles", {})
    if not isinstance(profiles, dict) or not all(isinstance(p, dict) for p in profiles.values()):
        raise WrongUseError(f"{path}: profiles must be tables, such as [profiles.local].")
    return document


def read_profile(name: str | None) -> Profile:
    """Return a profile with its secrets. Without a name, it is the default one, if there is one."""
    wanted = name or os.environ.get(NAME_VARIABLE)
    if not wanted and not os.path.exists(profiles_path()):
        return Profile()
    document = read_document()
    wanted = wanted or document.get("default")
    if not wanted:
        return Profile()
    profiles = document.get("profiles", {})
    if wanted not in profiles:
        known = ", ".join(profiles) or "none"
        raise WrongUseError(f"There is no profile {wanted} in {profiles_path()}. Known: {known}.")
    table = profiles[wanted]
    properties = {
        option.replace("_", "."): _text_of(wanted, option, value)
        for option, value in table.items()
        if option not in OWN
    }
    return Profile(
        wanted, properties, bool(table.get("protected")), dict(table.get("registry", {}))
    )


def _text_of(profile: str, option: str, value: Any) -> str:
    if isinstance(value, dict):
        return read_secret(f"{option} of the profile {profile}", value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def read_secret(subject: str, source: Mapping[str, Any]) -> str:
    """Return a secret from a command, the environment, a file, or the terminal.

    `subject` says what it is, for messages. Raises WrongUseError, never with the secret.
    """
    if len(source) != 1 or next(iter(source)) not in SOURCES:
        raise WrongUseError(
            f"{subject} needs one of {', '.join(SOURCES)}, not {', '.join(source)}."
        )
    ((how, value),) = source.items()
    if how == "command":
        return _run_command(subject, value)
    if how == "env":
        if str(value) not in os.environ:
            raise WrongUseError(f"{subject}: the environment variable {value} is not set.")
        return os.environ[str(value)]
    if how == "file":
        # Without a secret, a command need not import pathlib, which takes a twentieth of its start.
        from pathlib import Path

        try:
            return Path(str(value)).expanduser().read_text().rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise WrongUseError(f"{subject}: the file {value} cannot be read: {reason}.") from None
    return ask_secret(subject)


def _run_command(subject: str, command: Any) -> str:
    import subprocess

    words = [command] if isinstance(command, str) else [str(word) for word in command]
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, timeout=COMMAND_TIMEOUT_S, check=True, text=True
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "strerror", None)
        if isinstance(error, subprocess.CalledProcessError):
            reason = f"it ended with the exit code {error.returncode}"
        elif isinstance(error, subprocess.TimeoutExpired):
            reason = f"it did not end within {COMMAND_TIMEOUT_S:g} s"
        text = f"{subject}: the command {words[0]} failed: {reason or 'wrong output'}."
        raise WrongUseError(text) from None
    return done.stdout.rstrip("\r\n")


def ask_secret(subject: str) -> str:
    """Ask for a secret on the terminal. Raises WrongUseError if there is none."""
    import getpass

    if sys.stdin is None or not sys.stdin.isatty():
        raise WrongUseError(f"{subject} must be typed, and there is no terminal.")
    return getpass.getpass(f"{subject}: ", stream=sys.stderr)

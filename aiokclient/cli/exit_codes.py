"""Exit codes, and errors as one line."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, runtime_checkable

from aiokclient.cli.output import OutputError
from aiokclient.errors import ConfigError, KafkaError


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    SUCCESS = 0
    FAILED = 1
    """The cluster refused the request, or could not be reached."""
    WRONG_USE = 2
    """The arguments or the properties file are wrong. Nothing was sent to a broker."""
    INTERRUPTED = 130
    """The user interrupted the command. Shells use the same code."""


class WrongUseError(Exception):
    """An error raised if arguments do not belong together, or if one is missing."""


@runtime_checkable
class ParserError(Protocol):
    """An error of the argument parser.

    This is a protocol, because some versions of typer have their own copy of click's class.
    """

    exit_code: int

    def format_message(self) -> str: ...


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code for an error that `one_line` knows."""
    wrong_use = isinstance(error, ConfigError | WrongUseError | ParserError)
    return ExitCode.WRONG_USE if wrong_use else ExitCode.FAILED


def one_line(error: Exception) -> str | None:
    """Return the text of an error for the user, without line breaks; None for a bug."""
    if isinstance(error, ParserError):
        text = error.format_message()
    elif isinstance(error, KafkaError | WrongUseError):
        text = str(error)
    elif isinstance(error, OSError | OutputError):
        # Only the output can fail with an OSError: files and brokers have errors of the library.
        reason = getattr(error, "strerror", None) or str(error)
        text = f"The output cannot be written: {reason}."
    else:
        return None
    return " ".join(text.split())

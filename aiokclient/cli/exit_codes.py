"""Exit codes, and errors as one line."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum

from aiokclient.cli.grammar import NAME, WrongUseError


class NotFoundError(Exception):
    """An error raised, or kept for an item, if a named thing does not exist."""


class OutputError(Exception):
    """An error raised if standard output cannot be written.

    `is_pipe` is whether the reason is that its reader has ended.
    """

    def __init__(self, message: str, is_pipe: bool = False) -> None:
        super().__init__(message)
        self.is_pipe = is_pipe


class ExitCode(IntEnum):
    """The exit codes of all commands."""

    SUCCESS = 0
    FAILED = 1
    """The cluster refused the request or was not reached, or some items failed."""
    WRONG_USE = 2
    """The arguments, the profile, or the properties file are wrong. Nothing was sent."""
    NOT_FOUND = 3
    """A named thing does not exist."""
    UNKNOWN = 4
    """The time ran out, and it is unknown whether the cluster did what was asked."""
    INTERRUPTED = 130
    """The user interrupted the command. Shells use the same code."""
    CLOSED_PIPE = 141
    """The reader of standard output has ended. Shells use the same code."""


ABSENT = (
    "UnknownTopicOrPartitionError",
    "UnknownTopicIdError",
    "GroupIdNotFoundError",
    "TransactionalIdNotFoundError",
    "BrokerIdNotRegisteredError",
    "ControllerIdNotRegisteredError",
    "VoterNotFoundError",
    "LogDirNotFoundError",
    "DelegationTokenNotFoundError",
    "ResourceNotFoundError",
    "UnknownMemberIdError",
    "SchemaNotFoundError",
)
"""The errors for a thing that does not exist, by the name of their class."""


def is_library_error(error: BaseException, *names: str) -> bool:
    """Return whether an error is of a class of the library that has one of the names.

    The library is not imported for that: without it, there is no such error.
    """
    errors = sys.modules.get("aiokclient.errors")
    return errors is not None and isinstance(error, tuple(getattr(errors, n) for n in names))


def exit_code_of(error: BaseException, changes: bool = False) -> ExitCode:
    """Return the exit code for an error that `one_line` knows.

    `changes` says whether the command may have changed something.
    """
    if isinstance(error, WrongUseError) or is_library_error(error, "ConfigError"):
        return ExitCode.WRONG_USE
    if isinstance(error, OutputError):
        return ExitCode.CLOSED_PIPE if error.is_pipe else ExitCode.FAILED
    if isinstance(error, NotFoundError) or is_library_error(error, *ABSENT):
        return ExitCode.NOT_FOUND
    if is_library_error(error, "BootstrapError"):
        return ExitCode.FAILED
    if changes and is_library_error(error, "KafkaTimeoutError"):
        return ExitCode.UNKNOWN
    if changes and getattr(error, "may_be_done", False):
        return ExitCode.UNKNOWN
    return ExitCode.FAILED


def exit_code_of_all(errors: Iterable[BaseException], changes: bool = False) -> ExitCode:
    """Return the exit code for the errors of several items, of which others may have succeeded."""
    codes = {exit_code_of(error, changes) for error in errors}
    if not codes:
        return ExitCode.SUCCESS
    return codes.pop() if len(codes) == 1 else ExitCode.FAILED


WORDS = {
    "check=False": "--no-check",
    "Admin.delete_groups()": f"'{NAME} groups delete'",
    "Admin.remove_members()": f"'{NAME} groups remove-members'",
    "Admin.find_hanging_transactions returns it, and Admin.abort_transaction ends it.": (
        f"'{NAME} transactions find-hanging' shows it, and '{NAME} transactions abort' ends it."
    ),
    "Admin.update_features": f"'{NAME} features upgrade'",
    "Admin.unregister_broker": f"'{NAME} brokers unregister'",
    "an Admin with bootstrap_servers": "--bootstrap-server",
    "Admin.describe_configs()": f"'{NAME} configs describe'",
    # Its cause is in the log, not in the line that is shown.
    " The last error of an attempt, if any, is the cause of this error.": "",
}
"""Words of the library about its calls, and those for the commands that do the same."""


def in_words_of_commands(text: str) -> str:
    """Return advice of the library, in the words of the command line."""
    for words, command in WORDS.items():
        text = text.replace(words, command)
    return text


def one_line(error: BaseException) -> str | None:
    """Return the text of an error for the user, without line breaks; None for a bug."""
    if isinstance(error, WrongUseError | NotFoundError) or is_library_error(error, "KafkaError"):
        text = str(error)
        if page := getattr(error, "help", ""):
            text = text.removesuffix(f" help: {page}")  # The next command is a shorter way.
        text = in_words_of_commands(text)
    elif isinstance(error, OSError | OutputError):
        # Only the output can fail with an OSError: files and brokers have errors of the library.
        reason = getattr(error, "strerror", None) or str(error)
        text = f"The output cannot be written: {reason}."
    else:
        return None
    return " ".join(text.split())

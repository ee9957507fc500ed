"""Questions before a command changes something."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from aiokclient.cli.grammar import WrongUseError

if TYPE_CHECKING:
    import argparse


def confirm(given: argparse.Namespace, question: str) -> None:
    """Ask whether to go on, unless --yes or --dry-run was given.

    `question` says what will be lost, such as "Delete the topics a and b?". Raises WrongUseError
    if the user does not agree, or if there is no terminal to ask on.
    """
    if given.yes or getattr(given, "dry_run", False):
        return
    if not is_interactive():
        raise WrongUseError(f"{question} Without a terminal, this needs --yes.")
    given.is_asked = True
    if read_answer(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
        raise WrongUseError("Nothing was changed.")
    given.is_asked = False


def confirm_profile(given: argparse.Namespace, name: str) -> None:
    """Ask for the name of a protected profile, unless --yes or --dry-run was given.

    Raises WrongUseError if another name was typed, or if there is no terminal to ask on.
    """
    if getattr(given, "yes", False) or getattr(given, "dry_run", False):
        return
    if not is_interactive():
        raise WrongUseError(
            f"The profile {name} is protected. A command that changes its cluster needs a terminal"
            " or --yes."
        )
    if read_answer(f"The profile {name} is protected. Type its name to go on: ").strip() != name:
        raise WrongUseError("Nothing was changed.")


def is_interactive() -> bool:
    """Return whether there is a terminal to ask on."""
    streams = (sys.stdin, sys.stderr)
    return all(each is not None and each.isatty() for each in streams)


def read_answer(question: str) -> str:
    """Ask on standard error, because standard output has the result, and return the answer."""
    import signal

    # asyncio's handler would only cancel the task that waits for this line, which never ends then.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, before)

"""The list of nouns, and running one command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from aiokclient import __version__
from aiokclient.cli.exit_codes import ExitCode, OutputError, exit_code_of, one_line
from aiokclient.cli.grammar import (
    HELP,
    NAME,
    Command,
    Words,
    WrongUseError,
    find_noun,
    find_verb,
    make_parser,
    parse_words,
)
from aiokclient.cli.output import discard_output, write_error, write_text

if TYPE_CHECKING:
    import argparse

NOUNS = {
    "topics": "List, describe, create, change, trim, and delete topics.",
    "groups": "List, describe, reset, and delete groups, their offsets, and their members.",
    "offsets": "List the offsets of partitions: their ends, or those of a time.",
    "configs": "List, describe, change, and compare the configs of topics, brokers, and others.",
    "acls": "List, add, and remove ACLs.",
    "quotas": "List, set, and remove the quotas of users, client ids, and IP addresses.",
    "users": "List, set, and delete the SCRAM credentials of users.",
    "tokens": "List, create, renew, and expire delegation tokens.",
    "features": "Describe features, and change their levels.",
    "quorum": "Describe the metadata quorum, and change its voters.",
    "brokers": "List brokers and their versions, and take brokers out of a cluster.",
    "log-dirs": "Describe the log directories of brokers, move replicas, and cordon directories.",
    "reassign": "Plan and start moves of replicas to other brokers, and follow them.",
    "elect": "Elect the leaders of partitions.",
    "transactions": "List, describe, and end transactions.",
    "client-metrics": "Manage subscriptions to the metrics of clients.",
    "cluster": "Describe the cluster.",
    "produce": "Send records from lines, JSON, or whole files.",
    "consume": "Read records as lines, JSON, or in a format of your own.",
    "dead-letters": "List, show, and put back records whose handler has failed.",
    "schemas": "List, show, register, check, and delete schemas of a registry.",
    "perf": "Measure rates and latencies of producing and consuming.",
    "request": "Send any request of the protocol.",
    "profiles": "List, show, choose, and check named clusters.",
    "completion": "Print the completion script of a shell.",
    "doctor": "Look for faults of a cluster.",
}
"""The nouns, each with a line of help."""
FOLDERS = {
    "produce": "records",
    "consume": "records",
    "dead-letters": "records",
    "perf": "records",
    "acls": "security",
    "quotas": "security",
    "users": "security",
    "tokens": "security",
}
"""The folders of the nouns whose module is not in `nouns`."""


def run_words(words: Sequence[str]) -> int:
    """Run the command that was typed, and return its exit code.

    An error is one line on standard error.
    """
    command: type[Command] | None = None
    given: argparse.Namespace | None = None
    try:
        _refuse_surrogates(words)
        typed = find_noun(words)
        if typed.noun is None:
            return _run_without_noun(typed.others)
        commands = load_commands(typed.noun)
        typed = find_verb(typed, commands)
        command = _find_command(typed, commands)
        if command is None:
            return _show_verbs(typed, commands)
        if any(word in HELP for word in _before_dashes(typed.others)):
            write_text(make_parser(typed.noun or "", command).format_help())
            return ExitCode.SUCCESS
        given = parse_words(typed.noun or "", command, typed.others)
        _log_to_stderr(getattr(given, "verbose", False))
        return command().run(given)
    except Exception as error:
        text = one_line(error)
        if text is None:
            raise
        changes = command is not None and (command.changes or command.destroys)
        code = exit_code_of(error, changes and not getattr(given, "dry_run", False))
        if isinstance(error, OSError | OutputError):
            discard_output()
        if code != ExitCode.CLOSED_PIPE:  # The reader has had enough, which is no error.
            write_error(text)
        return code


def _refuse_surrogates(words: Sequence[str]) -> None:
    """Raise WrongUseError for a word with bytes that are not UTF-8. Kafka's texts are UTF-8."""
    for word in words:
        if any("\ud800" <= character <= "\udfff" for character in word):
            raise WrongUseError(f"{word!r} is not UTF-8, but has surrogates for its bytes.")


def load_commands(noun: str) -> Sequence[type[Command]]:
    """Import the commands of a noun. Raises WrongUseError if there is no such noun."""
    if noun not in NOUNS:
        raise WrongUseError(_unknown("command", noun, NOUNS))
    folder = FOLDERS.get(noun, "nouns")
    module = import_module(f"aiokclient.cli.{folder}.{noun.replace('-', '_')}")
    commands: Sequence[type[Command]] = module.COMMANDS
    return commands


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _find_command(typed: Words, commands: Sequence[type[Command]]) -> type[Command] | None:
    """Return the command of the verb, or None without a verb. Raises WrongUseError."""
    if typed.verb is None and commands[0].verb:
        return None
    for command in commands:
        if command.verb == (typed.verb or ""):
            return command
    verbs = [each.verb for each in commands if not each.is_hidden]
    raise WrongUseError(_unknown(f"verb of {typed.noun}", typed.verb or "", verbs))


def _unknown(subject: str, word: str, known: Sequence[str] | dict[str, str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return f"There is no {subject} {word!r}. {hint}There are {', '.join(known)}."


def _run_without_noun(words: Sequence[str]) -> int:
    if "--version" in words:
        write_text(f"{NAME} {__version__}\n")
        return ExitCode.SUCCESS
    if any(word in HELP for word in words):
        write_text(_help())
        return ExitCode.SUCCESS
    if words:
        raise WrongUseError(f"A command is missing after {words[0]}. Try '{NAME} --help'.")
    raise WrongUseError(f"A command is missing. Try '{NAME} --help'.")


def _help() -> str:
    width = max(map(len, NOUNS))
    lines = [f"  {noun:{width}}  {summary}" for noun, summary in NOUNS.items()]
    return "\n".join(
        [
            f"usage: {NAME} NOUN VERB [ARGUMENTS] [OPTIONS]",
            "",
            "Commands for Apache Kafka.",
            "",
            *lines,
            "",
            f"'{NAME} NOUN --help' lists the verbs, and '{NAME} NOUN VERB --help' the options.",
            "",
            "exit codes: 0 done; 1 the cluster refused or was not reached, or some items failed;",
            "2 wrong use, nothing was sent; 3 a named thing does not exist; 4 timed out with",
            "unknown outcome; 130 interrupted; 141 the reader of the pipe ended",
            "",
        ]
    )


def _show_verbs(typed: Words, commands: Sequence[type[Command]]) -> int:
    """Write the verbs of a noun if help was asked for. Otherwise raise WrongUseError."""
    shown = [each for each in commands if not each.is_hidden]
    if not any(word in HELP for word in typed.others):
        verbs = ", ".join(each.verb for each in shown)
        raise WrongUseError(f"{NAME} {typed.noun} needs a verb: {verbs}.")
    width = max(len(each.verb) for each in shown)
    lines = [f"  {each.verb:{width}}  {_summary(each)}" for each in shown]
    start = [f"usage: {NAME} {typed.noun} VERB [ARGUMENTS] [OPTIONS]", "", NOUNS[typed.noun or ""]]
    end = [f"'{NAME} {typed.noun} VERB --help' lists the arguments and the options of a verb."]
    write_text("\n".join([*start, "", *lines, "", *end, ""]))
    return ExitCode.SUCCESS


def _summary(command: type[Command]) -> str:
    """Return the first paragraph of a command's help in one line."""
    return " ".join((command.__doc__ or "").partition("\n\n")[0].split())


def _log_to_stderr(is_verbose: bool) -> None:
    import logging

    log = logging.getLogger(NAME)
    # On a terminal, the log shows what the command waits for. For a script, standard error must
    # have only the error. Without any handler, Python would write warnings to it.
    shown = sys.stderr is not None and (is_verbose or sys.stderr.isatty())
    log.addHandler(logging.StreamHandler() if shown else logging.NullHandler())
    if is_verbose:
        log.setLevel(logging.INFO)

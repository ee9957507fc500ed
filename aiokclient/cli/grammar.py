"""Commands as tables, and the parsing of their arguments.

A command is a class: its docstring is its help, and its attributes are the table of its arguments
and options. Only the commands of the noun that was typed are imported, and argparse builds a
parser for one of them. The options of all commands may stand before the noun, after the verb, or
between them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    import argparse

    from aiokclient import Admin
    from aiokclient.cli.output import Result

NAME = "aiokclient"
HELP = ("-h", "--help")


class WrongUseError(Exception):
    """An error raised if arguments are wrong, do not belong together, or if one is missing."""


class Option(NamedTuple):
    """An option of a command. Without `metavar` it is a flag.

    `names` has the short name first and the long one last. `type` is a class that is called with
    the text, and raises `argparse.ArgumentTypeError` or ValueError for a wrong one. An option that
    is `repeated` has a list as its value. `completes` is what a shell offers for the value:
    "topics", "groups", "configs", "brokers", "files", or words separated by spaces. An option that
    is `implied` may stand without a value, and then has this one: the word after it is its value
    only if `type` accepts it.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    type: type = str
    default: Any = None
    repeated: bool = False
    choices: tuple[str, ...] = ()
    completes: str = ""
    hidden: bool = False
    implied: str = ""


class Argument(NamedTuple):
    """A positional argument of a command.

    `repeats` is "" for exactly one, "?" for one or none, "*" for any number, and "+" for at least
    one. If it is "*" or "+", the word `-` stands for the lines of standard input, unless the
    argument is for files.
    """

    name: str
    help: str
    repeats: str = ""
    type: type = str
    completes: str = ""
    are_files: bool = False


COMMON = (
    Option(
        ("-b", "--bootstrap-server"),
        "Brokers to connect to first. They name all others.",
        "HOST:PORT[,...]",
    ),
    Option(
        ("--config", "--command-config"),
        "A Java properties file with options of the client, such as those for TLS and logins.",
        "FILE",
        repeated=True,
        completes="files",
    ),
    Option(
        ("-X",),
        "An option of the client, by its name here or in Kafka. Secrets belong in a file, the "
        "environment, or a profile.",
        "NAME=VALUE",
        repeated=True,
    ),
    Option(("--profile",), "The profile that names the cluster.", "NAME", completes="profiles"),
    Option(("--timeout",), "Seconds that each request of the command may take.", "S", type=float),
    Option(("-v", "--verbose"), "Write the log of the library to standard error."),
)
"""The options that every command has."""
CONTROLLERS = Option(
    ("--bootstrap-controller",),
    "Controllers to connect to, instead of brokers (KIP-919).",
    "HOST:PORT[,...]",
)
OUTPUT = (
    Option(("--json",), "Print the result as one JSON document."),
    Option(("--jsonl",), "Print a line of JSON for each item."),
    Option(("--yaml",), "Print the result as YAML."),
    Option(("--csv",), "Print the rows as CSV."),
    Option(("--columns",), "Print these columns only.", "NAME[,...]"),
    Option(("-q", "--quiet"), "Print the names only."),
)
"""The options of commands that print a result."""
DRY_RUN = Option(("--dry-run",), "Print what would be changed, and change nothing.")
NO_CHECK = Option(("--no-check",), "Send the values as given, without a check.")
YES = Option(("-y", "--yes"), "Do not ask whether to go on.")
WATCH = Option(
    ("--watch",),
    "Show the result again every S seconds (2 without a number), until Ctrl-C.",
    "[S]",
    type=float,
    implied="2",
)


def value_error(text: str) -> Exception:
    """Return the error that the type of an option or an argument raises for a wrong value."""
    from argparse import ArgumentTypeError

    return ArgumentTypeError(text)


class Command:
    """The base of all commands. `given` has the values of the arguments and options by name.

    `destroys` is for commands that lose data: they ask on a terminal, and need `--yes` without one.
    """

    verb: ClassVar[str] = ""
    """The word after the noun. A noun with one command alone has none."""
    arguments: ClassVar[tuple[Argument, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    prints_result: ClassVar[bool] = True
    """Whether the command has the options of the output, such as --json."""
    connects: ClassVar[bool] = True
    """Whether the command has the options for connecting to a cluster."""
    accepts_controllers: ClassVar[bool] = False
    watches: ClassVar[bool] = False
    """Whether the command has --watch, which shows its result again and again."""
    changes: ClassVar[bool] = False
    """Whether the command changes the cluster, and so has --dry-run."""
    destroys: ClassVar[bool] = False
    is_hidden: ClassVar[bool] = False
    former_verbs: ClassVar[tuple[str, ...]] = ()
    """The options that took the place of the verb in an earlier release, such as --list."""

    def run(self, given: argparse.Namespace) -> int:
        """Run the command, and return its exit code."""
        raise NotImplementedError


class AdminCommand(Command):
    """The base of the commands that ask an admin client, and print one result."""

    asks_brokers: ClassVar[bool] = False
    """Whether the command sends requests to single brokers, with the client in `given.client`."""

    def run(self, given: argparse.Namespace) -> int:
        """Run the command with a connected admin client, print its result, and return the code."""
        from aiokclient.cli.connection import call_admin
        from aiokclient.cli.output import write_result

        return write_result(call_admin(self, given), given)

    async def ask(self, admin: Admin, given: argparse.Namespace) -> Result:
        """Return the result of the command."""
        raise NotImplementedError


class Words(NamedTuple):
    """The words that were typed: the noun and the verb, and all others in their order."""

    noun: str | None
    verb: str | None
    others: list[str]


def find_noun(words: Sequence[str]) -> Words:
    """Return the noun, and all other words. Options of all commands may stand before the noun."""
    skipped = 0
    for index, word in enumerate(words):
        if skipped:
            skipped -= 1
        elif word == "-" or not word.startswith("-"):
            return Words(word, None, [*words[:index], *words[index + 1 :]])
        elif (option := BEFORE.get(word)) is not None and option.metavar:
            skipped = 1
    return Words(None, None, list(words))


def find_verb(words: Words, commands: Sequence[type[Command]]) -> Words:
    """Return the words with the verb taken out, if the commands have verbs.

    The verb is "" for a command in the form of an earlier release.
    """
    if not commands[0].verb:
        return words
    former = {option for each in commands for option in each.former_verbs}
    if not former.isdisjoint(words.others):
        return words._replace(verb="")
    verb, _, others = find_noun(words.others)
    return Words(words.noun, verb, others)


BEFORE = {name: each for each in (*COMMON, CONTROLLERS, *OUTPUT) for name in each.names}
"""The options that may stand before the noun, by name."""


def options_of(command: type[Command]) -> tuple[Option, ...]:
    """Return the options of a command, those of all commands last.

    An option of the command replaces one of the others that has the same name.
    """
    parts: list[Option] = list(command.options)
    parts += [DRY_RUN] if command.changes else []
    parts += [YES] if command.changes or command.destroys else []
    parts += [WATCH] if command.watches else []
    parts += OUTPUT if command.prints_result else []
    parts += COMMON if command.connects else COMMON[-1:]
    parts += [CONTROLLERS] if command.accepts_controllers else []
    taken: set[str] = set()
    kept = []
    for each in parts:
        names = tuple(name for name in each.names if name not in taken)
        if names:
            taken.update(names)
            kept.append(each._replace(names=names))
    return tuple(kept)


def make_parser(noun: str, command: type[Command]) -> argparse.ArgumentParser:
    """Return the parser of one command, whose errors are raised as WrongUseError."""
    # Completion reads the tables without it. Its import takes half as long as a bare interpreter.
    import argparse

    class Parser(argparse.ArgumentParser):
        """A parser whose errors are raised."""

        def error(self, message: str) -> Any:
            raise WrongUseError(f"{message}. Try '{self.prog} --help'.")

    class Formatter(argparse.RawDescriptionHelpFormatter):
        """A formatter that does not import shutil for the width of a terminal."""

        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=_columns() - 2)

    summary, _, more = (command.__doc__ or "").partition("\n\n")
    parser = Parser(
        prog=" ".join(filter(None, (NAME, noun, command.verb))),
        description=" ".join(summary.split()),
        epilog=_epilog(more),
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    for argument in command.arguments:
        parser.add_argument(
            argument.name.lower().replace("-", "_"),
            metavar=argument.name,
            help=argument.help,
            type=_type_of(argument),
            nargs=argument.repeats or None,
        )
    common = parser.add_argument_group("options of all commands")
    shared = {name for each in (*COMMON, *OUTPUT, CONTROLLERS) for name in each.names}
    for option in options_of(command):
        group = common if shared.issuperset(option.names) else parser
        _add_option(group, option)
    return parser


def _type_of(argument: Argument) -> Callable[[str], Any]:
    """Return the type of an argument, which leaves the word for standard input as it is."""
    if argument.repeats not in ("*", "+"):
        return argument.type

    def convert(text: str) -> Any:
        return text if text == "-" else argument.type(text)

    convert.__name__ = argument.type.__name__  # argparse names it in the error for a wrong value.
    return convert


def _columns() -> int:
    """Return the width of the terminal, or 80 if the output is none."""
    import os

    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _add_option(group: Any, option: Option) -> None:
    from argparse import SUPPRESS

    named: dict[str, Any] = {"dest": dest_of(option)}
    named["help"] = SUPPRESS if option.hidden else _help_of(option).replace("%", "%%")
    if option.metavar is None:
        named |= {"action": "store_true"}
    else:
        named |= {"metavar": option.metavar, "type": option.type, "default": option.default}
        if option.choices:
            named["choices"] = option.choices
        if option.repeated:
            named |= {"action": "append", "default": []}
    group.add_argument(*option.names, **named)


def _help_of(option: Option) -> str:
    """Return the help of an option, with the choices that its text does not name."""
    if all(each in option.help for each in option.choices):
        return option.help
    return f"{option.help.removesuffix('.')}: {', '.join(option.choices)}."


def dest_of(option: Option) -> str:
    """Return the name of the attribute that has the value of the option."""
    long = [name for name in option.names if name.startswith("--")]
    return (long or option.names)[0].lstrip("-").replace("-", "_")


def _epilog(more: str) -> str:
    """Return the rest of a docstring without its indentation."""
    lines = more.rstrip().splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def parse_words(noun: str, command: type[Command], words: Sequence[str]) -> argparse.Namespace:
    """Return the values of the arguments and options. Raises WrongUseError."""
    joined = list(_joined(words, {n: each for each in options_of(command) for n in each.names}))
    given = make_parser(noun, command).parse_intermixed_args(joined)
    for argument in command.arguments:
        dest = argument.name.lower().replace("-", "_")
        if argument.repeats in ("*", "+"):
            typed = getattr(given, dest)
            if not argument.are_files:
                typed = _with_lines(typed, argument)
            if argument.repeats == "+" and not typed:
                raise WrongUseError(f"{NAME} {noun} {command.verb} needs {argument.name}.")
            setattr(given, dest, typed)
    return given


def _joined(words: Sequence[str], options: Mapping[str, Option]) -> Iterator[str]:
    """Yield the words. An option and its value are one word, because the value may begin with `-`.

    argparse takes a word that begins with a minus for an option, even if an option before it needs
    a value.
    """
    rest = iter(range(len(words)))
    for index in rest:
        word = words[index]
        if word == "--":
            yield from words[index:]
            return
        option = options.get(word)
        following = words[index + 1] if index + 1 < len(words) else None
        takes = option is not None and option.metavar is not None
        if option is not None and option.implied:
            is_value = following is not None and _is_accepted(option, following)
            yield f"{option.names[-1]}={following if is_value else option.implied}"
            if is_value:
                next(rest)
        elif takes and following is not None and following.startswith("-") and len(following) > 1:
            if following in options or following in (*HELP, "--"):
                raise WrongUseError(f"{word} needs a value.")
            assert option is not None
            long = [name for name in option.names if name.startswith("--")]
            yield f"{long[0]}={following}" if long else f"{word}{following}"
            next(rest)
        else:
            yield word


def _is_accepted(option: Option, word: str) -> bool:
    from argparse import ArgumentTypeError

    try:
        option.type(word)
    except (ValueError, ArgumentTypeError):
        return False
    return True


def _with_lines(typed: Sequence[Any], argument: Argument) -> list[Any]:
    """Return the arguments with the lines of standard input instead of the word `-`.

    Raises WrongUseError for a line that is no such argument.
    """
    from argparse import ArgumentTypeError

    if "-" not in typed:
        return list(typed)
    try:
        lines = [argument.type(line.strip()) for line in sys.stdin if line.strip()]
    except (ArgumentTypeError, ValueError) as error:
        raise WrongUseError(f"{argument.name} in standard input: {error}.") from None
    return [part for each in typed for part in (lines if each == "-" else [each])]

"""Completion of words in a shell: `aiokclient __complete LINE`.

The scripts of the shells (`aiokclient completion bash`) pass the line up to the cursor, and get one
word on each line. Nouns, verbs, and options come from the tables of the commands. Names of topics
and the like come from the cluster of the profile, within `LIMIT_S`, and from a cache for
`CACHE_S`. If anything is wrong, nothing is offered, and nothing is written to the terminal.

A name that a shell would interpret is not offered, because anybody may have chosen it: a group
`$(reboot)` must not come into a command line.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokclient.cli.grammar import (
    BEFORE,
    HELP,
    Argument,
    Command,
    Option,
    dest_of,
    find_noun,
    find_verb,
    options_of,
)

if TYPE_CHECKING:
    from aiokclient import Admin

LIMIT_S = 0.3
"""Seconds within which the cluster must answer, unless the environment has another limit."""
LIMIT_VARIABLE = "AIOKCLIENT_COMPLETION_TIMEOUT"
CACHE_S = 60.0
"""Seconds for which names are offered again without asking the cluster."""
PATHS = ":files"
"""The word that makes a shell offer the names of files."""
NAMES = ("topics", "groups", "brokers")
CONFIGS = ("configs", "topic-configs")
RESOURCES = {"topic": "topics", "broker": "brokers", "logger": "brokers", "group": "groups"}
"""The types of resources whose names can be offered, with where these come from."""
VALUES = {
    "cleanup.policy": "compact delete",
    "compression.type": "gzip lz4 producer snappy uncompressed zstd",
    "message.timestamp.type": "CreateTime LogAppendTime",
}
"""The values that brokers accept, for configs of which they do not tell them."""
_SAFE = set("._-:/@%+=,~")


class Typed(NamedTuple):
    """The words before the one that is being typed."""

    positionals: list[str]
    values: Mapping[str, list[str]]
    """The values of options, by the name of the attribute that has them."""
    used: set[tuple[str, ...]]
    """The names of the options that are given."""
    pending: Option | None = None
    """The option whose value is being typed."""
    is_after_dashes: bool = False


def print_candidates(arguments: Sequence[str]) -> int:
    """Print the words that complete a line, and return the exit code, which is always 0."""
    # Not even a program that a profile runs for a password may read from the terminal or write
    # to it, and so it is in a session without one.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 2)
    with contextlib.suppress(OSError, AttributeError):
        os.setsid()
    try:
        words = find_candidates(arguments[0] if arguments else "")
        sys.stdout.write("".join(f"{each}\n" for each in words))
        sys.stdout.flush()
    except Exception:  # A shell has no place for an error, and its user will type on.
        return 0
    return 0


def find_candidates(line: str) -> list[str]:
    """Return the words that may stand at the end of a line instead of its last word."""
    from aiokclient.cli.program import NOUNS, load_commands

    *before, word = split_words(line)[1:] or [""]
    found = find_noun(before)
    if found.noun is None:
        typed = read_typed(before, BEFORE)
        if typed.pending is not None:
            return complete_value(typed.pending, word, typed)
        if word.startswith("-"):
            return beginning_with(word, [*BEFORE, *HELP, "--version"])
        return beginning_with(word, NOUNS)
    commands = load_commands(found.noun)
    found = find_verb(found, commands)
    if found.verb is None and commands[0].verb:
        typed = read_typed(found.others, BEFORE)
        if typed.pending is not None:
            return complete_value(typed.pending, word, typed)
        verbs = [each.verb for each in commands if not each.is_hidden]
        return beginning_with(word, [*BEFORE, *HELP] if word.startswith("-") else verbs)
    for command in commands:
        if command.verb == (found.verb or ""):
            return complete_argument(command, found.others, word)
    return []


def complete_argument(command: type[Command], before: Sequence[str], word: str) -> list[str]:
    """Return the words that complete an argument or an option of a command."""
    options = {name: each for each in options_of(command) for name in each.names}
    typed = read_typed(before, options)
    if typed.pending is not None:
        return complete_value(typed.pending, word, typed)
    if word.startswith("-") and not typed.is_after_dashes:
        name, equals, value = word.partition("=")
        option = options.get(name)
        if equals and option is not None and option.metavar is not None:
            return [f"{name}={each}" for each in complete_value(option, value, typed)]
        free = [
            name
            for name, each in options.items()
            if not each.hidden and (each.repeated or each.names not in typed.used)
        ]
        return beginning_with(word, [*free, *HELP])
    index = len(typed.positionals)
    arguments = command.arguments
    if index < len(arguments):
        return complete_value(arguments[index], word, typed)
    if arguments and arguments[-1].repeats in ("*", "+"):
        return complete_value(arguments[-1], word, typed)
    return []


def read_typed(words: Sequence[str], options: Mapping[str, Option]) -> Typed:
    """Return the arguments and the options among the words before the cursor."""
    positionals: list[str] = []
    values: dict[str, list[str]] = {}
    used: set[tuple[str, ...]] = set()
    rest = iter(words)
    for word in rest:
        if word == "--":
            return Typed([*positionals, *rest], values, used, is_after_dashes=True)
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None:
            if word == "-" or not word.startswith("-"):
                positionals.append(word)
            continue
        used.add(option.names)
        if option.metavar is not None:
            following = value if equals else next(rest, None)
            if following is None:
                return Typed(positionals, values, used, option)
            values.setdefault(dest_of(option), []).append(following)
    return Typed(positionals, values, used)


def complete_value(part: Option | Argument, word: str, typed: Typed) -> list[str]:
    """Return the words that complete the value of an option, or an argument."""
    shape = (part.metavar if isinstance(part, Option) else part.name) or ""
    head = ""
    if shape.endswith(",...]"):
        head, comma, _ = word.rpartition(",")
        head += comma
    tail = word[len(head) :]
    choices = part.choices if isinstance(part, Option) else ()
    if choices:
        known: Iterable[str] = choices
    elif part.completes in ("files", "profiles", "apis"):
        known = find_local(part.completes)
    elif part.completes in NAMES:
        known = find_names(part.completes, typed)
    elif part.completes == "resources":
        known = complete_resource(tail, typed)
    elif part.completes in CONFIGS:
        known = complete_config(part.completes, tail, "=" in shape, typed)
    else:
        known = part.completes.split()
    if part.completes == "files":
        return list(known)
    return [f"{head}{each}" for each in beginning_with(tail, known)]


def find_local(what: str) -> Iterable[str]:
    """Return words that need no cluster."""
    if what == "profiles":
        from aiokclient.cli.profiles import read_document

        return list(read_document().get("profiles", {}))
    if what == "apis":
        from aiokclient.protocol import ApiKey

        return [each.api_name for each in ApiKey]
    return [PATHS]


def complete_resource(word: str, typed: Typed) -> Iterable[str]:
    """Return resources, such as topic:orders, or their types as long as none is typed."""
    resource_type, colon, _ = word.partition(":")
    if not colon:
        return [f"{each}:" for each in (*RESOURCES, "client-metrics")]
    if resource_type not in RESOURCES:
        return []
    return [f"{resource_type}:{name}" for name in find_names(RESOURCES[resource_type], typed)]


def complete_config(what: str, word: str, with_value: bool, typed: Typed) -> Iterable[str]:
    """Return the names of configs, or the values of one whose name is typed."""
    resource_type = typed.positionals[0].partition(":")[0] if typed.positionals else ""
    if what == "topic-configs" or resource_type not in RESOURCES:
        resource_type = "topic"
    known: dict[str, list[str]] = {}
    for line in find_names(f"{resource_type}-configs", typed):
        name, _, value = line.partition("=")
        known.setdefault(name, []).append(value)
    name, equals, _ = word.partition("=")
    if not with_value:
        return known
    if not equals:
        return [f"{each}=" for each in known]
    values = [each for each in known.get(name, []) if each]
    return [f"{name}={each}" for each in dict.fromkeys([*values, *VALUES.get(name, "").split()])]


def beginning_with(start: str, words: Iterable[str]) -> list[str]:
    """Return the words that begin with what is typed, without those that a shell interprets."""
    return [each for each in dict.fromkeys(words) if each.startswith(start) and is_safe(each)]


def is_safe(word: str) -> bool:
    """Return whether a shell takes a word as it is."""
    return all(each.isalnum() or each in _SAFE for each in word)


def split_words(line: str) -> list[str]:
    """Return the words of a line as a shell splits them. The last one may be empty."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    rest = iter(line)
    for each in rest:
        if quote:
            if each == quote:
                quote = ""
                continue
            is_escape = each == "\\" and quote == '"'
            word = f"{word or ''}{next(rest, '') if is_escape else each}"
        elif each in "'\"":
            quote, word = each, word or ""
        elif each == "\\":
            word = f"{word or ''}{next(rest, '')}"
        elif not each.isspace():
            word = f"{word or ''}{each}"
        elif word is not None:
            words.append(word)
            word = None
    return [*words, word or ""]


# -- what only the cluster knows


def find_names(what: str, typed: Typed) -> list[str]:
    """Return names from the cache, or else from the cluster, which are then in the cache."""
    path = cache_path(what, typed)
    names = read_cache(path)
    if names is None:
        names = ask_cluster(what, typed)
        with contextlib.suppress(OSError):  # Without a cache, completion is only slower.
            write_cache(path, names)
    return names


def cache_path(what: str, typed: Typed) -> str:
    """Return the path of the file that has the names of one cluster.

    The name of the file follows from all that may lead to another cluster.
    """
    from zlib import crc32

    from aiokclient.cli.profiles import NAME_VARIABLE, profiles_path

    profile = (typed.values.get("profile") or [os.environ.get(NAME_VARIABLE, "")])[-1]
    try:
        changed = os.stat(profiles_path()).st_mtime_ns
    except OSError:
        changed = 0
    given = {name: typed.values.get(name, []) for name in ("bootstrap_server", "config", "X")}
    servers = os.environ.get("AIOKCLIENT_BOOTSTRAP_SERVERS")
    key = repr((profile, changed, given, servers)).encode("utf-8", "surrogatepass")
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Two sums, because one of 32 bits would make two clusters the same now and then.
    sums = f"{crc32(key):08x}{crc32(key[::-1]):08x}"
    plain = "".join(each for each in profile if each.isalnum())[:40]
    return os.path.join(folder, "aiokclient", f"{plain or 'cluster'}-{sums}-{what}")


def read_cache(path: str) -> list[str] | None:
    """Return the names in a file of the cache, or None if there is none, or if it is old."""
    try:
        with open(path, encoding="utf-8") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            return file.read().splitlines() if 0 <= age < CACHE_S else None
    except (OSError, ValueError):
        return None


def write_cache(path: str, names: Sequence[str]) -> None:
    """Replace a file of the cache at once. Only its owner can read it."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write("".join(f"{each}\n" for each in names))
    os.replace(temporary, path)


def ask_cluster(what: str, typed: Typed) -> list[str]:
    """Return names from the cluster. If it does not answer in time, end the process."""
    import argparse
    import signal

    from aiokclient.cli.connection import make_client
    from aiokclient.cli.event_loop import import_asyncio

    given = argparse.Namespace(bootstrap_controller=None, timeout=None)
    files = [*typed.values.get("config", []), *typed.values.get("command_config", [])]
    given.config = [each for each in files if "=" not in each]  # The others are configs of topics.
    given.X = typed.values.get("X", [])
    for name in ("bootstrap_server", "profile"):
        values = typed.values.get(name)
        setattr(given, name, values[-1] if values else None)

    import_asyncio(given)
    import asyncio

    from aiokclient import Admin

    async def ask() -> list[str]:
        async with make_client(Admin, Command(), given, close_timeout_ms="0") as admin:
            return [each for each in await read_names(admin, what) if is_safe(each)]

    # Resolving a name may block a thread, and the command of a password the process. The alarm
    # ends all of it.
    signal.signal(signal.SIGALRM, end_process)
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get(LIMIT_VARIABLE) or LIMIT_S))
    found = asyncio.run(ask())
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found


def end_process(number: int, frame: Any) -> None:
    """End the process with nothing to offer, as the handler of a signal."""
    os._exit(0)


async def read_names(admin: Admin, what: str) -> list[str]:
    """Return the topics, the groups, the brokers, or the configs with their present values."""
    if what == "topics":
        return sorted(await admin.list_topics(internal=True))
    if what == "groups":
        return sorted(await admin.list_groups())
    brokers = [str(each.node_id) for each in (await admin.describe_cluster()).brokers]
    if what == "brokers":
        return brokers
    from aiokclient import ConfigResource
    from aiokclient.admin import ConfigType

    if what == "topic-configs":
        resource = ConfigResource.topic(min(await admin.list_topics(internal=True)))
    elif what == "group-configs":
        resource = ConfigResource.group("-")
    else:
        resource = ConfigResource.broker(int(brokers[0]))
    entries = (await admin.describe_configs([resource])).raise_for_errors()[resource]
    found = []
    for each in entries.values():
        values = ["true", "false"] if each.type is ConfigType.BOOLEAN else [each.value or ""]
        found += [f"{each.name}={value}" for value in values if not each.read_only]
    return sorted(found)

"""The options of a client, from the arguments, the environment, and a profile.

Arguments win over the environment, and the environment wins over the profile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar

from aiokclient.cli.asking import confirm_profile
from aiokclient.cli.event_loop import import_asyncio
from aiokclient.cli.exit_codes import one_line
from aiokclient.cli.grammar import AdminCommand, Command, WrongUseError
from aiokclient.cli.librdkafka import LOGIN, is_secret, read_kcat_file, translate_names
from aiokclient.cli.output import Result, redraw_result, write_error
from aiokclient.cli.profiles import Profile, read_profile

if TYPE_CHECKING:
    import argparse

    from aiokclient import Admin, Client, Consumer, Producer, ShareConsumer

    AnyClient: TypeAlias = (
        Admin | Client | Producer[Any, Any] | Consumer[Any, Any] | ShareConsumer[Any, Any]
    )

    C = TypeVar("C", bound=AnyClient)

NOTICE_S = 1.0
"""Seconds without a connection after which a line says which brokers are tried."""
LATE_S = 0.5
"""Seconds by which a timer is late only if the machine is too busy to tell who is slow."""
PREFIX = "AIOKCLIENT_"
"""The prefix of environment variables that are options of a client."""
SERVERS = "bootstrap.servers"
CONTROLLERS = "bootstrap.controllers"


def call_admin(command: AdminCommand, given: argparse.Namespace) -> Result:
    """Connect an admin client, and return the result of the command."""
    if (interval := getattr(given, "watch", None)) is not None and not interval > 0:
        raise WrongUseError("--watch needs a number of seconds above 0.")
    import_asyncio(given)
    import asyncio

    from aiokclient import Admin

    admin_class = Admin
    given.is_connected, given.done = False, []
    try:
        return asyncio.run(_call_admin(admin_class, command, given))
    except KeyboardInterrupt:
        if (command.changes or command.destroys) and not getattr(given, "dry_run", False):
            write_error(_interruption_text(given))
        raise


def _interruption_text(given: argparse.Namespace) -> str:
    """Return what an interrupted command has changed.

    Commands add what is done to `given.done`. One that leaves nothing half done says in
    `given.left` what it leaves.
    """
    if not given.is_connected or getattr(given, "is_asked", False):
        return "Interrupted. Nothing was changed."
    if (left := getattr(given, "left", None)) is not None:
        return f"Interrupted. {left}"
    done = f" Done until then: {', '.join(given.done)}." if given.done else ""
    return f"Interrupted.{done} What was sent may still be done: look before you repeat it."


async def _call_admin(
    admin_class: type[Admin], command: AdminCommand, given: argparse.Namespace
) -> Result:
    parent: contextlib.AbstractAsyncContextManager[Any] = contextlib.nullcontext()
    if command.asks_brokers:
        from aiokclient import Client

        parent = given.client = make_client(Client, command, given)
        admin = admin_class(client=given.client)
        notice = Notice(given.client, given)
    else:
        admin = make_client(admin_class, command, given)
        notice = Notice(admin, given)
    try:
        async with parent, admin:
            notice.cancel()
            given.is_connected = True
            if getattr(given, "watch", None) is not None:
                await _watch_result(command, admin, given)
            return await command.ask(admin, given)
    finally:
        notice.cancel()


async def _watch_result(command: AdminCommand, admin: Admin, given: argparse.Namespace) -> NoReturn:
    """Show the result of a command again and again, until the user interrupts it."""
    import asyncio

    from aiokclient.errors import KafkaError

    result: Result | None = None
    while True:
        try:
            result = await command.ask(admin, given)
        except KafkaError as error:
            # The brokers may be what is watched. They are asked until they answer again.
            if result is None or not error.retriable:
                raise
            write_error(one_line(error) or repr(error))
        else:
            redraw_result(result, given)
        await asyncio.sleep(given.watch)


class Notice:
    """A line about the servers that a client does not reach within a second, unless cancelled.

    It tells what each server is waited for, or what failed last. It is not written while the
    client has a connection, or has not begun to connect because the machine is busy.
    """

    def __init__(
        self,
        client: AnyClient,
        given: argparse.Namespace,
    ) -> None:
        self._client, self._given = client, given
        self._start_timer()

    def cancel(self) -> None:
        """Write nothing any more."""
        self._timer.cancel()

    def _start_timer(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + NOTICE_S
        self._timer = self._loop.call_at(self._due, self._on_expired)

    def _on_expired(self) -> None:
        health = self._client.health()
        states = health.brokers
        is_late = self._loop.time() - self._due > LATE_S
        if is_late or not states or "connected" in states.values():
            self._start_timer()
            return
        lines = [f"Connecting to {servers_of(self._given)}."]
        lines += [
            f"{health.addresses.get(key, key)}: {text}."
            for key, text in states.items()
            if text != "not connected"
        ]
        write_error(" ".join(lines))


def servers_of(given: argparse.Namespace) -> str:
    """Return the servers of the client that `make_client` has made, for a message."""
    return getattr(given, "servers", None) or "the servers"


def make_client(
    client_class: type[C],
    command: Command,
    given: argparse.Namespace,
    arguments: tuple[Any, ...] = (),
    fixed: Mapping[str, Any] | None = None,
    **options: Any,
) -> C:
    """Return a client that is not started yet.

    `options` are those that the command needs. They count less than what the user gives. `fixed`
    are options that count more than it, such as those that arguments of the command stand for.
    Raises ConfigError or WrongUseError.
    """
    profile = read_profile(given.profile)
    typed = typed_properties(client_class, given)
    sources = translate_names(
        [
            {dotted(name): value for name, value in options.items()},
            without_others(profile.properties, typed),
            without_others(environment_of(client_class), typed),
            *map(read_kcat_file, given.config),
            typed,
        ]
    )
    refuse_no_servers(sources)
    merged = merge_sources(sources)
    given.servers = merged.get(CONTROLLERS) or merged.get(SERVERS)
    if command.changes or command.destroys:
        refuse_protected(profile, given)
    # A command ends too soon to push metrics.
    make: Any = client_class.from_properties
    made: C = make(merged, *arguments, enable_metrics_push=False, **(fixed or {}))
    return made


def merge_sources(sources: Sequence[Mapping[str, Any] | str]) -> dict[str, Any]:
    """Return the options of all sources, the last value of each. Raises ConfigError for a file."""
    from aiokclient.config.properties import read_properties

    merged: dict[str, Any] = {}
    for source in sources:
        merged.update(read_properties(source) if isinstance(source, str) else source)
    return merged


def without_others(source: Mapping[str, str], typed: Mapping[str, str]) -> Mapping[str, str]:
    """Return a source without the brokers if controllers were typed, and the other way around.

    A client has either of them, and arguments count more than what is configured.
    """
    others = {SERVERS: CONTROLLERS, CONTROLLERS: SERVERS}
    return {name: value for name, value in source.items() if others.get(name) not in typed}


def dotted(name: str) -> str:
    """Return the name of an option in Kafka's form."""
    return name.replace("_", ".")


def environment_of(client_class: type[C]) -> dict[str, str]:
    """Return the options of a client that environment variables have. Empty ones do not count."""
    names = set(client_class.config_type.declarations)
    names.update(name.replace(".", "_") for name in LOGIN)
    found = {}
    for name, value in os.environ.items():
        option = name.removeprefix(PREFIX).lower()
        if value and name.startswith(PREFIX) and option in names:
            found[dotted(option)] = value
    return found


def typed_properties(client_class: type[C], given: argparse.Namespace) -> dict[str, str]:
    """Return the options of a client that the arguments have. Raises WrongUseError for a secret."""
    declarations = client_class.config_type.declarations
    found = {}
    for text in given.X:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise WrongUseError(f"-X needs NAME=VALUE, such as request.timeout.ms=5000: {text!r}.")
        declaration = declarations.get(name.replace(".", "_"))
        if is_secret(name) or (declaration is not None and declaration.secret):
            variable = f"{PREFIX}{name.replace('.', '_').upper()}"
            raise WrongUseError(
                f"-X {name}: A secret is no argument, because others can see it. Give it by "
                f"--config, by the environment variable {variable}, or in a profile."
            )
        found[dotted(name)] = value
    if given.timeout is not None:
        if not given.timeout > 0:
            raise WrongUseError("--timeout needs a number of seconds above 0.")
        milliseconds = max(1, round(given.timeout * 1000))
        found["default.api.timeout.ms"] = str(milliseconds)
        found["request.timeout.ms"] = str(min(30_000, milliseconds))
    if given.bootstrap_server is not None:
        found[SERVERS] = given.bootstrap_server
    if getattr(given, "bootstrap_controller", None) is not None:
        found[CONTROLLERS] = given.bootstrap_controller
    return found


def refuse_no_servers(sources: Sequence[Mapping[str, Any] | str]) -> None:
    """Raise WrongUseError if no source can name servers. The library reads properties files."""
    for source in sources:
        if isinstance(source, str) or SERVERS in source or CONTROLLERS in source:
            return
    raise WrongUseError(
        "No servers are known. Give --bootstrap-server HOST:PORT, set the environment variable "
        "AIOKCLIENT_BOOTSTRAP_SERVERS, or choose a profile with --profile."
    )


def refuse_protected(profile: Profile, given: argparse.Namespace) -> None:
    """Ask before a command changes the cluster of a protected profile."""
    if profile.is_protected:
        confirm_profile(given, profile.name)

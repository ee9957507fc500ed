"""The commands of subscriptions to the metrics of clients (KIP-714)."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    OUTPUT,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import count_of, dry_run_notes
from aiokclient.cli.output import Result, Row, rows_result

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import ConfigEntry


class Interval:
    """A number of milliseconds. An empty text stands for the default."""

    def __init__(self, text: str) -> None:
        if text and not (text.isascii() and text.isdecimal()):
            raise value_error(f"{text!r} is no number of milliseconds")
        self.text = text


GENERATE = Option(("--generate-name",), "Use a random name, which is printed.")
METRICS = Option(
    ("--metrics",),
    "Prefixes of the names of metrics. '*' stands for all metrics, and '' restores the default, "
    "none.",
    "PREFIX[,...]",
    repeated=True,
)
INTERVAL = Option(
    ("--interval",),
    "Milliseconds between two pushes of a client: 100 to 3600000. '' restores the default, 300000.",
    "MS",
    type=Interval,
)
MATCH = Option(
    ("--match",),
    "Subscribe only to clients that match all of these. The selectors are client_id, "
    "client_instance_id, client_software_name, client_software_version, client_source_address, "
    "and client_source_port. '' restores the default, all clients.",
    "SELECTOR=REGEX[,...]",
    repeated=True,
)
SETTINGS = (METRICS, INTERVAL, MATCH)
"""The options that change a subscription."""


class ListClientMetrics(AdminCommand):
    """List the names of all subscriptions."""

    verb = "list"

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each subscription."""
        return rows_result(["name"], [{"name": n} for n in await admin.list_client_metrics()])


class DescribeClientMetrics(AdminCommand):
    """Describe subscriptions: which metrics clients push, how often, and which clients do."""

    verb = "describe"
    arguments = (Argument("NAME", "Names of subscriptions, all without any.", "*"),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row with the options of each subscription."""
        chosen, failures = await choose_subscriptions(admin, given.name)
        described = await describe_subscriptions(admin, chosen)
        rows = [
            {"name": name, "configs": {each.name: each.value for each in entries}}
            for name, entries in described.items()
        ]
        return rows_result(["name", "configs"], rows, failures)


class SetClientMetrics(AdminCommand):
    """Create a subscription, or change options of one.

    The options that are not given keep their values.
    """

    verb = "set"
    changes = True
    arguments = (Argument("NAME", "The name of the subscription.", "?"),)
    options = (GENERATE, *SETTINGS)

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        if (given.name is None) == (not given.generate_name):
            raise WrongUseError("Give either the NAME of the subscription or --generate-name.")
        if given.generate_name:
            given.name = make_random_name()
        given.wanted = read_changes(given)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the changed options before and after."""
        described = await describe_subscriptions(admin, [given.name])
        before = {each.name: each.value for each in described[given.name]}
        await change_subscription(admin, given.name, given.wanted, given.dry_run)
        row = {
            "name": given.name,
            "before": {name: before.get(name) for name in given.wanted},
            "after": given.wanted,
        }
        return rows_result(list(row), [row], notes=dry_run_notes(given))


class DeleteClientMetrics(AdminCommand):
    """Delete subscriptions."""

    verb = "delete"
    changes = True
    destroys = True
    arguments = (
        Argument("NAME", "Names of subscriptions; - reads them from standard input.", "+"),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each subscription that was deleted."""
        chosen, failures = await choose_subscriptions(admin, given.name)
        if chosen:
            confirm(given, f"Delete {count_of(chosen, 'subscription')}?")
        rows: list[Row] = [{"name": name} for name in chosen]
        if chosen and not given.dry_run:
            deleted = await admin.delete_client_metrics(chosen)
            failures |= deleted.errors
            rows = [{"name": name} for name in deleted.succeeded]
        return rows_result(["name"], rows, failures, dry_run_notes(given))


class Line(NamedTuple):
    """One line of text. `style` is a style of the package rich, such as "bold" or "dim"."""

    text: str
    style: str = ""


ACTIONS: Mapping[str, Sequence[str]] = {
    "--alter": ("--name", "--generate-name", "--metrics", "--interval", "--match"),
    "--describe": ("--name",),
    "--delete": ("--name",),
    "--list": (),
}
"""The actions of the former commands, and the options that each of them has."""


class FormerClientMetrics(AdminCommand):
    """Manage subscriptions in the form of kafka-client-metrics.sh.

    Exactly one action is required: --alter, --describe, --delete, or --list.
    """

    is_hidden = True
    prints_result = False
    former_verbs = tuple(ACTIONS)
    options = (
        Option(("--alter",), "Create a subscription, or change options of one."),
        Option(("--describe",), "Show the options of one subscription, or of all."),
        Option(("--delete",), "Delete a subscription."),
        Option(("--list",), "List the names of all subscriptions."),
        Option(("--name",), "The name of the subscription.", "NAME"),
        GENERATE,
        *SETTINGS,
        OUTPUT[0],
    )
    lines: Sequence[Line] = ()
    """The result as lines."""

    def run(self, given: Namespace) -> int:
        """Perform the action, and write what this form of the command has always written."""
        from aiokclient.cli.connection import call_admin

        given.action = read_action(given)
        if given.action == "--alter":
            given.name = make_random_name() if given.name is None else given.name
            given.wanted = read_changes(given)
        is_change = given.action in ("--alter", "--delete")
        command = FormerChange() if is_change else FormerClientMetrics()
        result = call_admin(command, given)
        write_lines(command.lines, result.data, given.json)
        return 0

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Perform the action, and return its data."""
        if given.action == "--alter":
            await change_subscription(admin, given.name, given.wanted, False)
            self.lines = [Line(f"Altered {given.name}.")]
            return Result({"altered": given.name}, ())
        if given.action == "--delete":
            (await admin.delete_client_metrics([given.name])).raise_for_errors()
            self.lines = [Line(f"Deleted {given.name}.")]
            return Result({"deleted": given.name}, ())
        names = await admin.list_client_metrics()
        if given.action == "--list":
            self.lines = [Line(name) for name in names]
            return Result(names, ())
        if given.name is not None and given.name not in names:
            self.lines = [Line(f"{given.name} does not exist.")]
            return Result([], ())
        chosen = names if given.name is None else [given.name]
        described = await describe_subscriptions(admin, chosen)
        self.lines = [
            line
            for name, entries in described.items()
            for line in (
                Line(f"{name}:", "bold"),
                *(
                    Line(f"  {each.name}={each.value}", "dim" if each.is_default else "")
                    for each in entries
                ),
            )
        ]
        data = [
            {"name": name, "configs": {each.name: each.value for each in entries}}
            for name, entries in described.items()
        ]
        return Result(data, ())


class FormerChange(FormerClientMetrics):
    """The actions that change something: --alter and --delete."""

    changes = True
    former_verbs = ()


def read_action(given: Namespace) -> str:
    """Return the only action. Raises WrongUseError for options that do not belong to it."""
    actions = [each for each in ACTIONS if getattr(given, each[2:])]
    if len(actions) != 1:
        raise WrongUseError(f"Give exactly one action: {', '.join(ACTIONS)}.")
    (action,) = actions
    typed = {
        "--name": given.name is not None,
        "--generate-name": given.generate_name,
        "--metrics": bool(given.metrics),
        "--interval": given.interval is not None,
        "--match": bool(given.match),
    }
    wrong = [name for name, is_given in typed.items() if is_given and name not in ACTIONS[action]]
    if wrong:
        raise WrongUseError(f"{action} does not have the option {' or '.join(wrong)}.")
    if action == "--delete" and given.name is None:
        raise WrongUseError("--delete needs --name.")
    if action == "--alter" and (given.name is None) == (not given.generate_name):
        raise WrongUseError("--alter needs either --name or --generate-name.")
    return action


def write_lines(lines: Sequence[Line], data: object, are_json: bool) -> None:
    """Write lines or their data. Only a terminal gets styles."""
    import json
    import sys

    from aiokclient.cli.output import encodable, write_text

    if are_json:
        write_text(f"{json.dumps(data, indent=2)}\n")
    elif sys.stdout is None or not sys.stdout.isatty():
        write_text("".join(f"{line.text}\n" for line in lines))
    else:
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            write_text("".join(f"{line.text}\n" for line in lines))
            return
        console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        for line in lines:
            console.print(encodable(line.text), style=line.style or None)


def read_changes(given: Namespace) -> dict[str, str | None]:
    """Return the changes that were typed. None restores a default. Raises WrongUseError."""
    typed = {
        "metrics": ",".join(given.metrics) if given.metrics else None,
        "interval.ms": given.interval.text if given.interval is not None else None,
        "match": ",".join(given.match) if given.match else None,
    }
    # An empty text restores the default, for which the library has None.
    wanted = {name: value or None for name, value in typed.items() if value is not None}
    if not wanted:
        names = ", ".join(each.names[-1] for each in SETTINGS)
        raise WrongUseError(f"Give at least one of {names}.")
    return wanted


async def choose_subscriptions(
    admin: Admin, typed: Sequence[str]
) -> tuple[list[str], dict[str, Exception]]:
    """Return the subscriptions that were typed, or all, and errors for those that do not exist.

    For a subscription that does not exist, brokers would describe the default values, and accept
    that it is deleted.
    """
    names = await admin.list_client_metrics()
    chosen = [name for name in dict.fromkeys(typed or names) if name in names]
    failures: dict[str, Exception] = {
        name: NotFoundError("There is no such subscription.") for name in typed if name not in names
    }
    return chosen, failures


async def describe_subscriptions(
    admin: Admin, names: Sequence[str]
) -> dict[str, list[ConfigEntry]]:
    """Return the options of subscriptions, sorted by name. Raises the first error."""
    from aiokclient import ConfigResource

    resources = [ConfigResource.client_metrics(each) for each in names]
    described = (await admin.describe_configs(resources)).raise_for_errors()
    return {
        resource.name: sorted(entries.values(), key=lambda entry: entry.name)
        for resource, entries in described.items()
    }


async def change_subscription(
    admin: Admin, name: str, wanted: Mapping[str, str | None], is_dry_run: bool
) -> None:
    """Change options of a subscription. Raises the error of the cluster."""
    from aiokclient import ConfigResource

    changes = {ConfigResource.client_metrics(name): wanted}
    (await admin.alter_configs(changes, validate_only=is_dry_run)).raise_for_errors()


def make_random_name() -> str:
    """Return a random UUID in Kafka's notation. It never begins with `-`, as an option would."""
    while (name := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name


COMMANDS: Sequence[type[Command]] = (
    ListClientMetrics,
    DescribeClientMetrics,
    SetClientMetrics,
    DeleteClientMetrics,
    FormerClientMetrics,
)

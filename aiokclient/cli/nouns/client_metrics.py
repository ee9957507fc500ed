"""`aiokclient client-metrics`: the subscriptions of a cluster to the metrics of its clients.

It has the actions and the options of kafka-client-metrics.sh (KIP-714), and the options
for connecting, which all commands of Kafka have.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import typer

from aiokclient import Admin, ConfigResource
from aiokclient.admin import ConfigEntry
from aiokclient.cli.exit_codes import WrongUseError
from aiokclient.cli.output import AsJson, Line, Result, write

R = TypeVar("R")

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to first. They name all others.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A Java properties file with options of the admin client, such as those for TLS and "
        "logins.",
    ),
]


def use_admin(
    bootstrap_server: str, command_config: Path | None, call: Callable[[Admin], Awaitable[R]]
) -> R:
    """Connect an admin client, and return the result of a call with it.

    Raises ConfigError for options that cannot be used, and the error of connecting or of the call.
    """
    # A command ends too soon to push metrics.
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_server, "enable_metrics_push": False}

    async def connect() -> R:
        async with Admin.from_properties(command_config or {}, **options) as admin:
            return await call(admin)

    return asyncio.run(connect())


SETTINGS = ("--metrics", "--interval", "--match")
OPTIONS: Mapping[str, Sequence[str]] = {
    "--alter": ("--name", "--generate-name", *SETTINGS),
    "--describe": ("--name",),
    "--delete": ("--name",),
    "--list": (),
}
"""The actions, and the options that each of them has."""


Alter = Annotated[
    bool, typer.Option("--alter", help="Create a subscription, or change options of one.")
]
Describe = Annotated[
    bool, typer.Option("--describe", help="Show the options of one subscription, or of all.")
]
Delete = Annotated[bool, typer.Option("--delete", help="Delete a subscription.")]
List = Annotated[bool, typer.Option("--list", help="List the names of all subscriptions.")]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The name of the subscription.")
]
GenerateName = Annotated[
    bool, typer.Option("--generate-name", help="Use a random name, which is printed.")
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="PREFIX[,...]",
        help="Prefixes of the names of metrics. '*' stands for all metrics, and '' restores the "
        "default, none.",
    ),
]
Interval = Annotated[
    str | None,
    typer.Option(
        "--interval",
        metavar="MS",
        help="Milliseconds between two pushes of a client: 100 to 3600000. '' restores the "
        "default, 300000.",
    ),
]
Match = Annotated[
    list[str] | None,
    typer.Option(
        "--match",
        metavar="SELECTOR=REGEX[,...]",
        help="Subscribe only to clients that match all of these. The selectors are client_id, "
        "client_instance_id, client_software_name, client_software_version, "
        "client_source_address, and client_source_port. '' restores the default, all clients.",
    ),
]


def client_metrics(
    bootstrap_server: BootstrapServer,
    alter: Alter = False,
    describe: Describe = False,
    delete: Delete = False,
    list_: List = False,
    name: Name = None,
    generate_name: GenerateName = False,
    metrics: Metrics = None,
    interval: Interval = None,
    match: Match = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Manage subscriptions to the metrics of clients (KIP-714).

    Exactly one action is required: --alter, --describe, --delete, or --list. A subscription says
    which metrics the clients push to the brokers, and how often. The options that are not given
    with --alter keep their values.
    """
    actions = {"--alter": alter, "--describe": describe, "--delete": delete, "--list": list_}
    given = {
        "--name": name is not None,
        "--generate-name": generate_name,
        "--metrics": metrics is not None,
        "--interval": interval is not None,
        "--match": match is not None,
    }
    action = _checked(
        [each for each, wanted in actions.items() if wanted],
        [each for each, present in given.items() if present],
    )
    if interval and not interval.isdecimal():
        raise WrongUseError(f"--interval needs a number of milliseconds, not {interval!r}.")
    changes = {
        "metrics": None if metrics is None else ",".join(metrics),
        "interval.ms": interval,
        "match": None if match is None else ",".join(match),
    }

    async def act(admin: Admin) -> Result:
        if action == "--alter":
            return await _alter(admin, name if name is not None else _random_name(), changes)
        if action == "--delete" and name is not None:
            return await _delete(admin, name)
        if action == "--describe":
            return await _describe(admin, name)
        return await _list(admin)

    write(use_admin(bootstrap_server, command_config, act), as_json)


def _checked(actions: Sequence[str], given: Sequence[str]) -> str:
    """Return the only action. Raise WrongUseError for options that do not belong to it."""
    if len(actions) != 1:
        raise WrongUseError(f"Give exactly one action: {', '.join(OPTIONS)}.")
    (action,) = actions
    wrong = [option for option in given if option not in OPTIONS[action]]
    if wrong:
        raise WrongUseError(f"{action} does not have the option {' or '.join(wrong)}.")
    if action == "--delete" and not given:
        raise WrongUseError("--delete needs --name.")
    if action == "--alter":
        if ("--name" in given) == ("--generate-name" in given):
            raise WrongUseError("--alter needs either --name or --generate-name.")
        if not set(SETTINGS).intersection(given):
            raise WrongUseError(f"--alter needs at least one of {', '.join(SETTINGS)}.")
    return action


async def _alter(admin: Admin, name: str, changes: Mapping[str, str | None]) -> Result:
    # An empty text restores the default, for which the library has None.
    wanted = {option: value or None for option, value in changes.items() if value is not None}
    altered = await admin.alter_configs({ConfigResource.client_metrics(name): wanted})
    altered.raise_for_errors()
    return Result([Line(f"Altered {name}.")], {"altered": name})


async def _delete(admin: Admin, name: str) -> Result:
    (await admin.delete_client_metrics([name])).raise_for_errors()
    return Result([Line(f"Deleted {name}.")], {"deleted": name})


async def _list(admin: Admin) -> Result:
    names = await admin.list_client_metrics()
    return Result([Line(name) for name in names], names)


async def _describe(admin: Admin, name: str | None) -> Result:
    names = await admin.list_client_metrics()
    if name is not None and name not in names:
        # For a subscription that does not exist, brokers would return the default values, as if it
        # existed.
        return Result([Line(f"{name} does not exist.")], [])
    wanted = names if name is None else [name]
    resources = [ConfigResource.client_metrics(each) for each in wanted]
    described = (await admin.describe_configs(resources)).raise_for_errors()
    lines = [
        line
        for resource, entries in described.items()
        for line in _described_lines(resource.name, entries)
    ]
    data = [
        {"name": resource.name, "configs": {each.name: each.value for each in _sorted(entries)}}
        for resource, entries in described.items()
    ]
    return Result(lines, data)


def _described_lines(name: str, entries: Mapping[str, ConfigEntry]) -> list[Line]:
    options = [
        Line(f"  {each.name}={each.value}", "dim" if each.is_default else "")
        for each in _sorted(entries)
    ]
    return [Line(f"{name}:", "bold"), *options]


def _sorted(entries: Mapping[str, ConfigEntry]) -> list[ConfigEntry]:
    return sorted(entries.values(), key=lambda entry: entry.name)


def _random_name() -> str:
    """Return a random UUID in Kafka's notation. It never begins with `-`, as an option would."""
    while (name := base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name

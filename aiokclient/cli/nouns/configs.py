"""The commands of configs: the options of topics, brokers, loggers, groups, and client metrics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, as_json, rows_result
from aiokclient.cli.values import Setting

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin, ConfigResource
    from aiokclient.admin import Append, ConfigEntry, ConfigSource, Subtract

    Change: TypeAlias = str | Append | Subtract | None

TYPES = {
    "topic": "topic",
    "broker": "broker",
    "logger": "broker_logger",
    "group": "group",
    "client-metrics": "client_metrics",
}
"""The types of resources as they are typed, each with its name in the library."""
FORMS = "topic:NAME, broker:ID, broker: (the defaults), logger:ID, group:ID, client-metrics:NAME"
SECRET = re.compile(r"(^|\.)(password|secret|secret\.key|keystore\.key|jaas\.config)$")
"""The names of options that are secrets."""
HIDDEN = "***"


class Resource:
    """A resource with configs, such as topic:orders. `broker:` is the defaults of all brokers."""

    def __init__(self, text: str) -> None:
        word, colon, self.name = text.partition(":")
        is_number = self.name.isascii() and self.name.isdecimal()
        self.is_broker = word in ("broker", "logger")
        is_wrong = self.is_broker and not is_number and self.name
        is_missing = not self.name and word != "broker"
        if not colon or word not in TYPES or is_wrong or is_missing:
            raise value_error(f"{text!r} is none of {FORMS}")
        self.type = TYPES[word]
        self.text = text


class TypeWord:
    """A type of resources."""

    def __init__(self, text: str) -> None:
        if text not in TYPES:
            raise value_error(f"{text!r} is none of {', '.join(TYPES)}")
        self.type = TYPES[text]


RESOURCE = Argument("RESOURCE", f"One of {FORMS}.", type=Resource, completes="resources")
SETTINGS = Argument("NAME=VALUE", "A config and its value.", "+", type=Setting, completes="configs")


class ListConfigs(AdminCommand):
    """List the resources that may have configs.

    Topics and brokers are listed because they exist, groups and client metrics because configs are
    set for them. TYPE is topic, broker, logger, group, or client-metrics.
    """

    verb = "list"
    arguments = (Argument("TYPE", "The type of resources, all without any.", "?", TypeWord),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each resource."""
        types = None if given.type is None else [given.type.type]
        listed = await admin.list_config_resources(types)
        rows = [{"resource": text_of(each), **as_json(each)} for each in listed]
        return rows_result(["resource", "type", "name"], rows)


class DescribeConfigs(AdminCommand):
    """Describe the configs that are set for resources.

    With --all, also those that are not set for the resource itself. The source says where a value
    is set. Brokers never return secrets.
    """

    verb = "describe"
    accepts_controllers = True
    arguments = (RESOURCE._replace(repeats="+"),)
    options = (
        Option(("--all",), "All configs, with the values that brokers or defaults give them."),
        Option(("--docs",), "Also what each config is for."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each config."""
        absent = await find_absent(admin, given.resource, given)
        described = await admin.describe_configs(
            [resource_of(each) for each in given.resource if each.text not in absent],
            include_synonyms=True,
            include_documentation=given.docs,
        )
        rows: list[Row] = [
            {"resource": text_of(resource), **as_json(entry)}
            for resource, entries in described.succeeded.items()
            for _, entry in sorted(entries.items())
            if given.all or entry.source is own_source(resource)
        ]
        columns = ["resource", "name", "value", "source"]
        columns += ["documentation"] if given.docs else []
        errors = {text_of(each): error for each, error in described.errors.items()}
        return rows_result(columns, rows, {**absent, **errors})


class ChangeConfigs(AdminCommand):
    """The base of the commands that change configs of one resource."""

    changes = True
    accepts_controllers = True
    arguments = (RESOURCE, SETTINGS)
    options: ClassVar[tuple[Option, ...]] = (NO_CHECK,)

    def read_changes(self, given: Namespace) -> dict[str, Change]:
        """Return the new values by name. Raises WrongUseError."""
        raise NotImplementedError

    def run(self, given: Namespace) -> int:
        """Read what is to be changed before connecting."""
        given.changes = self.read_changes(given)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the values before and after."""
        await refuse_absent(admin, [given.resource], given)
        resource = resource_of(given.resource)
        described = await admin.describe_configs([resource], include_synonyms=True)
        entries = described.succeeded.get(resource, {})
        _ = described.errors  # A user may be allowed to change what it may not describe.
        changed = await admin.alter_configs(
            {resource: given.changes}, validate_only=given.dry_run, check=not given.no_check
        )
        changed.raise_for_errors()
        rows = [
            change_row(resource, name, entries.get(name), change)
            for name, change in given.changes.items()
        ]
        columns = ["resource", "name", "before", "after"]
        return rows_result(columns, rows, notes=dry_run_notes(given))


class SetConfigs(ChangeConfigs):
    """Set configs of a resource, and leave all others as they are.

    Secrets, such as ssl.keystore.password, belong in a file. The file is one of Java properties,
    with NAME=VALUE in each line.
    """

    verb = "set"
    arguments = (RESOURCE, SETTINGS._replace(repeats="*"))
    options = (
        Option(("--from-file",), "A file with more settings.", "FILE", completes="files"),
        NO_CHECK,
    )

    def read_changes(self, given: Namespace) -> dict[str, Change]:
        """Return the settings of the file and of the arguments, which count more."""
        from_file = read_settings(given.from_file) if given.from_file is not None else {}
        typed = {each.name: each.value for each in typed_settings(given)}
        if secret := [name for name in typed if SECRET.search(name)]:
            raise WrongUseError(
                f"{secret[0]} is a secret, which is no argument, because others can see it. Give "
                "it by --from-file."
            )
        if not typed and not from_file:
            raise WrongUseError("Give at least one NAME=VALUE, or --from-file.")
        return {**from_file, **typed}


class UnsetConfigs(ChangeConfigs):
    """Remove configs of a resource, so that the values of the brokers or the defaults hold."""

    verb = "unset"
    arguments = (RESOURCE, Argument("NAME", "Names of configs.", "+", completes="configs"))

    def read_changes(self, given: Namespace) -> dict[str, Change]:
        """Return None for each config."""
        return dict.fromkeys(given.name)


class AppendConfigs(ChangeConfigs):
    """Add items to configs that are lists.

    Several items are separated by commas.
    """

    verb = "append"

    def read_changes(self, given: Namespace) -> dict[str, Change]:
        """Return what is added to each config."""
        from aiokclient.admin import Append

        return {name: Append(value) for name, value in joined_items(typed_settings(given)).items()}


class SubtractConfigs(ChangeConfigs):
    """Remove items from configs that are lists.

    Several items are separated by commas.
    """

    verb = "subtract"

    def read_changes(self, given: Namespace) -> dict[str, Change]:
        """Return what is removed from each config."""
        from aiokclient.admin import Subtract

        return {
            name: Subtract(value) for name, value in joined_items(typed_settings(given)).items()
        }


class DiffConfigs(AdminCommand):
    """Show the configs that differ between two resources of one type."""

    verb = "diff"
    accepts_controllers = True
    arguments = (
        Argument("FIRST", f"One of {FORMS}.", type=Resource, completes="resources"),
        Argument("SECOND", "Another one of the same type.", type=Resource, completes="resources"),
    )

    def run(self, given: Namespace) -> int:
        """Refuse resources of different types before connecting."""
        if given.first.type != given.second.type:
            raise WrongUseError(f"{given.first.text} and {given.second.text} are of other types.")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each config with two values."""
        await refuse_absent(admin, [given.first, given.second], given)
        first, second = resource_of(given.first), resource_of(given.second)
        described = (await admin.describe_configs([first, second])).raise_for_errors()
        rows = []
        for name in sorted({*described[first], *described[second]}):
            ones = [described[each].get(name) for each in (first, second)]
            values = [one.value if one is not None else None for one in ones]
            if values[0] != values[1]:
                sources = [as_json(one.source) if one is not None else None for one in ones]
                rows.append(
                    {
                        "name": name,
                        "first": values[0],
                        "second": values[1],
                        "first_source": sources[0],
                        "second_source": sources[1],
                    }
                )
        return rows_result(["name", "first", "second"], rows)


def resource_of(typed: Resource) -> ConfigResource:
    """Return the resource that was typed in the form of the library."""
    from aiokclient import ConfigResource

    return ConfigResource(typed.type, typed.name)


async def find_absent(
    admin: Admin, typed: Sequence[Resource], given: Namespace
) -> dict[str, Exception]:
    """Return errors for brokers that do not run. The library would wait for them."""
    ids = {each.text: int(each.name) for each in typed if each.is_broker and each.name}
    if not ids or given.bootstrap_controller is not None:
        return {}
    running = {broker.node_id for broker in (await admin.describe_cluster()).brokers}
    return {
        text: NotFoundError(f"There is no broker {node_id} that runs.")
        for text, node_id in ids.items()
        if node_id not in running
    }


async def refuse_absent(admin: Admin, typed: Sequence[Resource], given: Namespace) -> None:
    """Raise NotFoundError for a broker that does not run."""
    for error in (await find_absent(admin, typed, given)).values():
        raise error


def text_of(resource: ConfigResource) -> str:
    """Return a resource as it is typed."""
    words = {type_name: word for word, type_name in TYPES.items()}
    return f"{words[resource.type.name.lower()]}:{resource.name}"


def own_source(resource: ConfigResource) -> ConfigSource:
    """Return the source of the configs that are set for the resource itself."""
    from aiokclient.admin import ConfigSource, ResourceType

    if resource.type is ResourceType.BROKER:
        is_one = bool(resource.name)
        return ConfigSource.DYNAMIC_BROKER if is_one else ConfigSource.DYNAMIC_DEFAULT_BROKER
    return {
        ResourceType.TOPIC: ConfigSource.TOPIC,
        ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER,
        ResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
        ResourceType.GROUP: ConfigSource.GROUP,
    }[resource.type]


def read_settings(path: str) -> dict[str, str]:
    """Return the settings in a file of Java properties. Raises ConfigError."""
    from aiokclient.config.properties import read_properties

    return read_properties(path)


def typed_settings(given: Namespace) -> Sequence[Setting]:
    """Return the settings that were typed."""
    typed: Sequence[Setting] = getattr(given, "name=value")
    return typed


def joined_items(settings: Sequence[Setting]) -> dict[str, str]:
    """Return the items of each config. Those of a config that was typed twice are joined."""
    found: dict[str, str] = {}
    for each in settings:
        found[each.name] = f"{found[each.name]},{each.value}" if each.name in found else each.value
    return found


def change_row(
    resource: ConfigResource, name: str, entry: ConfigEntry | None, change: Change
) -> Row:
    """Return the row of a change. A secret is hidden, and so is a value that may be one."""
    before = entry.value if entry is not None else None
    after = value_after(entry, change, own_source(resource))
    if SECRET.search(name) or (entry is not None and entry.sensitive):
        before, after = None, None if change is None else HIDDEN
    return {"resource": text_of(resource), "name": name, "before": before, "after": after}


def value_after(entry: ConfigEntry | None, change: Change, own: ConfigSource) -> str | None:
    """Return the value that a change gives to a config, or None if that is not known."""
    from aiokclient.admin import Append, ConfigSource

    if isinstance(change, str):
        return change
    synonyms = entry.synonyms if entry is not None else ()
    if change is None and entry is not None and entry.source is not own:
        return entry.value
    if change is None:
        return next((each.value for each in synonyms if each.source is not own), None)
    # Brokers change the list of the resource itself, or the default if there is none.
    values = {each.source: each.value for each in reversed(synonyms)}
    before = values.get(own, values.get(ConfigSource.DEFAULT)) or ""
    items = [each for each in before.split(",") if each]
    typed = [each.strip() for each in change.value.split(",") if each.strip()]
    if isinstance(change, Append):
        return ",".join(dict.fromkeys([*items, *typed]))
    return ",".join(each for each in items if each not in typed)


COMMANDS: Sequence[type[Command]] = (
    ListConfigs,
    DescribeConfigs,
    SetConfigs,
    UnsetConfigs,
    AppendConfigs,
    SubtractConfigs,
    DiffConfigs,
)

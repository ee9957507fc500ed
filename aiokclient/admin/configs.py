"""The admin calls that describe and change configurations.

Topics, brokers, groups, and client metrics have configurations. A subscription to the metrics of
clients (KIP-714) is a configuration, so the calls that list and delete subscriptions are here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from aiokclient.admin.arguments import (
    as_list,
    as_mapping,
    as_name,
    as_names,
    as_resources,
    as_text,
    format_config_value,
)
from aiokclient.admin.requests import (
    AdminRequests,
    Answers,
    Ask,
    ask_targets,
    compute_check_s,
    read_failure,
)
from aiokclient.admin.results import OpenEnum, Results
from aiokclient.cluster.targets import AnyBroker, Broker, Target
from aiokclient.errors import InvalidConfigError, KafkaError, UnsupportedVersionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.protocol.messages import ListConfigResourcesRequest
from aiokclient.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from aiokclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from aiokclient.types import public_in, shortened
from aiokclient.types.frozen import frozen
from aiokclient.types.named_tuple import NamedTuple

API = "IncrementalAlterConfigs"
SET, DELETE, APPEND, SUBTRACT = range(4)

BROKER_ID = re.compile("[0-9]{0,10}")
"""The names of brokers as resources, which are their ids."""

UNLISTED = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""The options of brokers that they describe only while they are set."""

Item = TypeVar("Item")
V = TypeVar("V")


@public_in("aiokclient.admin")
class ResourceType(IntEnum):
    """The kinds of resources with a configuration. The values are those of Kafka's protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class _Resource(NamedTuple):
    type: ResourceType
    name: str


@public_in("aiokclient.admin")
class ConfigResource(_Resource):
    """A resource with a configuration.

    `type` may be given by its name, such as "topic" or "client-metrics". The broker with the name
    "" stands for the defaults of all brokers. Raises ArgumentValueError for an unknown type.
    """

    __slots__ = ()

    def __new__(cls, type: ResourceType | str, name: str) -> ConfigResource:
        return super().__new__(cls, _as_resource_type(type), name)

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """Return the resource of a broker. With None, it stands for the defaults of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """Return the resource of a subscription to the metrics of clients (KIP-714)."""
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}".strip()


def _as_resource_type(given: Any) -> ResourceType:
    for member in ResourceType:
        written = (
            given.upper().replace("-", "_").replace(" ", "_") if isinstance(given, str) else ""
        )
        if given is member or written == member.name:
            return member
    names = ", ".join(repr(member.name.lower()) for member in ResourceType)
    kind = ArgumentValueError if isinstance(given, str) else ArgumentTypeError
    raise kind(f"{shortened(given)} is not a type of resource. Pass a ResourceType, or {names}.")


@public_in("aiokclient.admin")
class ConfigSource(OpenEnum):
    """The level at which an option is set. The values are those of Kafka's protocol."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@public_in("aiokclient.admin")
class ConfigType(OpenEnum):
    """The type of an option's value. The values are those of Kafka's protocol.

    The type is UNKNOWN if the broker is older than 2.6.
    """

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@public_in("aiokclient.admin")
class Synonym(NamedTuple):
    """The value of an option at one of the levels at which it is set.

    Of an option's synonyms, the first one has the effective value.
    """

    name: str
    value: str | None
    source: ConfigSource


@public_in("aiokclient.admin")
@frozen
class ConfigEntry:
    """An option and its value. The value of a sensitive option is None: brokers never return it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[Synonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the option has its default value because it is set nowhere."""
        return self.source is ConfigSource.DEFAULT


@public_in("aiokclient.admin")
@frozen
class Append:
    """A change that adds items, separated by commas, to an option that is a list."""

    value: str


@public_in("aiokclient.admin")
@frozen
class Subtract:
    """A change that removes items, separated by commas, from an option that is a list."""

    value: str


Change: TypeAlias = str | int | float | bool | Append | Subtract | None
"""The new value of an option. None restores the default."""


AskBroker: TypeAlias = Callable[
    [dict[ConfigResource, Item], Target, float], Awaitable[Answers[ConfigResource, V]]
]


async def describe_configs(
    requests: AdminRequests,
    resources: Iterable[ConfigResource] | Mapping[ConfigResource, Iterable[str] | None],
    include_synonyms: bool,
    include_documentation: bool,
    timeout: float | None,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    """See `Admin.describe_configs`."""
    given = as_resources(resources, ConfigResource)
    named: Mapping[ConfigResource, Iterable[str] | None] = (
        given if isinstance(given, Mapping) else dict.fromkeys(given)
    )
    wanted = {_checked(resource): _as_option_names(names) for resource, names in named.items()}

    async def ask_broker(
        items: dict[ConfigResource, list[str] | None], to: Target, remaining: float
    ) -> Answers[ConfigResource, dict[str, ConfigEntry]]:
        request = DescribeConfigsRequest(
            resources=[_make_described(resource, names) for resource, names in items.items()],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )
        response = await requests.send_request(request, to, remaining)
        return {
            (key := _read_resource(result)): read_failure(result, "DescribeConfigs", str(key))
            or {entry.name: _read_entry(entry) for entry in result.configs}
            for result in response.results
        }

    return await requests.ask_items(wanted, _by_broker(requests, ask_broker), timeout)


async def alter_configs(
    requests: AdminRequests,
    changes: Mapping[ConfigResource, Mapping[str, Change]],
    validate_only: bool,
    check: bool,
    timeout: float | None,
) -> Results[ConfigResource, None]:
    """See `Admin.alter_configs`."""
    as_resources(as_mapping(changes, "ConfigResource"), ConfigResource)
    for resource, change in changes.items():
        _checked(resource)
        _check_changes(change)
    requests.require_open()
    deadline = requests.compute_deadline(timeout)
    refused: dict[ConfigResource, KafkaError] = {}
    if check:
        refused = await _find_mistakes(requests, changes, requests.compute_remaining_s(deadline))

    async def ask_broker(
        items: dict[ConfigResource, Mapping[str, Change]], to: Target, remaining: float
    ) -> Answers[ConfigResource, None]:
        request = IncrementalAlterConfigsRequest(
            resources=[_altered(resource, change) for resource, change in items.items()],
            validate_only=validate_only,
        )
        response = await requests.send_request(request, to, remaining)
        return {
            (key := _read_resource(result)): read_failure(result, API, str(key))
            for result in response.responses
        }

    left = {each: change for each, change in changes.items() if each not in refused}
    results = await requests.ask_items(
        left, _by_broker(requests, ask_broker), requests.compute_remaining_s(deadline)
    )
    return requests.join_results(changes, results, refused)


async def _find_mistakes(
    requests: AdminRequests,
    changes: Mapping[ConfigResource, Mapping[str, Change]],
    timeout: float,
) -> dict[ConfigResource, KafkaError]:
    """Return errors for resources with changes that brokers accept although they have no effect.

    The options of resources that cannot be described are not checked.
    """
    suspects = {
        each: names for each, made in changes.items() if (names := _find_suspects(each, made))
    }
    wanted = {each: _described_instead(requests, each) for each in suspects}
    described = await describe_configs(
        requests, set(wanted.values()), False, False, compute_check_s(timeout)
    )
    mistakes: dict[ConfigResource, KafkaError] = {}
    for resource, names in suspects.items():
        known = described[wanted[resource]]
        if isinstance(known, KafkaError):
            continue  # The change itself is refused then, or goes to a broker that can answer.
        if unknown := [name for name in names if name not in known]:
            mistakes[resource] = _make_mistake(resource, f"There is no option {unknown[0]!r}.")
    for resource, made in changes.items():
        if resource.type is ResourceType.TOPIC and made.get("cleanup.policy") == "":
            mistakes[resource] = _make_mistake(resource, "The option cleanup.policy is empty.")
    return mistakes


def _find_suspects(resource: ConfigResource, made: Mapping[str, Change]) -> list[str]:
    """Return the options that the brokers would accept even if they do not exist."""
    if resource.type is ResourceType.BROKER:
        # The options of single listeners are described only if they are set, too.
        return [
            name for name in made if name not in UNLISTED and not name.startswith("listener.name.")
        ]
    if resource.type is ResourceType.TOPIC:
        return [name for name, change in made.items() if change is None]
    return []


def _described_instead(requests: AdminRequests, resource: ConfigResource) -> ConfigResource:
    """Return the resource whose description has all options that this one can have."""
    brokers = requests.cluster.metadata.brokers
    if resource == ConfigResource.broker() and brokers:
        # The description of the defaults has only what is set.
        return ConfigResource.broker(min(brokers))
    return resource


def _make_mistake(resource: ConfigResource, why: str) -> KafkaError:
    error = InvalidConfigError(api=API, resource=str(resource))
    error.what, error.hint = why, "Pass check=False to send the change nevertheless."
    return error


def _by_broker(
    requests: AdminRequests, ask_broker: AskBroker[Item, V]
) -> Ask[ConfigResource, Item, V]:
    """Send the configurations of a broker to that broker, and all others to any broker."""

    async def ask(
        items: dict[ConfigResource, Item], remaining: float
    ) -> Answers[ConfigResource, V]:
        groups: dict[Target, dict[ConfigResource, Item]] = {}
        for resource, item in items.items():
            groups.setdefault(_find_target(resource), {})[resource] = item
        return await ask_targets(groups, lambda group, to: ask_broker(group, to, remaining))

    return ask


def _checked(resource: ConfigResource) -> ConfigResource:
    """Return the resource.

    Raises ArgumentTypeError and ArgumentValueError for a name that no resource can have.
    """
    as_name(resource.name, "resource")
    if _is_of_broker(resource) and not BROKER_ID.fullmatch(resource.name):
        raise ArgumentValueError(
            f"{shortened(resource.name)} is not the id of a broker. Use ConfigResource.broker(1), "
            "or ConfigResource.broker() for the defaults of all brokers."
        )
    return resource


def _is_of_broker(resource: ConfigResource) -> bool:
    return resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


def _find_target(resource: ConfigResource) -> Target:
    # A broker knows only its own configuration, and refuses requests about that of another one.
    own = _is_of_broker(resource) and resource.name
    return Broker(int(resource.name)) if own else AnyBroker()


def _read_resource(result: DescribeConfigsResult | AlterConfigsResourceResponse) -> ConfigResource:
    return ConfigResource(ResourceType(result.resource_type), result.resource_name)


def _make_described(resource: ConfigResource, names: list[str] | None) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configuration_keys=names,
    )


def _read_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        ConfigSource(entry.config_source),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        type=ConfigType(entry.config_type),
        synonyms=tuple(Synonym(s.name, s.value, ConfigSource(s.source)) for s in entry.synonyms),
        documentation=entry.documentation,
    )


def _as_option_names(names: Any) -> list[str] | None:
    """Return names of options as a list, or None for all options.

    Raises ArgumentTypeError for anything else.
    """
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentTypeError(f"{names!r} is not a collection of options. Pass a list of names.")
    return [as_name(name, "option") for name in names]


def _check_changes(changes: Any) -> None:
    """Raise ArgumentTypeError if this is not a mapping from names of options to new values."""
    for name, change in as_mapping(changes, "names of options").items():
        as_name(name, "option")
        if isinstance(change, Append | Subtract):
            allowed = isinstance(change.value, str)
        else:
            allowed = change is None or isinstance(change, str | int | float)
        if isinstance(change, str | Append | Subtract) and allowed:
            as_text(change if isinstance(change, str) else change.value, "the value of an option")
        if not allowed:
            raise ArgumentTypeError(
                f"{change!r} cannot be the value of option {name}. "
                "Pass a str, int, float, bool, Append, Subtract, or None for the default."
            )


def _altered(resource: ConfigResource, changes: Mapping[str, Change]) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource.type,
        resource_name=resource.name,
        configs=[_make_change(name, change) for name, change in changes.items()],
    )


def _make_change(name: str, change: Change) -> AlterableConfig:
    match change:
        case None:
            return AlterableConfig(name=name, config_operation=DELETE, value=None)
        case Append(value):
            return AlterableConfig(name=name, config_operation=APPEND, value=value)
        case Subtract(value):
            return AlterableConfig(name=name, config_operation=SUBTRACT, value=value)
    return AlterableConfig(name=name, config_operation=SET, value=format_config_value(change))


async def list_config_resources(
    requests: AdminRequests, types: Iterable[ResourceType | str] | None, timeout: float | None
) -> list[ConfigResource]:
    """See `Admin.list_config_resources`."""
    wanted = None
    if types is not None:
        wanted = {_as_resource_type(each) for each in as_list(types, "types of resources")}
        if not wanted:
            return []
    if wanted == {ResourceType.CLIENT_METRICS}:
        names = await list_client_metrics(requests, timeout)
        return [ConfigResource.client_metrics(name) for name in names]
    # The broker knows newer types, too, which it would list if none were named.
    request = ListConfigResourcesRequest(resource_types=sorted(wanted or ResourceType))
    response = await requests.send_request(request, AnyBroker(), timeout)
    return sorted(
        ConfigResource(ResourceType(each.resource_type), each.resource_name)
        for each in response.config_resources
    )


async def list_client_metrics(requests: AdminRequests, timeout: float | None) -> list[str]:
    """See `Admin.list_client_metrics`."""
    deadline = requests.compute_deadline(timeout)
    try:
        response = await requests.send_request(
            ListConfigResourcesRequest(resource_types=[ResourceType.CLIENT_METRICS]),
            AnyBroker(),
            requests.compute_remaining_s(deadline),
        )
    except UnsupportedVersionError:
        # Before Kafka 4.1 (KIP-1142), the request cannot name types: brokers list only client
        # metrics.
        response = await requests.send_request(
            ListConfigResourcesRequest(), AnyBroker(), requests.compute_remaining_s(deadline)
        )
    return sorted(
        each.resource_name
        for each in response.config_resources
        if each.resource_type == ResourceType.CLIENT_METRICS
    )


async def delete_client_metrics(
    requests: AdminRequests, names: Iterable[str], timeout: float | None
) -> Results[str, None]:
    """See `Admin.delete_client_metrics`."""
    resources = {name: ConfigResource.client_metrics(name) for name in as_names(names)}
    deadline = requests.compute_deadline(timeout)
    remaining = requests.compute_remaining_s(deadline)
    described = await describe_configs(requests, resources.values(), False, False, remaining)
    # A subscription exists as long as one of its options is set. So all of them are removed.
    changes = {
        resource: dict.fromkeys(
            entry.name for entry in entries.values() if entry.source is ConfigSource.CLIENT_METRICS
        )
        for resource, entries in described.succeeded.items()
    }
    changes = {resource: change for resource, change in changes.items() if change}
    remaining = requests.compute_remaining_s(deadline)
    altered = await alter_configs(requests, changes, False, False, remaining)
    errors: dict[ConfigResource, KafkaError] = described.errors | altered.errors
    results = {name: errors.get(resource) for name, resource in resources.items()}
    return Results(results, requests.cluster.make_log("admin"))

"""Lookup and change of the configs of a topic, a group, one or all brokers, or client metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from aiokclient.testing.broker.call import Call
from aiokclient.testing.broker.codes import Code, shorten_message
from aiokclient.testing.broker.configs import ConfigRequestError, Configs, ConfigValueError
from aiokclient.testing.broker.security.acls import AclOperation, AclResource
from aiokclient.testing.broker.security.requirements import FAILED
from aiokclient.testing.broker.state import ClusterState, Refused
from aiokclient.types import is_topic_name


class ConfigResourceType(IntEnum):
    """The type of a resource that has configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def find_configs(
    cluster: ClusterState, resource_type: int, name: str, *, keep: bool = False
) -> Configs:
    """Return the configs of a resource; raise Refused if it does not exist.

    `keep` creates the configs of a group that has none, so that they can be changed.
    """
    if resource_type == ConfigResourceType.TOPIC:
        if not is_topic_name(name):
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"{name!r} is not a legal topic name.")
        topic = cluster.topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
        return topic.configs
    if resource_type == ConfigResourceType.GROUP and name:
        return cluster.groups.find_configs(name, keep=keep)
    if resource_type == ConfigResourceType.CLIENT_METRICS:
        if not name:
            raise Refused(Code.INVALID_REQUEST, "Subscription name can't be empty")
        return cluster.metrics_subscriptions.find_configs(name)
    if resource_type != ConfigResourceType.BROKER:
        raise Refused(Code.INVALID_REQUEST, f"Resources of type {resource_type} have no configs.")
    if not name:
        return cluster.configs
    broker = cluster.brokers.get(int(name)) if name.isdecimal() else None
    if broker is None:
        raise Refused(Code.INVALID_REQUEST, f"There is no broker {name!r}.")
    return broker.configs


def check_config_authorization(
    call: Call, resource_type: int, name: str, operation: AclOperation
) -> int:
    """Return the error code of a client that is not authorized for the configs, or 0."""
    if resource_type in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP):
        topic = resource_type == ConfigResourceType.TOPIC
        resource = AclResource.TOPIC if topic else AclResource.GROUP
        return 0 if call.is_allowed(operation, resource, name) else FAILED[resource]
    return call.check_cluster_authorization(operation)


async def count_resources(call: Call) -> None:
    """Count how often the request names each resource, for `change_configs`."""
    await call.count_parts(
        (each.resource_type, each.resource_name) for each in call.request.resources
    )


def change_configs(
    call: Call,
    resource_type: int,
    name: str,
    changes: Callable[[Configs], dict[str, str | None]],
) -> tuple[int, str | None]:
    """Change a resource's configs to the result of `changes`, and return an error code and message.

    With `validate_only` in the request, nothing changes.
    """
    code = call.find_refusal(name)
    if not code:
        code = check_config_authorization(call, resource_type, name, AclOperation.ALTER_CONFIGS)
    if code:
        return code, None
    try:
        configs = _find_changeable(call, resource_type, name)
        wanted = changes(configs)
        _check_fixed_options(configs, wanted)
        if call.request.validate_only:
            configs.check_changes(wanted)
        else:
            configs.apply_changes(wanted)
    except Refused as refused:
        return refused.code, refused.message
    except ConfigValueError as error:
        return error.code, shorten_message(str(error))
    return Code.NONE, None


def _find_changeable(call: Call, resource_type: int, name: str) -> Configs:
    if call.times[resource_type, name] > 1:
        raise Refused(Code.INVALID_REQUEST, "Each resource must appear at most once.")
    if resource_type == ConfigResourceType.TOPIC and not name:
        raise Refused(Code.INVALID_REQUEST, "Default topic resources are not allowed.")
    return find_configs(call.cluster, resource_type, name, keep=True)


def _check_fixed_options(configs: Configs, changes: Mapping[str, str | None]) -> None:
    """Raise an error if an option would be set that is fixed. Brokers check what is set then."""
    fixed = [
        name for name, value in changes.items() if value is not None and configs.is_fixed(name)
    ]
    if fixed:
        raise ConfigRequestError(f"Cannot update these configs dynamically: {fixed}")

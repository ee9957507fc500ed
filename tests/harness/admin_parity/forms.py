"""The common form of results: what JSON has, with the names of Java's accessors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

from aiokclient import TopicPartition
from aiokclient.admin import (
    AclBinding,
    AclBindingFilter,
    BrokerDescription,
    ClientQuotaEntity,
    ClientQuotaName,
    ConfigResource,
    GroupMemberDescription,
    ResourcePattern,
    ResourcePatternFilter,
    TopicPartitionReplica,
)
from aiokclient.errors import KafkaError

LOCAL_NAMES = {
    "ApiTimeoutError": "REQUEST_TIMED_OUT",
    "ClosedError": "IllegalStateException",
    "ConfigError": "ConfigException",
    "UnsupportedVersionError": "UNSUPPORTED_VERSION",
}
"""The names under which Java's client has errors that no broker has returned."""


def uuid_text(given: UUID | None) -> str:
    """Return an id as Kafka writes it."""
    raw = given.bytes if given else bytes(16)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def as_uuid(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def error_form(error: BaseException) -> dict[str, str]:
    own = type(error).__name__
    name = LOCAL_NAMES.get(own, own)
    if isinstance(error, KafkaError) and error.code:
        name = str(error.name)
    return {"error": name, "text": str(error)}


def form(given: Any) -> Any:
    """Return a value in the common form; errors as the names that Kafka gives to them."""
    simple = _simple(given)
    if simple is not given:
        return simple
    if isinstance(given, Mapping):
        return {key_text(form(key)): form(value) for key, value in given.items()}
    if isinstance(given, frozenset | set):
        return sorted((form(each) for each in given), key=key_text)
    if isinstance(given, Iterable) and not isinstance(given, str):
        return [form(each) for each in given]
    return given


def _simple(given: Any) -> Any:
    match given:
        case KafkaError():
            return error_form(given)
        case UUID():
            return uuid_text(given)
        case TopicPartition() | TopicPartitionReplica():
            return "-".join(map(str, given))
        case ConfigResource():
            return f"{given.type.name}:{given.name}"
        case BrokerDescription():
            return node(given)
        case AclBinding() | AclBindingFilter():
            return acl(given)
        case ClientQuotaEntity():
            return quota_entity(given)
        case GroupMemberDescription():
            raise TypeError("The form of a member depends on the type of its group.")
        case bytes():
            return base64.b64encode(given).decode()
        case Enum():
            return given.name
    return given


def key_text(formed: Any) -> str:
    if isinstance(formed, str):
        return formed
    return json.dumps(formed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def items(results: Mapping[Any, Any], read: Any = form) -> dict[str, Any]:
    """Return the results of a call for several items, each with its value or its error."""
    return {
        key_text(form(key)): error_form(got)
        if isinstance(got, KafkaError)
        else {"value": read(got)}
        for key, got in results.items()
    }


def node(broker: BrokerDescription) -> dict[str, Any]:
    return {
        "id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "isFenced": broker.fenced,
    }


def upper(state: str) -> str:
    """Return the name of Java's constant for a state: PREPARING_REBALANCE."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", state).upper()


def acl(given: AclBinding | AclBindingFilter) -> dict[str, Any]:
    pattern: ResourcePattern | ResourcePatternFilter = given.pattern
    entry = {
        "principal": given.principal,
        "host": given.host,
        "operation": given.operation.name,
        "permissionType": given.permission.name,
    }
    named = {
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    if isinstance(given, AclBinding):
        return {"entry": entry, "pattern": named}
    return {"entryFilter": entry, "patternFilter": named}


def quota_entity(given: ClientQuotaEntity) -> dict[str, Any]:
    names = {"user": given.user, "client-id": given.client_id, "ip": given.ip}
    return {
        "entries": {
            kind: None if isinstance(name, ClientQuotaName) else name
            for kind, name in names.items()
            if name is not None
        }
    }

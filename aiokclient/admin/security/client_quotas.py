"""The admin calls that describe and change client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from aiokclient.admin.arguments import as_kind, as_mapping, as_name, as_resources
from aiokclient.admin.requests import AdminRequests, Answers, read_failure
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import IllegalStateError
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol.messages import alter_client_quotas as altering
from aiokclient.protocol.messages import describe_client_quotas as describing
from aiokclient.types import public_in

API: Final = "AlterClientQuotas"
TYPES: Final = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Kafka's entity type for each attribute of `ClientQuotaEntity`."""
EXACT, DEFAULT, SPECIFIED = range(3)
"""The ways in which a filter matches the name of an entity."""


@public_in("aiokclient.admin")
class ClientQuotaName(Enum):
    """A substitute for the name of a user, client id, or IP address."""

    DEFAULT = "default"
    """The default, for users, client ids, or IP addresses without a quota of their own."""
    ANY = "any"
    """Every name, and the default. Only for filters."""


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ClientQuotaEntity:
    """The clients for which quotas are set: a user, a client id, both together, or an IP address.

        ClientQuotaEntity(user="alice")
        ClientQuotaEntity(user="alice", client_id=ClientQuotaName.DEFAULT)

    The quotas of the first entity apply to all clients of alice together, and those of the second
    to each client id of alice separately.
    """

    user: str | ClientQuotaName | None = None
    client_id: str | ClientQuotaName | None = None
    ip: str | ClientQuotaName | None = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {_format_name(name)}" for kind, name in _list_parts(self).items())


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """A selection of entities by user, client id, and IP address.

    With `strict`, an entity must have no other user, client id, or IP address than those of the
    filter: `user="alice"` selects alice, but not alice with a client id.
    """

    user: str | ClientQuotaName | None = None
    client_id: str | ClientQuotaName | None = None
    ip: str | ClientQuotaName | None = None
    strict: bool = False


async def describe_client_quotas(
    requests: AdminRequests, quota_filter: ClientQuotaFilter | None, timeout: float | None
) -> dict[ClientQuotaEntity, dict[str, float]]:
    """See `Admin.describe_client_quotas`."""
    wanted = as_kind(quota_filter or ClientQuotaFilter(), ClientQuotaFilter)
    request = describing.DescribeClientQuotasRequest(
        components=[_make_component(kind, name) for kind, name in _list_parts(wanted).items()],
        strict=bool(wanted.strict),
    )
    response = await requests.send_request(request, AnyBroker(), timeout)
    return {
        entity: {value.key: value.value for value in entry.values}
        for entry in response.entries or ()
        if (entity := _read_entity(entry.entity)) is not None
    }


async def alter_client_quotas(
    requests: AdminRequests,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    validate_only: bool,
    timeout: float | None,
) -> Results[ClientQuotaEntity, None]:
    """See `Admin.alter_client_quotas`."""
    as_resources(as_mapping(changes, "ClientQuotaEntity"), ClientQuotaEntity)
    wanted = {entity: _make_entry(entity, quotas) for entity, quotas in changes.items()}

    async def ask(
        items: dict[ClientQuotaEntity, altering.EntryData], remaining: float
    ) -> Answers[ClientQuotaEntity, None]:
        request = altering.AlterClientQuotasRequest(
            entries=list(items.values()), validate_only=validate_only
        )
        response = await requests.send_request(request, AnyBroker(), remaining)
        return {
            entity: read_failure(entry, API, str(entity))
            for entry in response.entries
            if (entity := _read_entity(entry.entity)) is not None
        }

    return await requests.ask_items(wanted, ask, timeout)


def _list_parts(
    given: ClientQuotaEntity | ClientQuotaFilter,
) -> dict[str, str | ClientQuotaName]:
    """Return the names in an entity or a filter, by Kafka's entity types."""
    named = {kind: getattr(given, attribute) for attribute, kind in TYPES.items()}
    return {kind: name for kind, name in named.items() if name is not None}


def _format_name(name: str | ClientQuotaName) -> str:
    return f"({name.value})" if isinstance(name, ClientQuotaName) else name


def _require_name(name: Any, kind: str) -> None:
    if isinstance(name, ClientQuotaName):
        return
    if not as_name(name, kind):
        raise IllegalStateError(
            f"The name of a {kind} must not be empty. Pass ClientQuotaName.DEFAULT for the default."
        )


def _make_component(kind: str, name: str | ClientQuotaName) -> describing.ComponentData:
    _require_name(name, kind)
    if isinstance(name, ClientQuotaName):
        match_type = DEFAULT if name is ClientQuotaName.DEFAULT else SPECIFIED
        return describing.ComponentData(entity_type=kind, match_type=match_type, match=None)
    return describing.ComponentData(entity_type=kind, match_type=EXACT, match=name)


def _make_entry(
    entity: ClientQuotaEntity, quotas: Mapping[str, float | None]
) -> altering.EntryData:
    parts = _list_parts(entity)
    if not parts:
        raise IllegalStateError("A ClientQuotaEntity needs a user, a client_id, or an ip.")
    for kind, name in parts.items():
        _require_name(name, kind)
        if name is ClientQuotaName.ANY:
            raise IllegalStateError(
                "ClientQuotaName.ANY is only for filters. Name each entity, or pass "
                "ClientQuotaName.DEFAULT for the default."
            )
    return altering.EntryData(
        entity=[
            altering.EntityData(
                entity_type=kind, entity_name=name if isinstance(name, str) else None
            )
            for kind, name in parts.items()
        ],
        ops=[
            _make_operation(key, value)
            for key, value in as_mapping(quotas, "names of quotas").items()
        ],
    )


def _make_operation(key: str, value: float | None) -> altering.OpData:
    as_name(key, "quota")
    if value is None:
        return altering.OpData(key=key, remove=True)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(
            f"{value!r} is not a value for the quota {key}. Pass a number, or None to remove it."
        )
    return altering.OpData(key=key, value=float(value))


def _read_entity(
    parts: Iterable[altering.EntityData | describing.EntityData],
) -> ClientQuotaEntity | None:
    """Return the entity of a response, or None if it has a type that this client does not know."""
    attributes = {kind: attribute for attribute, kind in TYPES.items()}
    names: dict[str, str | ClientQuotaName] = {}
    for part in parts:
        if part.entity_type not in attributes:
            return None
        default = part.entity_name is None
        names[attributes[part.entity_type]] = (
            ClientQuotaName.DEFAULT if default else str(part.entity_name)
        )
    return ClientQuotaEntity(**names)

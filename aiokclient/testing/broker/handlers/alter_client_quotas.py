"""AlterClientQuotas 0 to 1: set and remove the quotas of users, client ids, and addresses.

Each entity has its own result. An entity without types, with an unknown type, or with an address
and another type is INVALID_REQUEST. So are an unknown quota, a quota that is not positive, and a
rate of bytes or connections with a fraction. An address may be a host name, which is not looked up.
Quotas of addresses (`connection_creation_rate`) are stored, but have no effect.
"""

from __future__ import annotations

from aiokclient.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from aiokclient.protocol.messages.alter_client_quotas import (
    EntityData,
    EntryData,
    ResponseEntryData,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.quotas import (
    CLIENT,
    CONNECTIONS,
    IP,
    KEYS,
    USER,
    WHOLE,
    QuotaEntity,
    is_address,
)


async def handle(call: Call) -> Answer:
    request: AlterClientQuotasRequest = call.request
    return AlterClientQuotasResponse(
        entries=[_alter_quotas(call, each) async for each in call.iterate_items(request.entries)]
    )


def _alter_quotas(call: Call, wanted: EntryData) -> ResponseEntryData:
    result = ResponseEntryData(
        error_code=call.find_refusal() or call.check_cluster_authorization(),
        error_message=None,
        entity=[
            EntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in wanted.entity
        ],
    )
    if result.error_code:
        return result
    try:
        entity = _read_entity(wanted)
        for each in wanted.ops:
            _check_quota(entity, each.key, None if each.remove else each.value)
    except Refused as refused:
        result.error_code, result.error_message = refused.code, refused.message
        return result
    if not call.request.validate_only:
        quotas = call.cluster.security.quotas
        for each in wanted.ops:
            quotas.change_quota(entity, each.key, None if each.remove else each.value)
    return result


def _read_entity(wanted: EntryData) -> QuotaEntity:
    names: dict[str, str] = {}
    for each in wanted.entity:
        kind, name = each.entity_type, each.entity_name
        if kind not in (USER, CLIENT, IP):
            raise Refused(Code.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise Refused(Code.INVALID_REQUEST, f"Empty {kind} not supported")
        names[kind] = name or ""
    if not names:
        raise Refused(Code.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP in names and len(names) > 1:
        raise Refused(
            Code.INVALID_REQUEST,
            # This is Kafka's message, including its mistake.
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        )
    if names.get(IP) and not is_address(names[IP]):
        text = f"{names[IP]} is not a valid IP or resolvable host."
        raise Refused(Code.INVALID_REQUEST, text)
    return QuotaEntity(names.get(USER), names.get(CLIENT), names.get(IP))


def _check_quota(entity: QuotaEntity, key: str, value: float | None) -> None:
    known = (CONNECTIONS,) if entity.ip is not None else KEYS
    if key not in known:
        raise Refused(Code.INVALID_REQUEST, f"Invalid configuration key {key}")
    if value is not None and not value > 0:
        raise Refused(Code.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if value is not None and key in WHOLE and value != int(value):
        raise Refused(Code.INVALID_REQUEST, f"{key} cannot be a fractional value.")

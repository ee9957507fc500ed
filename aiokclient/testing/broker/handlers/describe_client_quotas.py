"""DescribeClientQuotas 0 to 1: the quotas of the users, client ids, and addresses of a filter.

A component matches one name (0), the default (1), or any name and the default (2). With `strict`,
an entity that also has other types than those of the filter does not match. An unknown type is
UNSUPPORTED_VERSION. A type that is named twice, and addresses beside users or client ids, are
INVALID_REQUEST.
"""

from __future__ import annotations

from aiokclient.protocol.messages import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from aiokclient.protocol.messages.describe_client_quotas import (
    ComponentData,
    EntityData,
    EntryData,
    ValueData,
)
from aiokclient.testing.broker.call import Answer, Call
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.security.quotas import CLIENT, IP, USER

_EXACT, _DEFAULT, _ANY = 0, 1, 2


async def handle(call: Call) -> Answer:
    request: DescribeClientQuotasRequest = call.request
    code, message = call.find_refusal() or call.check_cluster_authorization(), None
    try:
        if not code:
            _check_request(request)
    except Refused as refused:
        code, message = refused.code, refused.message
    if code:
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
    quotas = call.cluster.security.quotas.list_quotas()
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in entity.list_parts().items()
                ],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            async for entity, values in call.iterate_items(list(quotas.items()))
            if _is_selected(request, entity.list_parts())
        ],
    )


def _check_request(request: DescribeClientQuotasRequest) -> None:
    kinds = [each.entity_type for each in request.components]
    for kind in kinds:
        if not kind:
            raise Refused(Code.INVALID_REQUEST, "Unexpected empty filter component entity type.")
        if kind not in (USER, CLIENT, IP):
            raise Refused(Code.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
    if len(set(kinds)) < len(kinds):
        raise Refused(Code.INVALID_REQUEST, "A type of entities is named twice in the filter.")
    if IP in kinds and len(kinds) > 1:
        raise Refused(
            Code.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )


def _is_selected(request: DescribeClientQuotasRequest, parts: dict[str, str]) -> bool:
    if request.strict and set(parts) != {each.entity_type for each in request.components}:
        return False
    return all(_is_match(each, parts.get(each.entity_type)) for each in request.components)


def _is_match(component: ComponentData, name: str | None) -> bool:
    if name is None:
        return False
    if component.match_type == _EXACT:
        return name == component.match
    return component.match_type == _ANY or not name

"""ApiVersions 0 to 5: the APIs, versions, and features of this broker.

* A version that the broker does not know is answered with UNSUPPORTED_VERSION in the layout of
  version 0. The response has the versions of ApiVersions only, so that the client can ask again.
* From version 3 on, the client names its software. An empty or malformed name is INVALID_REQUEST.
* A controller announces what it answers (`controllers.py`).
* Version 5 checks that the client reached the intended broker (KIP-1242). The client sends both
  the cluster id and the node id, or neither. Only one of them is INVALID_REQUEST, and a different
  value is REBOOTSTRAP_REQUIRED. An error comes without APIs, and the connection stays open.
* From version 3 on, the response has the features of Kafka 4.4: "metadata.version", "group.version"
  with level 1 (KIP-848), "eligible.leader.replicas.version" with level 1 (KIP-966),
  "transaction.version" with levels 0 to 2 (KIP-890), and "share.version" with levels 0 to 2
  (KIP-932, KIP-1191). The last two can be changed with UpdateFeatures. Streams groups are not
  supported, so their feature is not announced. A feature whose lowest level is 0 is among the
  supported ones from version 4 on, and among the finalized ones unless its level is 0.
  "group.resync" (level 1) is not a feature of Kafka: with `EmbeddedCluster(resync=True)`, a leader
  may send new assignments within a generation.
"""

from __future__ import annotations

import re

from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from aiokclient.protocol.messages.api_versions import (
    ApiVersion,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.features import Feature, list_features

_LEVEL_0 = 4
"""The first version in which the lowest supported level of a feature may be 0."""


_FEATURES = 3
_NAMES = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(call: Call) -> Reply:
    spans = call.cluster.versions.list_versions(call.broker.node_id)
    first, last = spans[ApiKey.API_VERSIONS]
    if call.request is None or not first <= call.version <= last:
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)
        return ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[own])
    code = call.find_refusal() or _check_request(call, call.request)
    _store_software(call, call.request)
    if code:
        return ApiVersionsResponse(error_code=code)
    call.owner.authentication.expect_handshake()
    answer = ApiVersionsResponse(api_keys=_list_keys(call))
    if call.version >= _FEATURES:
        _add_features(answer, list_features(call), call.cluster.features_epoch)
        if call.version < _LEVEL_0:
            supported = answer.supported_features
            answer.supported_features = [each for each in supported if each.min_version > 0]
    return answer


def _list_keys(call: Call) -> list[ApiVersion]:
    """Return what the listener announces. It is shared, unless a fault may change the response."""
    listener = call.owner.listener
    versions = call.cluster.versions
    if call.has_faults:
        return versions.make_entries(call.broker.node_id, listener)
    return versions.list_entries(call.broker.node_id, listener)


def _add_features(answer: ApiVersionsResponse, features: list[Feature], epoch: int) -> None:
    answer.finalized_features_epoch = epoch
    answer.supported_features = [
        SupportedFeatureKey(name=each.name, min_version=each.lowest, max_version=each.highest)
        for each in features
    ]
    answer.finalized_features = [
        FinalizedFeatureKey(
            name=each.name, max_version_level=each.level, min_version_level=each.level
        )
        for each in features
        if each.level
    ]


def _read_software(request: ApiVersionsRequest) -> tuple[str, str]:
    return request.client_software_name, request.client_software_version


def _store_software(call: Call, request: ApiVersionsRequest) -> None:
    """Remember the client's software, unless its name is malformed."""
    if call.version < _NAMES:
        call.owner.client_software = ("unknown", "unknown")
    elif all(_SOFTWARE.fullmatch(each) for each in _read_software(request)):
        call.owner.client_software = _read_software(request)


def _check_request(call: Call, request: ApiVersionsRequest) -> Code:
    if call.version >= _NAMES and not all(
        _SOFTWARE.fullmatch(each) for each in _read_software(request)
    ):
        return Code.INVALID_REQUEST
    given = (request.cluster_id is not None, request.node_id != -1)
    if not any(given):
        return Code.NONE
    if not all(given):
        return Code.INVALID_REQUEST
    right = (request.cluster_id, request.node_id) == (call.cluster.cluster_id, call.broker.node_id)
    return Code.NONE if right else Code.REBOOTSTRAP_REQUIRED

"""ApiVersions 0 to 5: what this broker takes.

* A version that the broker does not know is answered with UNSUPPORTED_VERSION in the layout
  of version 0, naming the versions of ApiVersions alone, so that the client can ask again.
* From version 3 on the client names its software; an empty or odd name is INVALID_REQUEST.
* Version 5 checks that the client speaks to whom it means (KIP-1242): cluster and node id
  both right, or both left out: fine. Only one of them: INVALID_REQUEST. Either one wrong:
  REBOOTSTRAP_REQUIRED. An error comes without APIs, and the connection stays open.
* No finalized features: clients fall back to the oldest behaviour of each. But for
  "group.resync" (level 1), which is no feature of Kafka's: with `EmbeddedCluster(resync=True)`
  a leader may give new assignments within a generation.
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
from aiokclient.testing.call import Call, Reply
from aiokclient.testing.codes import Code

RESYNC = "group.resync"
_FEATURES = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(call: Call) -> Reply:
    spans = call.cluster.versions(call.broker.node_id)
    first, last = spans[ApiKey.API_VERSIONS]
    if call.request is None or not first <= call.version <= last:
        own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=first, max_version=last)
        return ApiVersionsResponse(error_code=Code.UNSUPPORTED_VERSION, api_keys=[own])
    code = call.refused() or _check(call, call.request)
    if code:
        return ApiVersionsResponse(error_code=code)
    answer = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api, min_version=low, max_version=high)
            for api, (low, high) in spans.items()
        ],
    )
    if call.version >= _FEATURES:
        answer.finalized_features_epoch = 0
        if call.cluster.groups.resync:
            answer.supported_features = [
                SupportedFeatureKey(name=RESYNC, min_version=1, max_version=1)
            ]
            answer.finalized_features = [
                FinalizedFeatureKey(name=RESYNC, max_version_level=1, min_version_level=1)
            ]
    return answer


def _check(call: Call, request: ApiVersionsRequest) -> Code:
    if call.version >= 3:
        named = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(each) for each in named):
            return Code.INVALID_REQUEST
    given = (request.cluster_id is not None, request.node_id != -1)
    if not any(given):
        return Code.NONE
    if not all(given):
        return Code.INVALID_REQUEST
    right = (request.cluster_id, request.node_id) == (call.cluster.cluster_id, call.broker.node_id)
    return Code.NONE if right else Code.REBOOTSTRAP_REQUIRED

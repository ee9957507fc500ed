"""The admin calls about the cluster: its id, controller, brokers, and features (KIP-584)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from aiokclient.admin.arguments import as_mapping, as_name, require_integer
from aiokclient.admin.requests import AdminRequests, Answers, read_failure
from aiokclient.admin.results import OpenEnum, Results
from aiokclient.cluster.metadata.controllers import CONTROLLERS
from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.targets import AnyBroker, Broker, Controller
from aiokclient.errors import UnsupportedVersionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.network.setup import identifying_request
from aiokclient.protocol.messages.api_versions import ApiVersionsResponse
from aiokclient.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from aiokclient.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from aiokclient.protocol.wanted_topics import WantedTopicsRequest
from aiokclient.types import is_integer, public_in
from aiokclient.types.frozen import frozen
from aiokclient.types.named_tuple import NamedTuple

NOT_ASKED = -(2**31)
"""The bits in a response to a request that did not ask for authorized operations (KIP-430)."""
HIGHEST_LEVEL = (1 << 15) - 1


@public_in("aiokclient.admin")
class AclOperation(OpenEnum):
    """The operations that an ACL can allow or deny. The values are those of Kafka's protocol.

    ANY is for filters. ALL is every operation. UNKNOWN is an operation that this client does not
    know.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def read_operations(bits: int) -> frozenset[AclOperation] | None:
    """Return the operations whose bits are set, or None if the request did not ask for them."""
    if bits == NOT_ASKED:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)


@public_in("aiokclient.admin")
@frozen
class BrokerDescription:
    """A broker of the cluster. A fenced broker is registered but not in service."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@public_in("aiokclient.admin")
@frozen
class ClusterDescription:
    """A description of the cluster. Requests that change the cluster go to `controller_id`.

    In KRaft mode, `controller_id` is an arbitrary broker, which forwards such requests to the
    active controller. An admin client with `bootstrap_controllers` gets the controllers as
    `brokers`, and `controller_id` is the active one. `authorized_operations` is None unless the
    call requested it.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


def described_broker(broker: BrokerInfo | MetadataResponseBroker) -> BrokerDescription:
    """Return the description of a broker in the metadata."""
    return BrokerDescription(broker.node_id, broker.host, broker.port, broker.rack)


async def describe_cluster(
    requests: AdminRequests,
    include_authorized_operations: bool,
    include_fenced_brokers: bool,
    timeout: float | None,
) -> ClusterDescription:
    """See `Admin.describe_cluster`."""
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=include_authorized_operations,
        include_fenced_brokers=include_fenced_brokers,
    )
    if requests.uses_controllers:
        request.endpoint_type = CONTROLLERS
    try:
        response = await requests.send_request(request, AnyBroker(), timeout)
    except UnsupportedVersionError:
        if include_fenced_brokers or requests.uses_controllers:
            raise
        return await _describe_from_metadata(requests, include_authorized_operations, timeout)
    brokers = (
        BrokerDescription(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
        for each in response.brokers
    )
    return _make_description(response, brokers)


async def _describe_from_metadata(
    requests: AdminRequests, authorized: bool, timeout: float | None
) -> ClusterDescription:
    """Return the description from a Metadata response.

    Brokers older than 2.8 have no DescribeCluster (KIP-700).
    """
    # In version 0 of Metadata, an empty list requests all topics, not none. The response then
    # has all topics, but WantedTopicsRequest does not decode their descriptions.
    request = WantedTopicsRequest([])
    request.include_cluster_authorized_operations = authorized
    response: MetadataResponse = await requests.send_request(request, AnyBroker(), timeout)
    return _make_description(response, map(described_broker, response.brokers))


def _make_description(
    response: DescribeClusterResponse | MetadataResponse, brokers: Iterable[BrokerDescription]
) -> ClusterDescription:
    return ClusterDescription(
        response.cluster_id,
        None if response.controller_id < 0 else response.controller_id,
        tuple(sorted(brokers, key=lambda broker: broker.node_id)),
        read_operations(response.cluster_authorized_operations),
    )


@public_in("aiokclient.admin")
class UpgradeType(IntEnum):
    """The kinds of changes of a feature's level. The values are those of Kafka's protocol.

    A safe downgrade is refused if it would lose metadata. An unsafe one may lose it.
    """

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@public_in("aiokclient.admin")
class FeatureUpdate(NamedTuple):
    """A new level of a feature. Level 0 disables the feature."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


@public_in("aiokclient.admin")
class SupportedLevels(NamedTuple):
    """The lowest and the highest level of a feature that a broker supports."""

    lowest: int
    highest: int


@public_in("aiokclient.admin")
class FeatureMetadata(NamedTuple):
    """The features that a broker supports, and those that are enabled in the cluster.

    `finalized` has the level of each enabled feature. A feature at level 0 is disabled, and
    missing there. `epoch` grows with each change of a level; it is None if the broker does not
    know the levels yet.
    """

    supported: Mapping[str, SupportedLevels]
    finalized: Mapping[str, int]
    epoch: int | None


async def describe_features(
    requests: AdminRequests, node_id: int | None, timeout: float | None
) -> FeatureMetadata:
    """See `Admin.describe_features`."""
    if node_id is not None:
        require_integer(node_id, "the id of a broker")
    to = AnyBroker() if node_id is None else Broker(node_id)
    response: ApiVersionsResponse = await requests.send_request(identifying_request(), to, timeout)
    epoch = response.finalized_features_epoch
    return FeatureMetadata(
        {
            each.name: SupportedLevels(each.min_version, each.max_version)
            for each in response.supported_features
        },
        {each.name: each.max_version_level for each in response.finalized_features},
        None if epoch < 0 else epoch,
    )


async def update_features(
    requests: AdminRequests,
    updates: Mapping[str, int | FeatureUpdate],
    validate_only: bool,
    check: bool,
    timeout: float | None,
) -> Results[str, None]:
    """See `Admin.update_features`."""
    given = as_mapping(updates, "names of features")
    wanted = {as_name(name, "feature"): _as_update(name, new, check) for name, new in given.items()}

    async def ask(items: dict[str, FeatureUpdate], remaining: float) -> Answers[str, None]:
        request = UpdateFeaturesRequest(
            timeout_ms=requests.compute_broker_timeout_ms(remaining),
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, (level, kind) in items.items()
            ],
            validate_only=validate_only,
        )
        response = await requests.send_request(request, Controller(), remaining)
        # From Kafka 4.0 on, there are no results for features: either one error for all of them,
        # which the request has raised, or none.
        refused = {
            each.feature: read_failure(each, "UpdateFeatures", f"feature {each.feature}")
            for each in response.results
        }
        return {name: refused.get(name) for name in items}

    return await requests.ask_items(wanted, ask, timeout)


def _as_update(name: str, given: Any, check: bool) -> FeatureUpdate:
    update = given if isinstance(given, FeatureUpdate) else FeatureUpdate(given)
    level, kind = update
    if not is_integer(level) or not is_integer(kind):
        raise ArgumentTypeError(
            f"{given!r} is not a level of feature {name}. Pass an int or a FeatureUpdate."
        )
    if not 0 <= level <= HIGHEST_LEVEL and (check or not -1 - HIGHEST_LEVEL <= level < 0):
        raise ArgumentValueError(
            f"{level} is not a level of feature {name}. Levels are from 0 to {HIGHEST_LEVEL}."
        )
    if check and level == 0 and kind == UpgradeType.UPGRADE:
        raise ArgumentValueError(
            f"Level 0 disables feature {name}, which is no upgrade. Pass FeatureUpdate(0, "
            "UpgradeType.SAFE_DOWNGRADE)."
        )
    return update

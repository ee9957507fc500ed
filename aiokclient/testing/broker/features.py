"""The features of a cluster (KIP-584): what it supports, and the finalized levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.groups.coordinator import get_groups
from aiokclient.testing.broker.transactions.coordinator import get_transactions

if TYPE_CHECKING:
    from aiokclient.testing.broker.call import Call

RESYNC = "group.resync"
TRANSACTIONS = "transaction.version"
SHARE = "share.version"


class Feature(NamedTuple):
    """A feature: the lowest and the highest supported level, and the finalized `level`."""

    name: str
    lowest: int
    highest: int
    level: int


_KAFKA = (
    Feature("metadata.version", 7, 33, 33),
    Feature("group.version", 0, 1, 1),
    Feature("eligible.leader.replicas.version", 0, 1, 1),
)
_RESYNC = Feature(RESYNC, 1, 1, 1)


def list_features(call: Call) -> list[Feature]:
    """Return the features of the cluster, except those whose requests are not announced."""
    level = get_transactions(call.cluster).level
    share = Feature(SHARE, 0, 2, call.cluster.share_level)
    features = [*_KAFKA, Feature(TRANSACTIONS, 0, 2, level), share]
    if ApiKey.CONSUMER_GROUP_HEARTBEAT not in call.cluster.versions.list_versions(
        call.broker.node_id
    ):
        features = [each for each in features if each.name != "group.version"]
    if ApiKey.SHARE_GROUP_HEARTBEAT not in call.cluster.versions.list_versions(call.broker.node_id):
        features = [each for each in features if each.name != SHARE]
    if get_groups(call.cluster).resync:
        features.append(_RESYNC)
    return features

"""The identity of the cluster: the check that a client stays in the cluster that it started with.

Names and addresses may be redirected to another cluster, such as a standby. Nothing of the old
cluster is valid there: neither offsets nor ids of topics, producers, and members. So each metadata
response is compared with the known cluster id, and connections are compared as
`network/cluster_check` describes. A broker that cannot check the ids itself is asked for its
cluster

- always, with `cluster_id_change="fail"`, because nothing may reach another cluster;
- after all connections were lost, until a metadata response has confirmed the cluster.

`MetadataRequests` decides what the client does when it has found another cluster id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import aiokclient.network.diagnosis as diagnosis
from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.config.client import ClientConfig
from aiokclient.errors import ClusterChangedError
from aiokclient.log.client_log import ClientLog

if TYPE_CHECKING:
    from aiokclient.errors import KafkaError
    from aiokclient.network.cluster_check import Expected
    from aiokclient.protocol.messages.metadata import MetadataResponse

__all__ = ["ClusterIdentity"]


class ClusterIdentity:
    """The cluster id of a client, and the check of connections and responses against it.

    When a connection has reached another cluster, `elsewhere(found)` is called, where `found` is
    the metadata response of that cluster.
    """

    def __init__(self, config: ClientConfig, elsewhere: Callable[[MetadataResponse], None]) -> None:
        self.cluster_id: str | None = None
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._fails = config.cluster_id_change == "fail"
        self._enabled = config.metadata_cluster_check_enable
        self._elsewhere = elsewhere
        self._confirmed = True
        self._log = ClientLog.of("aiokclient", config)

    # -- the check of connections, see `ClusterCheck`

    @property
    def checks(self) -> bool:
        """Whether ApiVersions requests carry the ids of the cluster and of the broker.

        As in Kafka, they carry no ids if rebootstraps are disabled.
        """
        return self._enabled and self._rebootstraps

    def expected(self, node_id: int) -> Expected | None:
        """Return the cluster id and broker id that ApiVersions carries; None if it carries none."""
        if not self.checks or self.cluster_id is None or node_id < 0:
            return None
        return self.cluster_id, node_id

    def doubts(self, node_id: int) -> bool:
        """Return whether a broker that has not confirmed the ids must name its cluster."""
        return node_id >= 0 and self.cluster_id is not None and (self._fails or not self._confirmed)

    def compare(self, node_id: int, address: str, found: MetadataResponse) -> KafkaError | None:
        """Return an error if the broker has named another cluster."""
        known, other = self.cluster_id, found.cluster_id
        if known is None or other is None or not differ(known, other):
            return None
        self._elsewhere(found)
        return diagnosis.wrong_cluster(node_id, address, known, other)

    # -- the cluster

    def doubt(self) -> None:
        """Record that all connections were lost: another cluster may have the addresses now."""
        self._confirmed = False

    def confirm(self) -> None:
        """Stop asking brokers for their cluster, until all connections are lost again."""
        self._confirmed = True

    def is_other(self, found: MetadataResponse) -> bool:
        """Return whether a response comes from another cluster."""
        return differ(self.cluster_id, found.cluster_id)

    def adopt(self, found: MetadataResponse) -> None:
        """Use the cluster of a response from now on.

        Raises ClusterChangedError if it is not the known cluster and `cluster_id_change` is "fail".
        """
        old, new = self.cluster_id, found.cluster_id
        if new is None:
            return
        if old is not None and new != old:
            if self._fails:
                raise ClusterChangedError(old_cluster_id=old, new_cluster_id=new)
            self._log.warning(
                "The bootstrap servers now lead to the cluster %s instead of %s. The client "
                "continues there with new producer ids, memberships, and positions.",
                new,
                old,
                extra={"event": "cluster_changed", "old_cluster_id": old, "new_cluster_id": new},
            )
        self.cluster_id = new

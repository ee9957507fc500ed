"""The admin calls that list and delete subscriptions to the metrics of clients (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable

from aiokclient.admin.configs import ConfigCalls, ConfigResource, ConfigSource, ResourceType
from aiokclient.admin.groups import group_ids
from aiokclient.admin.requests import AdminRequests
from aiokclient.admin.results import Results
from aiokclient.cluster.targets import AnyBroker
from aiokclient.errors import KafkaError, UnsupportedVersionError
from aiokclient.protocol.messages import ListConfigResourcesRequest

__all__ = ["ClientMetricsCalls"]


class ClientMetricsCalls:
    """The admin calls about subscriptions to client metrics."""

    def __init__(self, requests: AdminRequests, configs: ConfigCalls) -> None:
        self._requests = requests
        self._configs = configs

    async def list_client_metrics(self, *, timeout: float | None = None) -> list[str]:
        """See `Admin.list_client_metrics`."""
        deadline = self._requests.deadline(timeout)
        try:
            response = await self._requests.send(
                ListConfigResourcesRequest(resource_types=[ResourceType.CLIENT_METRICS]),
                AnyBroker(),
                self._remaining(deadline),
            )
        except UnsupportedVersionError:
            # Before version 4.1, the request cannot name types: brokers list only client metrics.
            response = await self._requests.send(
                ListConfigResourcesRequest(), AnyBroker(), self._remaining(deadline)
            )
        return sorted(
            each.resource_name
            for each in response.config_resources
            if each.resource_type == ResourceType.CLIENT_METRICS
        )

    async def delete_client_metrics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> Results[str, None]:
        """See `Admin.delete_client_metrics`."""
        resources = {name: ConfigResource.client_metrics(name) for name in group_ids(names)}
        deadline = self._requests.deadline(timeout)
        described = await self._configs.describe_configs(
            resources.values(), timeout=self._remaining(deadline)
        )
        # A subscription exists as long as one of its options is set. So all of them are removed.
        changes = {
            resource: dict.fromkeys(
                entry.name
                for entry in entries.values()
                if entry.source is ConfigSource.CLIENT_METRICS
            )
            for resource, entries in described.succeeded.items()
        }
        altered = await self._configs.alter_configs(
            {resource: change for resource, change in changes.items() if change},
            timeout=self._remaining(deadline),
        )
        errors: dict[ConfigResource, KafkaError] = described.errors | altered.errors
        results = {name: errors.get(resource) for name, resource in resources.items()}
        return Results(results, self._requests.cluster.log("admin"))

    def _remaining(self, deadline: float) -> float:
        return max(deadline - self._requests.cluster.clock.monotonic(), 0.0)

"""The APIs and versions that the brokers announce and accept."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages.api_versions import ApiVersion
from aiokclient.testing.broker.controllers import is_answered

if TYPE_CHECKING:
    from aiokclient.protocol import framing


class BrokerVersions:
    """The version range of each API, which a test may limit for all brokers or for one."""

    def __init__(
        self, accepted: Mapping[ApiKey, tuple[int, int]], hidden: Collection[ApiKey] = ()
    ) -> None:
        """Accept these versions, and announce all of them except those of the APIs in `hidden`."""
        self._accepted = accepted
        self._hidden = frozenset(hidden)
        self._limits: dict[tuple[ApiKey, int | None], tuple[int, int] | None] = {}
        self._announced: dict[int, dict[ApiKey, tuple[int, int]]] = {}
        self._entries: dict[tuple[int, str], list[ApiVersion]] = {}

    def list_versions(self, node_id: int) -> Mapping[ApiKey, tuple[int, int]]:
        """Return the APIs and versions that a broker announces."""
        announced = self._announced.get(node_id)
        if announced is None:
            shown = [api for api in self._accepted if api not in self._hidden]
            spans = {api: self._find_range(api, node_id) for api in shown}
            announced = {api: span for api, span in spans.items() if span is not None}
            # Every new connection asks for them. In simulations with thousands of short-lived
            # clients, computing them each time took a tenth of the processor time.
            self._announced[node_id] = announced
        return announced

    def list_entries(self, node_id: int, listener: str) -> list[ApiVersion]:
        """Return the entries that a listener announces. Each call returns the same list."""
        entries = self._entries.get((node_id, listener))
        if entries is None:
            entries = self._entries[node_id, listener] = self.make_entries(node_id, listener)
        return entries

    def make_entries(self, node_id: int, listener: str) -> list[ApiVersion]:
        """Return the entries that a listener announces, which the caller may change."""
        return [
            ApiVersion(api_key=api, min_version=low, max_version=high)
            for api, (low, high) in self.list_versions(node_id).items()
            if is_answered(listener, api)
        ]

    def is_accepted(self, node_id: int, received: framing.DecodedRequest) -> bool:
        """Return whether a broker accepts a request. ApiVersions is accepted in any version."""
        header = received.header
        if header.request_api_key == ApiKey.API_VERSIONS:
            return True
        if received.request is None:
            return False
        span = self._find_range(ApiKey(header.request_api_key), node_id)
        return span is not None and span[0] <= header.request_api_version <= span[1]

    def limit_versions(
        self, limits: Mapping[ApiKey, tuple[int, int] | None], node_id: int | None
    ) -> None:
        """Announce and accept other versions, like an older broker. None removes an API."""
        for api, span in limits.items():
            self._limits[api, node_id] = span
        self._announced.clear()
        self._entries.clear()

    def remove_limits(self) -> None:
        self._limits.clear()
        self._announced.clear()
        self._entries.clear()

    def _find_range(self, api: ApiKey, node_id: int) -> tuple[int, int] | None:
        limits = self._limits
        if limits:
            for key in ((api, node_id), (api, None)):
                if key in limits:
                    return limits[key]
        return self._accepted.get(api)

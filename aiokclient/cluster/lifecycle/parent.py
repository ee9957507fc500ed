"""A client that has children, which it closes before itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.ownership import Anchor
from aiokclient.config.client import ClientConfig
from aiokclient.network.event_hub import EventHub
from aiokclient.scopes import new_scope

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient


class Parent(Lifecycle):
    """The base class of a client whose connections are shared by its children."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._adopted: dict[Anchor[Lifecycle], None] = {}
        self._closed_children: list[Lifecycle] = []
        """The children that this client has closed."""

    @property
    def config(self) -> ClientConfig:
        """The validated options, including defaults."""
        return self._config

    @property
    def cluster(self) -> ClusterClient:
        """The cluster client. Raises ClosedError or IllegalStateError if the client is not open."""
        if self._own_cluster is None:
            self._raise_unusable()
        return self._cluster

    @property
    def hub(self) -> EventHub:
        """The events of this client and its children."""
        return self._hub

    def adopt_child(self, child: Anchor[Lifecycle]) -> None:
        """Register a child, which this client closes before itself. Synchronous.

        Raises ClosedError or IllegalStateError if this client is not open.
        """
        self._require_usable()
        self._adopted[child] = None

    def disown_child(self, child: Anchor[Lifecycle]) -> None:
        """Forget a child that was closed on its own. Synchronous."""
        self._adopted.pop(child, None)

    @property
    def _children(self) -> list[Lifecycle]:
        """The children that still exist, the oldest first."""
        return [child for anchor in self._adopted if (child := anchor.get()) is not None]

    async def _shutdown(self, graceful: bool, timeout: float) -> None:
        # Shielded, because each child must be closed even if no time is left. Each of these calls
        # ends within its timeout.
        failed: Exception | None = None
        youngest_first = self._children[::-1]
        with new_scope(shield=True):
            for child in sorted(youngest_first, key=lambda child: child.closing_rank):
                remaining = max(self._close_bound - asyncio.get_running_loop().time(), 0.0)
                try:
                    self._closed_children.append(child)
                    await child._close(
                        graceful=graceful, timeout=min(remaining, child._compute_grace_s())
                    )
                except Exception as error:
                    failed = failed or error
        if failed is not None:
            raise failed

    def _take_failures(self) -> BaseException | None:
        # Children that were closed on their own have raised their failures already.
        unseen = [
            error
            for child in self._closed_children
            if (error := child._take_failures()) is not None
        ]
        if len(unseen) > 1:
            return BaseExceptionGroup(f"{len(unseen)} children have failures unseen", unseen)
        return unseen[0] if unseen else None

    def _find_close_obstacle(self) -> str:
        return next(filter(None, (child._find_close_obstacle() for child in self._children)), "")

    def _compute_grace_s(self) -> float:
        return sum(
            (child._compute_grace_s() for child in self._children), super()._compute_grace_s()
        )

    def _limit_close(self, timeout: float) -> None:
        super()._limit_close(timeout)
        for child in self._children:
            if child._closing is not None:
                child._limit_close(timeout)

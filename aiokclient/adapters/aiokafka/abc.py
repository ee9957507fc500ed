"""The classes from which a program derives its listeners and token providers."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Collection, Mapping

from aiokclient import TopicPartition


class ConsumerRebalanceListener(abc.ABC):
    """A listener for the partitions that a group assigns to its consumer.

    Both methods may be coroutines. They may commit and seek, but not read. What they raise is
    logged, and the rebalance goes on.
    """

    @abc.abstractmethod
    def on_partitions_revoked(
        self, revoked: Collection[TopicPartition]
    ) -> Awaitable[object] | object:
        """Handle that these partitions are about to go to other members; commit here.

        It also gets partitions that were lost, of which a commit raises CommitFailedError.
        """

    @abc.abstractmethod
    def on_partitions_assigned(
        self, assigned: Collection[TopicPartition]
    ) -> Awaitable[object] | object:
        """Handle that the consumer has these partitions; it reads nothing before this returns."""


class AbstractTokenProvider(abc.ABC):
    """A provider of tokens for the SASL mechanism OAUTHBEARER."""

    @abc.abstractmethod
    async def token(self) -> str:
        """Return a token that has not expired."""

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions to send with the token, which may be none."""
        return {}

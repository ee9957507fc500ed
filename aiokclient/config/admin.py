"""The options of an admin client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.kinds import OptionalAddresses
from aiokclient.config.option import option
from aiokclient.config.problems import suggest, together
from aiokclient.config.rules import settle
from aiokclient.errors import ConfigError

CONTROLLER_CALLS: Final = frozenset(
    [
        "add_raft_voter",
        "alter_configs",
        "alter_partition_reassignments",
        "check_cluster",
        "create_acls",
        "delete_acls",
        "describe_acls",
        "describe_cluster",
        "describe_configs",
        "describe_features",
        "describe_metadata_quorum",
        "list_partition_reassignments",
        "remove_raft_voter",
        "unregister_broker",
        "unregister_controller",
        "update_features",
    ]
)
"""The calls of an admin client with `bootstrap_controllers`, as in Java's client (KIP-919)."""


class AdminConfig(ClientConfig):
    """The options of an admin client: those that every client has, and one for controllers."""

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        OptionalAddresses(),
        (),
        "The addresses of one or more brokers, as host:port separated by commas, or as a list. "
        "The client learns of the other brokers from the first one that responds. Required, "
        "unless there is client= or bootstrap_controllers.",
        accepts="str | Sequence[str] | Sequence[tuple[str, int]]",
    )
    bootstrap_controllers: tuple[tuple[str, int], ...] = option(
        OptionalAddresses(),
        (),
        "The addresses of one or more controllers, in the form of bootstrap_servers, which must "
        "not be given then (KIP-919). It is for clusters without brokers in service: controllers "
        "answer few calls.",
        accepts="str | Sequence[str] | Sequence[tuple[str, int]]",
        shown="none",
    )

    @property
    def initial_servers(self) -> tuple[tuple[str, int], ...]:
        """The addresses from which the client learns of all others."""
        return self.bootstrap_controllers or self.bootstrap_servers

    @property
    def uses_controllers(self) -> bool:
        """Whether the client is connected to controllers instead of brokers."""
        return bool(self.bootstrap_controllers)

    def _check_together(self) -> None:
        together(self, ClientConfig._check_together, settle_servers)


def settle_servers(config: AdminConfig) -> None:
    """Raise ConfigError unless there are either brokers or controllers.

    Controllers collect no metrics of clients, so these are not pushed.
    """
    if config.bootstrap_servers and config.bootstrap_controllers:
        raise ConfigError(
            "bootstrap_controllers: It cannot be given together with bootstrap_servers or client=. "
            "Give the addresses of brokers or those of controllers."
        )
    if not config.bootstrap_servers and not config.bootstrap_controllers:
        raise ConfigError(
            "bootstrap_servers: () is not allowed. Give the address, host:port, of one or more "
            "brokers, or with bootstrap_controllers of controllers."
        )
    if config.bootstrap_controllers:
        settle(config, "enable_metrics_push", False)


suggest(AdminConfig.kind(), AdminConfig.declarations)


class AdminOptions(ClientOptions, total=False):
    """The keyword options of an admin client; `AdminConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    bootstrap_servers: str | Sequence[str] | Sequence[tuple[str, int]]
    bootstrap_controllers: str | Sequence[str] | Sequence[tuple[str, int]]

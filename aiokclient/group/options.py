"""The options of a group member."""

from __future__ import annotations

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.kinds import OPTIONAL_TEXT, POSITIVE, TEXT
from aiokclient.config.option import ABSENT, option
from aiokclient.config.problems import suggest
from aiokclient.errors import ConfigError
from aiokclient.group.handler import GroupSettings


class GroupMemberConfig(ClientConfig):
    """The options of a group member."""

    group_id: str = option(TEXT, "", "The name of the group.", keyword=False, java=ABSENT)
    protocol_type: str = option(
        TEXT,
        "",
        "The type of the group, which is the same for all of its members.",
        keyword=False,
        java=ABSENT,
    )
    group_instance_id: str | None = option(
        OPTIONAL_TEXT,
        None,
        "The name of a static member, which stays the same over restarts. A member that returns "
        "within session_timeout_ms keeps its assignment without a rebalance.",
        java=ABSENT,
    )
    session_timeout_ms: int = option(
        POSITIVE,
        45_000,
        "After how many milliseconds without a heartbeat the brokers remove a member from its "
        "group. The brokers limit it (group.min.session.timeout.ms, "
        "group.max.session.timeout.ms).",
        java=ABSENT,
    )
    rebalance_timeout_ms: int = option(
        POSITIVE,
        300_000,
        "How long a member may take to end a generation when the group rebalances, in "
        "milliseconds.",
        java=ABSENT,
    )
    heartbeat_interval_ms: int = option(
        POSITIVE,
        3_000,
        "Milliseconds between heartbeats. It must be below session_timeout_ms; a third of it is "
        "usual.",
        java=ABSENT,
    )

    def _check_together(self) -> None:
        ClientConfig._check_together(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms: {self.heartbeat_interval_ms} is not below "
                f"session_timeout_ms ({self.session_timeout_ms}). A third of it is usual."
            )

    @property
    def settings(self) -> GroupSettings:
        """The options that the engine needs."""
        return GroupSettings(
            self.group_id,
            self.group_instance_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.heartbeat_interval_ms,
        )


suggest(GroupMemberConfig.kind(), GroupMemberConfig.declarations)


class GroupMemberOptions(ClientOptions, total=False):
    """The keyword options of a group member; `GroupMemberConfig` checks them.

    `.ci/write-options` writes them from the fields above.
    """

    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int

"""The options of a group member."""

from __future__ import annotations

import dataclasses

from aiokclient.config import ClientConfig, ClientOptions
from aiokclient.config.kinds import OPTIONAL_TEXT, POSITIVE, TEXT, option
from aiokclient.errors import ConfigError
from aiokclient.group.handler import GroupSettings

__all__ = ["GroupMemberConfig", "GroupMemberOptions"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GroupMemberConfig(ClientConfig):
    """A group member's options. `rebalance_timeout_ms` bounds how long a body may take to leave.

    `session_timeout_ms` has to be within the broker's group.min.session.timeout.ms and
    group.max.session.timeout.ms.
    """

    group_id: str = option(TEXT, "")
    protocol_type: str = option(TEXT, "")
    group_instance_id: str | None = option(OPTIONAL_TEXT, None)
    session_timeout_ms: int = option(POSITIVE, 45_000)
    rebalance_timeout_ms: int = option(POSITIVE, 300_000)
    heartbeat_interval_ms: int = option(POSITIVE, 3_000)

    def _check_together(self) -> None:
        ClientConfig._check_together(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms: {self.heartbeat_interval_ms} is not below "
                f"session_timeout_ms ({self.session_timeout_ms}); a third of it is usual"
            )

    @property
    def settings(self) -> GroupSettings:
        """What the engine needs of them."""
        return GroupSettings(
            self.group_id,
            self.group_instance_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.heartbeat_interval_ms,
        )


class GroupMemberOptions(ClientOptions, total=False):
    """The keyword options of a group member; `GroupMemberConfig` checks them."""

    group_instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_interval_ms: int

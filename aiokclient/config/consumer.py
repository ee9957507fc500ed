"""The options of a consumer."""

# ruff: noqa: RUF009 - `option` makes a dataclass field

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.group import check_group, commits_by_itself
from aiokclient.config.kinds import (
    BOOLEAN,
    DESERIALIZER,
    FUNCTION,
    MILLISECONDS,
    OPTIONAL_BOOLEAN,
    OPTIONAL_TEXT,
    POSITIVE,
    AssignmentStrategies,
    Choice,
    OffsetReset,
    option,
)
from aiokclient.config.problems import suggest, together
from aiokclient.config.rules import settle
from aiokclient.types import AssignorLike, Deserializer

__all__ = ["ConsumerConfig", "ConsumerOptions", "Strategy"]

K = TypeVar("K")
V = TypeVar("V")

Strategy: TypeAlias = str | type[AssignorLike] | AssignorLike


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsumerConfig(ClientConfig):
    """A consumer's options.

    `enable_auto_commit` left out means: unless several members may get the same partition.
    """

    group_id: str | None = option(OPTIONAL_TEXT, None)
    group_instance_id: str | None = option(OPTIONAL_TEXT, None)
    group_protocol: str = option(Choice.of("classic", "consumer"), "classic")
    group_remote_assignor: str | None = option(OPTIONAL_TEXT, None)
    partition_assignment_strategy: tuple[Strategy, ...] = option(
        AssignmentStrategies(), ("range", "cooperative-sticky")
    )
    session_timeout_ms: int = option(POSITIVE, 45_000)
    heartbeat_interval_ms: int = option(POSITIVE, 3_000)
    max_poll_interval_ms: int = option(POSITIVE, 300_000)
    max_poll_records: int = option(POSITIVE, 500)
    enable_auto_commit: bool = option(OPTIONAL_BOOLEAN, None)  # type: ignore[assignment]  # set on init
    auto_commit_interval_ms: int = option(MILLISECONDS, 5_000)
    auto_offset_reset: str = option(OffsetReset(), "latest")
    new_partitions: str = option(Choice.of("earliest", "reset"), "earliest")
    isolation_level: str = option(
        Choice.of("read_uncommitted", "read_committed"), "read_uncommitted"
    )
    fetch_min_bytes: int = option(MILLISECONDS, 1)
    fetch_max_bytes: int = option(MILLISECONDS, 52_428_800)
    fetch_max_wait_ms: int = option(MILLISECONDS, 500)
    max_partition_fetch_bytes: int = option(MILLISECONDS, 1_048_576)
    max_decompressed_batch_bytes: int = option(POSITIVE, 268_435_456)
    check_crcs: bool = option(BOOLEAN, True)
    allow_auto_create_topics: bool = option(BOOLEAN, True)
    exclude_internal_topics: bool = option(BOOLEAN, True)
    key_deserializer: Any = option(DESERIALIZER, None)
    value_deserializer: Any = option(DESERIALIZER, None)
    on_record_error: Callable[[Any], Any] | None = option(FUNCTION, None)

    @property
    def auto_offset_reset_ms(self) -> int | None:
        """How far back `by_duration:` goes, in milliseconds; None for the other ways to reset."""
        return OffsetReset.duration_ms(self.auto_offset_reset)

    def _check_together(self) -> None:
        together(self, ClientConfig._check_together, check_group)
        given: Any = self.enable_auto_commit
        if given is None:
            own = commits_by_itself(self.partition_assignment_strategy)
            settle(self, "enable_auto_commit", own)


suggest(ConsumerConfig.kind(), ConsumerConfig.__dataclass_fields__)


class ConsumerOptions(ClientOptions, Generic[K, V], total=False):
    """The keyword options of a consumer; `ConsumerConfig` checks them."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    partition_assignment_strategy: Strategy | Sequence[Strategy]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    new_partitions: str
    isolation_level: str
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_decompressed_batch_bytes: int
    check_crcs: bool
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    key_deserializer: Callable[[bytes], K] | Deserializer[K] | None
    value_deserializer: Callable[[bytes], V] | Deserializer[V] | None
    on_record_error: Callable[[Any], Any] | None

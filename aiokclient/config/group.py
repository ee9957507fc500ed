"""What the options of a consumer that are about its group demand of each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from aiokclient.config.problems import Problems
from aiokclient.types import is_topic_name

__all__ = ["check_group", "commits_by_itself"]

CLASSIC_ONLY: Final = {
    "partition_assignment_strategy": "the brokers share partitions out: see group_remote_assignor",
    "session_timeout_ms": "the brokers decide it: group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "the brokers decide it: group.consumer.heartbeat.interval.ms",
}
"""Options without a meaning in the newer protocol, and what stands for them."""


def check_group(config: Any) -> None:
    """Raises ConfigError, which names the option and what to do."""
    problems = Problems()
    for option, what in _mistakes(config):
        problems.add(f"{option}: {what}")
    problems.raise_any()


def _mistakes(config: Any) -> Iterator[tuple[str, str]]:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        yield (
            "heartbeat_interval_ms",
            f"{config.heartbeat_interval_ms} is not below session_timeout_ms "
            f"({config.session_timeout_ms}); a third of it is usual",
        )
    if config.group_id == "":
        yield "group_id", "it is empty; name a group, or leave it out to read topics whole"
    instance = config.group_instance_id
    if instance is not None and config.group_id is None:
        yield "group_instance_id", "it needs a group_id, in which this is one member"
    if instance is not None and not is_topic_name(instance):
        yield (
            "group_instance_id",
            f"{instance!r} is not allowed; it must be 1 to 249 letters, digits, '.', '_' and '-'",
        )
    if config.group_protocol == "classic":
        if config.group_remote_assignor is not None:
            yield "group_remote_assignor", "it needs group_protocol='consumer'"
        return
    if config.group_id is None:
        yield "group_protocol", "'consumer' needs a group_id"
    for field in fields(config):
        advice = CLASSIC_ONLY.get(field.name)
        if advice is not None and getattr(config, field.name) != field.default:
            yield field.name, f"it cannot be set with group_protocol='consumer'; {advice}"


def commits_by_itself(strategies: tuple[Any, ...]) -> bool:
    """Whether automatic commits make sense unless the program says so.

    Where a partition goes to several members, each would undo the commits of the others.
    """
    return not any(getattr(strategy, "overlapping", False) for strategy in strategies)

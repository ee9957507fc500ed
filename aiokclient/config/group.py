"""Rules about the options of a consumer's group: which combinations are allowed. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

from aiokclient.config.problems import Problems
from aiokclient.types import is_topic_name

__all__ = ["check_group", "commits_by_itself"]

CLASSIC_ONLY: Final = {
    "partition_assignment_strategy": "The brokers assign partitions; see group_remote_assignor.",
    "session_timeout_ms": "The brokers decide it: group.consumer.session.timeout.ms.",
    "heartbeat_interval_ms": "The brokers decide it: group.consumer.heartbeat.interval.ms.",
}
"""Options that the consumer protocol does not support, with what replaces them."""


def check_group(config: Any) -> None:
    """Raise ConfigError for a wrong combination of options."""
    problems = Problems()
    for option, what in _mistakes(config):
        problems.add(f"{option}: {what}")
    problems.raise_any()


def _mistakes(config: Any) -> Iterator[tuple[str, str]]:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        yield (
            "heartbeat_interval_ms",
            f"{config.heartbeat_interval_ms} is not below session_timeout_ms "
            f"({config.session_timeout_ms}). A third of it is usual.",
        )
    if config.group_id == "":
        yield "group_id", "It is empty. Name a group, or leave it out to read all partitions."
    instance = config.group_instance_id
    if instance is not None and config.group_id is None:
        yield "group_instance_id", "It needs a group_id."
    if instance is not None and not is_topic_name(instance):
        yield (
            "group_instance_id",
            f"{instance!r} is not allowed. It must be 1 to 249 letters, digits, '.', '_' and '-'.",
        )
    if config.group_protocol == "classic":
        if config.group_remote_assignor is not None:
            yield "group_remote_assignor", "It needs group_protocol='consumer'."
        return
    if config.group_id is None:
        yield "group_protocol", "'consumer' needs a group_id."
    for field in fields(config):
        advice = CLASSIC_ONLY.get(field.name)
        if advice is not None and getattr(config, field.name) != field.default:
            yield field.name, f"It cannot be set with group_protocol='consumer'. {advice}"


OVERLAPPING = ("redundant",)
"""The names of built-in assignors that may give a partition to several members."""


def commits_by_itself(strategies: tuple[Any, ...]) -> bool:
    """Return the default of `enable_auto_commit` for these assignors.

    It is False if several members may read the same partition, because the commits of these members
    would overwrite each other.
    """
    return not any(
        strategy in OVERLAPPING or getattr(strategy, "overlapping", False)
        for strategy in strategies
        if isinstance(strategy, str) or hasattr(strategy, "overlapping")
    )

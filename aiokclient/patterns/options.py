"""Options for several clients that share connections."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.config.client import ClientConfig
from aiokclient.config.producer import ProducerOptions
from aiokclient.group.options import GroupMemberConfig, GroupMemberOptions

__all__ = ["Split", "WriterOptions", "split"]


class WriterOptions(ProducerOptions[Any, Any], GroupMemberOptions, total=False):
    """The keyword options of a single writer."""


class Split(NamedTuple):
    """Options, separated by the client that they belong to."""

    client: dict[str, Any]
    member: dict[str, Any]
    producer: dict[str, Any]


def split(options: Mapping[str, Any], client: Parent | None) -> Split:
    """Split options between a new client, a group member, and a producer.

    The options of connections go to the new client. If `client` is given, there is no new client,
    and they go to the member and to the producer. Unknown options go to the producer, which raises
    ConfigError for them.
    """
    shared, member = _names(ClientConfig), _names(GroupMemberConfig) - _names(ClientConfig)
    of_client = {name: value for name, value in options.items() if name in shared}
    to_both = {} if client is None else of_client
    of_member = {name: value for name, value in options.items() if name in member}
    rest = {n: v for n, v in options.items() if n not in shared and n not in member}
    return Split(
        {} if client is not None else of_client, {**to_both, **of_member}, {**to_both, **rest}
    )


def _names(config: type[ClientConfig]) -> set[str]:
    names = {field.name for field in dataclasses.fields(config)}
    # The pattern sets these two options itself.
    return names - {"group_id", "protocol_type"}

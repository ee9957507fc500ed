"""The internal topics of applications of Kafka Streams."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.grammar import Option

if TYPE_CHECKING:
    from aiokclient import Admin

INTERNAL_TOPICS = Option(
    ("--internal-topics",),
    "Delete the internal topics of an application of Kafka Streams, too: those in the topology of "
    "a streams group, and otherwise those with the name of the group and the endings of such "
    "topics.",
)
ENDINGS = re.compile(
    r"-.+-(changelog|repartition|subscription-registration-topic|subscription-response-topic)"
    r"|-.*KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""The part of an internal topic's name after the id of the application."""


async def find_internal_topics(admin: Admin, types: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the internal topics that exist of each group, whose types are given.

    The name of a group that does not use the streams protocol is that of its application. Its
    topics are found by their names, as kafka-streams-application-reset does.
    """
    existing = await admin.list_topics()
    streams = [group for group, group_type in types.items() if group_type == "streams"]
    described = (await admin.describe_streams_groups(streams)).raise_for_errors() if streams else {}
    found: dict[str, list[str]] = {}
    for group, group_type in types.items():
        if group in described:
            names = {
                topic.name
                for each in described[group].subtopologies
                for topic in (*each.changelog_topics, *each.repartition_source_topics)
            }
        elif group_type == "classic":
            names = {
                name
                for name in existing
                if name.startswith(group) and ENDINGS.fullmatch(name[len(group) :])
            }
        else:
            names = set()
        found[group] = sorted(names & set(existing))
    return found


async def delete_topics(admin: Admin, topics: Sequence[str]) -> dict[str, Exception]:
    """Delete topics, and return the errors of those that remain."""
    if not topics:
        return {}
    deleted = await admin.delete_topics(topics)
    return {str(name): error for name, error in deleted.errors.items()}

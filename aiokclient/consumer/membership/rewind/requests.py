"""Orders to rewind a group, as the members pass them on. Pure.

An order is an id and the offset that each of some partitions is to go back to. Members put the
orders that they want carried out behind the subscription that they join with, and the leader puts
those for a member's partitions behind its assignment. Nothing has to follow either: readers of all
clients leave alone what they do not know, as newer versions only append.

What follows begins with MARK, in every subscription: so a member tells by which others it would be
understood. Owners that have carried an order out commit with a note that has its id, so that no
other does it again. What the program writes into the metadata of its commits stands before it.

Ids begin with the time, so that their order is that of the calls, as far as clocks agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from aiokclient.errors import ProtocolError
from aiokclient.types import TopicPartition

__all__ = [
    "MARK",
    "NOTE",
    "OWN",
    "Orders",
    "annotated",
    "append",
    "is_ours",
    "merged",
    "note_in",
    "noted",
    "plain",
    "read",
    "with_note",
]

MARK: Final = b"\x00aiokclient\x01"
OWN: Final = "aiokclient: "
"""What the metadata of a commit begins with that the library wrote for itself."""
NOTE: Final = f"{OWN}rewound by "
NOTED: Final = 16
"""A note has so many ids at most, the latest."""

Orders: TypeAlias = dict[str, dict[TopicPartition, int]]


def append(data: bytes, orders: Mapping[str, Mapping[TopicPartition, int]]) -> bytes:
    """A subscription or an assignment with orders behind it."""
    plain = {
        order: [[tp.topic, tp.partition, offset] for tp, offset in offsets.items()]
        for order, offsets in orders.items()
    }
    return data + MARK + (json.dumps(plain).encode() if plain else b"")


def is_ours(data: bytes) -> bool:
    """Whether the member that joined with this understands orders."""
    return MARK in data


def read(data: bytes) -> Orders:
    """The orders behind a subscription or an assignment; ProtocolError for what are none."""
    _, mark, behind = data.rpartition(MARK)
    if not mark or not behind:
        return {}
    try:
        return {
            str(order): {TopicPartition(str(t), int(p)): int(offset) for t, p, offset in offsets}
            for order, offsets in json.loads(behind).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"The data of a group member has no valid rewind requests at its end: {error}"
        ) from error


def merged(members: Iterable[bytes]) -> Orders:
    """The orders of all members."""
    orders: Orders = {}
    for data in members:
        orders.update(read(data))
    return orders


def with_note(note: str, order: str) -> str:
    """The note with one more order."""
    ids = [*_ids(note), order]
    return NOTE + " ".join(ids[-NOTED:])


def note_in(metadata: str) -> str:
    """The note in the metadata of a commit; empty if it has none."""
    return "".join(metadata.partition(NOTE)[1:])


def plain(metadata: str) -> str:
    """The metadata of a commit without what the library wrote for itself."""
    return metadata.partition(OWN)[0]


def annotated(metadata: str, note: str) -> str:
    """The metadata with this note instead of any older one."""
    return metadata.partition(NOTE)[0] + note if note else metadata


def noted(metadata: str, order: str) -> bool:
    """Whether the note in the metadata says that the order was carried out."""
    return order in _ids(metadata)


def _ids(metadata: str) -> list[str]:
    return metadata.partition(NOTE)[2].split()

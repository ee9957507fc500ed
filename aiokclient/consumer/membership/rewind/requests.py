"""Rewind requests, as the members of a group pass them to each other. Without IO.

A rewind request is an id and the offsets to which some partitions go back. A member appends the
requests that it has made to the subscription with which it joins. The leader appends to each
assignment the requests for the partitions in it. Clients that do not know these requests ignore
bytes after a subscription or an assignment, because newer versions of both formats only append
fields.

The appended part begins with MARK. Every subscription has it, so that members know which other
members support rewind requests. An owner that has executed a request commits with a note in the
metadata. The note contains the id of the request, so that no later owner executes it again, and the
offset at which the partition really continues, which the requesting member returns. The
application's own metadata comes before the note.

Ids begin with the time, so that they sort in the order of the calls, as far as clocks agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from aiokclient.errors import ProtocolError
from aiokclient.types import TopicPartition

MARK: Final = b"\x00aiokclient\x01"
OWN: Final = "aiokclient: "
"""The prefix of the metadata that the library itself adds to commits."""
NOTE: Final = f"{OWN}rewound by "
NOTED: Final = 16
"""Number of requests in a note. Only the latest ones are kept."""
AT: Final = "@"
"""The separator of the id and the offset of a request in a note."""

RewindRequests: TypeAlias = dict[str, dict[TopicPartition, int]]


def append(data: bytes, requests: Mapping[str, Mapping[TopicPartition, int]]) -> bytes:
    """Return a subscription or an assignment with requests after it."""
    plain = {
        request_id: [[tp.topic, tp.partition, offset] for tp, offset in offsets.items()]
        for request_id, offsets in requests.items()
    }
    return data + MARK + (json.dumps(plain).encode() if plain else b"")


def is_ours(data: bytes) -> bool:
    """Return whether the member with this subscription supports rewind requests."""
    return MARK in data


def read(data: bytes) -> RewindRequests:
    """Return the requests after a subscription or an assignment.

    Raises ProtocolError if they are not valid.
    """
    _, mark, appended = data.rpartition(MARK)
    if not mark or not appended:
        return {}
    try:
        return {
            str(request_id): {
                TopicPartition(str(t), int(p)): int(offset) for t, p, offset in offsets
            }
            for request_id, offsets in json.loads(appended).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"The data of a group member has no valid rewind requests at its end: {error}"
        ) from error


def merged(members: Iterable[bytes]) -> RewindRequests:
    """Return the requests of all members."""
    requests: RewindRequests = {}
    for data in members:
        requests.update(read(data))
    return requests


def with_note(note: str, request_id: str, offset: int) -> str:
    """Return the note with one more request, and the offset at which the partition continues."""
    entries = [*_entries(note), f"{request_id}{AT}{offset}"]
    return NOTE + " ".join(entries[-NOTED:])


def note_in(metadata: str) -> str:
    """Return the note in the metadata of a commit; empty if it has none."""
    return "".join(metadata.partition(NOTE)[1:])


def plain(metadata: str) -> str:
    """Return the metadata of a commit without the library's own notes."""
    return metadata.partition(OWN)[0]


def annotated(metadata: str, note: str) -> str:
    """Return the metadata with this note instead of any older one."""
    return metadata.partition(NOTE)[0] + note if note else metadata


def noted(metadata: str, request_id: str) -> bool:
    """Return whether the note in the metadata shows that the request was executed."""
    return rewound_to(metadata, request_id) is not None


def rewound_to(metadata: str, request_id: str) -> int | None:
    """Return the offset at which the partition continued, or None if it was not rewound yet."""
    for entry in _entries(metadata):
        executed, at, offset = entry.partition(AT)
        if executed == request_id and at and offset.isdecimal():
            return int(offset)
    return None


def _entries(metadata: str) -> list[str]:
    return metadata.partition(NOTE)[2].split()

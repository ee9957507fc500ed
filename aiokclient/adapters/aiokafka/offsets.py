"""The check of offsets that a program passes to a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokclient import TopicPartition
from aiokclient.adapters.aiokafka.structs import OffsetAndMetadata


def require_offsets(given: Any) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Return the offsets and metadata by partition.

    The values are offsets, or pairs of an offset and a text. Raises ValueError or TypeError for
    anything else.
    """
    if not given or not isinstance(given, dict):
        raise ValueError(f"{given!r} is not a mapping from partitions to offsets.")
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, value in given.items():
        if not isinstance(tp, TopicPartition):
            raise TypeError(f"Key should be TopicPartition instance, and {tp!r} is none.")
        if isinstance(value, int):
            offset, metadata = value, ""
        else:
            try:
                offset, metadata = value
            except (TypeError, ValueError) as error:
                raise ValueError(f"{value!r} is neither an offset nor a pair.") from error
            if not isinstance(metadata, str):
                raise TypeError(f"Metadata should be a string, and {metadata!r} is none.")
        offsets[tp] = OffsetAndMetadata(offset, metadata)
    return offsets

"""The names that frameworks import from the coordinator of groups."""

from __future__ import annotations

from typing import Final

from aiokclient.adapters.aiokafka.private_names import GroupCoordinator

__all__ = ["GroupCoordinator", "OffsetCommitRequest"]


class OffsetCommitRequest:
    """The request for a commit, of which programs read the generation outside of a group."""

    DEFAULT_GENERATION_ID: Final = -1

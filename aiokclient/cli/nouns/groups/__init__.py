"""The commands of groups of all types."""

from __future__ import annotations

from collections.abc import Sequence

from aiokclient.cli.grammar import Command
from aiokclient.cli.nouns.groups.descriptions import DescribeGroups
from aiokclient.cli.nouns.groups.listing import ListGroups
from aiokclient.cli.nouns.groups.re2 import CheckRegex
from aiokclient.cli.nouns.groups.removal import DeleteGroups, DeleteOffsets, RemoveMembers
from aiokclient.cli.nouns.groups.resets import CopyOffsets, CreateShareGroup, ResetOffsets

COMMANDS: Sequence[type[Command]] = (
    ListGroups,
    DescribeGroups,
    ResetOffsets,
    CreateShareGroup,
    DeleteGroups,
    DeleteOffsets,
    RemoveMembers,
    CopyOffsets,
    CheckRegex,
)

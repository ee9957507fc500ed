"""Membership in a group of processes, for consumers and for anything else.

`GroupMember` is what a program uses; `GroupEngine` is what it and consumers stand on.
"""

from aiokclient.group.engine import GroupEngine
from aiokclient.group.handler import Generation, GroupHandler, GroupSettings, MemberInfo
from aiokclient.group.states import MemberState

__all__ = [
    "Generation",
    "GroupEngine",
    "GroupHandler",
    "GroupSettings",
    "MemberInfo",
    "MemberState",
]

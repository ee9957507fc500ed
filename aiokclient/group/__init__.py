"""Membership in a group of processes, for consumers and for any other kind of group.

Programs use `GroupMember`. It and the consumer are both built on `GroupEngine`.
"""

from aiokclient.group.engine import GroupEngine
from aiokclient.group.generation import GroupGeneration
from aiokclient.group.generation_mailbox import GroupProtocol
from aiokclient.group.handler import Generation, GroupHandler, GroupSettings, MemberInfo
from aiokclient.group.member import GroupMember
from aiokclient.group.member_lifecycle import MemberHandler, MemberLifecycle
from aiokclient.group.options import GroupMemberConfig, GroupMemberOptions
from aiokclient.group.states import MemberState

__all__ = [
    "Generation",
    "GroupEngine",
    "GroupGeneration",
    "GroupHandler",
    "GroupMember",
    "GroupMemberConfig",
    "GroupMemberOptions",
    "GroupProtocol",
    "GroupSettings",
    "MemberHandler",
    "MemberInfo",
    "MemberLifecycle",
    "MemberState",
]

"""Client-side partition assignment: the strategies, and the bytes by which members talk."""

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    rebalance_protocol,
)
from aiokclient.consumer.assignors.range import Range
from aiokclient.consumer.assignors.round_robin import RoundRobin
from aiokclient.consumer.assignors.strategy import BUILT_IN, make_assignors
from aiokclient.consumer.assignors.wire import (
    decode_assignment,
    decode_members,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

__all__ = [
    "BUILT_IN",
    "AssignmentCluster",
    "Assignor",
    "MemberAssignment",
    "MemberSubscription",
    "Range",
    "RebalanceProtocol",
    "RoundRobin",
    "decode_assignment",
    "decode_members",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "make_assignors",
    "rebalance_protocol",
]

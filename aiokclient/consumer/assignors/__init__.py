"""Client-side partition assignment: the strategies, and the wire format between members."""

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
    rebalance_protocol,
)
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.range import Range
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.round_robin import RoundRobin
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.consumer.assignors.strategy import BUILT_IN, make_assignors
from aiokclient.consumer.assignors.validation import validate
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
    "CoPartitioned",
    "CooperativeSticky",
    "MemberAssignment",
    "MemberSubscription",
    "Range",
    "RebalanceProtocol",
    "Redundant",
    "RoundRobin",
    "Sticky",
    "decode_assignment",
    "decode_members",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "make_assignors",
    "rebalance_protocol",
    "validate",
]

"""Reading a range of offsets of one partition as Arrow record batches, without a consumer.

`reader` has the iterator, which converts what `fetches` has fetched.
"""

from aiokclient.consumer.ranges.fetches import RangeConnections
from aiokclient.consumer.ranges.reader import read
from aiokclient.consumer.ranges.request import RangeRequest

__all__ = ["RangeConnections", "RangeRequest", "read"]

"""Reading a range of offsets of one partition as Arrow record batches, without a consumer.

`reader` has the iterator, which converts what `fetches` has fetched. `leader_requests` sends the
requests, and `outcomes` reads the responses. `log_bounds` looks up where a log starts and ends.
When a range ends, `connections` keeps its connections open, so that later ranges can use them.
"""

from aiokclient.consumer.ranges.connections import RangeConnections
from aiokclient.consumer.ranges.reader import read
from aiokclient.consumer.ranges.request import RangeRequest

__all__ = ["RangeConnections", "RangeRequest", "read"]

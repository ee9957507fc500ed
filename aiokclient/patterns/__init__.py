"""What stands on groups: a single writer, and work spread over a pool."""

from aiokclient.patterns.single_writer import single_writer
from aiokclient.patterns.work_pool import WorkItems, work_pool

__all__ = ["WorkItems", "single_writer", "work_pool"]

"""Patterns based on groups: a single writer, and work assigned to a pool."""

from aiokclient.patterns.pool import WorkItems, work_pool
from aiokclient.patterns.writer import single_writer

__all__ = ["WorkItems", "single_writer", "work_pool"]

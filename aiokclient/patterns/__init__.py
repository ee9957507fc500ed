"""Patterns that combine clients: a single writer, work assigned to a pool, and transactions."""

from aiokclient.patterns.pool import WorkItems, work_pool
from aiokclient.patterns.transform_stream import TransformBatch, TransformStream, transform
from aiokclient.patterns.writer import single_writer

__all__ = [
    "TransformBatch",
    "TransformStream",
    "WorkItems",
    "single_writer",
    "transform",
    "work_pool",
]

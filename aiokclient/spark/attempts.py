"""Attempts of a task that Spark repeats.

Spark repeats a task that has failed, by default three times, each time in a new worker process. If
no broker can be reached, each attempt would wait for `default.api.timeout.ms`. The first
attempt does; later attempts wait only a few seconds.
"""

from __future__ import annotations

from pyspark import TaskContext

from aiokclient.errors import BootstrapError
from aiokclient.spark import clients
from aiokclient.spark.option_reader import Properties

REPEATED_S = 5.0
"""Seconds for which a repeated attempt waits for a broker."""
EARLIER = "Earlier attempts of the task have failed, so this one has not waited longer."


def require_brokers(properties: Properties) -> None:
    """Raise BootstrapError if this attempt is a repeated one and no broker can be reached soon."""
    context = TaskContext.get()
    if context is None or not context.attemptNumber():
        return
    try:
        clients.connect(properties, REPEATED_S)
    except BootstrapError as error:
        error.add_note(EARLIER)
        raise

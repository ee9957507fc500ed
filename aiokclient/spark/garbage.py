"""The cost of garbage collections in Spark's Python workers.

After each task, a worker process of Spark collects all garbage, which examines every object in the
process. Most of them are modules and classes that live as long as the process, and examining them
takes 20 to 40 ms of each task. So after the first task, the objects that exist are excluded from
later collections. They are still released when nothing refers to them; only cycles among
them are not found any more.
"""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"
"""The main module of the worker processes that collect garbage after each task."""


class Exclusion:
    """The exclusion of long-lived objects from garbage collections, once in a process."""

    def __init__(self) -> None:
        self._collections: int | None = None
        """The number of full collections when the first task began."""
        self._done = False

    def begin_task(self) -> None:
        """Exclude all existing objects, once the garbage of the first task has been collected."""
        if self._done:
            return
        collections = gc.get_stats()[-1]["collections"]
        if self._collections is None:
            self._collections = collections
        elif collections > self._collections:
            self._done = True
            gc.freeze()


def in_worker() -> bool:
    """Return whether this process is a worker of Spark that collects garbage after each task."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == DAEMON


_exclusion = Exclusion() if in_worker() else None


def exclude() -> None:
    """Exclude long-lived objects, if this process is a worker of Spark. Call it in each task."""
    if _exclusion is not None:
        _exclusion.begin_task()

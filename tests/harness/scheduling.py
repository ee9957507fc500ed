"""Distribution of the tests to the workers of pytest-xdist.

The tests are sorted by what they need: three brokers, an old broker, one broker, Java, nothing.
Workers with an even number take files from the start of this order, the others from its end, until
they meet. So all end at the same time, and normally only the first worker starts real brokers. A
file stays together, except that its tests with different needs are separate units.
"""

from collections.abc import Sequence
from itertools import groupby

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

NEEDS = ("kafka3", "kafka3_session", "kafka_old", "kafka", "java")
"""Fixtures and marks of what starts slowly, in the order in which the tests run."""


def need(item: pytest.Item) -> int:
    """Return the index in NEEDS of what the test needs, or the length of NEEDS for nothing."""
    names = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
    return next((index for index, name in enumerate(NEEDS) if name in names), len(NEEDS))


def sort_for_workers(items: list[pytest.Item]) -> None:
    """Sort the tests of a worker by need. Each worker must arrive at the same order."""
    items.sort(key=need)


class TwoEndsScheduling(LoadScopeScheduling):
    """A scheduler whose workers take files from both ends of the order of the tests."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        # The order is that of the sorted tests, not that of the sizes of files.
        config.option.loadscopereorder = False
        self._units: dict[str, str] = {}

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        runs = groupby(collection, key=lambda test: test.partition("::")[0])
        self._units = {
            test: f"{index} {file}" for index, (file, tests) in enumerate(runs) for test in tests
        }

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.workqueue and int(node.gateway.id.removeprefix("gw")) % 2:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)

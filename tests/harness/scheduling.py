"""Distribution of the tests to the workers of pytest-xdist.

The tests are sorted by what they need: three brokers, an old broker, one broker, Java, or nothing.
Slow tests that need nothing come last. Workers with an even number take files from the start of
this order, and workers with an odd number take them from its end, until they meet. So all workers
end at about the same time, and usually only the first one starts three brokers. The files that run
last are short. The tests of a file form one unit for each need. Slow tests that need nothing form
a unit of their own.
"""

from collections.abc import Sequence
from itertools import groupby

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

NEEDS = ("kafka3", "kafka3_session", "kafka_old", "kafka", "java")
"""Fixtures and marks of servers that start slowly, in the order in which their tests run."""


def need(item: pytest.Item) -> int:
    """Return the index in NEEDS of the fixture or mark that the test needs.

    A test that needs none of them has the index len(NEEDS), or len(NEEDS) + 1 if it is slow.
    """
    names = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
    nothing = len(NEEDS) + ("slow" in names)
    return next((index for index, name in enumerate(NEEDS) if name in names), nothing)


def sort_for_workers(items: list[pytest.Item]) -> None:
    """Sort the tests of a worker by need. Each worker must arrive at the same order."""
    items.sort(key=need)


class TwoEndsScheduling(LoadScopeScheduling):
    """A scheduler whose workers take files from both ends of the order of the tests.

    The time to schedule a test does not grow with the number of tests: a unit contains only the
    tests that are still to be run, and a dict has the index of each test.
    """

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        # Keep the order of the sorted tests. By default, xdist begins with the largest files.
        config.option.loadscopereorder = False
        self._units: dict[str, str] = {}
        self._indexes: dict[str, int] = {}

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if self._units:
            return
        runs = groupby(collection, key=lambda test: test.partition("::")[0])
        self._units = {
            test: f"{index} {file}" for index, (file, tests) in enumerate(runs) for test in tests
        }
        self._indexes = {test: index for index, test in enumerate(collection)}

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        test = self.registered_collections[node][item_index]
        unit, assigned = self._units[test], self.assigned_work[node]
        if unit in assigned:
            assigned[unit].pop(test, None)
            if not assigned[unit]:
                del assigned[unit]
        self._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._units[nodeid]

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        return sum(map(len, workload.values()))

    def _assign_work_unit(self, node: WorkerController) -> None:
        last = bool(int(node.gateway.id.removeprefix("gw")) % 2)
        unit, tests = self.workqueue.popitem(last=last)
        self.assigned_work[node][unit] = tests
        node.send_runtest_some([self._indexes[test] for test in tests])

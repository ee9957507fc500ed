"""Distribution of the tests to the workers of pytest-xdist.

The tests are sorted by what they need: three brokers, an old broker, one broker, Java, nothing; the
slow ones of the last kind come last. Workers with an even number take files from the start of this
order, the others from its end, until they meet. So all end at about the same time, normally only
the first worker starts three brokers, and what the workers run last are short files. A file stays
together, except that its tests with different needs, and its slow tests, are separate units.
"""

from collections.abc import Sequence
from itertools import groupby

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

NEEDS = ("kafka3", "kafka3_session", "kafka_old", "kafka", "java")
"""Fixtures and marks of what starts slowly, in the order in which the tests run."""


def need(item: pytest.Item) -> int:
    """Return the index in NEEDS of what the test needs.

    That of a test which needs nothing is higher, and highest if it is slow.
    """
    names = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
    nothing = len(NEEDS) + ("slow" in names)
    return next((index for index, name in enumerate(NEEDS) if name in names), nothing)


def sort_for_workers(items: list[pytest.Item]) -> None:
    """Sort the tests of a worker by need. Each worker must arrive at the same order."""
    items.sort(key=need)


class TwoEndsScheduling(LoadScopeScheduling):
    """A scheduler whose workers take files from both ends of the order of the tests.

    Its time per test does not depend on the number of tests: a unit contains only the tests that
    are still to be run, and the index of a test is looked up.
    """

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        # The order is that of the sorted tests, not that of the sizes of files.
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

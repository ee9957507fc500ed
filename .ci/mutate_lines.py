"""A pytest plugin that records which tests run which lines, for `.ci/mutate`.

It needs Python 3.12. A line is reported once for each test, so that tests are hardly slower.
"""

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

MONITORING: Any = vars(sys)["monitoring"]
"""`sys.monitoring`, which the oldest supported Python does not have."""
TOOL = MONITORING.COVERAGE_ID
TARGETS = tuple(json.loads(os.environ["MUTATE_TARGETS"]))
ROOT = str(Path.cwd()) + os.sep

_lines: dict[str, list[int]] = defaultdict(list)
"""The tests that run a line, by their position in `_seconds`, which takes a tenth of the memory."""
_seconds: dict[str, float] = {}
_seen: set[str] = set()


def _on_line(code: CodeType, line: int) -> Any:
    if code.co_filename.startswith(TARGETS):
        _seen.add(f"{code.co_filename.removeprefix(ROOT)}:{line}")
    return MONITORING.DISABLE


def _distributes(config: pytest.Config) -> bool:
    """Return whether the tests run in other processes than this one."""
    return bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")


def pytest_sessionstart(session: pytest.Session) -> None:
    if _distributes(session.config):
        return
    MONITORING.use_tool_id(TOOL, "mutate")
    MONITORING.register_callback(TOOL, MONITORING.events.LINE, _on_line)
    MONITORING.set_events(TOOL, MONITORING.events.LINE)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _seen.clear()
    MONITORING.restart_events()
    yield
    if item.nodeid in _seconds:
        number = len(_seconds) - 1
        for line in _seen.copy():  # Other threads may still run lines.
            _lines[line].append(number)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _seconds[report.nodeid] = report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _distributes(session.config):
        return
    MONITORING.set_events(TOOL, 0)
    MONITORING.free_tool_id(TOOL)
    name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    out = Path(os.environ["MUTATE_LINES"]) / f"{name}.json"
    out.write_text(json.dumps({"lines": _lines, "seconds": _seconds}))

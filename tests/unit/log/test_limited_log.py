"""Tests of the rate limit for repeated log messages."""

import logging

import pytest

from aiokclient.clock import SystemClock
from aiokclient.log.limited_log import KEYS, LimitedLog

logger = logging.getLogger("aiokclient.test")


class StoppedClock(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def limited(clock: StoppedClock) -> LimitedLog:
    return LimitedLog(logger, clock, every_s=30.0)


def test_a_line_that_is_repeated_within_the_interval_is_logged_once_and_counted(
    limited: LimitedLog, clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        clock.now += 0.01
        limited.write(logging.WARNING, "gone", "%s is gone", "orders-3")
    clock.now += 30.0
    limited.write(logging.WARNING, "gone", "%s is gone", "orders-3")
    assert [record.getMessage() for record in caplog.records] == [
        "orders-3 is gone",
        "orders-3 is gone (and 999 more such lines before)",
    ]


def test_lines_of_different_keys_when_repeated_do_not_hold_each_other_back(
    limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in (0, 1, 0, 1):
        limited.write(logging.WARNING, ("gone", partition), "%d is gone", partition)
    assert [record.getMessage() for record in caplog.records] == ["0 is gone", "1 is gone"]


def test_a_line_below_the_level_is_neither_logged_nor_counted(
    limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="aiokclient.test"):
        limited.write(logging.INFO, "gone", "gone")
        limited.write(logging.WARNING, "gone", "gone")
    assert [record.getMessage() for record in caplog.records] == ["gone"]


def test_keys_beyond_the_limit_are_forgotten(limited: LimitedLog) -> None:
    for key in range(KEYS * 3):
        limited.write(logging.WARNING, key, "gone")
    assert len(limited._seen) == KEYS


def test_extra_of_a_line_reaches_the_record(
    limited: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    limited.write(logging.WARNING, "gone", "gone", extra={"event": "partition_gone"})
    assert caplog.records[0].__dict__["event"] == "partition_gone"

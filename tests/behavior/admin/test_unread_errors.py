"""Results whose errors nobody has looked at: a WARNING when they are dropped."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokclient import Admin, NewTopic
from aiokclient.admin import ConfigResource
from aiokclient.errors import TopicExistsError, UnknownTopicOrPartitionError
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        yield admin


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.__dict__.get("event") == "unread_errors"]


async def test_dropped_results_with_errors_log_one_warning(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.create_topics([NewTopic("orders"), NewTopic("new")])
    (warning,) = warnings(caplog)
    assert warning.levelno == logging.WARNING
    assert "1 of 2 items of an admin call have failed" in warning.getMessage()
    assert "orders: TopicExistsError" in warning.getMessage()
    assert "raise_for_errors()" in warning.getMessage()


async def test_dropped_results_without_errors_log_nothing(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    await admin.create_topics([NewTopic("new")])
    assert warnings(caplog) == []


LOOKS: dict[str, Callable[[Any], object]] = {
    "errors": lambda results: results.errors,
    "ok": lambda results: results.ok,
    "item": lambda results: results["orders"],
    "get": lambda results: results.get("orders"),
    "values": lambda results: list(results.values()),
    "repr": repr,
}


@pytest.mark.parametrize("look", LOOKS)
async def test_results_whose_errors_were_looked_at_log_nothing(
    admin: Admin, caplog: pytest.LogCaptureFixture, look: str
) -> None:
    LOOKS[look](await admin.create_topics([NewTopic("orders")]))
    with pytest.raises(TopicExistsError):
        (await admin.create_topics([NewTopic("orders")])).raise_for_errors()
    assert warnings(caplog) == []


async def test_results_of_which_only_the_successes_were_read_log_a_warning(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    results = await admin.create_topics([NewTopic("orders"), NewTopic("new")])
    assert list(results.succeeded) == ["new"]
    del results
    assert len(warnings(caplog)) == 1


async def test_a_change_of_options_that_is_checked_first_logs_nothing(
    admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    missing = ConfigResource.topic("missing")
    altered = await admin.alter_configs({missing: {"retention.ms": None}})
    assert isinstance(altered[missing], UnknownTopicOrPartitionError)
    assert warnings(caplog) == []

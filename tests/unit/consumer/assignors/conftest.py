"""Fixtures: Kafka's assignors in Java, and lines for the summary of the test run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from assignment import AssignorOracle
from kafka_harness import MissingToolError

SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def java_assignors(java: str, kafka_jars: list[Path]) -> Iterator[AssignorOracle]:
    """Run Kafka's Java assignors, with its encoder and decoder of subscriptions and assignments."""
    try:
        oracle = AssignorOracle(java, kafka_jars)
    except MissingToolError as error:
        pytest.fail(str(error), pytrace=False)
    yield oracle
    oracle.close()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Return the list of lines for the summary at the end of the run."""
    return request.config.stash.setdefault(SUMMARY, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(SUMMARY, []):
        terminalreporter.write_line(line)

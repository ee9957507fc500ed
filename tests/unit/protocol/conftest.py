"""Fixtures: Kafka's message definitions and Kafka's encoder, for tests of the wire protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_reference import Definition, WireOracle, load

SUMMARY = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def definitions(kafka_jars: list[Path]) -> dict[str, Definition]:
    """Return Kafka 4.4's definitions of the messages that a client needs, by name."""
    return load(kafka_jars)


@pytest.fixture(scope="session")
def wire_oracle(java: str, kafka_jars: list[Path]) -> Iterator[WireOracle]:
    """Run Kafka's own encoder in a process that lives as long as the test session."""
    with WireOracle(java, kafka_jars) as oracle:
        yield oracle


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Return the list of lines for the summary at the end of the run."""
    return request.config.stash.setdefault(SUMMARY, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(SUMMARY, []):
        terminalreporter.write_line(line)

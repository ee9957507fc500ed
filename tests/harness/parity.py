"""Common parts of the tests that compare the embedded cluster with a real Kafka."""

from collections.abc import Callable
from typing import Any

from aiokclient.errors import ERRORS_BY_CODE

Scenario = Callable[..., Any]


class Scenarios(dict[str, Scenario]):
    """Scenarios by name."""

    def add(self, function: Scenario) -> Scenario:
        """Add a scenario. Used as a decorator."""
        self[function.__name__] = function
        return function


def named(code: int) -> str:
    """Return Kafka's name of an error code, or "ok" for none."""
    return str(ERRORS_BY_CODE[code].name) if code else "ok"

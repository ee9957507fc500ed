"""What the tests share that ask the embedded cluster and a real Kafka the same."""

from collections.abc import Callable
from typing import Any

from aiokclient.errors import ERRORS_BY_CODE

Scenario = Callable[..., Any]


class Scenarios(dict[str, Scenario]):
    """Scenarios by their names."""

    def add(self, function: Scenario) -> Scenario:
        """As a decorator."""
        self[function.__name__] = function
        return function


def named(code: int) -> str:
    """What Kafka calls an error code; "ok" for none."""
    return str(ERRORS_BY_CODE[code].name) if code else "ok"

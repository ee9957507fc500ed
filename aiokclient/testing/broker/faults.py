"""Faults that a test injects into brokers: refusals, cut connections, delays, altered responses.

Each fault is a rule for the requests of one API. A rule applies until it was used `times` times,
until its `with` block ends, or until the cluster is reset. Several may apply to one request. If two
of them refuse it, the older one determines the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aiokclient.errors import KafkaError
from aiokclient.types import public_in

if TYPE_CHECKING:
    from types import TracebackType

    from aiokclient.protocol import ApiKey
    from aiokclient.protocol.schema import Request, Response

When: TypeAlias = Literal["before", "after"]
Where: TypeAlias = "Callable[[Any], bool] | None"
Alteration: TypeAlias = "Callable[[Any, Any], Response | None]"
ErrorLike: TypeAlias = type[KafkaError] | KafkaError | int


@public_in("aiokclient.testing")
class Fault:
    """A rule for the requests of one API.

    `hits` says how often the rule was used. `left` says how often it can still be used, or is None
    if there is no limit.
    """

    def __init__(
        self,
        faults: Faults,
        api: ApiKey,
        *,
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> None:
        self.api = api
        self.broker = broker
        self.hits = 0
        self._faults = faults
        self.left = times
        self._where = where

    def matches(self, broker: int, request: Request[Any] | None) -> bool:
        if self.broker is not None and self.broker != broker:
            return False
        return self._where is None or self._where(request)

    def count_use(self) -> None:
        self.hits += 1
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self._faults.discard_rule(self)

    def remove(self) -> None:
        """Remove the fault. Synchronous, and allowed in any thread."""
        self._faults.remove_rule(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


class Refusal(Fault):
    """A fault that refuses requests, or their parts for one topic or partition, with an error."""

    code: int = 0
    topic: str | None = None
    partition: int | None = None

    def is_about(self, topic: str | None, partition: int | None) -> bool:
        if self.topic is not None and topic is not None and self.topic != topic:
            return False
        return self.partition is None or partition is None or self.partition == partition


class Drop(Fault):
    """A fault that cuts the connection instead of answering.

    `when` says whether the connection is cut before or after the request is executed.
    """

    when: When = "before"


class Delay(Fault):
    """A fault that delays the execution of the request, or its response, by `seconds`."""

    when: When = "before"
    seconds: float = 0.0


class Throttle(Fault):
    """A fault that answers with a throttle time of `seconds`, and then waits for this time.

    Meanwhile, no other request on the connection is handled.
    """

    seconds: float = 0.0


class Alter(Fault):
    """A fault that lets a function replace the response. If it returns None, none is sent."""

    change: Alteration


class Faults:
    """The active rules, in the order in which they were added."""

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._rules: list[Fault] = []
        self._post = post

    def add_rule(self, rule: Fault) -> None:
        self._rules.append(rule)

    def discard_rule(self, rule: Fault) -> None:
        if rule in self._rules:
            self._rules.remove(rule)

    def remove_rule(self, rule: Fault) -> None:
        """Remove a rule. Allowed in any thread."""
        self._post(lambda: self.discard_rule(rule))

    def clear_rules(self) -> None:
        self._rules.clear()

    def find_matching(self, api: int, broker: int, request: Request[Any] | None) -> list[Fault]:
        if not self._rules:
            return []
        return [each for each in self._rules if each.api == api and each.matches(broker, request)]


def find_code(error: ErrorLike) -> int:
    """Return the code of an error that is given as a class, an instance, or a code."""
    if isinstance(error, int):
        return int(error)
    code: int | None = getattr(error, "code", None)
    if code is None:
        raise ValueError(f"{error!r} has no error code, so no broker can return it.")
    return code

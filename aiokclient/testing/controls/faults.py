"""Controls of the embedded cluster that make requests go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.faults import (
    Alter,
    Alteration,
    Delay,
    Drop,
    ErrorLike,
    Fault,
    Refusal,
    Throttle,
    When,
    Where,
    code_of,
)
from aiokclient.testing.controls.base import Controls

F = TypeVar("F", bound=Fault)


class FaultControls(Controls):
    """Each gives a `Fault`, which holds at once.

    It ends when its `with` block is left, by its `remove()`, after `times` requests, or by
    `reset()`. `broker` and `where` (a function of the request's message) narrow it down.
    """

    def fail(
        self,
        api: ApiKey,
        error: ErrorLike,
        *,
        times: int | None = None,
        broker: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Refuse requests, or their parts for one topic or partition, without any effect.

        `error` is a class of `aiokclient.errors` or a code of the protocol.
        """
        fault = Refusal(self._state.faults, api, times=times, broker=broker, where=where)
        fault.code, fault.topic, fault.partition = code_of(error), topic, partition
        return self._add(fault)

    def drop(
        self,
        api: ApiKey,
        *,
        when: When = "before",
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Cut the connection before a request takes effect, or "after", without an answer."""
        fault = Drop(self._state.faults, api, times=times, broker=broker, where=where)
        fault.when = _checked(when)
        return self._add(fault)

    def delay(
        self,
        api: ApiKey,
        seconds: float,
        *,
        when: When = "before",
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Take requests up only after `seconds`; "after": hold their answers back so long.

        What is behind such a request on its connection waits, too.
        """
        fault = Delay(self._state.faults, api, times=times, broker=broker, where=where)
        fault.when, fault.seconds = _checked(when), seconds
        return self._add(fault)

    def throttle(
        self,
        api: ApiKey,
        seconds: float,
        *,
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Answer with that throttle time, and read no more of the connection until it is over."""
        fault = Throttle(self._state.faults, api, times=times, broker=broker, where=where)
        fault.seconds = seconds
        return self._add(fault)

    def alter(
        self,
        api: ApiKey,
        change: Alteration,
        *,
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Send what `change(request, response)` gives instead of the response; None: nothing.

        It runs in the cluster's loop, after the request took effect.
        """
        fault = Alter(self._state.faults, api, times=times, broker=broker, where=where)
        fault.change = change
        return self._add(fault)

    def limit_versions(
        self, limits: Mapping[ApiKey, tuple[int, int] | None], *, broker: int | None = None
    ) -> None:
        """Announce and take only these versions of some APIs (None: not at all), until `reset`.

        As a broker does that is older. Connections stay open: their clients know the old ones.
        """
        self._runner.call(lambda: self._state.limit_versions(limits, broker))

    def disconnect(self, broker: int | None = None) -> None:
        """Cut all connections of a broker, or of all; new ones are taken at once."""

        def cut() -> None:
            for each in self._brokers.values():
                if broker in (None, each.node_id):
                    each.disconnect()

        self._runner.call(cut)

    def evict_sessions(self, broker: int | None = None) -> None:
        """Forget the fetch sessions of a broker, or of all."""

        def evict() -> None:
            for each in self._brokers.values():
                if broker in (None, each.node_id):
                    each.sessions.evict()

        self._runner.call(evict)

    def _add(self, fault: F) -> F:
        _require(fault, list(self._brokers))
        self._runner.call(lambda: self._state.faults.add(fault))
        return fault


def _checked(when: When) -> When:
    if when not in ("before", "after"):
        raise ValueError(f'when={when!r}: "before" or "after"')
    return when


def _require(fault: Fault, brokers: list[int]) -> None:
    """Raises ValueError for a rule that no request could ever meet: its test would show nothing."""
    if not isinstance(fault.api, int) or fault.api not in list(ApiKey):
        raise ValueError(f"{fault.api!r} is not an ApiKey")
    if fault.broker is not None and fault.broker not in brokers:
        raise ValueError(f"there is no broker {fault.broker!r}; there are {brokers}")
    if fault.left is not None and (not isinstance(fault.left, int) or fault.left < 1):
        raise ValueError(f"times={fault.left!r}: at least once, or None for each time")
    seconds = getattr(fault, "seconds", 0)
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{seconds!r} is not a number of seconds")

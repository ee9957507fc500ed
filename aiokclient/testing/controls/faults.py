"""Controls of the embedded cluster that inject faults into requests and responses."""

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
    find_code,
)
from aiokclient.testing.controls.base import Controls

F = TypeVar("F", bound=Fault)


class FaultControls(Controls):
    """Controls that inject faults. Each one returns a `Fault`, which takes effect immediately.

    A fault ends when its `with` block ends, when `remove()` is called on it, after it was applied
    to `times` requests, or at `reset()`. `broker` restricts it to one broker, and `where`, a
    function of the request's message, to the requests for which that function returns true.
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
        """Refuse requests, or their parts for one topic or partition, without executing them.

        `error` is a class of `aiokclient.errors` or an error code of the protocol.
        """
        fault = Refusal(self._state.faults, api, times=times, broker=broker, where=where)
        fault.code, fault.topic, fault.partition = find_code(error), topic, partition
        return self._add_fault(fault)

    def drop(
        self,
        api: ApiKey,
        *,
        when: When = "before",
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Cut the connection instead of sending a response.

        With `when="before"` the request is not executed; with "after" it is.
        """
        fault = Drop(self._state.faults, api, times=times, broker=broker, where=where)
        fault.when = _check_when(when)
        return self._add_fault(fault)

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
        """Delay the execution of a request, or its response, by `seconds`.

        With `when="before"` the execution is delayed; with "after", only the response is. Later
        requests on the same connection wait, too.
        """
        fault = Delay(self._state.faults, api, times=times, broker=broker, where=where)
        fault.when, fault.seconds = _check_when(when), seconds
        return self._add_fault(fault)

    def throttle(
        self,
        api: ApiKey,
        seconds: float,
        *,
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Answer with a throttle time of `seconds`, and do not read the connection meanwhile."""
        fault = Throttle(self._state.faults, api, times=times, broker=broker, where=where)
        fault.seconds = seconds
        return self._add_fault(fault)

    def alter(
        self,
        api: ApiKey,
        change: Alteration,
        *,
        times: int | None = None,
        broker: int | None = None,
        where: Where = None,
    ) -> Fault:
        """Replace the response with the result of `change(request, response)`.

        If the result is None, no response is sent. The function runs in the cluster's event loop,
        after the request was executed.
        """
        fault = Alter(self._state.faults, api, times=times, broker=broker, where=where)
        fault.change = change
        return self._add_fault(fault)

    def limit_versions(
        self, limits: Mapping[ApiKey, tuple[int, int] | None], *, broker: int | None = None
    ) -> None:
        """Announce and accept only these versions of some APIs until `reset`, like an older broker.

        None stands for an API that the broker does not have. Connections stay open, and their
        clients still know the previous versions.
        """
        self._runner.call_in_loop(lambda: self._state.versions.limit_versions(limits, broker))

    def disconnect(self, broker: int | None = None) -> None:
        """Cut all connections to a broker, or to all brokers. New ones are accepted immediately."""

        def cut_all() -> None:
            for each in self._brokers.values():
                if broker in (None, each.node_id):
                    each.cut_connections()

        self._runner.call_in_loop(cut_all)

    def evict_sessions(self, broker: int | None = None) -> None:
        """Remove the fetch sessions of a broker, or of all brokers."""

        def evict_all() -> None:
            for each in self._brokers.values():
                if broker in (None, each.node_id):
                    each.sessions.evict_all()

        self._runner.call_in_loop(evict_all)

    def _add_fault(self, fault: F) -> F:
        _require_match(fault, list(self._brokers))
        self._runner.call_in_loop(lambda: self._state.faults.add_rule(fault))
        return fault


def _check_when(when: When) -> When:
    if when not in ("before", "after"):
        raise ValueError(f'when={when!r} is not valid. Use "before" or "after".')
    return when


def _require_match(fault: Fault, brokers: list[int]) -> None:
    """Raise ValueError for a fault that could not match any request, which would test nothing."""
    if not isinstance(fault.api, int) or fault.api not in list(ApiKey):
        raise ValueError(f"{fault.api!r} is not an ApiKey.")
    if fault.broker is not None and fault.broker not in brokers:
        raise ValueError(f"There is no broker {fault.broker!r}. Brokers: {brokers}.")
    if fault.left is not None and (not isinstance(fault.left, int) or fault.left < 1):
        raise ValueError(f"times={fault.left!r} is not valid. Use 1 or more, or None for no limit.")
    seconds = getattr(fault, "seconds", 0)
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"seconds={seconds!r} is not valid. Use 0 or more.")

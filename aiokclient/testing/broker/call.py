"""One request at a broker: what a handler receives and what it returns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Generator, Hashable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.controllers import find_inactive_code
from aiokclient.testing.broker.faults import Refusal
from aiokclient.testing.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from aiokclient.testing.broker.security.requirements import FAILED, NEEDED

if TYPE_CHECKING:
    from aiokclient.protocol import ApiKey
    from aiokclient.protocol.schema import Response
    from aiokclient.testing.broker.connections.sasl import Authentication
    from aiokclient.testing.broker.faults import Fault
    from aiokclient.testing.broker.node import Node
    from aiokclient.testing.broker.security.principal import Principal
    from aiokclient.testing.broker.state import ClusterState

T = TypeVar("T")

Answer: TypeAlias = "Response | asyncio.Future[Response | None] | None"
Reply: TypeAlias = "Answer | Coroutine[Any, Any, Answer]"
"""The result of a handler: a response, None for no response (`acks=0`), or an awaitable of either.

A future that a handler returns is cancelled when the connection is lost. So a handler that waits
for something attaches its cleanup to the future (`add_done_callback`).

A handler whose work grows with its request is a coroutine function that awaits only
`Call.iterate_items`, `Call.iterate_slices`, and futures. It runs without a task. If the connection
is lost while the coroutine waits, the coroutine is closed.
"""

_SLICE = 100
"""Maximum number of items that are handled in one iteration of the event loop."""
_NOTHING: Counter[Any] = Counter()


class _Turn:
    """An awaitable that lets the event loop handle other connections."""

    def __await__(self) -> Generator[None]:
        yield


class _Each(Generic[T]):
    """The items of an iterable. After every `_SLICE` items, the event loop may run other tasks."""

    __slots__ = ("_call", "_items")

    def __init__(self, call: Call, items: Iterable[T]) -> None:
        self._call = call
        self._items = iter(items)

    def __aiter__(self) -> _Each[T]:
        return self

    async def __anext__(self) -> T:
        call = self._call
        call.handled += 1
        if not call.handled % _SLICE:
            call.yielded = True
            await _Turn()
        for item in self._items:
            return item
        raise StopAsyncIteration


class _Slices(Generic[T]):
    """The items of an iterable in lists. Between two lists, the event loop may run other tasks."""

    __slots__ = ("_begun", "_call", "_items")

    def __init__(self, call: Call, items: Iterable[T]) -> None:
        self._call = call
        self._items = iter(items)
        self._begun = False

    def __aiter__(self) -> _Slices[T]:
        return self

    async def __anext__(self) -> list[T]:
        part = list(islice(self._items, _SLICE))
        if not part:
            raise StopAsyncIteration
        if self._begun:
            self._call.yielded = True
            await _Turn()
        self._begun = True
        return part


class RequestConnection(Protocol):
    """The connection on which a request arrived."""

    authentication: Authentication
    listener: str
    """The name of the broker's listener that accepted the connection."""
    client_software: tuple[str, str]
    """The name and the version of the client's software, as it sent them with ApiVersions."""

    @property
    def client_host(self) -> str: ...

    @property
    def client_port(self) -> int | None: ...

    def abort(self) -> None: ...

    def close_after_response(self) -> None: ...

    def throttle_client(self, seconds: float) -> None: ...

    def on_authenticated(self) -> None: ...


class Call:
    """A request with the broker that received it and the faults that apply to it."""

    __slots__ = (
        "_authorizer",
        "_inactive_code",
        "_refusals",
        "_spoken",
        "api",
        "broker",
        "client_id",
        "cluster",
        "handled",
        "has_faults",
        "outlives_connection",
        "owner",
        "request",
        "times",
        "version",
        "yielded",
    )

    def __init__(
        self,
        cluster: ClusterState,
        broker: Node,
        api: ApiKey,
        version: int,
        request: Any,
        client_id: str | None,
        owner: RequestConnection,
        faults: list[Fault],
    ) -> None:
        self.cluster = cluster
        self.broker = broker
        self.api = api
        self.version = version
        self.request = request
        self.client_id = client_id
        self.owner = owner
        """The connection on which the request arrived.

        Some objects, such as client instances, have it as their owner, and end when it closes.
        """
        self.outlives_connection = False
        """Whether the request is executed to its end even if the connection is lost meanwhile.

        The broker then notices the loss afterwards.
        """
        self.has_faults = bool(faults)
        """Whether a fault applies, which may change the response."""
        self._authorizer = cluster.security.authorizer
        self._refusals = [each for each in faults if isinstance(each, Refusal)]
        self._spoken: list[Refusal] = []
        self._inactive_code = find_inactive_code(cluster, broker, owner.listener, api)
        self.handled = 0
        """The number of items that `iterate_items` has yielded in all its uses."""
        self.yielded = False
        """Whether the handler has yielded to the event loop between two slices."""
        self.times: Counter[Any] = _NOTHING
        """The number of times that each part occurs in the request. Set by `count_parts`."""

    def find_refusal(self, topic: str | None = None, partition: int | None = None) -> int:
        """Return the error code with which this part of the request is refused, or 0.

        The part is refused if a test injected a `Refusal` for it, if the client is not authorized
        for the topic, or if only the active controller executes the request. A refusal counts as
        used once for each request, however many partitions it applies to.
        """
        for each in self._refusals:
            if each.is_about(topic, partition):
                if each not in self._spoken:
                    self._spoken.append(each)
                    each.count_use()
                return each.code
        if self._inactive_code:
            return self._inactive_code
        if topic is None or self._authorizer is None:
            return 0
        return self.check_authorization(AclResource.TOPIC, topic)

    # -- authorization -------------------------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.owner.authentication.principal

    def is_allowed(self, operation: AclOperation, resource_type: AclResource, name: str) -> bool:
        """Return whether the client may perform an operation. Without an authorizer, it may."""
        if self._authorizer is None:
            return True
        host = self.owner.client_host.removeprefix("/")
        return self._authorizer.is_allowed(
            str(self.principal), host, operation, resource_type, name
        )

    def is_any_allowed(self, operation: AclOperation, resource_type: AclResource) -> bool:
        """Return whether the client may perform an operation on at least one resource of a type."""
        if self._authorizer is None:
            return True
        host = self.owner.client_host.removeprefix("/")
        return self._authorizer.is_any_allowed(str(self.principal), host, operation, resource_type)

    def check_authorization(self, resource_type: AclResource, name: str) -> int:
        """Return the error code if the client lacks the permission that the request needs, or 0.

        `requirements.py` lists the permissions that requests need.
        """
        if self._authorizer is None:
            return 0
        operation = NEEDED[resource_type].get(self.api)
        if operation is None or self.is_allowed(operation, resource_type, name):
            return 0
        return FAILED[resource_type]

    def check_cluster_authorization(self, operation: AclOperation | None = None) -> int:
        """Return the error code if the client lacks a permission on the cluster, or 0.

        The permission is `operation`, by default the one that the request needs.
        """
        if operation is None:
            return self.check_authorization(AclResource.CLUSTER, CLUSTER_NAME)
        allowed = self.is_allowed(operation, AclResource.CLUSTER, CLUSTER_NAME)
        return 0 if allowed else Code.CLUSTER_AUTHORIZATION_FAILED

    def charge_mutations(self, partitions: int, *, strict_since: int) -> int:
        """Return THROTTLING_QUOTA_EXCEEDED if the client may not create or delete partitions, or 0.

        `partitions` is the number of partitions to create or delete. In versions of the request
        before `strict_since`, the client is only throttled, and the result is 0.
        """
        quotas = self.cluster.security.quotas
        if not quotas.has_any:
            return 0
        strict = self.version >= strict_since
        accepted, seconds = quotas.charge_mutations(
            self.principal.name, self.client_id or "", partitions, strict=strict
        )
        self.owner.throttle_client(seconds)
        return 0 if accepted else Code.THROTTLING_QUOTA_EXCEEDED

    # -- the parts of the request --------------------------------------------------------------

    def iterate_items(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Iterate over parts of the request without blocking the event loop when there are many.

        Other requests may be handled between two items, so they must not be able to change the
        iterable.
        """
        return _Each(self, items)

    def iterate_slices(self, items: Iterable[T]) -> AsyncIterator[list[T]]:
        """Iterate over lists of items without blocking the event loop when there are many items.

        Other requests may be handled between two lists, but not within one.
        """
        return _Slices(self, items)

    async def count_parts(self, parts: Iterable[Hashable]) -> Counter[Any]:
        """Count how often each part occurs in the request, and set `times` to the result."""
        times: Counter[Any] = Counter()
        self.times = times
        async for part in self.iterate_slices(parts):
            times.update(part)
        return times

    def hold_response(self) -> asyncio.Future[Response | None]:
        """Return a future, which the handler returns and completes with the response later."""
        return self.cluster.loop.create_future()

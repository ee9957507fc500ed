"""The client instances that a broker knows, and what each of them may send.

A client instance exists from its first request on. It ends when the connection on which it was
created is closed, or when it has sent nothing for three push intervals, and for a minute at least.
If there are too many instances, the one that was used least recently is removed. A client whose
instance has ended keeps the instance id, and its next request creates the instance again.

* A client may ask for its subscription once in a push interval, and additionally after a push that
  was refused with UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE.
* A client may push once in a push interval, and additionally after it asked for the subscription. A
  terminating push is also allowed at any other time, and the next push after it is refused.
* When the subscriptions change, an instance forgets its earlier requests and pushes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from math import inf
from uuid import UUID

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.telemetry.subscriptions import (
    MergedSubscription,
    MetricsSubscriptions,
)

MOST_INSTANCES = 16_384
"""The number of client instances that a broker keeps, as in Kafka."""

MOST_BYTES = 32 << 20
"""The maximum size of the properties of all clients, in characters. Kafka does not limit it."""

_LEAST_LIFE_S = 60.0
_SWEEP_S = 1.0
"""The least time between two searches for expired instances while there are too many."""

_ASKS_AGAIN = (Code.UNKNOWN_SUBSCRIPTION_ID, Code.UNSUPPORTED_COMPRESSION_TYPE)
"""The errors of a push after which a client asks for its subscription immediately."""


class ClientInstance:
    """One client instance with its subscription. Times are in seconds."""

    __slots__ = (
        "_asked_at",
        "_last_code",
        "_pushed_at",
        "_terminated",
        "client",
        "connection",
        "expires_at",
        "size",
        "subscription",
        "version",
    )

    def __init__(
        self,
        client: Mapping[str, str | None],
        connection: object,
        subscription: MergedSubscription,
        version: int,
    ) -> None:
        self.client = client
        """The properties of the client, by which it is matched."""
        self.size = sum(len(value or "") for value in client.values())
        self.connection = connection
        """The connection on which the instance was created. The instance ends with it."""
        self.subscription = subscription
        self.version = version
        """The version of the subscriptions with which the client was matched."""
        self.expires_at = inf
        self._asked_at = -inf
        self._pushed_at = -inf
        self._terminated = False
        self._last_code = Code.NONE

    @property
    def life_s(self) -> float:
        """The number of seconds without a request after which the instance ends."""
        return max(_LEAST_LIFE_S, 3 * self.subscription.interval_ms / 1000)

    def on_subscription_request(self, now: float) -> Code:
        """Handle a request for the subscription, and return its error code."""
        if self._has_passed(max(self._asked_at, self._pushed_at), now):
            self._asked_at = now
        elif self._last_code not in _ASKS_AGAIN:
            return Code.THROTTLING_QUOTA_EXCEEDED
        self._last_code = Code.NONE
        return Code.NONE

    def on_push(
        self, now: float, subscription_id: int, *, terminating: bool, known_codec: bool, fits: bool
    ) -> Code:
        """Handle a push before its metrics are read, and return its error code."""
        code = self._check_push(now, subscription_id, terminating, known_codec, fits)
        self._terminated = terminating
        self._last_code = code
        return code

    def _check_push(
        self, now: float, subscription_id: int, terminating: bool, known_codec: bool, fits: bool
    ) -> Code:
        if self._terminated:
            return Code.INVALID_REQUEST
        on_time = self._asked_at > self._pushed_at or self._has_passed(self._pushed_at, now)
        if on_time:
            self._pushed_at = now
        elif not terminating:
            return Code.THROTTLING_QUOTA_EXCEEDED
        if subscription_id != self.subscription.subscription_id:
            return Code.UNKNOWN_SUBSCRIPTION_ID
        if not known_codec:
            return Code.UNSUPPORTED_COMPRESSION_TYPE
        return Code.NONE if fits else Code.TELEMETRY_TOO_LARGE

    def refuse_metrics(self) -> Code:
        """Handle metrics that could not be read or exported, and return the error code."""
        self._last_code = Code.INVALID_RECORD
        return Code.INVALID_RECORD

    def _has_passed(self, since: float, now: float) -> bool:
        """Return whether a push interval has passed. Like Kafka, compare milliseconds."""
        return round((now - since) * 1000, 3) >= self.subscription.interval_ms


class ClientInstances:
    """The client instances of one broker. `time` returns seconds on a monotonic clock."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._size = 0
        self._of_connection: dict[object, UUID] = {}
        """The last instance that each connection created. Earlier instances end when they expire.

        If several connections created the same instance, it ends when the first of them is closed.
        """
        self._swept_at = -inf

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: object) -> bool:
        return instance_id in self._instances

    def use_instance(
        self,
        instance_id: UUID,
        connection: object,
        subscriptions: MetricsSubscriptions,
        client: Callable[[], Mapping[str, str | None]],
    ) -> ClientInstance:
        """Return an instance for a request, with its current subscription.

        If the instance does not exist yet, `client` is called for the client's properties.
        """
        now = self._time()
        found = self._instances.get(instance_id)
        if found is not None and found.expires_at <= now:
            self._remove_instance(instance_id)
            found = None
        if found is None or found.version < subscriptions.version:
            properties = client() if found is None else found.client
            found = ClientInstance(
                properties,
                connection,
                subscriptions.merge_for_client(instance_id, properties),
                subscriptions.version,
            )
            self._add_instance(instance_id, found, now)
        self._instances.move_to_end(instance_id)
        found.expires_at = now + found.life_s
        return found

    def _add_instance(self, instance_id: UUID, instance: ClientInstance, now: float) -> None:
        replaced = self._instances.pop(instance_id, None)
        self._size += instance.size - (0 if replaced is None else replaced.size)
        if self._is_full and now - self._swept_at >= _SWEEP_S:
            self._remove_expired(now)
        while self._is_full and self._instances:
            self._remove_instance(next(iter(self._instances)))
        self._instances[instance_id] = instance
        self._of_connection[instance.connection] = instance_id

    @property
    def _is_full(self) -> bool:
        return len(self._instances) >= MOST_INSTANCES or self._size > MOST_BYTES

    def _remove_expired(self, now: float) -> None:
        """Remove all instances that have expired."""
        self._swept_at = now
        for each in [key for key, found in self._instances.items() if found.expires_at <= now]:
            self._remove_instance(each)

    def _remove_instance(self, instance_id: UUID) -> None:
        removed = self._instances.pop(instance_id)
        self._size -= removed.size
        if self._of_connection.get(removed.connection) == instance_id:
            del self._of_connection[removed.connection]

    def on_disconnected(self, connection: object) -> None:
        """Remove the last instance that a connection created."""
        instance_id = self._of_connection.pop(connection, None)
        if instance_id is not None and instance_id in self._instances:
            self._remove_instance(instance_id)

    def clear_instances(self) -> None:
        """Remove all instances."""
        self._instances.clear()
        self._of_connection.clear()
        self._size = 0

"""The routing of requests: from a target to a broker id, by the snapshot or a lookup.

The coordinators of groups, transactions, and share partitions are looked up. A coordinator is
cached until a request to it shows that it has moved. Concurrent lookups of the same key share one
request. Several keys of one lookup share a request, too (KIP-699). Brokers that are too old for
that get one request for each key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from aiokclient.cluster.metadata.snapshot import BrokerInfo
from aiokclient.cluster.metadata.updater import MetadataUpdater
from aiokclient.cluster.requests.attempts import is_refusal
from aiokclient.cluster.requests.brokers import patience_s
from aiokclient.cluster.targets import (
    AnyBroker,
    Broker,
    Controller,
    Coordinator,
    Leader,
    Target,
    subject_of,
)
from aiokclient.errors import (
    ApiTimeoutError,
    ConfigError,
    InvalidMetadataError,
    KafkaError,
    RefreshRetriableError,
    error_for,
)
from aiokclient.log.kept_errors import bare
from aiokclient.network.connection import BrokerConnection
from aiokclient.policy import Decision, Scope, classify
from aiokclient.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient

KEY_TYPES = {"group": 0, "transaction": 1, "share": 2}
BATCHED_FROM = 4
"""The lowest version in which one request can contain several keys."""
REFUSALS = 100
"""Number of lookups whose last refusals are kept."""

LASTING_S = 1.0
"""Seconds after which refusals that another search usually ends are logged."""

Found: TypeAlias = BrokerInfo | KafkaError


class CoordinatorLocator:
    """The lookup and the cache of coordinators."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._timeout_s = cluster.config.request_timeout_ms / 1000
        self._in_vain = 0
        self._refused: dict[tuple[str, str], KafkaError] = {}
        """The last refusal of each lookup that has not succeeded since."""
        self._refused_since: dict[tuple[str, str], float] = {}
        """The time of the first of these refusals."""
        self._coordinators: dict[tuple[str, str], int] = {}
        self._lookups: dict[tuple[str, str], asyncio.Future[Found]] = {}

    def find_cached(self, kind: str, key: str) -> int | None:
        """Return the cached id of the coordinator, or None if no id is cached. Synchronous."""
        return self._coordinators.get((kind, key))

    def forget_coordinator(self, kind: str, key: str, node_id: int | None = None) -> None:
        """Drop the cached broker of a key, unless its id differs from `node_id`. Synchronous."""
        if node_id is None or self._coordinators.get((kind, key)) == node_id:
            self._coordinators.pop((kind, key), None)

    def forget_all(self) -> None:
        """Drop all cached brokers. Synchronous."""
        self._coordinators.clear()

    async def locate_coordinator(self, kind: str, key: str) -> int:
        """Return the id of the coordinator of a key, with one attempt.

        Raises the error of the response (usually the retriable CoordinatorNotAvailableError),
        DisconnectedError, and ApiTimeoutError.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        pending = self._lookups.get((kind, key))
        if pending is not None:
            found = await asyncio.shield(pending)
        else:
            found = (await self.locate_coordinators(kind, [key]))[key]
        if isinstance(found, KafkaError):
            raise found
        return found.node_id

    async def locate_coordinators(self, kind: str, keys: Iterable[str]) -> dict[str, Found]:
        """Return the coordinator, or the error, of each key, with one request if possible."""
        if kind not in KEY_TYPES:
            raise ConfigError(f"kind: {kind!r} is not one of {', '.join(KEY_TYPES)}.")
        keys = list(dict.fromkeys(keys))
        loop = asyncio.get_running_loop()
        pending = {key: loop.create_future() for key in keys}
        for key, future in pending.items():
            self._lookups[kind, key] = future
        found: dict[str, Found] = {}
        try:
            found = await self._request_in_time(kind, keys)
        except KafkaError as error:
            found = dict.fromkeys(keys, error)
        except Exception as error:
            _share_bug(pending.values(), error)
            raise
        finally:
            self._share_outcomes(kind, pending, found)
        return found

    def _share_outcomes(
        self, kind: str, pending: dict[str, asyncio.Future[Found]], found: dict[str, Found]
    ) -> None:
        for key, future in pending.items():
            if self._lookups.get((kind, key)) is future:
                del self._lookups[kind, key]
            # If this lookup was cancelled, or the response lacks its key, the tasks that share the
            # lookup retry.
            outcome = found.setdefault(
                key, RefreshRetriableError("The lookup returned no coordinator.")
            )
            if not future.done():
                future.set_result(outcome)
        for key, outcome in found.items():
            if isinstance(outcome, BrokerInfo) and key in pending:
                self._refused.pop((kind, key), None)
                self._refused_since.pop((kind, key), None)
                self._coordinators[kind, key] = outcome.node_id
                # The metadata may be older than this response, and not list the broker yet.
                self._cluster.updater.learn_broker(outcome)
            elif key in pending and isinstance(outcome, KafkaError) and is_refusal(outcome):
                # A timeout later says what the brokers have answered last.
                self._refused.pop((kind, key), None)
                self._refused[kind, key] = bare(outcome)
                self._log_refusal(kind, key, outcome)
                if len(self._refused) > REFUSALS:
                    oldest = next(iter(self._refused))
                    del self._refused[oldest]
                    self._refused_since.pop(oldest, None)

    def _log_refusal(self, kind: str, key: str, error: KafkaError) -> None:
        """Log a refusal. One that another search usually ends is logged if it lasts.

        A new cluster creates its internal topics when a coordinator is first searched for, and
        refuses the searches until then.
        """
        now = asyncio.get_running_loop().time()
        since = self._refused_since.setdefault((kind, key), now)
        usual = classify(error, Scope.FIND_COORDINATOR) is Decision.REFRESH_AND_RETRY
        if not usual or now - since >= LASTING_S:
            self._cluster.refusals.log_refusal(error)

    async def _request_in_time(self, kind: str, keys: list[str]) -> dict[str, Found]:
        waited_s = patience_s(self._in_vain, self._timeout_s)
        try:
            async with asyncio.timeout(waited_s) as waiting:
                found = await self._request_coordinators(kind, keys)
        except TimeoutError:
            if not waiting.expired():
                raise  # The timeout of the connection or the request has a better text.
            self._in_vain += 1
            text = f"There was no response within {waited_s:.1f} s."
            refusals = (self._refused.get((kind, key)) for key in keys)
            cause = next((error for error in refusals if error is not None), None)
            raise ApiTimeoutError(text, api="FindCoordinator") from cause
        self._in_vain = 0
        return found

    async def _request_coordinators(self, kind: str, keys: list[str]) -> dict[str, Found]:
        connection = await self._cluster.connect_any(FindCoordinatorRequest)
        version = connection.broker.version_of(FindCoordinatorRequest)
        key_type = KEY_TYPES[kind]
        # Brokers from 3.0 on look up several coordinators at once (KIP-699).
        if version >= BATCHED_FROM:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
            response = await connection.send(request, timeout_s=self._timeout_s)
            return {
                entry.key: _found(entry, connection, Coordinator(kind, entry.key))
                for entry in response.coordinators
            }
        found: dict[str, Found] = {}
        for key in keys:
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer = await connection.send(request, timeout_s=self._timeout_s)
            found[key] = _found(answer, connection, Coordinator(kind, key))
        return found


def _share_bug(lookups: Iterable[asyncio.Future[Found]], error: Exception) -> None:
    """Pass the unexpected error of a lookup to all tasks that share it."""
    for lookup in lookups:
        lookup.set_exception(error)
        # Mark the error as retrieved, because it is possible that no other task shares the lookup.
        lookup.exception()


def _found(
    answer: FindCoordinatorResponse | Any, connection: BrokerConnection, sought: Coordinator
) -> Found:
    error = error_for(
        answer.error_code,
        answer.error_message,
        api="FindCoordinator",
        broker=connection.broker.node_id,
        resource=subject_of(sought),
    )
    if error is None and answer.node_id < 0:
        text = f"The response names broker {answer.node_id}, which is not a broker id."
        return InvalidMetadataError(text, api="FindCoordinator", broker=connection.broker.node_id)
    return BrokerInfo(answer.node_id, answer.host, answer.port) if error is None else error


class Router:
    """The lookup of targets in the snapshot, which is refreshed once if a target is missing."""

    def __init__(
        self,
        updater: MetadataUpdater,
        coordinators: CoordinatorLocator,
        *,
        uses_controllers: bool = False,
    ) -> None:
        self._updater = updater
        self._coordinators = coordinators
        self._uses_controllers = uses_controllers

    async def find_broker(self, to: Target, timeout: float) -> int | None:
        """Return the broker id of a target, or None for any broker.

        Raises InvalidMetadataError, the error of the topic, or the error of the lookup. All but
        authorization errors may be temporary.
        """
        match to:
            case AnyBroker():
                # Brokers forward what only the active controller answers. Controllers refuse it.
                return await self._find_controller(timeout) if self._uses_controllers else None
            case Coordinator(kind, key):
                return await self._coordinators.locate_coordinator(kind, key)
            case Leader(topic, partition):
                return await self._find_leader(topic, partition, timeout)
            case Broker(node_id):
                return await self._find_listed(node_id, timeout)
            case Controller():
                return await self._find_controller(timeout)

    def refresh_target(self, to: Target, node_id: int | None) -> None:
        """Discard the known broker of a target, because it proved wrong."""
        match to:
            case Coordinator(kind, key):
                self._coordinators.forget_coordinator(kind, key, node_id)
            case Leader(topic, _):
                self._updater.request_update((topic,))
            case _:
                self._updater.request_update()

    async def _find_leader(self, topic: str, partition: int, timeout: float) -> int:
        leader = self._updater.snapshot.find_leader(topic, partition)
        if leader < 0:
            snapshot = await self._updater.refresh((topic,), timeout=timeout)
            leader = snapshot.find_leader(topic, partition)
        if leader >= 0:
            return leader
        where = TopicPartition(topic, partition)
        info = self._updater.snapshot.find_topic(topic)
        code = info.error if info is not None else 0
        raise error_for(code, topic_partition=where) or InvalidMetadataError(
            "No leader is known.", topic_partition=where
        )

    async def _find_listed(self, node_id: int, timeout: float) -> int:
        if node_id not in self._updater.snapshot.brokers:
            await self._updater.refresh(timeout=timeout)
        return node_id

    async def _find_controller(self, timeout: float) -> int:
        snapshot = self._updater.snapshot
        if snapshot.controller_id not in snapshot.brokers:
            snapshot = await self._updater.refresh(timeout=timeout)
        if snapshot.controller_id not in snapshot.brokers:
            raise InvalidMetadataError("No controller is known.")
        return snapshot.controller_id

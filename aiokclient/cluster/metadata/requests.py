"""The metadata requests of a client, and its way back to the cluster if no broker answers them.

`recovery` decides when to rebootstrap, and `ClusterIdentity` whether a broker is in the same
cluster. `MetadataRequests` does what they decide. It requests metadata from a broker that the
client knows. When a rebootstrap is due, it closes all connections, and asks the bootstrap servers
until one responds.

During a rebootstrap, and until the metadata after it is installed, the *gate* is shut: no other
part of the client gets a connection. So nothing reaches a broker of another cluster before
everything that belongs to the old cluster is discarded, and nothing is tried in vain.

Names and addresses may be redirected to another cluster, such as a standby. Nothing of the old
cluster is valid there: neither offsets nor ids of topics, producers, and members. So each metadata
response is compared with the known cluster id, and connections are compared as
`network/setup` describes. A broker that cannot check the ids itself is asked for its
cluster

- always, with `cluster_id_change="fail"`, because nothing may reach another cluster;
- after all connections were lost, until a metadata response has confirmed the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import aiokclient.network.diagnosis as diagnosis
from aiokclient import threads
from aiokclient.cluster.bootstrap import Bootstrap, UnresolvedNames, servers_of
from aiokclient.cluster.metadata.controllers import as_metadata, make_brokers_request
from aiokclient.cluster.metadata.snapshot import brokers_in, differ, lists_broker
from aiokclient.cluster.metadata.updater import LARGE
from aiokclient.cluster.recovery import Recovery, RecoveryState, Trigger
from aiokclient.cluster.requests.brokers import patience_s
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterChangedError,
    DisconnectedError,
    InvalidMetadataError,
    KafkaError,
    RebootstrapRequiredError,
    error_for,
)
from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import Labels, Reading, counted
from aiokclient.policy import Attempts, Backoff, ends_start, refuses_login
from aiokclient.protocol import ApiKey
from aiokclient.protocol.wanted_topics import WantedTopicsRequest

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.config.client import ClientConfig
    from aiokclient.errors import KafkaError
    from aiokclient.network.setup import Expected
    from aiokclient.protocol.messages.describe_cluster import DescribeClusterRequest
    from aiokclient.protocol.messages.metadata import MetadataResponse
    from aiokclient.protocol.schema import Request


class ClusterIdentity:
    """The cluster id of a client, and the check of connections and responses against it.

    It tells the metadata requests when a connection has reached another cluster.
    """

    def __init__(self, config: ClientConfig, requests: MetadataRequests) -> None:
        self.cluster_id: str | None = None
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._fails = config.cluster_id_change == "fail"
        self._enabled = config.metadata_cluster_check_enable
        self._requests = requests
        self._is_confirmed = True
        self._log = ClientLog.of("aiokclient", config)

    # -- the check of connections, see `ClusterCheck`

    @property
    def checks(self) -> bool:
        """Whether ApiVersions requests carry the ids of the cluster and of the broker.

        As in Kafka, they carry no ids if rebootstraps are disabled.
        """
        return self._enabled and self._rebootstraps

    def expected_ids(self, node_id: int) -> Expected | None:
        """Return the cluster id and broker id that ApiVersions carries; None if it carries none."""
        if not self.checks or self.cluster_id is None or node_id < 0:
            return None
        return self.cluster_id, node_id

    def is_in_doubt(self, node_id: int) -> bool:
        """Return whether a broker that has not confirmed the ids must name its cluster."""
        return (
            node_id >= 0 and self.cluster_id is not None and (self._fails or not self._is_confirmed)
        )

    def compare_ids(self, node_id: int, address: str, found: MetadataResponse) -> KafkaError | None:
        """Return an error if the broker has named another cluster."""
        known, other = self.cluster_id, found.cluster_id
        if known is None or other is None or not differ(known, other):
            return None
        self._requests.on_other_cluster(found)
        return diagnosis.wrong_cluster(node_id, address, known, other)

    # -- the cluster

    def doubt_cluster(self) -> None:
        """Record that all connections were lost: another cluster may have the addresses now."""
        self._is_confirmed = False

    def confirm_cluster(self) -> None:
        """Stop asking brokers for their cluster, until all connections are lost again."""
        self._is_confirmed = True

    def is_other_cluster(self, found: MetadataResponse) -> bool:
        """Return whether a response comes from another cluster."""
        return differ(self.cluster_id, found.cluster_id)

    def adopt_cluster(self, found: MetadataResponse) -> None:
        """Use the cluster of a response from now on.

        Raises ClusterChangedError if it is not the known cluster and `cluster_id_change` is "fail".
        """
        old, new = self.cluster_id, found.cluster_id
        if new is None:
            return
        if old is not None and new != old:
            if self._fails:
                raise ClusterChangedError(old_cluster_id=old, new_cluster_id=new)
            self._log.warning(
                "The bootstrap servers now lead to the cluster %s instead of %s. The client "
                "continues there with new producer ids, memberships, and positions.",
                new,
                old,
                extra={"event": "cluster_changed", "old_cluster_id": old, "new_cluster_id": new},
            )
        self.cluster_id = new


MOVED_AWAY = (RebootstrapRequiredError.code,)
"""The error code by which a broker asks clients to rebootstrap."""

ROUND_S = 30.0
"""Seconds after which the names of the bootstrap servers are looked up again."""


class MetadataRequests:
    """The metadata requests of one client."""

    def __init__(self, cluster: ClusterClient) -> None:
        config, clock = cluster.config, cluster.clock
        self.identity = ClusterIdentity(config, self)
        self.is_open = True
        """Whether other parts of the client may use connections."""
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._events = cluster.events
        self._supervisor = cluster.supervisor
        self._search: Bootstrap | None = None
        self._backoff = Backoff.of(config)
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._recovery = Recovery(
            enabled=self._rebootstraps,
            trigger_s=config.metadata_recovery_rebootstrap_trigger_ms / 1000,
            backoff=self._backoff,
            rng=clock.rng,
        )
        self._rebootstrap_counts: dict[str, int] = {}
        self._log = ClientLog.of("aiokclient", config)
        self._begun = False
        self._closed = False
        self._advised: set[str] = set()
        """The addresses of servers about which a log line has said that they may need a login."""
        self._attempts = 0
        """The number of consecutive attempts without a response."""
        self._patience: asyncio.Timeout | None = None
        """The timeout of the attempt in progress. A rebootstrap that is due ends the attempt."""
        self._timer: asyncio.TimerHandle | None = None
        self._gate_changed = asyncio.Event()
        self._refusal: KafkaError | None = None
        """The error of all bootstrap servers in the last attempt, if waiting cannot correct it."""
        self._attempts = 0
        """The number of attempts to reach a bootstrap server since the gate was first shut."""
        self._refused_attempt = 0
        """The number of the last attempt with a refusal."""
        self._supervisor.add_failure_listener(self._on_failure)

    def count_rebootstraps(self) -> list[tuple[Labels, Reading]]:
        """Return the number of rebootstraps for each trigger."""
        counts = self._rebootstrap_counts.items()
        return [((("trigger", trigger),), counted(count)) for trigger, count in counts]

    # -- the gate

    async def wait_until_open(self) -> None:
        """Wait until connections may be used, for one setup timeout at most.

        Raises DisconnectedError after the timeout. Also raises the failure of the client, and an
        error of all bootstrap servers that waiting cannot correct, from an attempt that began after
        the call: what they refused before, such as a certificate, may have been replaced.
        """
        timeout_s = self._config.socket_connection_setup_timeout_ms / 1000
        attempts = self._attempts
        try:
            async with asyncio.timeout(timeout_s) as patience:
                while not self.is_open:
                    self._supervisor.raise_failure()
                    if self._refusal is not None and self._refused_attempt > attempts:
                        raise copy.copy(self._refusal)
                    await self._gate_changed.wait()
        except TimeoutError:
            if not patience.expired():
                raise
            text = "No broker is known. The client asks its bootstrap servers for them."
            raise DisconnectedError(text) from self._cluster.updater.last_error

    def _close_gate(self) -> None:
        self.is_open = False
        self._refusal = None

    def _wake_waiters(self) -> None:
        """Let the tasks that wait at the gate check again whether it is open."""
        self._gate_changed.set()
        self._gate_changed.clear()

    def _on_failure(self, error: BaseException) -> None:
        self._wake_waiters()

    def _on_refusal(self, error: KafkaError) -> None:
        """Raise an error in the tasks that wait at the gate, if waiting does not correct it."""
        if ends_start(error):
            self._refusal = error
            self._refused_attempt = self._attempts
            self._wake_waiters()

    def on_metadata_applied(self) -> None:
        """Open the gate, because a metadata response is installed. Synchronous."""
        if self._recovery.state is not RecoveryState.SEARCHING:
            self.identity.confirm_cluster()
            self.is_open = True
            self._wake_waiters()
            self._cluster.telemetry.on_connection()

    # -- what happens to the connections, called by `Brokers`

    def on_broker_found(self) -> None:
        """Handle a connection that became ready, or a response."""
        if self.is_open:
            self._cluster.telemetry.on_connection()

    def on_connections_lost(self) -> None:
        """Refresh the metadata even if no call needs a broker, to notice a broker that is back."""
        if not self._closed:
            self._cluster.updater.request_update()

    def on_slow_connection(self) -> None:
        """Refresh the metadata: leaders and coordinators may have moved from a broker that hangs.

        Without a refresh, the client would not notice before the attempt to connect ends.
        """
        self._cluster.updater.request_update()

    def on_outage(self) -> None:
        """Handle the loss of the last connection: another cluster may have the addresses now."""
        self.identity.doubt_cluster()
        self._cluster.outages.call_listeners()

    def on_brokers_unavailable(self) -> None:
        """Handle refused connections of all brokers in the metadata (KIP-899)."""
        if not self._begun:
            return
        errors = self._cluster.brokers.list_errors()
        if not self._cluster.reached and all(each and ends_start(each) for each in errors):
            return  # The start fails with one of these errors.
        self._recovery.on_brokers_unavailable()
        self._check_recovery()

    def on_rebootstrap_required(self) -> None:
        """Handle a broker that is not the intended one, or is in another cluster."""
        if not self._begun:
            return
        self._recovery.on_rebootstrap_required()
        self._check_recovery()

    def translate_error(self, request: Request[Any], error: KafkaError) -> KafkaError:
        """Return the error to raise for a request of another part of the client.

        A metadata response that requires a rebootstrap counts as a lost connection, so that the
        request is sent again after the rebootstrap.
        """
        if request.api_key is not ApiKey.METADATA or error.code not in MOVED_AWAY:
            return error
        self.on_rebootstrap_required()
        text = "The broker requires that the client starts again from its bootstrap servers."
        lost = DisconnectedError(text, broker=error.broker)
        lost.__cause__ = error
        return lost

    def on_other_cluster(self, found: MetadataResponse) -> None:
        """Handle a connection that has reached another cluster."""
        self.on_rebootstrap_required()
        if self._rebootstraps:
            return
        if self._config.cluster_id_change == "fail":
            # `_move_to_cluster` has failed the client with this error.
            with contextlib.suppress(KafkaError):
                self._move_to_cluster(found)
            return
        # No other request is sent before the metadata of all topics is known. The broker that
        # returns it need not be checked.
        self.identity.confirm_cluster()
        self._close_gate()
        self._cluster.updater.request_full_update()

    def _check_recovery(self) -> None:
        """Begin a rebootstrap if it is due. Otherwise check again when it becomes due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_s = self._recovery.due_at - self._clock.monotonic()
        if delay_s == math.inf or not self._supervisor.running:
            return
        if delay_s > 0:
            self._timer = self._supervisor.callbacks.call_later(delay_s, self._check_recovery)
            return
        self._cluster.updater.request_full_update()
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    def list_troubles(self) -> list[str]:
        """Return texts about logins that the bootstrap servers refuse, and rebootstraps.

        These are the rebootstraps that the strategy "none" has prevented. Synchronous.
        """
        now, refusal = self._clock.monotonic(), self._refusal
        refused = [] if self.is_open or refusal is None or not refuses_login(refusal) else [refusal]
        return [f"the bootstrap servers refuse the login: {each.message}" for each in refused] + [
            f"a rebootstrap would be necessary, because {trigger.value}; "
            "metadata_recovery_strategy is none"
            for trigger in self._recovery.list_missed_triggers(now)
        ]

    def close(self) -> None:
        """Stop the timer, and ignore connections that fail from now on. Synchronous."""
        if self._timer is not None:
            self._timer.cancel()
        self._begun = False
        self._closed = True

    # -- requests

    async def reach_cluster(
        self, deadline: float, resolve_s: float | None = None
    ) -> tuple[MetadataResponse, str]:
        """Reach the cluster for the first time, until a deadline on the monotonic clock.

        Return the metadata, and the address of the server that responded. Raises the errors of
        `Bootstrap.reach_server`.
        """
        self._closed = False
        began = self._clock.monotonic()
        limit_s = max(deadline - began, 0.0)
        if resolve_s:
            limit_s = min(limit_s, resolve_s)
        bootstrap = await self._make_bootstrap(limit_s / 2, once=resolve_s == 0)
        if resolve_s is not None:
            resolve_s = max(began + resolve_s - self._clock.monotonic(), 0.0)
        answer = await bootstrap.reach_server(deadline, resolve_s)
        self.identity.adopt_cluster(answer)
        return answer, bootstrap.server

    def on_started(self) -> None:
        """Rebootstrap from now on whenever it is due. Synchronous."""
        self._begun = True

    async def reach_cluster_at_last(self) -> MetadataResponse:
        """Reach the cluster for the first time, and return the metadata.

        Raises errors that waiting cannot correct. Until it returns, the gate is shut.
        """
        self._close_gate()
        retry = Attempts(math.inf, self._backoff, self._clock)
        while True:
            try:
                answer, _ = await self.reach_cluster(self._clock.monotonic() + ROUND_S)
            except KafkaError as error:
                if ends_start(error):
                    raise
                self._cluster.updater.note_error(error)
                await asyncio.sleep(retry.take_pause_s())
            else:
                self.is_open = True
                return answer

    @property
    def search_error(self) -> KafkaError | None:
        """The last error of the first search for a broker, or None after the search."""
        return None if self._begun or self._search is None else self._search.last_error

    async def fetch_metadata(self, topics: list[str] | None, auto_create: bool) -> MetadataResponse:
        """Return a metadata response with at least one broker.

        If a rebootstrap is due, it is done first, and may take any time. Raises the error of the
        request, and the failure of the client.
        """
        self._supervisor.raise_failure()
        recovery, now = self._recovery, self._clock.monotonic
        recovery.on_attempt(now())
        if recovery.is_due(now()):
            await self._rebootstrap()
            recovery.on_attempt(now())
        self._check_recovery()
        try:
            response = await self._request_in_time(topics, auto_create)
            self._accept_response(response)
        except KafkaError as error:
            if error.code not in MOVED_AWAY:
                self._cluster.refusals.log_refusal(error)
            recovery.on_failed_attempt(now())
            self._check_recovery()
            raise
        return response

    async def _request_in_time(
        self, topics: list[str] | None, auto_create: bool
    ) -> MetadataResponse:
        try:
            async with asyncio.timeout(None) as self._patience:
                return await self._request_metadata(topics, auto_create)
        except TimeoutError:
            if self._patience is None or not self._patience.expired():
                raise
            trigger = self._recovery.trigger or Trigger.TIMEOUT
            text = f"The client rebootstraps, because {trigger.value}."
            raise ApiTimeoutError(text, api="Metadata") from self._cluster.updater.last_error
        finally:
            self._patience = None

    async def _request_metadata(
        self, topics: list[str] | None, auto_create: bool
    ) -> MetadataResponse:
        self._attempts += 1
        wants = self._cluster.updater.topic_filter if topics is None else None
        request: WantedTopicsRequest | DescribeClusterRequest = WantedTopicsRequest(
            topics, allow_auto_topic_creation=auto_create, wants=wants
        )
        if self._config.uses_controllers:
            request = make_brokers_request(self._config)
        connection = await self._cluster.brokers.connect_any(type(request))
        node_id = connection.broker.node_id
        request_s = self._config.request_timeout_ms / 1000
        # A broker that hangs must not delay new metadata for request_timeout_ms. The next attempt
        # goes to another one.
        answered = connection.send(request, timeout_s=request_s)
        waited_s = patience_s(self._attempts - 1, request_s)
        try:
            await asyncio.wait([answered], timeout=waited_s)
            while not answered.done() and connection.is_arriving(answered):
                await asyncio.wait([answered], timeout=waited_s)
        finally:
            if not answered.done():
                answered.cancel()
        if answered.cancelled():
            text = f"There was no response within {waited_s:.1f} s."
            raise ApiTimeoutError(text, api="Metadata", broker=node_id)
        response = as_metadata(answered.result())
        self._cluster.brokers.on_response(node_id)
        error = error_for(response.error_code, api="Metadata", broker=node_id)
        if error is not None:
            if response.error_code in MOVED_AWAY:
                self._recovery.on_rebootstrap_required()
            raise error
        self._attempts = 0
        if not lists_broker(response):
            raise InvalidMetadataError("The response lists no broker.", api="Metadata")
        await self._remove_disputed(response, node_id)
        return response

    async def _remove_disputed(self, response: MetadataResponse, node_id: int) -> None:
        """Remove topics with disputed ids from a response, and request them from another broker.

        Topics with a lower leader epoch than the known one are requested again, too.
        """
        updater = self._cluster.updater
        known = updater.snapshot
        settle = partial(
            updater.topic_ids.replace_disputed, node_id=node_id, now=self._clock.monotonic()
        )
        if len(response.topics or ()) < LARGE:
            disputed = settle(known, response)
        else:
            disputed = await threads.run(settle, known, response)
        self._cluster.brokers.avoid_broker(node_id if disputed else None)
        if disputed:
            updater.request_update(disputed)

    def _accept_response(self, response: MetadataResponse) -> None:
        """Accept a response, after a rebootstrap or a move if it comes from another cluster."""
        if self.identity.is_other_cluster(response):
            if self.is_open or self._rebootstraps:
                self.on_other_cluster(response)
                text = "The broker is in another cluster than before."
                raise InvalidMetadataError(text, api="Metadata")
            self._move_to_cluster(response)
            self._cluster.brokers.close_connections(
                DisconnectedError("The client changed to another cluster.")
            )
        self.identity.adopt_cluster(response)
        self._recovery.on_answer(proven=True)

    # -- rebootstrap

    async def _rebootstrap(self) -> None:
        """Close all connections, and ask the bootstrap servers until one returns the brokers.

        Raises ClusterChangedError, after the client has failed with it.
        """
        trigger = self._recovery.begin_rebootstrap(self._clock.monotonic())
        self._close_gate()
        # If no broker can be reached, a warning says so already. Further warnings would be too
        # many, because dead brokers may cause many rebootstraps.
        self._log.log(
            logging.INFO if self._cluster.brokers.reachability.lost else logging.WARNING,
            "The client starts again from its bootstrap servers, because %s.",
            trigger.value,
            extra={"event": "rebootstrapped", "trigger": trigger.name.lower()},
        )
        name = trigger.name.lower()
        self._rebootstrap_counts[name] = self._rebootstrap_counts.get(name, 0) + 1
        self._events.emit("Rebootstrapped", trigger=name)
        why = f"The client closed all connections to rebootstrap, because {trigger.value}."
        self._cluster.brokers.close_connections(DisconnectedError(why))
        retry = Attempts(math.inf, self._backoff, self._clock)
        while True:
            self._attempts += 1
            try:
                bootstrap = await self._make_bootstrap(ROUND_S)
                answer = await bootstrap.reach_server(self._clock.monotonic() + ROUND_S)
                break
            except KafkaError as error:
                self._cluster.updater.note_error(error)
                self._on_refusal(error)
                await asyncio.sleep(retry.take_pause_s())
        if self.identity.is_other_cluster(answer):
            self._move_to_cluster(answer)
        if len(answer.brokers) < LARGE:
            brokers = brokers_in(answer)
        else:
            brokers = await threads.run(brokers_in, answer)
        self._cluster.brokers.apply_snapshot(brokers)
        self._recovery.on_answer(proven=False)

    async def _make_bootstrap(self, limit_s: float, *, once: bool = False) -> Bootstrap:
        """Return a bootstrap with new connections, after looking up names for `limit_s` at most.

        With `once`, lookups that fail are not repeated.
        """
        config, now = self._config, self._clock.monotonic()
        setup_s = config.socket_connection_setup_timeout_ms / 1000
        retry = Attempts(now if once else now + limit_s, self._backoff, self._clock)
        level = logging.INFO if self._begun else logging.WARNING
        names = UnresolvedNames(self._log, level, self._cluster.connector)
        lookup_s = min(setup_s, limit_s)
        servers = await servers_of(config, self._cluster.connector, lookup_s, retry, names)
        pools = self._cluster.brokers.add_bootstrap_servers(servers)
        self._search = Bootstrap(
            config, self._clock, pools, names, self._advised, self.identity, level=level
        )
        return self._search

    def _move_to_cluster(self, response: MetadataResponse) -> None:
        """Continue in another cluster, or fail."""
        self._close_gate()
        old = self.identity.cluster_id
        try:
            self.identity.adopt_cluster(response)
        except KafkaError as error:
            self._supervisor.fail(error, "metadata")
            self._cluster.brokers.close_connections(error)
            raise
        ids = {"old_cluster_id": old, "new_cluster_id": self.identity.cluster_id}
        self._events.emit("ClusterChanged", **ids)
        self._cluster.coordinators.forget_all()

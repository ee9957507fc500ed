"""Client quotas: the allowed rates of users and clients, and the throttling of clients above them.

As in Kafka, a rate is measured over the last ten to eleven seconds, and a client that exceeds its
quota is throttled until its rate is down to the quota. The quota for creating and deleting
partitions is a bucket of tokens: a request is accepted while the bucket has tokens. Otherwise, it
is refused until the bucket has tokens again. In old versions, the client is only throttled.

The most specific quota applies. `_list_candidates` has the order: quotas of users come before
quotas of client ids alone, and the quota of a name comes before the default.
"""

from __future__ import annotations

import ipaddress
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUESTS: Final = "request_percentage"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"
KEYS: Final = (PRODUCER, CONSUMER, REQUESTS, MUTATIONS)
"""The quotas of users and client ids. The broker enforces all of them."""
WHOLE: Final = (PRODUCER, CONSUMER, CONNECTIONS)
"""The quotas that are whole numbers."""

USER: Final = "user"
CLIENT: Final = "client-id"
IP: Final = "ip"
REQUEST_COST: Final = 0.01
"""The amount that one request adds to `request_percentage`: 0.1 ms, in percent of a second.

Kafka measures the time that its threads spend on a request. This broker has no such threads.
"""
_SAMPLES: Final = 11
_MOST_REQUEST_THROTTLE_S: Final = 1.0
_MOST_THROTTLE_S: Final = 2_147_483.0
"""The longest time in seconds that fits into a response as a number of milliseconds."""
_HOST: Final = re.compile(r"[\w-]+(\.[\w-]+)*\.?")


def is_address(text: str) -> bool:
    """Return whether a text is an IP address, or has the form of a host name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


class QuotaEntity(NamedTuple):
    """The clients that a quota applies to.

    A part that is None matches any name. A part that is "" matches all names that have no quota of
    their own.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def list_parts(self) -> dict[str, str]:
        """Return the parts that are not None, by type."""
        both = {USER: self.user, CLIENT: self.client_id, IP: self.ip}
        return {kind: name for kind, name in both.items() if name is not None}


def _list_candidates(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Return the entities whose quota may apply to a client, the most specific first."""
    for name in (user, ""):
        yield QuotaEntity(name, client_id)
        yield QuotaEntity(name, "")
        yield QuotaEntity(name)
    yield QuotaEntity(None, client_id)
    yield QuotaEntity(None, "")


class _Rate:
    """The amounts that were recorded in the last eleven seconds."""

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()

    def record_amount(self, amount: float, now: float) -> None:
        if not self._samples or now - self._samples[-1][0] >= 1.0:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        while now - self._samples[0][0] >= _SAMPLES:
            self._samples.popleft()

    def compute_excess_s(self, quota: float, now: float) -> float:
        """Return the seconds until the rate is down to the quota, or 0."""
        total = sum(amount for _, amount in self._samples)
        elapsed = max(now - self._samples[0][0], _SAMPLES - 1.0)
        return min(_MOST_THROTTLE_S, max(0.0, total / quota - elapsed))


class _Bucket:
    """A bucket of tokens that refills over time. Each mutation of a partition takes one token."""

    def __init__(self, quota: float, now: float) -> None:
        self._tokens = quota * _SAMPLES
        self._at = now

    def take_tokens(
        self, amount: float, quota: float, now: float, *, strict: bool
    ) -> tuple[bool, float]:
        """Return whether the mutations are accepted, and the seconds until tokens are available."""
        self._tokens = min(quota * _SAMPLES, self._tokens + (now - self._at) * quota)
        self._at = now
        accepted = not strict or self._tokens >= 0
        if accepted:
            self._tokens -= amount
        return accepted, min(_MOST_THROTTLE_S, max(0.0, -self._tokens / quota))


class ClientQuotas:
    """The quotas of a cluster, and what each client has used of them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._rates: dict[tuple[str, QuotaEntity], _Rate] = {}
        self._buckets: dict[QuotaEntity, _Bucket] = {}

    @property
    def has_any(self) -> bool:
        """Whether there is any quota."""
        return bool(self._quotas)

    def list_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._quotas

    def change_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Set a quota, or remove it."""
        values = self._quotas.setdefault(entity, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self._quotas[entity]
        self._rates.clear()
        self._buckets.clear()

    def _find_quota(self, key: str, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        """Return the entity whose usage counts and its quota, or None if no quota applies."""
        for entity in _list_candidates(user, client_id):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                # A default quota applies to each user and each client id separately.
                own_user = user if entity.user is not None else None
                own_client = client_id if entity.client_id is not None else None
                return QuotaEntity(own_user, own_client), value
        return None

    def record_usage(self, key: str, user: str, client_id: str, amount: float) -> float:
        """Record what a client has used, and return the seconds for which it is throttled."""
        found = self._find_quota(key, user, client_id)
        if found is None:
            return 0.0
        (entity, quota), now = found, self._now()
        rate = self._rates.setdefault((key, entity), _Rate())
        rate.record_amount(amount, now)
        excess_s = rate.compute_excess_s(quota, now)
        return min(excess_s, _MOST_REQUEST_THROTTLE_S) if key == REQUESTS else excess_s

    def charge_mutations(
        self, user: str, client_id: str, partitions: int, *, strict: bool
    ) -> tuple[bool, float]:
        """Return whether partitions may be created or deleted, and the seconds of throttling."""
        found = self._find_quota(MUTATIONS, user, client_id)
        if found is None:
            return True, 0.0
        (entity, quota), now = found, self._now()
        bucket = self._buckets.get(entity)
        if bucket is None:
            bucket = self._buckets[entity] = _Bucket(quota, now)
        return bucket.take_tokens(partitions, quota, now, strict=strict)

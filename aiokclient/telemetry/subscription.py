"""The subscription in a response: the metrics of this client that a broker wants.

Responses are not trusted. Their numbers are limited to usable values. The number of prefixes is
limited as well, to more than any operator would configure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from aiokclient.config.codecs import Compression
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.protocol.messages import GetTelemetrySubscriptionsResponse

DEFAULT_INTERVAL_S: Final = 300.0
"""Seconds between two pushes if the broker names no usable interval."""

SHORTEST_INTERVAL_S: Final = 0.1
"""The shortest interval that Kafka lets an operator configure."""

DEFAULT_MAX_BYTES: Final = 1024 * 1024
"""The size limit of a push if the broker names none. It is also the default of the brokers."""

MOST_PREFIXES: Final = 10_000
LONGEST_PREFIX: Final = 1_000
"""The limits for the number of prefixes in a subscription, and for their length in characters.

Longer prefixes match nothing, because no metric has such a long name.
"""

EVERYTHING: Final = ("", "*")
"""The prefixes that mean all metrics: in the specification, and in Kafka's brokers."""


class NamePrefixes:
    """The set of all names that begin with one of the given prefixes."""

    __slots__ = ("_prefixes",)

    def __init__(self, prefixes: Iterable[str]) -> None:
        kept: list[str] = []
        for prefix in sorted(set(prefixes)):
            # In sorted order, only the last string in `kept` can be a prefix of this one.
            if not (kept and prefix.startswith(kept[-1])):
                kept.append(prefix)
        self._prefixes = tuple(kept)

    def __contains__(self, name: object) -> bool:
        # No prefix begins with another one. So only the last one that sorts before the name, or
        # is equal to it, can match.
        assert isinstance(name, str)
        index = bisect_right(self._prefixes, name)
        return index > 0 and name.startswith(self._prefixes[index - 1])

    def __bool__(self) -> bool:
        return bool(self._prefixes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamePrefixes) and self._prefixes == other._prefixes

    __hash__ = None  # type: ignore[assignment]


class Subscription(NamedTuple):
    """The subscription of the brokers, with the interval limited to usable values."""

    id: int
    interval_s: float
    names: NamePrefixes
    """The prefixes of the metrics to push."""
    delta: bool
    """Whether sums are pushed as the difference from the previous accepted push."""
    max_bytes: int
    codecs: tuple[Compression, ...]
    """The compressions that the broker accepts and this client has. The preferred one is first."""
    shortened: bool = False
    """Whether prefixes were dropped, because they were too many or too long."""


def subscription_of(response: GetTelemetrySubscriptionsResponse) -> Subscription:
    """Return the subscription in a response without an error."""
    interval_s, max_bytes = response.push_interval_ms / 1000, response.telemetry_max_bytes
    given = response.requested_metrics
    usable = (each for each in given if len(each) <= LONGEST_PREFIX)
    prefixes = ["" if each in EVERYTHING else each for each in islice(usable, MOST_PREFIXES)]
    known = [
        Compression(each)
        for each in dict.fromkeys(islice(response.accepted_compression_types, 256))
        if each > 0 and each in Compression.__members__.values()
    ]
    return Subscription(
        id=response.subscription_id,
        interval_s=max(interval_s, SHORTEST_INTERVAL_S) if interval_s > 0 else DEFAULT_INTERVAL_S,
        names=NamePrefixes(prefixes),
        delta=response.delta_temporality,
        max_bytes=max_bytes if max_bytes > 0 else DEFAULT_MAX_BYTES,
        codecs=tuple(known),
        shortened=len(given) > len(prefixes),
    )

"""The reporter of client metrics, as a table of states and events (KIP-714).

The reporter asks one of the connected brokers for the subscription, which says which metrics to
push, how, and at which interval. Then the reporter pushes the metrics at that interval. The first
push of a subscription comes after a random time, so that the pushes of many clients that start
together are spread over the interval. A push refers to the subscription by its id. When the
subscription has changed, the broker refuses the push, and the reporter asks again.

    SEARCHING     no connected broker announces the telemetry requests; waits for one
    DELAYED       waits for a short random time before it asks
    ASKING        requests the subscription
    ASKING_AGAIN  requests the subscription immediately after a refused push
    RESTING       waits, then asks: nothing is subscribed, or a request has failed
    READY         waits, then pushes
    PUSHING       takes the metrics, and pushes them
    TERMINATING   pushes for the last time, because the client is closing
    ENDED         a broker has refused the metrics for good; nothing more is sent
    CLOSED        the reporter has ended

No request follows another one immediately, with two exceptions. After a refused push, the reporter
may request the subscription immediately. After the response that the subscription is unchanged, it
may push immediately if it waited before it asked. So the reporter sends at most two requests per
interval, whatever the brokers respond. If a push fails, the subscription stays in use, and the next
push contains the values of the failed one.

An event without a row for the present state is ignored. `CODES` has the events of error codes. All
codes that are not listed there end the pushes, as in Kafka's own client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from aiokclient.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    GroupAuthorizationError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from aiokclient.types.named_tuple import NamedTuple


class ReporterState(Enum):
    """The state of the reporter."""

    SEARCHING = "searching"
    DELAYED = "delayed"
    ASKING = "asking"
    ASKING_AGAIN = "asking again"
    RESTING = "resting"
    READY = "ready"
    PUSHING = "pushing"
    TERMINATING = "terminating"
    ENDED = "ended"
    CLOSED = "closed"


class ReporterEvent(Enum):
    """An event in the life of the reporter."""

    FOUND = "found"
    """A broker that announces the telemetry requests is connected."""
    MISSING = "missing"
    """No broker that announces the telemetry requests is connected."""
    DUE = "due"
    """The time of the present state has passed."""
    WANTED = "wanted"
    """The application waits for the client instance id."""

    SUBSCRIBED = "subscribed"
    """The response has a subscription that is new or has changed."""
    UNCHANGED = "unchanged"
    """The response has the subscription that was in use before."""
    UNSUBSCRIBED = "unsubscribed"
    """The response says that no metrics are wanted."""
    ACCEPTED = "accepted"
    """A push was accepted."""

    OUTDATED = "outdated"
    """The subscription has changed."""
    CODEC_REFUSED = "codec refused"
    """The broker does not accept the compression."""
    TOO_LARGE = "too large"
    """The push has more bytes than the broker accepts."""
    POSTPONED = "postponed"
    """The broker has refused this request, but may accept a request after a push interval."""
    FORBIDDEN = "forbidden"
    """The client is not authorized."""
    REFUSED = "refused"
    """The broker has refused the request, and would refuse every further one."""
    LOST = "lost"
    """There was no response, or it could not be used."""

    CLOSING = "closing"
    """The client is closing."""
    DONE = "done"
    """The last push before the close was answered, or could not be sent."""


class ReporterEffect(Enum):
    """An action of a transition. The actions are executed in the order of the row."""

    DELAY = "wait for a short random time"
    WAIT = "wait for an interval"
    SPREAD = "wait for a random time of about an interval"
    WAIT_LONG = "wait until permissions may have changed"
    AVOID = "use another broker from now on, if there is one"
    SHRINK = "push less from now on"
    SWITCH = "use the next compression from now on"
    FORGET = "forget the subscription, so that closing sends nothing"
    ASK = "request the subscription"
    PUSH = "push the metrics"
    TERMINATE = "push the metrics for the last time, if a subscription is in use"


class ReporterRow(NamedTuple):
    """The next state, and the actions of the transition."""

    state: ReporterState
    effects: tuple[ReporterEffect, ...] = ()


_S, _E, _F, _R = ReporterState, ReporterEvent, ReporterEffect, ReporterRow

_ASK = _R(_S.ASKING, (_F.ASK,))
_REST = _R(_S.RESTING, (_F.WAIT,))
_END = _R(_S.ENDED, (_F.FORGET,))
_BANISHED = _R(_S.RESTING, (_F.FORGET, _F.AVOID, _F.WAIT_LONG))
_SUBSCRIBED = _R(_S.READY, (_F.SPREAD,))
_OPEN = tuple(state for state in _S if state not in (_S.TERMINATING, _S.CLOSED))

TABLE: Final[Mapping[tuple[ReporterState, ReporterEvent], ReporterRow]] = MappingProxyType(
    {
        (_S.SEARCHING, _E.FOUND): _R(_S.DELAYED, (_F.DELAY,)),
        (_S.SEARCHING, _E.WANTED): _ASK,
        (_S.DELAYED, _E.DUE): _ASK,
        (_S.DELAYED, _E.WANTED): _ASK,
        (_S.RESTING, _E.DUE): _ASK,
        (_S.RESTING, _E.WANTED): _ASK,
        (_S.ASKING, _E.SUBSCRIBED): _SUBSCRIBED,
        (_S.ASKING, _E.UNCHANGED): _R(_S.PUSHING, (_F.PUSH,)),
        (_S.ASKING_AGAIN, _E.SUBSCRIBED): _SUBSCRIBED,
        (_S.ASKING_AGAIN, _E.UNCHANGED): _SUBSCRIBED,
        **{
            (asking, event): row
            for asking in (_S.ASKING, _S.ASKING_AGAIN)
            for event, row in {
                _E.UNSUBSCRIBED: _R(_S.RESTING, (_F.FORGET, _F.WAIT)),
                _E.MISSING: _R(_S.SEARCHING),
                _E.OUTDATED: _REST,
                _E.CODEC_REFUSED: _REST,
                _E.TOO_LARGE: _REST,
                _E.POSTPONED: _REST,
                _E.LOST: _REST,
                _E.FORBIDDEN: _BANISHED,
                _E.REFUSED: _END,
            }.items()
        },
        (_S.READY, _E.DUE): _R(_S.PUSHING, (_F.PUSH,)),
        (_S.PUSHING, _E.ACCEPTED): _R(_S.READY, (_F.WAIT,)),
        (_S.PUSHING, _E.MISSING): _R(_S.SEARCHING),
        (_S.PUSHING, _E.OUTDATED): _R(_S.ASKING_AGAIN, (_F.ASK,)),
        (_S.PUSHING, _E.CODEC_REFUSED): _R(_S.ASKING_AGAIN, (_F.SWITCH, _F.ASK)),
        (_S.PUSHING, _E.TOO_LARGE): _R(_S.RESTING, (_F.SHRINK, _F.WAIT)),
        (_S.PUSHING, _E.POSTPONED): _REST,
        (_S.PUSHING, _E.LOST): _REST,
        (_S.PUSHING, _E.FORBIDDEN): _BANISHED,
        (_S.PUSHING, _E.REFUSED): _END,
        **{(state, _E.CLOSING): _R(_S.TERMINATING, (_F.TERMINATE,)) for state in _OPEN},
        (_S.TERMINATING, _E.DONE): _R(_S.CLOSED),
    }
)
"""The transitions: from a state and an event to the next state and the actions."""

CODES: Final[Mapping[int | None, ReporterEvent]] = MappingProxyType(
    {
        UnknownSubscriptionIdError.code: _E.OUTDATED,
        UnsupportedCompressionTypeError.code: _E.CODEC_REFUSED,
        TelemetryTooLargeError.code: _E.TOO_LARGE,
        ThrottlingQuotaExceededError.code: _E.POSTPONED,
        ClusterAuthorizationError.code: _E.FORBIDDEN,
        TopicAuthorizationError.code: _E.FORBIDDEN,
        GroupAuthorizationError.code: _E.FORBIDDEN,
        TransactionalIdAuthorizationError.code: _E.FORBIDDEN,
        DelegationTokenAuthorizationError.code: _E.FORBIDDEN,
    }
)
"""The events of the error codes that do not end the pushes. All other codes are REFUSED."""


def event_of(error_code: int) -> ReporterEvent:
    """Return the event of an error code other than 0."""
    return CODES.get(error_code, ReporterEvent.REFUSED)

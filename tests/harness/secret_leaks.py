"""Deliberate leaks: each one alters the library so that a secret reaches one channel.

They show that the tour finds secrets in each channel. With `AIOKCLIENT_LEAK=channel`,
`make secrets` runs with the leak of that channel, and must fail.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from secret_options import visit_wrong_options
from secret_telemetry import visit_telemetry
from secret_tour import Visit
from secret_visits import visit_tls

from aiokclient import Client
from aiokclient.config.secret import Secret
from aiokclient.config.security import sasl, tls
from aiokclient.metrics import OwnMetrics
from aiokclient.network.event_hub import EventHub
from aiokclient.network.login import Sasl
from aiokclient.protocol.messages import SaslAuthenticateRequest
from aiokclient.telemetry import exposition
from aiokclient.telemetry.otel import consuming

__all__ = ["LEAKS", "MET_BY", "chosen", "leaking"]

Leak = contextlib.AbstractContextManager[Any]


def _revealed(value: Any) -> str:
    return str(value._value)


def _password(security: Any) -> str:
    """Return the password of a `security` object, or an empty text if it has none."""
    password = getattr(security, "password", None)
    return "" if password is None else str(password.reveal())


def _warn(show: Callable[[str], None]) -> Leak:
    """Return a leak that passes a client's password to `show` when the client starts."""

    def warn(self: Sasl, log: Any) -> None:
        show(_password(self._credentials))

    return patch.object(Sasl, "warn_if_readable", warn)


async def _start_with_password(self: Any, *args: Any, **options: Any) -> str:
    password = _password(self._config.security)
    await START(self, *args, **options)
    return password


def _emit(self: EventHub, kind: Any, **fields: Any) -> None:
    if "mechanism" in fields:
        fields["mechanism"] = "".join(LAST)
    EMIT(self, kind, **fields)


def _check(owner: str, user: Any, password: Secret) -> None:
    LAST[:] = [password.reveal()]
    CHECK(owner, user, password)


def _reduce(self: Secret, protocol: Any) -> Any:
    return Secret, (self._value,)


def _with_password(name: str) -> Callable[[Any], Any]:
    """Return a replacement for `Client`'s method `name`. It adds the password to the result."""
    original = getattr(Client, name)

    def method(self: Any) -> Any:
        result = original(self)
        password = _password(self._config.security)
        if isinstance(result, dict):
            result[password] = 1
        else:
            object.__setattr__(result, "reasons", (password,))
        return result

    return method


def _start(self: Any, *args: Any, **options: Any) -> Any:
    self._login = _password(self._config.security)
    return START(self, *args, **options)


def _html(self: Any) -> str:
    return f"<b>{_password(self._config.security)}</b>"


@contextlib.contextmanager
def _kept(content: Secret) -> Iterator[str]:
    """Write a secret to a file, yield its path, and do not delete the file."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode())
    yield path


def _named(self: Any, *args: Any, **options: Any) -> None:
    INIT(self, *args, **options)
    object.__setattr__(self._config, "client_id", _password(self._config.security) or "tour")


def _last_labels(*_: Any) -> Any:
    return (("group_id", "".join(LAST)),)


def _of_record_with_key(record: Any) -> dict[str, Any]:
    return {**OF_RECORD(record), "messaging.kafka.message.key": str(record.key)}


def _knowing(leak: Leak) -> Leak:
    """Return the leak, extended so that `LAST` contains the password of the last login."""
    return _both(leak, patch.object(sasl, "_check_credentials", _check))


@contextlib.contextmanager
def _both(one: Leak, other: Leak) -> Iterator[None]:
    with one, other:
        yield


LAST: list[str] = []
EMIT = EventHub.emit
CHECK = sasl._check_credentials
OF_RECORD = consuming._of_record
START, INIT = Client.start, Client.__init__

LEAKS: dict[str, Callable[[], Leak]] = {
    "error": lambda: patch.object(Sasl, "scrub_text", lambda self, text, login: text),
    "events": lambda: _both(
        patch.object(EventHub, "emit", _emit), patch.object(sasl, "_check_credentials", _check)
    ),
    "fields": lambda: patch.object(Client, "start", _start),
    "files": lambda: patch.object(tls, "_file", _kept),
    "health": lambda: patch.object(Client, "health", _with_password("health")),
    "locals": lambda: patch.object(Client, "start", _start_with_password),
    "log": lambda: _warn(logging.getLogger("aiokclient").debug),
    "metrics": lambda: patch.object(Client, "metrics", _with_password("metrics")),
    "notebook": lambda: patch.object(Client, "_repr_html_", _html, create=True),
    "output": lambda: _warn(lambda text: print(text)),  # noqa: T201
    "pickle": lambda: patch.object(Secret, "__reduce_ex__", _reduce),
    "prometheus": lambda: _knowing(patch.object(exposition, "_labels", _last_labels)),
    "pushed": lambda: _knowing(patch.object(OwnMetrics, "resource", property(_last_labels))),
    "repr": lambda: patch.object(Secret, "__repr__", _revealed),
    "requests": lambda: patch.object(
        SaslAuthenticateRequest, "__repr__", lambda self: repr(self.auth_bytes)
    ),
    "spans": lambda: patch.object(consuming, "_of_record", _of_record_with_key),
    "warnings": lambda: _warn(lambda text: warnings.warn(text, stacklevel=2)),
    "wire": lambda: patch.object(Client, "__init__", _named),
}
"""One deliberate leak for each channel."""

MET_BY: dict[str, Visit] = {
    "files": visit_tls,
    "pickle": visit_wrong_options,
    "prometheus": visit_telemetry,
    "pushed": visit_telemetry,
    "repr": visit_wrong_options,
    "spans": visit_telemetry,
}
"""The visit in which a channel leaks. Channels that are not listed leak in `visit_plain`."""


@contextlib.contextmanager
def leaking(channel: str | None) -> Iterator[None]:
    """Leak secrets in a channel within the block. If the channel is None, leak nothing."""
    with LEAKS[channel]() if channel else contextlib.nullcontext():
        yield


def chosen() -> str | None:
    """Return the channel that the environment variable AIOKCLIENT_LEAK names, or None."""
    return os.environ.get("AIOKCLIENT_LEAK") or None

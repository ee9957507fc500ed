"""The TLS contexts of new connections, which follow the client's certificate files.

The files of `Tls(...)` may be replaced while the client is running, for example because a
certificate is renewed. When a connection is opened, at most once a second, a thread compares the
metadata of the files in the file system with that of the last reading. If they differ, the thread
makes a new context of the files, for this connection and later ones. While the files cannot be
used, for example because the certificate was replaced before its key, the client keeps the old
context. Open connections are not affected. A handshake that fails with files that have been
replaced meanwhile is tried again.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, TypeAlias

from aiokclient import threads
from aiokclient.config.security.plaintext import Plaintext
from aiokclient.errors import ConfigError
from aiokclient.log.client_log import ClientLog
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    import ssl

    from aiokclient.config.security import Security, Tls

CHECK_S = 1.0
"""The least time between the starts of two checks of the files, in seconds."""
WAIT_S = 1.0
"""The longest time, in seconds, that connections wait for a check, counted from its start."""

State: TypeAlias = tuple[tuple[int, ...], ...]
"""The data of the file system that change when a file is replaced, for each file."""


class _Replaced(NamedTuple):
    """The result of a check: the state of the files, and a context or the reason for none."""

    state: State
    context: ssl.SSLContext | None
    error: ConfigError | None


class TlsContexts:
    """The TLS context of a client's new connections. It belongs to one event loop."""

    def __init__(self, tls: Tls, log: ClientLog) -> None:
        self._tls = tls
        self._log = log
        self._context: ssl.SSLContext | None = None
        self._used: State = ()
        self._refused: State | None = None
        self._checking: asyncio.Future[_Replaced] | None = None
        self._checked_at = -math.inf

    @classmethod
    def of(cls, security: Security, log: ClientLog) -> Self | None:
        """Return the contexts for these security options, or None without TLS."""
        if isinstance(security, Plaintext):
            return None
        from aiokclient.config.security import Tls

        tls = security if isinstance(security, Tls) else security.tls
        return None if tls is None else cls(tls, log)

    @property
    def has_certificate(self) -> bool | None:
        """Whether the client has a certificate. None if that is not known."""
        return self._tls.has_certificate

    def load_files(self) -> None:
        """Read the files for the first time. Blocking: call it in a thread.

        Raises ConfigError, which names the file that is missing or cannot be used.
        """
        self._used = _state(self._tls.files)
        self._context = self._tls.ssl_context()

    async def current_context(self) -> ssl.SSLContext:
        """Return the context for a new connection. `load_files` must have succeeded.

        If reading replaced files takes long, this returns the old context. A cancellation does not
        end the check for other callers.
        """
        if self._tls.files:
            await self._check_files()
        assert self._context is not None
        return self._context

    async def is_outdated(self, context: ssl.SSLContext) -> bool:
        """Return whether the files have been replaced since this context was made of them.

        If so, the next connection reads them.
        """
        if context is self._context and self._tls.files:
            state = await threads.run_blocking(_state, self._tls.files)
            if state not in (self._used, self._refused):
                self._checked_at = -math.inf
                return True
        return context is not self._context

    async def _check_files(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._checking is None and now >= self._checked_at + CHECK_S:
            self._checked_at = now
            self._checking = threads.run_blocking(self._read_files)
            self._checking.add_done_callback(self._on_files_read)
        left = self._checked_at + WAIT_S - now
        if self._checking is not None and left > 0:
            await asyncio.wait([self._checking], timeout=left)

    def _read_files(self) -> _Replaced:
        # A replacement after this line is noticed by the next check.
        state = _state(self._tls.files)
        if state == self._used:
            return _Replaced(state, self._context, None)
        try:
            return _Replaced(state, self._tls.ssl_context(), None)
        except ConfigError as error:
            return _Replaced(state, None, error)

    def _on_files_read(self, checking: asyncio.Future[_Replaced]) -> None:
        self._checking = None
        if checking.cancelled():
            return
        state, context, error = checking.result()
        if context is None:
            # The next check tries again, because the reason may not be in the files.
            if state != self._refused:
                self._log.warning(
                    "The certificate files have been replaced, and new connections still use the "
                    "old ones. %s",
                    error,
                    extra={"event": "tls_files_refused"},
                )
            self._refused = state
            return
        self._refused = None
        if context is not self._context:
            self._context, self._used = context, state
            files = ", ".join(self._tls.files)
            self._log.info(
                "The certificate files were replaced (%s). New connections use the new files.",
                files,
                extra={"event": "tls_files_replaced"},
            )

    @property
    def limits_suites(self) -> bool:
        """Whether the options exclude any cipher suite."""
        return self._tls.limits is not None and self._tls.limits.suites is not None

    def allows_suite(self, suite: str) -> bool:
        """Return whether the options allow this cipher suite, which has OpenSSL's name."""
        return self._tls.limits is None or self._tls.limits.allows_suite(suite)


def _state(files: Iterable[str]) -> State:
    return tuple(map(_identity, files))


def _identity(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    # st_ctime_ns also changes when only the permissions change.
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def server_name(host: str) -> str:
    """Return the name for SNI and for the verification of the certificate.

    A final dot, which marks a complete name for the resolver, and the zone of an IPv6 address are
    never in a certificate. For addresses, the module ssl verifies the address and sends no SNI.
    """
    return host.partition("%")[0] if ":" in host else host.removesuffix(".")

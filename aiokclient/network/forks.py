"""The sockets of connections in a forked process, which must not touch those of its parent.

A fork copies the file descriptors of all sockets. Through its copies, a forked process would write
into the middle of its parent's requests, and read its parent's responses. Even if it only closed
its transports, it would remove the parent's sockets from the selector, because both processes share
it. So in the forked process, each descriptor is replaced by that of a socket whose other end is
closed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from typing import Any, Protocol

__all__ = ["SocketOwner", "detach_in_forks"]


class SocketOwner(Protocol):
    """An object with the attribute `socket`, a socket of asyncio or None."""

    @property
    def socket(self) -> Any: ...


_owners: weakref.WeakSet[SocketOwner] = weakref.WeakSet()


def detach_in_forks(owner: SocketOwner) -> None:
    """Detach an object from its socket in each process that is forked later. Synchronous."""
    _owners.add(owner)


def _detach_all() -> None:
    owners = list(_owners)
    if not owners:
        return
    closed, other = socket.socketpair()
    with closed:
        other.close()
        for owner in owners:
            with contextlib.suppress(OSError):
                _detach(owner.socket, closed)


def _detach(sock: Any, closed: socket.socket) -> None:
    if sock is not None and (descriptor := sock.fileno()) >= 0:
        os.dup2(closed.fileno(), descriptor, inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_all)

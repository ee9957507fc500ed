"""The share sessions of one broker (KIP-932): what members fetch, and the epochs of requests.

The epoch in a request decides what happens. A refused request does not use up its epoch.

    request          without a session             with a session that expects epoch n
    ---------------  ----------------------------  -------------------------------------------
    fetch 0          opens it, expects 1           replaces it; locks stay; expects 1
    fetch n          SHARE_SESSION_NOT_FOUND       adds and forgets partitions, expects n + 1
    fetch other      SHARE_SESSION_NOT_FOUND       INVALID_SHARE_SESSION_EPOCH
    fetch -1         SHARE_SESSION_NOT_FOUND       ends it; the locks in its partitions are released
    acknowledge 0    INVALID_SHARE_SESSION_EPOCH   INVALID_SHARE_SESSION_EPOCH
    acknowledge n    SHARE_SESSION_NOT_FOUND       expects n + 1
    acknowledge      SHARE_SESSION_NOT_FOUND       INVALID_SHARE_SESSION_EPOCH
    other
    acknowledge -1   SHARE_SESSION_NOT_FOUND       ends it, as fetch -1

The epoch after 2147483647 is 1. A session belongs to the connection that opened it, and a
connection to the session that was opened on it last. When a connection closes, its session ends. A
broker has a limited number of sessions.

This table is pure. A connection is any object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from aiokclient.testing.broker.codes import Code, Refused

FIRST_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = (1 << 31) - 1


class SessionKey(NamedTuple):
    """A member of a group. A broker has at most one session for it."""

    group_id: str
    member_id: str


class SharePartitionKey(NamedTuple):
    """A partition, as requests for share groups name it."""

    topic_id: UUID
    partition: int


class ShareSession:
    """One session. `epoch` is the one that the next request must have."""

    def __init__(self, key: SessionKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        self.partitions: dict[SharePartitionKey, None] = {}

    def accept_epoch(self, epoch: int) -> None:
        """Check the epoch of a request, and expect the next one. Raises Refused."""
        if epoch != self.epoch:
            raise Refused(Code.INVALID_SHARE_SESSION_EPOCH, "")
        self.epoch = epoch + 1 if epoch < _LAST_EPOCH else 1

    def update_partitions(
        self, added: Iterable[SharePartitionKey], forgotten: Iterable[SharePartitionKey]
    ) -> None:
        for each in added:
            self.partitions[each] = None
        for each in forgotten:
            self.partitions.pop(each, None)

    def list_rotated(self) -> list[SharePartitionKey]:
        """Return the partitions, beginning with another one in each request."""
        partitions = list(self.partitions)
        if not partitions:
            return []
        start = (self.epoch - 1) % len(partitions)
        return partitions[start:] + partitions[:start]


class ShareSessions:
    """The sessions of a broker, by member and by connection."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._opened: dict[object, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open_session(self, key: SessionKey, connection: object, limit: int) -> ShareSession | None:
        """Open a session, which replaces one of the same member.

        Return None if the broker has as many as `limit`.
        """
        replaced = self._sessions.get(key)
        if replaced is not None:
            self.remove_session(key)
            self._opened.pop(replaced.connection, None)
        if len(self._sessions) >= limit:
            return None
        session = self._sessions[key] = self._opened[connection] = ShareSession(key, connection)
        return session

    def accept_fetch(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a ShareFetch request with an epoch that is not 0. Raises Refused.

        The session stays if the request is its last one.
        """
        session = self._require_session(key)
        if epoch != FINAL_EPOCH:
            session.accept_epoch(epoch)
        return session

    def accept_acknowledgement(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a ShareAcknowledge request. Raises Refused."""
        if epoch == FIRST_EPOCH:
            raise Refused(Code.INVALID_SHARE_SESSION_EPOCH, "")
        return self.accept_fetch(key, epoch)

    def _require_session(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise Refused(Code.SHARE_SESSION_NOT_FOUND, "")
        return session

    def find_session(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def close_connection(self, connection: object) -> ShareSession | None:
        """Return the session that was opened on a connection, which may have ended before."""
        return self._opened.pop(connection, None)

    def remove_session(self, key: SessionKey) -> None:
        self._sessions.pop(key, None)

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session."""
        return any(key.group_id == group_id for key in self._sessions)

    def remove_all(self) -> None:
        self._sessions.clear()
        self._opened.clear()

"""The members of a classic group, the contents of their JoinGroup requests, and their protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiokclient.protocol.messages import JoinGroupRequest, JoinGroupResponse
    from aiokclient.protocol.schema import Response
    from aiokclient.testing.broker.call import Call

_NULL_PROTOCOL = 7

Protocols: TypeAlias = "tuple[tuple[str, bytes], ...]"
"""Protocol names with metadata, in order of preference."""


class ClassicMember:
    """One member. `joining` and `syncing` are its waiting requests, if it has any."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "expiry",
        "instance_id",
        "is_new",
        "join_version",
        "joining",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "syncing",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        protocol_type: str,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocol_type = protocol_type
        self.protocols: Protocols = ()
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.assignment = b""
        self.is_new = False
        self.join_version = 0
        self.joining: asyncio.Future[Response | None] | None = None
        self.syncing: asyncio.Future[Response | None] | None = None
        self.expiry: asyncio.TimerHandle | None = None

    def store_request(self, request: JoinGroupRequest, version: int) -> None:
        """Store the contents of a JoinGroup request.

        In version 0, the session timeout is the rebalance timeout, too.
        """
        self.protocols = read_protocols(request)
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = (
            request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
        )

    def copy_with_id(self, member_id: str) -> ClassicMember:
        """Return a copy with another id, without requests and timers."""
        copy = ClassicMember(
            member_id, self.instance_id, self.client_id, self.client_host, self.protocol_type
        )
        copy.protocols = self.protocols
        copy.session_timeout_ms = self.session_timeout_ms
        copy.rebalance_timeout_ms = self.rebalance_timeout_ms
        copy.assignment = self.assignment
        return copy

    def find_metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def is_waiting(self) -> bool:
        """Return whether the member has a waiting request. Then it need not send heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def hold_join(self, call: Call) -> asyncio.Future[Response | None]:
        """Hold the member's JoinGroup request. An earlier one that is held is not answered."""
        self.join_version = call.version
        self.joining = call.hold_response()
        return self.joining

    def answer_join(self, response: JoinGroupResponse) -> None:
        waiting, self.joining = self.joining, None
        _answer_request(waiting, adapt_to_version(response, self.join_version))

    def answer_sync(self, response: Response) -> bool:
        """Answer the waiting SyncGroup request, and return whether there was one."""
        waiting, self.syncing = self.syncing, None
        _answer_request(waiting, response)
        return waiting is not None


class Members:
    """The members of one group by id, in the order in which they joined."""

    def __init__(self) -> None:
        self._members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}
        """The current member id of each instance id (KIP-345)."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> ClassicMember:
        return self._members[member_id]

    def find_member(self, member_id: str) -> ClassicMember | None:
        return self._members.get(member_id)

    def add_member(self, member: ClassicMember) -> None:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def remove_member(self, member: ClassicMember) -> None:
        del self._members[member.member_id]
        if member.instance_id is not None:
            self.static.pop(member.instance_id, None)

    def replace_member(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace a member by another one at the same position in the order."""
        self._members = {
            new.member_id if each is old else each.member_id: new if each is old else each
            for each in self
        }
        if new.instance_id is not None:
            self.static[new.instance_id] = new.member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self), default=0)

    # -- common protocols --------------------------------------------------------------------

    def find_common_protocols(self) -> dict[str, None]:
        """Return the names of the protocols that every member offers."""
        offers: dict[str, int] = {}
        for each in self._members.values():
            for name, _ in each.protocols:
                offers[name] = offers.get(name, 0) + 1
        return {name: None for name, count in offers.items() if count == len(self)}

    def choose_protocol(self) -> str | None:
        """Return the protocol with the most votes.

        Each member votes for the first of its protocols that all members offer. So the group uses a
        new protocol only when all members offer it.
        """
        common, votes = self.find_common_protocols(), dict[str, int]()
        for each in self._members.values():
            name = next((name for name, _ in each.protocols if name in common), None)
            if name is not None:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    def list_joining(self) -> list[ClassicMember]:
        return [each for each in self if each.joining is not None]


def read_protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((each.name, bytes(each.metadata)) for each in request.protocols)


def adapt_to_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Return the response. As in Kafka, an error has no protocol name from version 7 on."""
    if response.error_code:
        response.protocol_name = None if version >= _NULL_PROTOCOL else ""
    return response


def _answer_request(future: asyncio.Future[Response | None] | None, response: Response) -> None:
    """Answer a waiting request. This has no effect if its connection is lost."""
    if future is not None and not future.done():
        future.set_result(response)

"""Unstarted objects of each kind. Consumers read topic "t", and the group id is "g"."""

from typing import Any

from aiokclient import Admin, Consumer, GroupMember, Producer

KINDS = ["producer", "consumer", "group", "group848", "admin", "member"]


class Leases:
    name = "leases"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        return dict.fromkeys(members, b"x")


def make(kind: str, **options: Any) -> Any:
    match kind:
        case "producer":
            return Producer(**options)
        case "consumer":
            return Consumer("t", auto_offset_reset="earliest", **options)
        case "group":
            return Consumer("t", group_id="g", **options)
        case "group848":
            return Consumer("t", group_id="g", group_protocol="consumer", **options)
        case "admin":
            return Admin(**options)
        case _:
            return GroupMember("g", protocol_type="p", protocols=[Leases()], **options)

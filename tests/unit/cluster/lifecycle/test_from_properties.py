"""`from_properties` of everything that can be started, with and without a shared client."""

from __future__ import annotations

from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, GroupMember, GroupProtocol, Producer
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.errors import ConfigError


class Leases(GroupProtocol):
    """A group protocol."""

    name = "leases"


MEMBER = {"group.id": "workers", "protocol.type": "leases"}
KINDS: list[tuple[type[Lifecycle], dict[str, str], dict[str, Any]]] = [
    (Admin, {}, {}),
    (Consumer, {"group.id": "readers", "session.timeout.ms": "9000"}, {}),
    (Producer, {"linger.ms": "7"}, {}),
    (GroupMember, {**MEMBER, "session.timeout.ms": "9000"}, {"protocols": [Leases()]}),
]
SERVERS = {"bootstrap.servers": "b:9092", "request.timeout.ms": "700"}


@pytest.mark.parametrize(("kind", "own", "objects"), KINDS)
def test_own_options_are_read_with_and_without_a_shared_client(
    kind: type[Lifecycle], own: dict[str, str], objects: dict[str, Any]
) -> None:
    alone: Any = kind.from_properties({**SERVERS, **own}, **objects)
    shared = Client.from_properties(SERVERS)
    child: Any = kind.from_properties(own, client=shared, **objects)
    for made in (alone, child):
        found = made._config
        assert found.request_timeout_ms == 700
        for name, text in own.items():
            assert str(getattr(found, name.replace(".", "_"))) == text
    assert child._client is shared
    assert alone._client is None


@pytest.mark.parametrize(("kind", "own", "objects"), KINDS)
def test_from_properties_refuses_options_of_the_shared_client(
    kind: type[Lifecycle], own: dict[str, str], objects: dict[str, Any]
) -> None:
    shared = Client.from_properties(SERVERS)
    with pytest.raises(ConfigError, match="Set it there") as caught:
        kind.from_properties({**own, "bootstrap.servers": "c:9092"}, client=shared, **objects)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("kind", "own", "objects"), KINDS)
def test_wrong_names_are_refused_with_a_shared_client(
    kind: type[Lifecycle], own: dict[str, str], objects: dict[str, Any]
) -> None:
    shared = Client.from_properties(SERVERS)
    with pytest.raises(ConfigError, match=r"request\.timout\.ms is not an option"):
        kind.from_properties({**own, "request.timout.ms": "7"}, client=shared, **objects)

"""Fixtures: group members on any cluster, with timeouts that are short enough for a test."""

from collections.abc import Callable
from typing import Any

import pytest
from sharing import Life, Sharing

from aiokclient import GroupMember

QUICK = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 100}


@pytest.fixture
def group_id(request: pytest.FixtureRequest) -> str:
    """Return a different group id for each test."""
    import uuid

    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make(cluster_servers: Any, group_id: str) -> Callable[..., Life]:
    """Return a function that makes a member with the metadata `says`, and does not start it."""

    def make(says: str = "a", *protocols: Sharing, **options: Any) -> Life:
        offered = protocols or (Sharing(says),)
        member = GroupMember(
            options.pop("group_id", group_id),
            protocol_type=options.pop("protocol_type", "test"),
            protocols=offered,
            bootstrap_servers=cluster_servers.bootstrap,
            **{**QUICK, **options},
        )
        return Life(member, *offered)

    return make

"""The APIs of a broker: their keys, their messages, and the version in use."""

from __future__ import annotations

import functools
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiokclient.errors import UnsupportedVersionError
from aiokclient.types import public_in

if TYPE_CHECKING:
    from aiokclient.protocol.schema import Request


@public_in("aiokclient.protocol")
class ApiKey(IntEnum):
    """The API key, which is the first field in the header of a request."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94

    @property
    def api_name(self) -> str:
        """The name of the API in Kafka's documentation, such as "FindCoordinator"."""
        return self.name.title().replace("_", "")


@functools.cache
def request_class(key: int) -> type[Request[Any]]:
    """Return the request class of an API. Its module is imported at the first use.

    Raises UnsupportedVersionError for a key that this library does not know.
    """
    try:
        api = ApiKey(key)
    except ValueError:
        raise UnsupportedVersionError(f"This library has no API with key {key}.") from None
    module = import_module(f"aiokclient.protocol.messages.{api.name.lower()}")
    cls: type[Request[Any]] = getattr(module, f"{api.api_name}Request")
    return cls


def negotiate(request: type[Request[Any]], broker_range: tuple[int, int] | None) -> int:
    """Return the latest version of a request that both sides support.

    broker_range: the first and last version that the broker announced; None
        if it did not announce the API
    Raises UnsupportedVersionError, which names both ranges.
    """
    name = request.api_key.api_name
    ours = f"This client supports versions {request.min_version} to {request.max_version}."
    if broker_range is None:
        raise UnsupportedVersionError(
            f"The broker does not support the API {name}. {ours}",
            api=name,
        )
    low, high = broker_range
    version = min(high, request.max_version)
    if version < max(low, request.min_version):
        raise UnsupportedVersionError(
            f"There is no common version of {name}. The broker supports versions {low} to {high}. "
            f"{ours}",
            api=name,
        )
    return version

"""The permissions that each request needs: operations on the topics, groups, and ids in it.

A handler that needs more permissions checks them itself (`Call.is_allowed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokclient.protocol import ApiKey
from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.security.acls import AclOperation, AclResource

_READ, _WRITE = AclOperation.READ, AclOperation.WRITE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE

TOPICS: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.PRODUCE: _WRITE,
    ApiKey.FETCH: _READ,
    ApiKey.LIST_OFFSETS: _DESCRIBE,
    ApiKey.METADATA: _DESCRIBE,
    ApiKey.OFFSET_COMMIT: _READ,
    ApiKey.OFFSET_FETCH: _DESCRIBE,
    ApiKey.DELETE_TOPICS: _DELETE,
    ApiKey.DELETE_RECORDS: _DELETE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _DESCRIBE,
    ApiKey.TXN_OFFSET_COMMIT: _READ,
    ApiKey.ADD_PARTITIONS_TO_TXN: _WRITE,
    ApiKey.CREATE_PARTITIONS: _ALTER,
    ApiKey.OFFSET_DELETE: _READ,
    ApiKey.DESCRIBE_PRODUCERS: _READ,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _DESCRIBE,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _DESCRIBE,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _DESCRIBE,
    ApiKey.DESCRIBE_TRANSACTIONS: _DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT: _DESCRIBE,
    ApiKey.SHARE_FETCH: _READ,
    ApiKey.SHARE_ACKNOWLEDGE: _READ,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _DESCRIBE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _READ,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _READ,
}
GROUPS: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.OFFSET_COMMIT: _READ,
    ApiKey.OFFSET_FETCH: _DESCRIBE,
    ApiKey.FIND_COORDINATOR: _DESCRIBE,
    ApiKey.JOIN_GROUP: _READ,
    ApiKey.HEARTBEAT: _READ,
    ApiKey.LEAVE_GROUP: _READ,
    ApiKey.SYNC_GROUP: _READ,
    ApiKey.DESCRIBE_GROUPS: _DESCRIBE,
    ApiKey.LIST_GROUPS: _DESCRIBE,
    ApiKey.DELETE_GROUPS: _DELETE,
    ApiKey.ADD_OFFSETS_TO_TXN: _READ,
    ApiKey.TXN_OFFSET_COMMIT: _READ,
    ApiKey.OFFSET_DELETE: _DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _READ,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT: _READ,
    ApiKey.SHARE_GROUP_DESCRIBE: _DESCRIBE,
    ApiKey.SHARE_FETCH: _READ,
    ApiKey.SHARE_ACKNOWLEDGE: _READ,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _DESCRIBE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _READ,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _DELETE,
}
TRANSACTIONAL_IDS: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.PRODUCE: _WRITE,
    ApiKey.FIND_COORDINATOR: _DESCRIBE,
    ApiKey.INIT_PRODUCER_ID: _WRITE,
    ApiKey.ADD_PARTITIONS_TO_TXN: _WRITE,
    ApiKey.ADD_OFFSETS_TO_TXN: _WRITE,
    ApiKey.END_TXN: _WRITE,
    ApiKey.TXN_OFFSET_COMMIT: _WRITE,
    ApiKey.DESCRIBE_TRANSACTIONS: _DESCRIBE,
    ApiKey.LIST_TRANSACTIONS: _DESCRIBE,
}
CLUSTER: Final[Mapping[ApiKey, AclOperation]] = {
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.UNREGISTER_CONTROLLER: _ALTER,
    ApiKey.ADD_RAFT_VOTER: _ALTER,
    ApiKey.REMOVE_RAFT_VOTER: _ALTER,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: AclOperation.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: AclOperation.ALTER_CONFIGS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
}
NEEDED: Final[Mapping[AclResource, Mapping[ApiKey, AclOperation]]] = {
    AclResource.TOPIC: TOPICS,
    AclResource.GROUP: GROUPS,
    AclResource.TRANSACTIONAL_ID: TRANSACTIONAL_IDS,
    AclResource.CLUSTER: CLUSTER,
}
FAILED: Final[Mapping[AclResource, Code]] = {
    AclResource.TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error code of a request that lacks an authorization, by the type of the resource."""

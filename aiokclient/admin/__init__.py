"""The admin client. Each module has the calls of one subject."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aiokclient.admin.client import Admin
from aiokclient.admin.cluster import AclOperation, BrokerDescription, ClusterDescription
from aiokclient.admin.configs import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    ResourceType,
    Subtract,
    Synonym,
)
from aiokclient.admin.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from aiokclient.admin.partitions import NewPartitions
from aiokclient.admin.results import Results
from aiokclient.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)

if TYPE_CHECKING:
    from aiokclient.admin.acl_bindings import (
        AclBinding,
        AclBindingFilter,
        AclPermissionType,
        AclResourceType,
        PatternType,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from aiokclient.admin.client_quotas import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaName
    from aiokclient.admin.delegation_tokens import DelegationToken
    from aiokclient.admin.group_lag import PartitionLag
    from aiokclient.admin.log_dirs import LogDirDescription, ReplicaLog
    from aiokclient.admin.scram_credentials import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from aiokclient.admin.transaction_descriptions import (
        ActiveProducer,
        FencedProducer,
        HangingTransaction,
        TransactionDescription,
        TransactionListing,
    )

__all__ = [
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
    "AclResourceType",
    "ActiveProducer",
    "Admin",
    "Append",
    "BrokerDescription",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaName",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "HangingTransaction",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "PartitionLag",
    "PatternType",
    "ReplicaLog",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "Subtract",
    "Synonym",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

_LATE = {
    "AclBinding": "acl_bindings",
    "AclBindingFilter": "acl_bindings",
    "AclPermissionType": "acl_bindings",
    "AclResourceType": "acl_bindings",
    "ActiveProducer": "transaction_descriptions",
    "ClientQuotaEntity": "client_quotas",
    "ClientQuotaFilter": "client_quotas",
    "ClientQuotaName": "client_quotas",
    "DelegationToken": "delegation_tokens",
    "FencedProducer": "transaction_descriptions",
    "HangingTransaction": "transaction_descriptions",
    "LogDirDescription": "log_dirs",
    "PartitionLag": "group_lag",
    "PatternType": "acl_bindings",
    "ReplicaLog": "log_dirs",
    "ResourcePattern": "acl_bindings",
    "ResourcePatternFilter": "acl_bindings",
    "ScramCredentialInfo": "scram_credentials",
    "ScramMechanism": "scram_credentials",
    "TransactionDescription": "transaction_descriptions",
    "TransactionListing": "transaction_descriptions",
    "UserScramCredentialDeletion": "scram_credentials",
    "UserScramCredentialUpsertion": "scram_credentials",
}
"""The modules of the names that are imported on first use, because few programs need them."""


if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name not in _LATE:
            from aiokclient.log.hints import import_hint, refuse_name

            refuse_name(__name__, name, import_hint(name))
        value = globals()[name] = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The admin client. Each module has the calls of one subject."""

from aiokclient.admin.acl_bindings import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from aiokclient.admin.client import Admin
from aiokclient.admin.client_quotas import ClientQuotaEntity, ClientQuotaFilter, ClientQuotaName
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
from aiokclient.admin.delegation_tokens import DelegationToken
from aiokclient.admin.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupMemberDescription,
)
from aiokclient.admin.log_dirs import LogDirDescription, ReplicaLog
from aiokclient.admin.partitions import NewPartitions
from aiokclient.admin.results import Results
from aiokclient.admin.scram_credentials import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from aiokclient.admin.topics import (
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
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

"""The admin client. Each module has the calls of one subject."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokclient.admin.admin import Admin
    from aiokclient.admin.checks.report import ClusterReport, Finding, PassedCheck
    from aiokclient.admin.cluster import (
        AclOperation,
        BrokerDescription,
        ClusterDescription,
        FeatureMetadata,
        FeatureUpdate,
        SupportedLevels,
        UpgradeType,
    )
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
    from aiokclient.admin.groups import PartitionLag
    from aiokclient.admin.hanging_transactions import HangingTransaction
    from aiokclient.admin.log_dirs import (
        LogDirDescription,
        ReplicaLog,
        ReplicaLogDirs,
        TopicPartitionReplica,
    )
    from aiokclient.admin.offsets import ListedOffset, OffsetSpec
    from aiokclient.admin.plans.offset_changes import OffsetChange
    from aiokclient.admin.plans.offset_resets import Shift
    from aiokclient.admin.plans.topic_checks import EnsuredTopic, TopicDifference
    from aiokclient.admin.quorum import QuorumInfo, QuorumReplica, RaftVoterEndpoint
    from aiokclient.admin.replicas.partitions import ElectionType, PartitionReassignment
    from aiokclient.admin.replicas.plan import (
        BrokerLoad,
        PlannedMove,
        ReassignmentPlan,
        ReassignmentProgress,
    )
    from aiokclient.admin.results import Results
    from aiokclient.admin.security.acls import (
        AclBinding,
        AclBindingFilter,
        AclPermissionType,
        AclResourceType,
        PatternType,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from aiokclient.admin.security.client_quotas import (
        ClientQuotaEntity,
        ClientQuotaFilter,
        ClientQuotaName,
    )
    from aiokclient.admin.security.delegation_tokens import DelegationToken
    from aiokclient.admin.security.scram_credentials import (
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from aiokclient.admin.share_groups import SharePartitionOffset
    from aiokclient.admin.streams_groups import (
        StreamsGroupDescription,
        StreamsMemberDescription,
        StreamsNode,
        StreamsNodeType,
        StreamsSubtopology,
        StreamsTasks,
        StreamsTopic,
        StreamsTopologyDescription,
        TopologyDescriptionStatus,
    )
    from aiokclient.admin.topics import (
        CreatedTopic,
        NewPartitions,
        NewTopic,
        PartitionDescription,
        TopicDescription,
        TopicListing,
    )
    from aiokclient.admin.transactions import (
        ActiveProducer,
        FencedProducer,
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
    "BrokerLoad",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaName",
    "ClusterDescription",
    "ClusterReport",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "DelegationToken",
    "ElectionType",
    "EnsuredTopic",
    "FeatureMetadata",
    "FeatureUpdate",
    "FencedProducer",
    "Finding",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "HangingTransaction",
    "ListedOffset",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetChange",
    "OffsetSpec",
    "PartitionDescription",
    "PartitionLag",
    "PartitionReassignment",
    "PassedCheck",
    "PatternType",
    "PlannedMove",
    "QuorumInfo",
    "QuorumReplica",
    "RaftVoterEndpoint",
    "ReassignmentPlan",
    "ReassignmentProgress",
    "ReplicaLog",
    "ReplicaLogDirs",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "SharePartitionOffset",
    "Shift",
    "StreamsGroupDescription",
    "StreamsMemberDescription",
    "StreamsNode",
    "StreamsNodeType",
    "StreamsSubtopology",
    "StreamsTasks",
    "StreamsTopic",
    "StreamsTopologyDescription",
    "Subtract",
    "SupportedLevels",
    "Synonym",
    "TopicDescription",
    "TopicDifference",
    "TopicListing",
    "TopicPartitionReplica",
    "TopologyDescriptionStatus",
    "TransactionDescription",
    "TransactionListing",
    "UpgradeType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]

_MODULES = {
    "AclBinding": "security.acls",
    "AclBindingFilter": "security.acls",
    "AclOperation": "cluster",
    "AclPermissionType": "security.acls",
    "AclResourceType": "security.acls",
    "ActiveProducer": "transactions",
    "Admin": "admin",
    "Append": "configs",
    "BrokerDescription": "cluster",
    "BrokerLoad": "replicas.plan",
    "ClientQuotaEntity": "security.client_quotas",
    "ClientQuotaFilter": "security.client_quotas",
    "ClientQuotaName": "security.client_quotas",
    "ClusterDescription": "cluster",
    "ClusterReport": "checks.report",
    "ConfigEntry": "configs",
    "ConfigResource": "configs",
    "ConfigSource": "configs",
    "ConfigType": "configs",
    "CreatedTopic": "topics",
    "DelegationToken": "security.delegation_tokens",
    "ElectionType": "replicas.partitions",
    "EnsuredTopic": "plans.topic_checks",
    "FeatureMetadata": "cluster",
    "FeatureUpdate": "cluster",
    "FencedProducer": "transactions",
    "Finding": "checks.report",
    "GroupDescription": "group_descriptions",
    "GroupListing": "group_descriptions",
    "GroupMemberDescription": "group_descriptions",
    "HangingTransaction": "hanging_transactions",
    "ListedOffset": "offsets",
    "LogDirDescription": "log_dirs",
    "NewPartitions": "topics",
    "NewTopic": "topics",
    "OffsetChange": "plans.offset_changes",
    "OffsetSpec": "offsets",
    "PartitionDescription": "topics",
    "PartitionLag": "groups",
    "PartitionReassignment": "replicas.partitions",
    "PassedCheck": "checks.report",
    "PatternType": "security.acls",
    "PlannedMove": "replicas.plan",
    "QuorumInfo": "quorum",
    "QuorumReplica": "quorum",
    "RaftVoterEndpoint": "quorum",
    "ReassignmentPlan": "replicas.plan",
    "ReassignmentProgress": "replicas.plan",
    "ReplicaLog": "log_dirs",
    "ReplicaLogDirs": "log_dirs",
    "ResourcePattern": "security.acls",
    "ResourcePatternFilter": "security.acls",
    "ResourceType": "configs",
    "Results": "results",
    "ScramCredentialInfo": "security.scram_credentials",
    "ScramMechanism": "security.scram_credentials",
    "SharePartitionOffset": "share_groups",
    "Shift": "plans.offset_resets",
    "StreamsGroupDescription": "streams_groups",
    "StreamsMemberDescription": "streams_groups",
    "StreamsNode": "streams_groups",
    "StreamsNodeType": "streams_groups",
    "StreamsSubtopology": "streams_groups",
    "StreamsTasks": "streams_groups",
    "StreamsTopic": "streams_groups",
    "StreamsTopologyDescription": "streams_groups",
    "Subtract": "configs",
    "SupportedLevels": "cluster",
    "Synonym": "configs",
    "TopicDescription": "topics",
    "TopicDifference": "plans.topic_checks",
    "TopicListing": "topics",
    "TopicPartitionReplica": "log_dirs",
    "TopologyDescriptionStatus": "streams_groups",
    "TransactionDescription": "transactions",
    "TransactionListing": "transactions",
    "UpgradeType": "cluster",
    "UserScramCredentialDeletion": "security.scram_credentials",
    "UserScramCredentialUpsertion": "security.scram_credentials",
}
"""The module of each public name. `.ci/write-names` writes it from the imports above."""

for _former in (
    "acl_bindings",
    "acls",
    "client",
    "client_quotas",
    "delegation_tokens",
    "group_lag",
    "partitions",
    "scram_credentials",
    "transaction_descriptions",
):
    # Pickles of an earlier version name these modules.
    sys.modules[f"{__name__}.{_former}"] = sys.modules[__name__]


if not TYPE_CHECKING:  # With it, type checkers would accept any name.

    def __getattr__(name: str) -> Any:
        if name.islower():  # A module of calls, which `Admin` imports on first use.
            try:
                return import_module(f"{__name__}.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"{__name__}.{name}":
                    raise
        if name not in _MODULES:
            from aiokclient.log.hints import import_hint, refuse_name

            refuse_name(__name__, name, import_hint(name))
        value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

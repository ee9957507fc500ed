"""The admin client. Each module has the calls of one subject."""

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
from aiokclient.admin.transaction_descriptions import (
    ActiveProducer,
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "AclOperation",
    "ActiveProducer",
    "Admin",
    "Append",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMemberDescription",
    "HangingTransaction",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "ResourceType",
    "Results",
    "Subtract",
    "Synonym",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
]
